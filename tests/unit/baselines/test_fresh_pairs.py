"""Fresh pairs of workers: whose context is first, what goes wrong with them, that they stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from pytest_kernelprof.baselines.protocol import (
    At,
    Collect,
    Collected,
    Done,
    Go,
    Launch,
    Lost,
    Refused,
    RunTest,
    TooLong,
)
from pytest_kernelprof.baselines.timing import FreshPairs
from pytest_kernelprof.baselines.worker import Process, StartStep, WorkerError
from pytest_kernelprof.records.comparison import Side

TEST = "t.py::a"


def call(label: str = "", test: str = TEST) -> RunTest:
    return RunTest(test, holds=True, call=label)


class Double:
    """A process that holds in the calls of a test."""

    timeout_s = 5.0
    launch = Launch("main", "/r", "/t", "/f")

    def __init__(
        self, name: str, log: list[str], labels: Sequence[str], done: Any, cuda: StartStep
    ) -> None:
        self.name, self.log, self.labels, self.done = name, log, list(labels), done
        self.brings_up = cuda
        self.wire = self
        self.asked: object = None

    def send(self, asked: object, timeout_s: float) -> None:
        words = {Launch: "starts", Collect: "collects", RunTest: "runs", Go: "goes"}
        self.log.append(f"{self.name} {'finishes' if asked == RunTest() else words[type(asked)]}")
        self.asked = asked

    def receive(self, timeout_s: float) -> Any:
        if isinstance(self.asked, Launch):
            return Collected(cuda=self.brings_up == "start")
        self.log.append(f"{self.name} answers")
        if isinstance(self.asked, Collect):
            return Collected((TEST,), cuda=self.brings_up in ("start", "collect"))
        if isinstance(self.asked, RunTest) and self.asked.call in self.labels:
            return At(cast("str", self.asked.call), cuda=True)
        if isinstance(self.done, BaseException):
            raise self.done
        return self.done

    def end(self) -> None:
        self.log.append(f"{self.name} ends")

    def wait(self) -> None:
        self.log.append(f"{self.name} waits")

    def last_words(self) -> str:
        return ": killed"


class Scene:
    def __init__(
        self,
        labels: Sequence[str] = ("",),
        done: Any = Done(TEST),  # noqa: B008
        cuda: StartStep = "run",
    ) -> None:
        self.log: list[str] = []
        self.labels, self.done, self.cuda = labels, done, cuda
        files: dict[Side, Sequence[str]] = {side: (f"{side}.py",) for side in SIDES}
        self.fresh = FreshPairs(self.start, files, dict.fromkeys(SIDES, cuda))

    def start(self, side: Side, number: int) -> Process:
        name = f"{side[0].upper()}{number}"
        return cast("Process", Double(name, self.log, self.labels, self.done, self.cuda))

    def why_not(self, asked: RunTest | None = None) -> str:
        with (
            pytest.raises(WorkerError) as raised,
            self.fresh.at(["current"], asked or call()),
        ):
            pass
        return str(raised.value)

    def lines(self, *words: str) -> list[str]:
        return [line for line in self.log if line.endswith(words)]


SIDES: tuple[Side, ...] = ("current", "baseline")


def test_all_come_up_at_the_same_time_and_the_first_runs_before_the_second() -> None:
    scene = Scene()
    with scene.fresh.at(["current", "baseline"], call()) as pairs:
        assert [pair.order.first for pair in pairs] == ["current", "baseline"]
        assert all(one.at == At("", cuda=True) for p in pairs for one in p.workers.values())
    all_of = ("C1", "B2", "C3", "B4")
    assert scene.log == [
        *(f"{one} starts" for one in all_of),
        *(f"{one} collects" for one in all_of),
        *(f"{one} answers" for one in all_of),
        *("C1 runs", "B4 runs", "C1 answers", "B4 answers"),
        *("B2 runs", "C3 runs", "B2 answers", "C3 answers"),
        *(f"{one} goes" for one in all_of),
        *(f"{one} answers" for one in all_of),
    ]


@pytest.mark.parametrize("cuda", ["start", "collect"])
def test_where_loading_brings_up_cuda_the_order_is_known_as_well(cuda: StartStep) -> None:
    scene = Scene(cuda=cuda)
    with scene.fresh.at(["current", "baseline"], call()) as pairs:
        assert [pair.order.first for pair in pairs] == ["current", "baseline"]
    assert scene.lines("collects")[:2] == ["C1 collects", "B4 collects"]


def test_they_stay_for_later_tests_and_more_come_as_they_are_needed() -> None:
    scene = Scene(["", "profile 2"])
    for firsts in (["current"], ["current"], ["current", "current"]):
        with scene.fresh.at(firsts, call("profile 2")) as pairs:  # type: ignore[arg-type]
            assert len(pairs) == len(firsts)
    assert len(scene.lines("starts")) == 4
    del scene.log[:]
    for step in (scene.fresh.finish, scene.fresh.leave, scene.fresh.end):
        step()
    each, does = ("C1", "B2", "C3", "B4"), ("finishes", "answers", "waits", "ends")
    assert scene.log == [f"{one} {word}" for word in does for one in each]
    scene.fresh.end()  # as cleanup
    assert len(scene.log) == 16


def test_those_that_have_not_ended_their_fixtures_are_not_waited_for() -> None:
    scene = Scene([""])
    with scene.fresh.at(["current"], call("")):
        pass
    del scene.log[:]
    scene.fresh.leave()
    assert not scene.log


@pytest.mark.parametrize(
    ("done", "why"),
    [
        (Done(TEST, failure="CUDA out of memory"), "does not reach the call: CUDA out of memory"),
        (Done(TEST, skipped="no CUDA device"), "does not reach the call: no CUDA device"),
        (Done(TEST), "does not reach the call: it does not make this call"),
        (Lost("gone"), "a fresh process died while it ran t.py::a (gone): killed"),
        (TooLong("x"), "a fresh process was ended: it ran t.py::a for more than 5 s"),
        (Refused("strict links"), "strict links"),
    ],
)
def test_why_one_does_not_come_to_the_call(done: Any, why: str) -> None:
    assert Scene([], done).why_not().endswith(why)


def test_of_a_pair_of_which_one_died_both_are_started_again_but_not_for_ever() -> None:
    scene = Scene([], Lost("gone"))
    assert "died while it ran t.py::a (gone)" in scene.why_not()
    assert "died while it ran t.py::a (gone)" in scene.why_not()
    assert "it had already been restarted once" in scene.why_not()
    assert scene.lines("B2 starts", "B2 ends") == ["B2 starts", "B2 ends"] * 2


def test_what_one_fails_by_leaves_no_answer_of_the_others_behind() -> None:
    scene = Scene([], Done(TEST, failure="x"))
    with (
        pytest.raises(WorkerError, match="x"),
        scene.fresh.at(["current", "baseline"], call()),
    ):
        pass
    assert len(scene.lines("runs")) == 2
    assert len(scene.lines("answers")) == 6


def test_a_test_that_is_not_collected_and_a_process_that_cannot_be_started() -> None:
    scene = Scene()
    assert "does not collect" in scene.why_not(call(test="t.py::b"))

    def fail(side: str, number: int) -> Process:
        raise OSError("no memory")

    scene.fresh = FreshPairs(fail, {}, {})
    assert scene.why_not() == "a fresh process cannot be started (no memory)"


def test_one_that_dies_as_it_is_let_go_is_told_by_the_next_test() -> None:
    scene = Scene([""], Lost("gone"))
    with scene.fresh.at(["current"], call()):
        pass
    assert "C1 ends" in scene.log
    with scene.fresh.at(["current"], call()) as pairs:
        assert pairs[0].order.first == "current"


def test_an_interrupt_as_they_are_let_go_ends_all_of_them() -> None:
    """Else the answers that nobody took would be taken for those of the next test."""
    scene = Scene([""], KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), scene.fresh.at(["current"], call()):
        raise WorkerError("no rounds")
    assert scene.log[-2:] == ["C1 ends", "B2 ends"]


def test_an_interrupt_ends_all_of_them() -> None:
    scene = Scene([], KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), scene.fresh.at(["current"], call()):
        pass
    assert scene.log[-2:] == ["C1 ends", "B2 ends"]
