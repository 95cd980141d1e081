"""What a run says, as records: marks, rows, problems with their tests and remedies, facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_kernelprof.schema.run import STATUSES, Status

if TYPE_CHECKING:
    from pytest_kernelprof.schema.metrics import Unit
    from pytest_kernelprof.schema.run import (
        Cause,
        Place,
        Profile,
        ProfileComparison,
        Test,
        TestOutcome,
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
    "failed otherwise": Mark("✗", "F", "failed for another reason", "bad"),
    "error": Mark("!", "E", "error", "lost"),
    "undecided": Mark("?", "?", "undecided", "unsure"),
    "passed": Mark("✓", ".", "passed", "kept"),
    "expected failure": Mark("x", "x", "expected failure", "none"),
    "xfailed": Mark("x", "x", "xfailed", "none"),
    "rerun": Mark("–", "s", "retried", "none"),
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
        rank: of which rank it is; None of a call on one.
    """

    metric: str
    unit: Unit
    measured: float
    allowed: float
    by: str
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A test of which no profile tells what is wrong: it failed without one, or a comparison of
    callables is not as asserted.

    Attributes:
        test: the record. file: its file, as in the id. name: what follows it, with the parameters
            in brackets and the profile's label, if it has one, in brackets after a space.
        told: how it is marked; None where it has no limit and its test passed.
        found: what is wrong, limit by limit, in words: ``max_kernels: 16 > 14``.
        causes: why it is marked, or what changed, the most telling first.
    """

    test: Test
    file: str
    name: str
    told: Told | None
    found: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()

    @property
    def each(self) -> tuple[Entry, ...]:
        """All entries that it stands for, itself first."""
        return (self,)

    @property
    def failed(self) -> bool:
        """Whether its test did, which one over its limit need not, as with warnings alone."""
        return self.test.outcome in FAILED

    @property
    def place(self) -> Place | None:
        """The line to look at: of its first cause that has one, else of the test."""
        known = (one.place for one in self.causes if one.place is not None and one.sign != "-")
        return next(known, self.test.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Entry):
    """One profile of a test, or several that are told as one.

    Attributes:
        number: which of its test's profiles it is, from 0. profile: the record.
        broken: the cells that are beyond what is allowed, by metric.
        comparison: how it compares with a revision or an earlier run, else with its snapshot.
        others: the further rows that it stands for, where rows were folded.
        least_us: of folded rows the smallest GPU time in microseconds, where it is less than the
            largest by more than 5 %; the row's own profile is the one with the largest.
    """

    number: int
    profile: Profile
    broken: dict[str, Broken] = field(default_factory=dict)
    comparison: ProfileComparison | None = None
    others: tuple[Row, ...] = ()
    least_us: float | None = None

    @property
    def each(self) -> tuple[Row, ...]:
        """All rows that it stands for, itself first."""
        return (self, *self.others)

    @property
    def place(self) -> Place | None:
        """The line to look at: of its first cause that has one, else of the call."""
        known = [one.place for one in self.causes if one.place is not None and one.sign != "-"]
        return next(iter(known), None) or self.profile.place or self.test.place


class Remedy(NamedTuple):
    """What to do: in words, and as a command that can be pasted."""

    what: str
    command: str

    @property
    def words(self) -> str:
        """``to take more rounds: pytest test_mlp.py::test_it --kernelprof-rounds=48``."""
        return f"to {self.what}: {self.command}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One cause, with the tests that it breaks; or one test, with its causes.

    Attributes:
        cause: what the tests have in common; None of one without a cause.
        rows: those that it marks, the worst first.
        remedy: what to do about it; None where nothing helps but to look.
    """

    cause: Cause | None
    rows: tuple[Entry, ...]
    remedy: Remedy | None

    @property
    def told(self) -> Told | None:
        """The mark of the worst."""
        return self.rows[0].told

    @property
    def place(self) -> Place | None:
        """The line to look at."""
        return self.rows[0].place

    @property
    def tests(self) -> int:
        """How many tests it breaks."""
        return len({one.test.id for row in self.rows for one in row.each})


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tests of a run there are of each kind; ``told`` has each test once, by its worst
    row.

    Attributes:
        tests: that the run has to account for.
        profiled: that have a profile.
        limited: that have a limit or a snapshot.
        held: of those how many were neither skipped nor expected to fail. passed: and passed.
        told: how many are marked so.
        on_cpu: whether every profile is of the CPU's operators.
        breaking: that break a limit. exceeding: that exceed their snapshot. outdated: whose
            snapshot has other kernels, and which do not fail. worse: that are worse than the run or
            revision they are compared with.
        failed: that failed, or ended in an error, for whatever reason.
        unjudged: of how many no limit was judged, by the reason.
    """

    tests: int
    limited: int
    held: int
    passed: int
    told: dict[Told, int]
    on_cpu: bool
    profiled: int
    breaking: int
    exceeding: int
    outdated: int
    worse: int
    failed: int
    unjudged: dict[str, int]

    @property
    def marked(self) -> bool:
        """Whether rows are told apart by marks: some test is held to something."""
        judged = {"failed", "undecided", "passed", "expected failure", "not judged"}
        return bool(self.limited or self.worse or judged & set(self.told))


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


class Hint(NamedTuple):
    """A limit worth a look: "near" its value, one to "tighten", or "not judged"."""

    kind: Literal["near", "tighten", "not judged"]
    test: str
    limit: str
    words: str
