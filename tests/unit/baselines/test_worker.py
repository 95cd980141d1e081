"""Whatever is wrong with a worker is an answer."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_kernelprof.baselines.protocol import (
    NO_SUCH_TEST,
    At,
    Collect,
    Collected,
    Done,
    DoStep,
    Launch,
    Lost,
    Refused,
    TooLong,
)
from pytest_kernelprof.baselines.revision import local_variables
from pytest_kernelprof.baselines.worker import Process, Reference, WorkerError
from pytest_kernelprof.gpu import usage_lock
from pytest_kernelprof.gpu.usage_lock import PARTNER_OF
from pytest_kernelprof.records.comparison import Sampled

KNOWN = Collected(("t.py::a", "t.py::b"), {"u.py": "ImportError: no fresh"})


class Double:
    """A process that answers as it is told."""

    timeout_s = 5.0
    up = Collected()
    launch = Launch("main", "/r", "/t", "/f")

    def __init__(self, *answers: object) -> None:
        self.answers: Iterator[object] = iter(answers)
        self.ended = 0
        self.wire = self
        self.asked: object = None
        self.sent: list[object] = []

    def send(self, asked: object, timeout_s: float) -> None:
        self.sent.append(asked)
        if asked != Collect():  # which has no answer of its own
            self.asked = asked

    def receive(self, timeout_s: float) -> object:
        answer = self.up if isinstance(self.asked, Launch) else next(self.answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def wait(self) -> None:
        pass

    def end(self) -> None:
        self.ended += 1

    def last_words(self) -> str:
        return ": killed"


def reference(*processes: Double) -> Reference:
    waiting = iter(processes)
    made = Reference(lambda: cast("Process", next(waiting)), lambda: False)
    made.come_up()
    made.collect(["t.py"])
    return made


def take(made: Reference) -> object:
    return made.ask(DoStep("open"))()


def run(made: Reference, test: str, following: str) -> Done | str:
    made.begin(test, following)
    return made.answer()


def test_it_answers() -> None:
    process = Double(KNOWN, Done("t.py::a"), Done())
    made = reference(process)
    assert run(made, "t.py::a", "") == Done("t.py::a")
    assert run(made, "u.py::c", "") == "ImportError: no fresh"
    assert run(made, "t.py::c", "") == NO_SUCH_TEST
    made.finish()
    made.end()
    assert process.ended == 1


def test_it_collects_before_it_is_told_the_files_but_not_when_it_is_started_again() -> None:
    """What it has collected ahead may be what it died of."""
    first, second = Double(Lost("gone")), Double(KNOWN)
    reference(first, second)
    assert first.sent == [Launch("main", "/r", "/t", "/f"), Collect(), Collect(("t.py",))]
    assert second.sent == [Launch("main", "/r", "/t", "/f"), Collect(("t.py",))]


def test_it_is_started_again_once() -> None:
    first, second = Double(KNOWN, Lost("gone")), Double(KNOWN, Done("t.py::b"), TooLong("x"))
    made = reference(first, second)
    assert (
        run(made, "t.py::a", "t.py::b") == "the reference died while it ran t.py::a (gone): killed"
    )
    assert run(made, "t.py::b", "") == Done("t.py::b")
    told = "the reference was ended: it ran t.py::a for more than 5 s"
    assert run(made, "t.py::a", "t.py::b") == told
    assert run(made, "t.py::b", "") == f"{told}; it had already been restarted once"
    assert (first.ended, second.ended) == (1, 1)


def test_one_that_cannot_be_used_is_asked_no_more() -> None:
    process = Double(Refused("an installed copy"))
    made = reference(process)
    assert run(made, "t.py::a", "") == "an installed copy"
    assert process.ended == 1
    made = reference(Double(Refused("status 4", printed=True)))
    assert run(made, "t.py::a", "") == "status 4: killed"


def test_one_that_dies_twice_as_it_starts_is_asked_no_more() -> None:
    made = reference(Double(Lost("gone")), Double(Lost("gone")))
    assert "died while it was starting" in str(run(made, "t.py::a", ""))


def test_one_that_cannot_be_started() -> None:
    def fail() -> Process:
        raise OSError("no memory")

    made = Reference(fail, lambda: False)
    made.come_up()
    made.collect([])
    assert run(made, "t.py::a", "") == "the reference cannot be started (no memory)"


def test_it_holds_in_each_call_until_it_is_told_to_go_on() -> None:
    made = reference(Double(KNOWN, At("", cuda=True), At("profile 2"), Sampled(), Done("t.py::a")))
    made.begin("t.py::a", "", holds=True)
    assert made.at == At("", cuda=True)
    made.go(holds=True)
    assert made.at == At("profile 2")
    take(made)
    assert made.answer() == Done("t.py::a")
    assert made.at is None
    assert made.answer() == Done("t.py::a")


def test_one_that_dies_as_it_takes_rounds_is_told_and_started_again() -> None:
    first, second = Double(KNOWN, At(""), Lost("gone")), Double(KNOWN, Done("t.py::b"))
    made = reference(first, second)
    made.begin("t.py::a", "", holds=True)
    told = "the reference died while it took rounds of t.py::a (gone): killed"
    with pytest.raises(WorkerError) as raised:
        take(made)
    assert str(raised.value) == told
    assert made.answer() == told
    assert run(made, "t.py::b", "") == Done("t.py::b")


def test_what_it_is_refused_for_is_its_answer() -> None:
    made = reference(Double(KNOWN, Done("t.py::a", wrong="x")))
    assert run(made, "t.py::a", "") == Done("t.py::a", wrong="x")
    made.refuse("x")
    assert made.answer() == run(made, "t.py::b", "") == "x"


@pytest.mark.parametrize(("cuda", "first"), [(False, "baseline"), (True, "current"), (None, None)])
def test_whose_context_was_first(cuda: bool | None, first: str | None) -> None:
    """Where both come up in one step, that is not known."""
    process = Double(KNOWN, At("", cuda=True), Done("t.py::a"))
    made = Reference(lambda: cast("Process", process), lambda: made.cuda if cuda is None else cuda)
    made.come_up()
    made.collect(["t.py"])
    made.begin("t.py::a", "", holds=True)
    assert made.order.first == first


def test_a_context_that_a_test_makes_here_before_the_next_one_runs_there_is_the_first() -> None:
    process = Double(KNOWN, Done("t.py::a"), At("", cuda=True), Done("t.py::b"))
    ours: list[str] = []
    made = Reference(lambda: cast("Process", process), lambda: bool(ours))
    made.come_up()
    made.collect(["t.py"])
    run(made, "t.py::a", "t.py::b")
    ours.append("context")
    made.begin("t.py::b", "", holds=True)
    assert made.order.first == "current"


@pytest.mark.parametrize(
    ("starting", "collected", "step"),
    [(True, True, "start"), (False, True, "collect"), (False, False, "run")],
)
def test_the_first_step_that_brings_up_cuda(starting: bool, collected: bool, step: str) -> None:
    process = Double(Collected(("t.py::a",), cuda=collected))
    process.up = Collected(cuda=starting)
    assert reference(process).brings_up == step


def test_its_process_knows_that_it_works_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, str]] = []

    class Keeper:
        pid = 0

        def __init__(self, *_: object, env: dict[str, str], **options: object) -> None:
            started.append(env)

        def terminate(self) -> None:
            pass

        def wait(self, timeout_s: float = 0.0) -> None:
            pass

    local_variables()  # asks git, once
    monkeypatch.setattr("subprocess.Popen", Keeper)
    monkeypatch.delenv(PARTNER_OF, raising=False)
    fresh = functools.cache(usage_lock._identity.__wrapped__)
    monkeypatch.setattr(usage_lock, "_identity", fresh)
    launch = Launch("main", "/r", "/t", str(tmp_path))
    Process(launch, 1, 1.0).end()
    assert started[0][PARTNER_OF].startswith(f"{os.getpid()}-")
    assert started[0]["PYTEST_XDIST_WORKER"] == "gw91"
    assert started[0]["TORCH_EXTENSIONS_DIR"] == str(tmp_path / "scratch" / "1" / "extensions")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, pytest.fail.Exception])
def test_an_interrupt_leaves_no_answer_behind_that_is_taken_for_another(
    interrupt: type[BaseException],
) -> None:
    for steps in ((interrupt(),), (At(""), interrupt())):
        first = Double(KNOWN, *cast("Any", steps))
        made = reference(first, Double(KNOWN, Done("t.py::b")))
        with pytest.raises(interrupt):
            _begin_and_open(made)
        assert first.ended == 1
        assert "was interrupted while" in str(made.answer())
        assert run(made, "t.py::b", "") == Done("t.py::b")


def _begin_and_open(made: Reference) -> None:
    made.begin("t.py::a", "", holds=True)
    take(made)
