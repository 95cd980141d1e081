"""Both ends of a wire between who holds in a call and who asks for rounds of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from pytest_kernelprof.against.protocol import (
    Done,
    FromReference,
    Go,
    Lost,
    RunTest,
    ToReference,
    Wire,
)
from pytest_kernelprof.against.rounds import HeldRounds, NoRounds, serve
from pytest_kernelprof.schema.paired import Sampled


class Rounds:
    """Notes what it does."""

    def __init__(self) -> None:
        self.log: list[object] = []
        self.fails = False

    def open(self) -> None:
        self._does("open")

    def take(self, rounds: int) -> None:
        self._does(rounds)

    def close(self) -> None:
        raise AssertionError

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
        self.asks = Wire(inn, out, FromReference)
        self.holds = Wire(theirs_in, theirs_out, ToReference)
        self.rounds, self.asked = Rounds(), list[object]()
        self.thread = threading.Thread(target=self._hold)
        self.thread.start()

    def _hold(self) -> None:
        try:
            self.asked.append(serve(self.holds, self.rounds))
        except Lost as error:
            self.asked.append(str(error))

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


def test_rounds_are_had_until_something_else_is_asked(scene: Scene) -> None:
    held = HeldRounds(scene.asks, 5.0)
    held.open()
    held.take(13)
    held.close()
    assert held.sample() == Sampled((1.0, 2.0))
    assert scene.ends_with(Go(holds=False)) == Go(holds=False)
    assert scene.rounds.log == ["open", 13, "sample", "leave"]


def test_what_goes_wrong_is_an_answer_and_it_holds_on(scene: Scene) -> None:
    held = HeldRounds(scene.asks, 5.0)
    scene.rounds.fails = True
    with pytest.raises(NoRounds, match=r"^ValueError: no$"):
        held.open()
    held.close()
    assert held.sample() == Sampled(problem="ValueError: no")
    held.leave()
    assert scene.ends_with(RunTest()) == RunTest()  # the run ends in the middle


def test_what_was_sampled_and_is_not_wanted_is_no_answer_to_the_next(scene: Scene) -> None:
    held = HeldRounds(scene.asks, 5.0)
    held.close()
    held.leave()
    held.open()
    assert scene.ends_with(Go()) == Go()


def test_who_asks_may_be_gone_and_so_may_who_holds(scene: Scene) -> None:
    held = HeldRounds(scene.asks, 0.2)
    scene.holds.send(Done("t.py::a"))
    with pytest.raises(Lost, match="it sent Done, expected Sampled"):
        held.open()
    scene.asks.close()
    assert "closed" in str(scene.ends_with(None))
    assert scene.rounds.log[-1] == "leave"
