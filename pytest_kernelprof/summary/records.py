"""What a run says, as records: rows with their marks and causes, counts, totals and advice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_kernelprof.schema.run import STATUSES, Status

if TYPE_CHECKING:
    from pytest_kernelprof.schema.metrics import Unit
    from pytest_kernelprof.schema.run import (
        Cause,
        Comparison,
        Profile,
        Test,
        TestOutcome,
        Verdict,
    )


Told = Status | Literal["failed otherwise", "error", "xfailed", "rerun", "skipped", "not run"]
"""The mark of a row: how its limits fared, or how its test ended otherwise."""

Tone = Literal["bad", "lost", "unsure", "kept", "none"]
"""What a mark says at a glance; each format has a colour for it."""


class Mark(NamedTuple):
    """How a status is told: no colour tells anything alone.

    Attributes:
        sign: for people; letter: pytest's own, where a terminal cannot say the sign.
        word: what it says. tone: as above.
    """

    sign: str
    letter: str
    word: str
    tone: Tone


MARKS: dict[Told | None, Mark] = {
    "failed": Mark("✗", "F", "over a limit", "bad"),
    "incomplete": Mark("!", "E", "incomplete", "lost"),
    "failed otherwise": Mark("✗", "F", "failed otherwise", "bad"),
    "error": Mark("!", "E", "error", "lost"),
    "undecided": Mark("?", "?", "undecided", "unsure"),
    "passed": Mark("✓", ".", "kept", "kept"),
    "expected failure": Mark("x", "x", "over as expected", "none"),
    "xfailed": Mark("x", "x", "xfailed", "none"),
    "rerun": Mark("–", "s", "tried again", "none"),
    "skipped": Mark("–", "s", "skipped", "none"),
    "not judged": Mark("–", "s", "not judged", "none"),
    "not run": Mark("–", "s", "did not run", "none"),
    None: Mark("·", " ", "no limit", "none"),
}
"""The table of all, worst first."""

FAILED: tuple[TestOutcome, ...] = ("failed", "error")
"""How a test ended that failed, whatever its limits did."""
FAILED_OTHERWISE: tuple[Told, ...] = ("failed otherwise", "error")
"""The same, where it was by none of its limits."""

NEEDS_A_LOOK: tuple[Told, ...] = ("failed", "incomplete", *FAILED_OTHERWISE, "undecided")
"""The marks that ask for a look: reports list their rows first."""


def told_of(test: Test, profile: Profile) -> Told | None:
    """What a row says: how its limits fared, unless its test ended otherwise than by them, since a
    limit that was kept is no pass there; None where there is nothing to say."""
    return _told(test, profile.outcome)


def told_of_test(test: Test) -> Told | None:
    """The mark of a test by what no profile says: its comparisons of callables, and how it
    ended. A test that passed with limits, none of them left out, has kept them."""
    fared = _compared(test)
    if fared is None and test.limits and test.outcome == "passed":
        fared = "passed"
    return _told(test, fared)


_ENDED: dict[TestOutcome, Told] = {
    "failed": "failed otherwise",
    "error": "error",
    "xfailed": "xfailed",
    "rerun": "rerun",
    "skipped": "skipped",
}


def _told(test: Test, fared: Status | None) -> Told | None:
    if test.outcome == "not run" or (test.not_judged and test.outcome in ("passed", "skipped")):
        return "not judged"
    ended: Told | None = _ENDED.get(test.outcome)
    if test.outcome in ("skipped", "rerun"):
        return ended
    by_limits = {"failed", "incomplete"}
    if test.outcome == "passed" or fared in by_limits | {"expected failure"}:
        return fared
    every = (_compared(test), *(one.outcome for one in test.profiles))
    another_says_why = any(one in by_limits for one in every)
    return fared if another_says_why else ended


def _compared(test: Test) -> Status | None:
    fared = {verdict.outcome for one in test.comparisons for verdict in one.verdicts}
    return next((outcome for outcome in STATUSES if outcome in fared), None)


def severity(told: Told | None) -> int:
    """The larger, the less there is to look at."""
    return list(MARKS).index(told)


SLOWER = "against: cuda_time"
"""What a row is called that takes longer than in a revision, and breaks no count."""
Overall = Literal["failed", "undecided", "passed", "not judged"]
"""The verdict of a run. "failed": a test failed, or a comparison that fails the run. "undecided":
something needs a look and fails nothing. "passed": each test that ran was judged and passed, and
all others were skipped by their own skip or failed as expected. Else "not judged"."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A value beyond what is allowed, as it stands in the cell of its metric: ``16 > 14``.

    Attributes:
        metric: as in ``schema.metrics``. unit: of both values; times are in microseconds.
        measured, allowed: the two values.
        by: what allows it: a limit as it was written (``max_kernels``), or the name of a verdict by
            a baseline ("snapshot", "against").
    """

    metric: str
    unit: Unit
    measured: float
    allowed: float
    by: str


@dataclass(frozen=True, slots=True)
class Row:
    """One profile of a test, or several that are told as one.

    Attributes:
        test: the node id. file: its file, as in the id. name: what follows it, with the parameters
            in brackets and the profile's label, if it has one, in brackets after a space.
        number: which of its test's profiles it is, from 0.
        told: how it is marked; None where it has no limit and its test passed.
        profile: the record.
        broken: the cells that are beyond what is allowed, by metric.
        causes: why it is marked, the most telling first; none where it is well.
        others: the further rows that it stands for, where rows were folded.
        least_us: of folded rows the smallest GPU time in microseconds, where it is less than the
            largest by more than 5 %; the row's own profile is the one with the largest.
        failed: whether its test did, which one over its limit need not, as with warnings alone.
    """

    test: str
    file: str
    name: str
    number: int
    told: Told | None
    profile: Profile
    broken: dict[str, Broken] = field(default_factory=dict)
    causes: tuple[Cause, ...] = ()
    others: tuple[Row, ...] = ()
    least_us: float | None = None
    failed: bool = False

    @property
    def count(self) -> int:
        """How many profiles it stands for."""
        return 1 + len(self.others)


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that is wrong.

    Attributes:
        told: "failed", "incomplete", "undecided"; else how the test ended.
        limit: as it was written; of what was before ``snapshot: kernels``; empty of a test that
            ended badly by itself.
        measured, allowed: in words; empty where there are none.
        where: on which ranks, in words; empty where there is one.
    """

    told: Told
    limit: str = ""
    measured: str = ""
    allowed: str = ""
    where: str = ""

    @property
    def words(self) -> str:
        """``max_kernels: 16 > 14``, for titles."""
        if not self.limit:
            return f"test {self.told.removesuffix(' otherwise')}"
        if self.told != "failed":
            return f"{self.limit}: {self.told}{self.where}"
        if not self.measured:
            return f"{self.limit}: {'worse' if self.limit == SLOWER else 'broken'}{self.where}"
        sign = "<" if self.limit.startswith("min_") else ">"
        return f"{self.limit}: {self.measured} {sign} {self.allowed}{self.where}"


