"""A run against a revision: what its two processes say to each other, what came of each test."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_kernelprof.schema.diff import ProfileDiff
from pytest_kernelprof.schema.tests import Test
from pytest_kernelprof.schema.turns import (
    At,
    CloseRounds,
    Go,
    LeaveRounds,
    OpenRounds,
    Sampled,
    TakeRounds,
    Timing,
    TimingOutcome,
    Took,
)
from pytest_kernelprof.schema.verdicts import Place

Result = Literal[
    "worse",
    "cannot run",
    "not compared",
    "different work",
    "undecided",
    "accepted",
    "better",
    "changed",
    "same",
]
"""How a test compares, worst first: more of an exact metric than the revision has, or slower
("worse"); the revision "cannot run" it; "not compared", for a reason; "different work", the two
profile different things; perhaps slower ("undecided"); more, which its snapshot allows
("accepted"); fewer, or faster ("better"); other kernels at equal counts ("changed"); the "same"."""
RESULTS: tuple[Result, ...] = (
    *("worse", "cannot run", "not compared", "different work"),
    *("undecided", "accepted", "better", "changed", "same"),
)


class Laid(msgspec.Struct, frozen=True):
    """A revision whose files are laid out.

    Attributes:
        name: how it is told, for example ``main (abc1234)``.
        root: the user's folder. tree: the folder that stands in its place. folder: of both tree
            and what its run writes.
        tests: the files of today's that lie over the revision's, relative to the tree.
        notes: what is not as in the user's folder, in words.
    """

    name: str
    root: str
    tree: str
    folder: str
    tests: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Launch(msgspec.Struct, frozen=True):
    """How a reference is started.

    Attributes:
        arguments: pytest's. cwd: the folder where it is started.
        python: another environment's interpreter; empty for the candidate's own.
    """

    laid: Laid
    arguments: tuple[str, ...]
    cwd: str
    python: str = ""


class Launches(msgspec.Struct, frozen=True):
    """Of a run: how a reference is started, and how a fresh process of today's code is."""

    reference: Launch
    candidate: Launch


class Compared(msgspec.Struct, frozen=True, omit_defaults=True):
    """One profile on both sides.

    Attributes:
        label: which of the test's profiles it is, empty for the only one.
        diff: from the revision's to the candidate's.
        worse, better: exact metrics of which there are more, and fewer.
        accepted: those of which there are more, and which the test's snapshot allows.
        unknown: why a metric could not be compared, in words.
        place: the line of the test that made the call.
        timing: how its ``cuda_time`` compares; None where it has none.
    """

    label: str
    diff: ProfileDiff
    worse: tuple[str, ...] = ()
    better: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    place: Place | None = None
    timing: Timing | None = None

    @property
    def is_worse(self) -> bool:
        """Whether anything is."""
        return bool(self.worse) or self.is_timed("worse")

    @property
    def result(self) -> Result:
        """How the profile compares."""
        if self.is_worse:
            return "worse"
        if self.is_timed("undecided"):
            return "undecided"
        if self.accepted:
            return "accepted"
        if self.better or self.is_timed("better"):
            return "better"
        return "changed" if self.diff.hunks else "same"

    def is_timed(self, outcome: TimingOutcome) -> bool:
        """Whether this came of its times."""
        return self.timing is not None and self.timing.outcome == outcome


class AgainstTest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of one test.

    Attributes:
        why: of "cannot run", "not compared" and "different work", the reason in words.
        notes: what else there is to say of it.
    """

    id: str
    result: Result
    why: str = ""
    profiles: tuple[Compared, ...] = ()
    notes: tuple[str, ...] = ()


class Start(msgspec.Struct, frozen=True, tag=True):
    """To the reference, first: how it is to be run.

    Attributes:
        path: the candidate's ``sys.path``.
        seed: of pytest-randomly, where that is active.
    """

    launch: Launch
    path: tuple[str, ...]
    seed: int | None = None


class Collect(msgspec.Struct, frozen=True, tag=True):
    """To the reference, once.

    Attributes:
        files: the test files, of the tree.
        kept: the tests that are measured as they have a snapshot, of which the candidate knows.
    """

    files: tuple[str, ...]
    kept: tuple[str, ...] = ()


class RunTest(msgspec.Struct, frozen=True, tag=True):
    """To the reference: run a test.

    Attributes:
        next: the one after it, empty for none.
        holds: whether it holds inside of each call whose kernels can be timed.
    """

    id: str
    next: str = ""
    holds: bool = False


class Finish(msgspec.Struct, frozen=True, tag=True):
    """To the reference: there are no more tests."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """From the reference: pytest is up there; ``cuda``: and CUDA."""

    cuda: bool = False


class Collected(msgspec.Struct, frozen=True, tag=True):
    """From the reference.

    Attributes:
        ids: the tests that it has.
        errors: what collection met, by node id of the file.
        cuda: whether CUDA is up there.
        shared: files of today's that the revision has otherwise, and that its code imports.
    """

    ids: tuple[str, ...]
    errors: dict[str, str] = {}
    cuda: bool = False
    shared: tuple[str, ...] = ()


class Done(msgspec.Struct, frozen=True, tag=True):
    """From the reference: a test has run.

    Attributes:
        test: what it took, if anything.
        failure: what it failed by, in one line, its limits apart; empty where it did not.
        skipped: why it was skipped; empty where it was not.
        reached: the revision's own files (none of today's tests) that the test's code comes from.
        wrong: why nothing that it takes can be believed: it has loaded files of the user's folder.
        opened: the files of the user's folder that were opened since the last test.
        lines: of profiles all of whose kernels are launched by lines of today's files, these.
        shared: as of ``Collected``.
    """

    id: str
    test: Test | None = None
    failure: str = ""
    skipped: str = ""
    reached: tuple[str, ...] = ()
    wrong: str = ""
    opened: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()


class Bye(msgspec.Struct, frozen=True, tag=True):
    """From the reference, last."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """From the reference: it cannot be run, and why; whether it has printed more of that."""

    why: str
    printed: bool = False


OfACall = OpenRounds | TakeRounds | CloseRounds | LeaveRounds
ToReference = Start | Collect | RunTest | Go | OfACall | Finish
FromReference = Ready | Collected | At | Took | Sampled | Done | Bye | Refused
