"""Both ends of a wire between who holds in a call and who asks for rounds of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from pytest_kernelprof.baselines.protocol import (
    DoStep,
    FromWorker,
    Go,
    Lost,
    RoundStep,
    RunTest,
    ToWorker,
    Wire,
    do_step,
    serve,
)
from pytest_kernelprof.records.comparison import Sampled


class Rounds:
    """Notes what it does."""

    def __init__(self) -> None:
        self.log: list[object] = []
        self.fails = False

    def open(self) -> None:
        self._does("open")

    def take(self, rounds: int) -> None:
        self._does(rounds)

    def sample(self) -> Sampled:
        self._does("sample")
        return Sampled((1.0, 2.0))

    def leave(self) -> None:
        self.log.append("leave")

    def _does(self, what: object) -> None:
        self.log.append(what)
        if self.fails:
            raise ValueError("no\nmore")


class Scene:
    """One end holds in a thread."""

    def __init__(self) -> None:
        inn, theirs_out = os.pipe()
        theirs_in, out = os.pipe()
        self.asks = Wire(inn, out, FromWorker)
        self.holds = Wire(theirs_in, theirs_out, ToWorker)
        self.rounds, self.asked = Rounds(), list[object]()
        self.thread = threading.Thread(target=self._hold)
        self.thread.start()

    def _hold(self) -> None:
        try:
            self.asked.append(serve(self.holds, self.rounds))
        except Lost as error:
            self.asked.append(str(error))

    def does(self, step: RoundStep, rounds: int = 0) -> Sampled:
        self.asks.send(DoStep(step, rounds))
        answer: Sampled = self.asks.receive(5.0)
        return answer

    def ends_with(self, record: object) -> object:
        if isinstance(record, (Go, RunTest)):
            self.asks.send(record)
        self.thread.join()
        return self.asked.pop()


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.holds.close()


def test_rounds_are_taken_until_something_else_is_asked(scene: Scene) -> None:
    assert scene.does("open") == scene.does("take", 13) == Sampled()
    assert scene.does("close") == Sampled((1.0, 2.0))
    assert scene.ends_with(Go(holds=False)) == Go(holds=False)
    assert scene.rounds.log == ["open", 13, "sample", "leave"]


def test_what_goes_wrong_is_an_answer_and_it_holds_on(scene: Scene) -> None:
    scene.rounds.fails = True
    assert scene.does("open") == scene.does("close") == Sampled(problem="ValueError: no")
    assert scene.does("leave") == Sampled()
    assert scene.ends_with(RunTest()) == RunTest()  # the run ends in the middle


def test_who_asks_may_be_gone(scene: Scene) -> None:
    scene.asks.close()
    assert "closed" in str(scene.ends_with(None))
    assert scene.rounds.log[-1] == "leave"


def test_an_exception_without_words_is_told_by_its_kind() -> None:
    rounds = Rounds()
    rounds.take = lambda _: (_ for _ in ()).throw(ValueError())  # type: ignore[method-assign]
    assert do_step(rounds, DoStep("take", 1)) == Sampled(problem="ValueError")