@dataclass(frozen=True, slots=True)
class Ending:
    """What no row of a profile says of a test, and somebody should look at: that it failed without
    a profile, or that a comparison of callables is not as asserted.

    Attributes:
        file, name: of the test, as in ``Row``.
        found: what is wrong, in words.
        comparison, verdict: those that are not as asserted; None of a test without a profile.
    """

    test: Test
    file: str
    name: str
    found: Found
    comparison: Comparison | None = None
    verdict: Verdict | None = None

    @property
    def failed(self) -> bool:
        """Whether the test failed, or ended in an error."""
        return self.test.outcome in FAILED


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tests of a run there are of each kind; ``told`` has each test once, by its worst
    row.

    Attributes:
        tests: that the run has to account for.
        profiled: that have a profile.
        limited: that have a limit, a snapshot, or a baseline that they are held to.
        held: of those how many were neither skipped nor expected to fail.
        told: how many are marked so.
        on_cpu: whether every profile is of the CPU's operators.
        breaking: that break a limit. exceeding: that exceed their snapshot. worse: that are worse
            than the run or revision they are compared with.
        failed: that failed, or ended in an error, for whatever reason.
        unjudged: of how many no limit was judged, by the reason.
    """

    tests: int
    limited: int
    held: int
    told: dict[Told, int]
    on_cpu: bool
    profiled: int
    breaking: int
    exceeding: int
    worse: int
    failed: int
    unjudged: dict[str, int]

    @property
    def marked(self) -> bool:
        """Whether rows are told apart by marks: some test is held to something."""
        return bool(self.limited or self.worse)


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all profiles of a run together, one call of each, but for those of tries that were
    repeated; None where no profile could have it.

    Attributes:
        profiles: how many. kernels: of the GPU. operators: of the CPU.
        gpu_us: what the kernels take, in microseconds. comm_us: what those of communication take
            beside them.
        launches, waits, copies, pageable: counts; pageable are the copies for which the host waits.
        waiting_tests: in how many tests there are waits. most_waits: the row with most of them.
        idle_us, span_us: from first to last kernel, the time without work, and all of it.
        extra_kernels: how many kernels there are more than the snapshots have.
    """

    profiles: int
    kernels: int = 0
    operators: int = 0
    gpu_us: float | None = None
    comm_us: float | None = None
    launches: int | None = None
    waits: int | None = None
    waiting_tests: int = 0
    most_waits: Row | None = None
    copies: int | None = None
    pageable: int | None = None
    idle_us: float | None = None
    span_us: float | None = None
    extra_kernels: int = 0


