"""Rounds in turn, by sides that note what is asked of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from pytest_kernelprof.baselines.protocol import DoStep
from pytest_kernelprof.baselines.timing import Sides, Taken, own_rounds, take_turns
from pytest_kernelprof.baselines.worker import WorkerError
from pytest_kernelprof.records.comparison import Sampled
from pytest_kernelprof.records.recording import Conditions, Neighbour
from pytest_kernelprof.stats.intervals import ROUNDS

TAKEN = ROUNDS + 1


class Double:
    """A side whose rounds take what it is told, session after session."""

    def __init__(self, name: str, log: list[str], *sessions: float | str | list[float]) -> None:
        self.name, self.log = name, log
        self.sessions = list(sessions)
        self.rounds = 0

    def open(self) -> None:
        self.log.append(f"{self.name} open")
        self.rounds = 0

    def take(self, rounds: int) -> None:
        self.log.append(self.name)
        self.rounds += rounds
        if self.sessions[0] == "raises":
            raise ValueError("x")

    def ask(self, asked: DoStep) -> Callable[[], Sampled]:
        if asked.step in ("open", "close"):
            self.log.append(f"{self.name} is told to {asked.step}")
        return own_rounds(self)(asked)

    def sample(self) -> Sampled:
        us = self.sessions.pop(0) if len(self.sessions) > 1 else self.sessions[0]
        if isinstance(us, str):
            return Sampled(problem=us)
        if isinstance(us, list):
            return Sampled(tuple(value for value in us for _ in range(TAKEN)))
        return Sampled((us,) * self.rounds)

    def leave(self) -> None:
        self.log.append(f"{self.name} leave")


class Gpu:
    """What is seen of the GPU, block after block."""

    def __init__(self, *steady: bool, contended: int = 0) -> None:
        self.steady = [*steady]
        self.contended = contended
        self.watches = 0

    @contextlib.contextmanager
    def alone(self) -> Iterator[Gpu]:
        self.watches += 1
        yield self

    def block(self, rounds: int) -> bool:
        assert rounds % (2 * TAKEN) == 0
        return self.steady.pop(0) if self.steady else True

    def conditions(self) -> Conditions:
        contended = self.watches <= self.contended
        return Conditions(contenders=(Neighbour(7, 50),) if contended else ())


def take(
    *candidate: float | str | list[float],
    reference: tuple[float | str | list[float], ...] = (100.0,),
    gpu: Gpu | None = None,
    log: list[str] | None = None,
) -> Taken:
    log = [] if log is None else log
    alone = (gpu or Gpu()).alone
    sides: Sides = {
        "current": Double("C", log, *candidate).ask,
        "baseline": Double("R", log, *reference).ask,
    }
    return take_turns(sides, alone, "baseline")  # type: ignore[arg-type]


def test_six_turns_of_alternating_order_are_of_one_session_on_each_side() -> None:
    log: list[str] = []
    found = take(108.0, log=log)
    both = ["R is told to {}", "C is told to {}"]  # so that they do it at the same time
    assert [one.format("open") for one in both] == log[:2]
    assert " ".join(log[2:-2]) == "C open R open C R R C C R R C C R R C"
    assert [one.format("close") for one in both] == log[-2:]
    pair = found.pair
    assert (pair.turns, pair.baseline_us, pair.current_us, pair.first) == (
        6,
        100.0,
        108.0,
        "baseline",
    )
    assert pair.ratio == pytest.approx(1.08)


def test_turns_that_scatter_are_twice_as_many() -> None:
    found = take([100.0, 104.0] * 3)
    assert found.pair.turns == 12
    assert found.pair.ratio == pytest.approx(1.02, abs=0.001)


@pytest.mark.parametrize("side", ["current", "baseline"])
def test_a_session_that_is_not_whole_is_taken_again(side: str) -> None:
    lost = "the profile is incomplete: 2 kernels are lost"
    ours, theirs = ((lost, 100.0), (100.0,)) if side == "current" else ((100.0,), (lost, 100.0))
    assert take(*ours, reference=theirs).pair.turns == 6
    ours, theirs = ((lost,), (100.0,)) if side == "current" else ((100.0,), (lost,))
    with pytest.raises(WorkerError, match=f"^{side}: the profile is incomplete"):
        take(*ours, reference=theirs)


def test_rounds_that_are_missing_or_take_nothing_are_no_ground() -> None:
    with pytest.raises(WorkerError, match=r"^current: 13 rounds of 78 were seen"):
        take([100.0])
    with pytest.raises(WorkerError, match=r"^baseline: no kernel was launched"):
        take(100.0, reference=(0.0,))


def test_a_throttled_batch_is_taken_again_and_at_last_kept_which_disturbs() -> None:
    assert not take(100.0, gpu=Gpu(False, False, True)).conditions.disturbed
    assert take(100.0, gpu=Gpu(False, False, False)).conditions.kept_throttled_rounds == 156


def test_beside_other_work_all_is_taken_again_once() -> None:
    gpu = Gpu(contended=1)
    assert not take(100.0, gpu=gpu).conditions.disturbed
    assert gpu.watches == 2
    assert take(100.0, gpu=Gpu(contended=9)).conditions.contended


def test_a_call_that_raises_leaves_no_session_open() -> None:
    log: list[str] = []
    with pytest.raises(WorkerError, match="ValueError: x"):
        take(100.0, reference=("raises",), log=log)
    assert log[-2:] == ["C leave", "R leave"]


def test_a_side_that_is_gone_leaves_no_answer_of_the_other_behind() -> None:
    """Where it dies as both read, the other one's answer is taken all the same."""
    read: list[DoStep] = []

    def gone(asked: DoStep) -> Callable[[], Sampled]:
        if asked.step == "close":
            raise WorkerError("it died")
        return Sampled

    def there(asked: DoStep) -> Callable[[], Sampled]:
        def answer() -> Sampled:
            read.append(asked)
            return Sampled()

        return answer

    with pytest.raises(WorkerError, match="it died"):
        take_turns({"current": gone, "baseline": there}, Gpu().alone, None)  # type: ignore[arg-type]
    assert read[-1] == DoStep("close")
