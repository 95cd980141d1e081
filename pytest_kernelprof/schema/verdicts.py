"""How a limit fared, or a comparison with what was before: the facts."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_kernelprof.schema.comparison import ProfileComparison

Status = Literal["failed", "incomplete", "undecided", "passed", "expected failure", "not judged"]
"""How a limit fared, or a comparison, worst first: "failed"; "incomplete", a number could not be
had; "undecided", by an interval that holds the limit; "passed"; an "expected failure"; "not
judged", since it says nothing of this device or of this baseline."""
STATUSES: tuple[Status, ...] = (
    *("failed", "incomplete", "undecided", "passed", "expected failure", "not judged"),
)


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a test file. Lines count from 1."""

    file: str
    line: int


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a limit or a comparison is not kept, in one line.

    Attributes:
        text: for example ``elementwise [copy] x2, from aten::copy_ < MmBackward0``.
        place: the line of the user's code to look at, where known.
        sign: "+" of a kernel that only the current profile has, "-" of one of the baseline.
        lines: where it is about several, all of them, as ``file:line``.
    """

    text: str
    place: Place | None = None
    sign: Literal["", "+", "-"] = ""
    lines: tuple[str, ...] = ()


class Hit(msgspec.Struct, frozen=True):
    """A kernel that a pattern of ``forbid_kernels`` is found in; ``position`` counts from 1."""

    position: int
    kernel: str
    pattern: str


class Mismatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the kernels first differ from what ``expect_kernels`` says.

    Attributes:
        kernels: how many kernels there are.
        position: the first unexpected kernel, from 1; 0 where kernels are missing at the end.
        kernel, operators: that kernel's short name and chain of operators.
        wanted: the patterns that would have been right there; with position 0 those left over.
    """

    kernels: int
    position: int = 0
    kernel: str = ""
    operators: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()


Reason = Literal["", "interval", "alike", "few", "second look", "disturbed", "beyond"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one limit fared: the facts.

    Attributes:
        limit: the limit's name, for example ``max_kernels``.
        qualifier: what tells it from others of its name, as it was written: ``match``,
            ``direction``, forbidden patterns, the asked speedup; empty without.
        outcome: one of ``STATUSES``.
        why: of "incomplete" and "not judged", the cause in words.
        reason: of "undecided": its "interval" holds the limit, neighbouring rounds are too "alike"
            or too "few" for an interval, a "second look" does not confirm it, the GPU was
            "disturbed". Of "failed": "beyond" what other work on the GPU can explain.
        metric, unit: what was judged ("times" is a ratio); empty for limits on kernel names.
        device: "cuda" or "cpu".
        allowed: the limit in the metric's unit; None for limits on kernel names.
        share: the limit as a fraction of ``share_of``, where it was written so.
        share_of: what ``share`` is of, in microseconds: the latency; of communication
            ``gpu_busy``.
        measured: the value that was judged; of limits on kernel names how many kernels there are.
            low, high: its interval at 99 %, if it has one.
        rounds: how many rounds it was judged by. block: how many count as one.
        values: the rounds of a count that differ; empty where they agree.
        second_look: what a second, separate measurement gave.
        fastest: of "beyond", the fastest round, or the ratio of the fastest two.
        note: what a reader of the value should know, in words; of a count "incomplete" where
            events were lost.
        patterns: of limits on kernel names; None stands for ``...``.
        hits, mismatch: what is wrong with the names.
        candidate: of a comparison, the callable that was judged.
        place: the line of the test that made the call, or the test's own.
        comparison: how the profile compares with its baseline; None of a limit that a test has.
        cause: of a limit that is "failed", which kernels, copies or waits it is about: of the whole
            profile, also where a run document keeps only some of them. None of other verdicts.
        ranks: of a call on several ranks, those on which it fared so, the one that was judged
            first; empty where there is one rank.
    """

    limit: str
    outcome: Status
    qualifier: str = ""
    why: str = ""
    reason: Reason = ""
    metric: str = ""
    unit: Literal["", "count", "us", "bytes", "times"] = ""
    device: Literal["cuda", "cpu"] = "cuda"
    allowed: float | None = None
    share: float | None = None
    share_of: float = 0.0
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    block: int = 1
    values: tuple[float, ...] = ()
    second_look: float | None = None
    fastest: float | None = None
    note: str = ""
    patterns: tuple[str | None, ...] = ()
    hits: tuple[Hit, ...] = ()
    mismatch: Mismatch | None = None
    candidate: str = ""
    place: Place | None = None
    comparison: ProfileComparison | None = None
    cause: Cause | None = None
    ranks: tuple[int, ...] = ()

    @property
    def of_limit(self) -> bool:
        """Whether it is of a limit that a test has, not of what the profile was before."""
        return self.comparison is None

    @property
    def is_uncompared(self) -> bool:
        """Whether there was a baseline, and the profile could not be compared with it."""
        return self.comparison is not None and self.comparison.change == "not compared"

    @property
    def of_snapshot(self) -> bool:
        """Whether it is of a kernel snapshot."""
        return self.comparison is not None and self.comparison.source == "snapshot"
