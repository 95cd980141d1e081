"""What a run says, as records: marks, rows, problems with their tests and remedies, facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pytest_kernelprof.records.comparison import ProfileComparison
from pytest_kernelprof.records.document import Test, TestOutcome
from pytest_kernelprof.records.profile import STATUSES, Cause, Place, Profile, Status
from pytest_kernelprof.summary import wording

Told = Status | TestOutcome | Literal["failed otherwise", "to update", "not compared"]
"""The mark of a row: how its limits fared, or how its test ended otherwise; "to update" of one that
is well but for its snapshot, which is outdated or missing and fails nothing; "not compared" of one
without a limit that a baseline could not be compared with."""

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
    "to update": Mark("~", "~", "snapshot to update", "unsure"),
    "passed": Mark("✓", ".", "passed", "kept"),
    "expected failure": Mark("x", "x", "expected failure", "none"),
    "xfailed": Mark("x", "x", "xfailed", "none"),
    "rerun": Mark("–", "s", "retried", "none"),
    "skipped": Mark("–", "s", "skipped", "none"),
    "not judged": Mark("–", "s", "not judged", "none"),
    "not compared": Mark("–", "s", "not compared", "none"),
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


def told_of(test: Test, profile: Profile | None = None) -> Told | None:
    """Return the mark of a profile; without one the mark of a test by its comparisons of callables
    and by how it ended. None where there is nothing to say.

    A limit that was kept is no pass where the test ended otherwise, but for one that was not to run
    its kernels. A test that passed with limits,
    none of them left out, has kept them.
    """
    outcomes = {verdict.outcome for one in test.comparisons for verdict in one.verdicts}
    compared = next((outcome for outcome in STATUSES if outcome in outcomes), None)
    fared = compared if profile is None else profile.outcome
    if profile is None and fared is None and test.limits and test.outcome == "passed":
        fared = "passed"
    if test.outcome == "not run" or (test.not_judged and test.outcome in ("passed", "skipped")):
        return "not judged"
    if test.outcome == "skipped" and profile is not None and profile.compiled:
        return fared
    ended: Told = "failed otherwise" if test.outcome == "failed" else test.outcome
    if ended in ("skipped", "rerun"):
        return ended
    by_limits = {"failed", "incomplete"}
    if test.outcome == "passed" or fared in by_limits | {"expected failure"}:
        return fared
    every = (compared, *(one.outcome for one in test.profiles))
    another_says_why = any(one in by_limits for one in every)
    return fared if another_says_why else ended


def worst_of(test: Test) -> Told | None:
    """Return the worst mark of a test: of its profiles, of its comparisons, of how it ended."""
    marks = [told_of(test, one) for one in test.profiles]
    if test.comparisons or not test.profiles:
        marks.append(told_of(test))
    return min(marks, key=severity)


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
        metric: as in ``records.metrics``.
        measured, allowed: the two values; times are in microseconds.
        by: what allows it: a limit as it was written (``max_kernels``), or the name of a verdict by
            a baseline ("snapshot", "against").
        rank: of which rank it is; None of a call on one.
    """

    metric: str
    measured: float
    allowed: float
    by: str
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A test of which no profile tells what is wrong: it failed without one, or a comparison of
    callables is not as asserted.

    Attributes:
        test: the record. file: its file, as in the id. name: what follows it, with the parameters
            in brackets and the profile's label, if it has one, in brackets after a space.
        told: how it is marked; None where it has no limit and its test passed.
        found: what is wrong, limit by limit, in words: ``max_kernels: 16 > limit 14``.
        causes: why it is marked, or what changed, the most telling first.
        place: the line to look at: of the first cause that has one, else of the call or the test.
    """

    test: Test
    file: str
    name: str
    told: Told | None
    found: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    place: Place | None = None

    @property
    def each(self) -> tuple[Entry, ...]:
        """All entries that it stands for."""
        return (self,)

    @property
    def failed(self) -> bool:
        """Whether its test did, which one over its limit need not, as with warnings alone."""
        return self.test.outcome in FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Entry):
    """One profile of a test, or several that are told as one.

    Attributes:
        number: which of its test's profiles it is, from 0. profile: the record.
        broken: the cells that are beyond what is allowed, by metric.
        comparison: how it compares with a revision or an earlier run, else with its snapshot.
        folded: the rows that it stands for, first the one that it is made of, with the largest GPU
            time; none where it stands for itself.
    """

    number: int
    profile: Profile
    broken: dict[str, Broken] = field(default_factory=dict)
    comparison: ProfileComparison | None = None
    folded: tuple[Row, ...] = ()

    @property
    def shown(self) -> Profile:
        """The profile of the rank whose numbers it has: of several, the one that its first failed
        limit is about."""
        return wording.shown_rank(self.profile)

    @property
    def each(self) -> tuple[Row, ...]:
        """All rows that it stands for."""
        return self.folded or (self,)


TO_DO, RERUN = "to do: ", "rerun"
"""Before what to do first, and how the command is named that only shows whether that helps."""


class Remedy(NamedTuple):
    """What to do; empty where nothing helps.

    Attributes:
        what: what to do first. again: what to do then, by the command; or what it does.
        command: for these tests.
        intended: what to do if what the tests found is intended, as a sentence.
        tests: their ids. accept: the command that accepts it in a snapshot.
    """

    what: str
    again: str = ""
    command: str = ""
    intended: str = ""
    tests: tuple[str, ...] = ()
    accept: str = ""

    @property
    def shown(self) -> str:
        """What is intended, without the option that a command of its own has."""
        return self.intended.partition(" with --kernelprof-update")[0]

    @property
    def first(self) -> str:
        """What to do before the command, or by it."""
        return self.what or self.again * (not self.again.startswith(RERUN))

    @property
    def steps(self) -> list[tuple[str, str]]:
        """What to do, one thing after another, each with its command or without."""
        first = self.first
        told = [(f"{TO_DO}{first}", "" if self.what else self.command)] if first else []
        told += [(self.again, self.command)] if self.command and first != self.again else []
        return told + ([(self.shown, self.accept)] if self.intended else [])


class Task(NamedTuple):
    """Where to look, and what to do.

    Attributes:
        lines: to look at, or the file. what: what is wrong, shortly. test: or how many.
        places: the lines. told: how the worst of the tests is marked. call: the line of the test
            that made the call.
        sure: of one test, how sure what is wrong is: ``+25.0 %, 99 % CI 248.0..252.0us``.
        facts: of several tests what is wrong with each, then the causes that ``what`` does not say;
            of one these causes, then what else is wrong.
        labels: by such a fact the one of ``places`` that it is about, if it is about one.
        chains: by place the operators, the innermost first, by which it launched what is wrong.
    """

    lines: str
    what: str
    test: str
    remedy: Remedy = Remedy("")
    places: tuple[Place, ...] = ()
    told: Told | None = None
    call: Place | None = None
    sure: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    labels: Mapping[str, Place] = {}
    chains: Mapping[Place, frozenset[tuple[str, ...]]] = {}

    @property
    def where(self) -> str:
        """``model.py:17: new: elementwise [copy] (12 tests)``."""
        told = ": ".join(filter(None, (self.lines, self.what)))
        return f"{told} ({self.test})" if self.test else told


@dataclass(frozen=True, slots=True)
class Problem:
    """One cause, with the tests that it breaks; or one test, with its causes.

    Attributes:
        cause: what the tests have in common; None of one without a cause.
        rows: those that it marks, the worst first.
        remedy: what to do about it.
    """

    cause: Cause | None
    rows: tuple[Entry, ...]
    remedy: Remedy

    @property
    def shared(self) -> Cause | None:
        """The cause that several rows have, so that it is told once for all of them."""
        return self.cause if self.tests > 1 and len(self.rows) > 1 else None

    @property
    def tests(self) -> int:
        """How many tests it breaks."""
        return len({one.test.id for row in self.rows for one in row.each})


Kind = Literal[
    "profiled",
    "limited",
    "held",
    "passed",
    "breaking",
    "exceeding",
    "worse",
    "breaking and worse",
    "changed",
    "missing",
    "retried",
    "failed",
]
"""What a test counts as: it has a profile; has a limit or a snapshot; is held to it, neither
skipped nor expected to fail; and passed; breaks a limit; exceeds its snapshot; is worse than the
run or revision that it is compared with; has an outdated snapshot, or none; was run again; failed,
for whatever reason."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tests of a run there are of each kind.

    Attributes:
        tests: that the run has to account for.
        kinds: of each kind. A test is of several.
        told: how many are marked so, each test once, by its worst mark.
        unjudged: of how many no limit was judged, by the reason.
    """

    tests: int
    kinds: Counter[Kind]
    told: Counter[Told]
    unjudged: Counter[str]

    @property
    def marked(self) -> bool:
        """Whether rows are told apart by marks: some test is held to something."""
        judged = {"failed", "undecided", "passed", "expected failure", "not judged"}
        return bool(self.kinds["limited"] or self.kinds["worse"] or judged & set(self.told))


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
    """A limit that allows more than is needed."""

    test: str
    limit: str
    words: str