@dataclass(frozen=True, slots=True)
class HotKernel:
    """Kernels of one name over all tests.

    Attributes:
        name: the short name that no other kernel of the run has. full: the full one.
        calls: how many there are. us: what they take. share: of the GPU time of the run, 0 to 1.
        tests: in how many tests they run.
    """

    name: str
    full: str
    calls: int
    us: float
    share: float
    tests: int


@dataclass(frozen=True, slots=True)
class ShortKernels:
    """Kernels that are so short that launching them costs more than they do.

    Attributes:
        kernels: how many. tests: in how many tests. below_us: what counts as short.
        worst: the row that would gain most. overhead_us, latency_us: of a call of it.
    """

    kernels: int
    tests: int
    below_us: float
    worst: Row
    overhead_us: float
    latency_us: float


@dataclass(frozen=True, slots=True)
class Near:
    """A time that is kept, but within 3 % or one interval of its limit.

    Attributes:
        share: how much of the limit is left, 0 to 1.
    """

    row: Row
    verdict: Verdict
    share: float


@dataclass(frozen=True, slots=True)
class Tighten:
    """A limit that allows more than any profile of its test needs.

    Attributes:
        file, name: of the test, without parameters, since its marker holds for all of them.
        limit: as it was written, without its value.
        allowed, seen: the limit, and the largest value that was seen.
    """

    file: str
    name: str
    limit: str
    unit: Unit
    allowed: float
    seen: float


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Limits that were not judged, for one reason.

    Attributes:
        limits: their names. tests: of which tests.
        why: in words.
    """

    limits: tuple[str, ...]
    tests: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Trust:
    """How far the profiles of a run can be trusted: how many there are of each kind.

    Attributes:
        noted: what else there is to know, by its words.
    """

    profiles: int
    retaken: int
    incomplete: int
    noted: dict[str, int]


@dataclass(frozen=True, slots=True)
class Summary:
    """All that a run says.

    Attributes:
        overall: the verdict.
        sentence: the same in words, with the counts that are not zero.
        open: the tests and limits that were not judged, in words; empty if all were.
        rows: each profile, in the order in which they are told.
        endings: what no row says and somebody should look at.
        left_out: the tests without a row none of whose limits was judged.
        folded: the same, those that agree as one.
        places: devices with their versions, in words.
        unfinished: why tests may be missing.
    """

    counts: Counts
    overall: Overall
    sentence: str
    open: str
    rows: tuple[Row, ...]
    endings: tuple[Ending, ...]
    left_out: tuple[Test, ...]
    folded: tuple[Row, ...]
    totals: Totals
    hottest: tuple[HotKernel, ...]
    short: ShortKernels | None
    near: tuple[Near, ...]
    tighten: tuple[Tighten, ...]
    unjudged: tuple[Unjudged, ...]
    trust: Trust
    places: tuple[str, ...]
    unfinished: tuple[str, ...]
