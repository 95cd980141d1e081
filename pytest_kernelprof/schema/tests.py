"""What one test took: profiles, and comparisons of callables."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from pytest_kernelprof.schema.environment import Conditions, Environment
from pytest_kernelprof.schema.profile import Profile
from pytest_kernelprof.schema.snapshot import Taken
from pytest_kernelprof.schema.verdicts import Place, Verdict


class Contestant(msgspec.Struct, frozen=True, omit_defaults=True):
    """One callable of a comparison.

    Attributes:
        kernels: kernels of one call.
        value: median of its rounds, in microseconds or bytes. low, high: its interval at 99 %.
        speedup: the reference's value over its own; None for the reference and without a ratio.
        speedup_low, speedup_high: its interval at 99 %. speedup_block: pairs that count as one.
        unstable: the different numbers of kernels that it launched, where they differ.
        checks: of a candidate, how its results were held against the reference's, in words.
    """

    name: str
    kernels: int
    value: float
    low: float | None = None
    high: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedup_block: int = 1
    unstable: tuple[int, ...] = ()
    checks: tuple[str, ...] = ()


class Comparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """Callables measured in turn in one run.

    Attributes:
        metric: "cuda_time", "latency" or "peak_memory".
        reference: the name of the callable that all others are compared with.
        contestants: all of them, the reference included, in their order.
        pairs: how many rounds there are of each.
        conditions: those blocks of rounds on which no verdict can stand.
        verdicts: what was asserted of it.
        environment: where it was.
    """

    metric: str
    reference: str
    contestants: tuple[Contestant, ...]
    pairs: int
    conditions: tuple[Conditions, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    environment: Environment | None = None


TestOutcome = Literal["failed", "error", "rerun", "not run", "skipped", "xfailed", "passed"]
"""How pytest says that a test ended. "error" also means that a number is not available, "rerun" an
attempt that a plugin repeated, "not run" a test that the run never called."""


class Test(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one test took.

    Attributes:
        id: its node id, with everything that is no text escaped.
        outcome: how it ended, whatever its limits did: a failure of its own, a skip, another
            fixture's error count as much.
        place: where it stands.
        snapshot: what it says of its snapshots, for the process that keeps them.
        limits: what it promises by markers and snapshots, by name: ``max_kernels``, ``snapshot``.
        why: the first line of what ended it, if it did not pass.
        not_judged: why none of its limits was judged; empty if they were, or if it failed.
    """

    __test__: ClassVar[bool] = False  # for pytest: no class of tests, whatever its name

    id: str
    profiles: tuple[Profile, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    outcome: TestOutcome = "passed"
    place: Place | None = None
    snapshot: Taken | None = None
    limits: tuple[str, ...] = ()
    why: str = ""
    not_judged: str = ""

    @property
    def verdicts(self) -> list[Verdict]:
        """Those of its profiles, then those of its comparisons."""
        found = [verdict for one in self.profiles for verdict in one.verdicts]
        return found + [verdict for one in self.comparisons for verdict in one.verdicts]
