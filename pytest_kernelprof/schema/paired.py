"""What is taken in turn: how many times as much the current takes as the baseline, and how sure."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_kernelprof.schema.environment import Conditions

Side = Literal["current", "baseline"]
"""Of a pair of processes: today's code, and the revision's."""
PairedChange = Literal["worse", "better", "same", "undecided", "not compared"]


class Sampled(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """From who holds: what the rounds of a session took.

    Attributes:
        us: the kernels of each round, together, in microseconds.
        kernels_us: of each kernel in launch order the median over the rounds.
        problem: why these are no ground for a verdict, in words; empty where they are.
    """

    us: tuple[float, ...] = ()
    kernels_us: tuple[float, ...] = ()
    problem: str = ""


class TimedPair(msgspec.Struct, frozen=True):
    """What one pair of processes says.

    Attributes:
        first: whose CUDA context was made first; None where both came up at once.
        ratio: how many times as long the current code takes.
        turns: how many turns each took.
        baseline_us, current_us: the medians of both.
    """

    first: Side | None
    ratio: float
    turns: int
    baseline_us: float
    current_us: float


class Paired(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the values of two sides compare that were taken in turn.

    Attributes:
        change: what follows; None where that is for assertions to say, or for more pairs.
        why: of "undecided" and "not compared" the reason, in words.
        ratio: how many times as much the current takes as the baseline, by all pairs.
        low, high: its interval at 99 %, of rounds in one process; None where there is none.
        block: how many pairs of rounds count as one, neighbours being alike.
        pairs: what each pair of processes says.
        agreeing: how many of them are beyond the margin on the side of the change.
        margin: the fraction that it was judged by.
        baseline_us, current_us: the medians over all pairs of processes.
        baseline_latency_us, current_latency_us: shown where both were measured, never judged.
        disturbed: what the GPU was like, where no verdict can stand on that.
        took_s: how long that took, in seconds.
    """

    change: PairedChange | None = None
    why: str = ""
    ratio: float = 1.0
    low: float | None = None
    high: float | None = None
    block: int = 1
    pairs: tuple[TimedPair, ...] = ()
    agreeing: int = 0
    margin: float = 0.0
    baseline_us: float = 0.0
    current_us: float = 0.0
    baseline_latency_us: float = 0.0
    current_latency_us: float = 0.0
    disturbed: Conditions | None = None
    took_s: float = 0.0

    @property
    def speedup(self) -> float:
        """How many times as fast the current is: 2.0 takes half."""
        return 1 / self.ratio

    @property
    def speedup_interval(self) -> tuple[float, float] | None:
        """The interval of the speedup; None where there is none."""
        return None if self.low is None or self.high is None else (1 / self.high, 1 / self.low)
