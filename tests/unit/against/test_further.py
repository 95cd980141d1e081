"""More pairs of processes: whose context is first, what goes wrong with them, that they stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from pytest_kernelprof.against.protocol import At, Collected, Done, Lost, Refused, TooLong
from pytest_kernelprof.against.reference_process import Process, Unusable
from pytest_kernelprof.against.rounds import NoRounds
from pytest_kernelprof.against.timing import Further

TEST = "t.py::a"


class Double:
    """A process that holds in the calls of a test."""

    timeout_s = 5.0

    def __init__(self, name: str, log: list[str], labels: Sequence[str], done: Any) -> None:
        self.name, self.log, self.labels, self.done = name, log, list(labels), done
        self.left: list[str] = []
        self.cuda = False

    def come_up(self) -> None:
        self.log.append(f"{self.name} comes up")

    def collect(self, files: Sequence[str]) -> Collected:
        self.log.append(f"{self.name} collects {files[0]}")
        return Collected((TEST,))

    def run(self, test: str, following: str, *, holds: bool) -> Any:
        assert (test, following, holds) == (TEST, "", True)
        self.left = [*self.labels]
        return self.go(holds=True)

    def go(self, *, holds: bool) -> Any:
        self.log.append(f"{self.name} goes")
        if holds and self.left:
            self.cuda = True
            return At(self.left.pop(0), cuda=True)
        if isinstance(self.done, BaseException):
            raise self.done
        return self.done

    def end(self) -> None:
        self.log.append(f"{self.name} ends")

    def begin_to_finish(self) -> None:
        self.log.append(f"{self.name} is to finish")

    def finish(self) -> None:
        self.log.append(f"{self.name} finishes")

    def last_words(self) -> str:
        return ": killed"


class Scene:
    def __init__(self, labels: Sequence[str] = ("",), done: Any = Done(TEST)) -> None:  # noqa: B008
        self.log: list[str] = []
        self.labels, self.done = labels, done
        self.further = Further(self.start, lambda side: (f"{side}.py",))

    def start(self, side: str, number: int) -> Process:
        made = Double(f"{side[0].upper()}{number}", self.log, self.labels, self.done)
        return cast(Process, made)

    def why_not(self, label: str = "") -> str:
        with pytest.raises(NoRounds) as raised, self.further.at(["current"], TEST, label):
            pass
        return str(raised.value)


def test_whoever_is_to_be_first_is_brought_to_the_call_before_the_other_is_started() -> None:
    scene = Scene()
    with scene.further.at(["current", "baseline"], TEST, "") as pairs:
        assert [pair.first for pair in pairs] == ["current", "baseline"]
        assert all(member.at == At("", cuda=True) for p in pairs for member in p.members.values())
    assert scene.log == [
        *("C1 comes up", "B4 comes up"),
        *("C1 collects current.py", "C1 goes", "B4 collects baseline.py", "B4 goes"),
        *("B2 comes up", "C3 comes up"),
        *("B2 collects baseline.py", "B2 goes", "C3 collects current.py", "C3 goes"),
        *("C1 goes", "B2 goes", "B4 goes", "C3 goes"),
    ]


def test_they_stay_for_later_tests_and_more_come_as_they_are_needed() -> None:
    scene = Scene(["", "profile 2"])
    for firsts in (["current"], ["current"], ["current", "current"]):
        with scene.further.at(firsts, TEST, "profile 2") as pairs:  # type: ignore[arg-type]
            assert len(pairs) == len(firsts)
    assert sum("comes up" in line for line in scene.log) == 4
    del scene.log[:]
    scene.further.finish()
    each = ("C1", "B2", "C3", "B4")
    assert scene.log == [f"{one} is to finish" for one in each] + [
        f"{one} finishes" for one in each
    ]
    scene.further.end()  # as cleanup
    assert len(scene.log) == 8


@pytest.mark.parametrize(
    ("done", "why"),
    [
        (Done(TEST, failure="CUDA out of memory"), "does not reach the call: CUDA out of memory"),
        (Done(TEST, skipped="no CUDA device"), "does not reach the call: no CUDA device"),
        (Done(TEST), "does not reach the call: it does not make this call"),
        (Lost("gone"), "a fresh process died (gone): killed"),
        (TooLong("x"), "a fresh process took more than 5 s"),
        (Unusable(Refused("strict links")), "a fresh process died (strict links): killed"),
    ],
)
def test_why_one_does_not_come_to_the_call(done: Any, why: str) -> None:
    assert Scene([], done).why_not().endswith(why)


def test_of_a_pair_of_which_one_died_both_are_started_again_but_not_for_ever() -> None:
    scene = Scene([], Lost("gone"))
    assert "died (gone)" in scene.why_not()
    assert "died (gone)" in scene.why_not()
    assert scene.why_not() == "a fresh process died 2 times"


def test_a_test_that_is_not_collected_and_a_process_that_cannot_be_started() -> None:
    scene = Scene()
    with (
        pytest.raises(NoRounds, match="does not collect"),
        scene.further.at(["current"], "t.py::b", ""),
    ):
        pass

    def fail(side: str, number: int) -> Process:
        raise OSError("no memory")

    scene.further = Further(fail, lambda side: ())
    assert scene.why_not() == "a fresh process cannot be started (no memory)"


def test_one_that_dies_as_it_is_let_go_is_told_by_the_next_test() -> None:
    scene = Scene([""], Lost("gone"))
    with scene.further.at(["current"], TEST, ""):
        pass
    assert "C1 ends" in scene.log
    with scene.further.at(["current"], TEST, "") as pairs:
        assert pairs[0].first == "current"


def test_an_interrupt_ends_the_one_that_was_asked() -> None:
    scene = Scene([], KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), scene.further.at(["current"], TEST, ""):
        pass
    assert scene.log[-1] == "C1 ends"
