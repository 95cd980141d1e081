"""The snapshots of one test: what is kept of it, what it took in this run, how that compares."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.baseline.shelf import device_folder
from pytest_kernelprof.baseline.snapshots import (
    find,
    kept_of_ranks,
    made_with,
    numbered,
    why_not_kept,
)
from pytest_kernelprof.schema.run import OUTCOMES, Verdict
from pytest_kernelprof.schema.snapshot import TEST_STATES, KeptTest, Taken

if TYPE_CHECKING:
    from pytest_kernelprof.baseline.snapshots import KeptKey
    from pytest_kernelprof.schema.run import Outcome, Place, Profile
    from pytest_kernelprof.schema.snapshot import Finding, KeptProfile, LineChange, TestState

LIMIT = "snapshot"
"""The name that verdicts by snapshots have."""

_MOST_CHANGES = 10


@dataclass(frozen=True, slots=True)
class Entry:
    """Which entry is a test's, and what is kept there.

    Attributes:
        folder, file, device, key, elsewhere: as of ``Taken``.
        kept: None where there is no such entry.
        exists: whether there is a file of snapshots for the test's file and device.
    """

    folder: str
    file: str
    device: str
    key: str
    kept: KeptTest | None
    exists: bool
    elsewhere: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is done with snapshots in this run.

    Attributes:
        checks: whether those that are kept are compared with. collects: whether what tests take
            is to be kept; a run does one of both.
        strict: whether a test fails that has none, or none that could fail.
    """

    checks: bool
    collects: bool
    strict: bool


class Sheet:
    """Compares each profile of a test, and gathers what is to be kept of it.

    Attributes:
        entry: which entry is the test's.
        accepts: as of ``Taken``; known once the test is judged.
    """

    def __init__(self, entry: Entry, wish: Wish) -> None:
        self.entry = entry
        self.accepts = False
        self._wish = wish
        kept = entry.kept if wish.checks else None
        self._kept: dict[KeptKey, KeptProfile] = dict(numbered(kept.profiles if kept else ()))
        self._made = kept.made_with if kept else {}
        self._seen: Counter[str] = Counter()
        self._states: list[TestState] = []
        self._whys: dict[str, None] = {}
        self._missing: list[str] = []
        self._changes: tuple[LineChange, ...] = ()
        self._profiles: list[KeptProfile] = []
        self._made_now: dict[str, str] = {}
        self._refused = ""

    @property
    def profiles(self) -> bool:
        """Whether the test is profiled for its snapshot, as it would be for a limit."""
        return self.entry.kept is not None or (self._wish.collects and bool(self.entry.elsewhere))

    def verdicts(self, profile: Profile, place: Place | None) -> tuple[Verdict, ...]:
        """How the test's next profile compares with its snapshot; none without. Of several ranks
        the worst counts."""
        label, number = profile.label, self._seen[profile.label]
        first = self._kept.get((label, number, None))
        if first is None:
            return ()
        ranks = profile.ranks
        made = [
            self._verdict(self._kept.get((label, number, one.rank), first), one, place)
            for one in ranks
        ]
        worst = min(made, key=_badness)
        if len(ranks) == 1:
            return (worst,)
        alike = [
            one.rank
            for one, verdict in zip(ranks, made, strict=True)
            if verdict.outcome == worst.outcome and one.rank is not None
        ]
        return (replace(worst, ranks=tuple(alike)),)

    def _verdict(self, kept: KeptProfile, profile: Profile, place: Place | None) -> Verdict:
        finding = find(kept, self._made, profile)
        outcome, why = self._judged(finding, profile)
        return Verdict(
            limit=LIMIT,
            outcome=outcome,
            why=why,
            device=profile.environment.kind,
            place=place,
            snapshot=finding,
        )

    def note(self, profile: Profile) -> None:
        """Take note of the test's next profile, with its verdicts."""
        made = [one for one in profile.verdicts if one.limit == LIMIT]
        if self.entry.kept is not None and self._wish.checks and not made:
            self._missing.append(profile.label)
        for one in made:
            self._states.append(_state(one))
            if one.outcome == "not judged":
                self._whys[one.why] = None
            if one.snapshot is not None and one.outcome != "over":
                self._changes = (*self._changes, *one.snapshot.changes)[:_MOST_CHANGES]
        self._seen[profile.label] += 1
        if self._wish.collects:
            self._gather(profile)

    def broken(self) -> list[str]:
        """Why the test fails where snapshots are required; each is told once."""
        if not (self._wish.strict and self._wish.checks and self._seen):
            return []
        told = []
        if self.entry.kept is None:
            told.append(f"{LIMIT}: there is none of this test for {self.entry.device}")
        told += [f"{LIMIT}: there is none of {one!r}" for one in self._missing]
        told += [f"{LIMIT}: not judged: {why}" for why in self._whys]
        self._missing, self._whys = [], {}
        return told

    def taken(self, test: str) -> Taken:
        """What there is to say of it.

        Args:
            test: its node id.
        """
        entry, state = self.entry, self._state()
        whole = self._wish.collects and self._profiles and not self._refused
        return Taken(
            test=test,
            folder=entry.folder,
            file=entry.file,
            device=entry.device,
            key=entry.key,
            state=state,
            why="; ".join(self._whys) if state == "not judged" else "",
            entry=KeptTest(tuple(self._profiles), self._made_now) if whole else None,
            refused=self._refused,
            accepts=self.accepts,
            elsewhere=entry.elsewhere if state == "missing" and not entry.exists else (),
            changes=() if state == "over" else self._changes,
        )

    def _judged(self, finding: Finding, profile: Profile) -> tuple[Outcome, str]:
        integrity = profile.integrity
        if finding.state != "more":
            if not integrity.complete:
                return "incomplete", "; ".join(integrity.problems)
            if finding.unknown:
                return "not judged", f"{', '.join(finding.unknown)} could not be had"
            return "kept", ""
        if profile.one_shot and integrity.cold:
            return "not judged", "more, but cold"
        if finding.other and not self._wish.strict:
            return "not judged", f"more, but {', '.join(finding.other)}"
        return "over", ""

    def _gather(self, profile: Profile) -> None:
        environment = profile.environment
        why = why_not_kept(profile)
        if any(one.outcome == "over" for one in profile.verdicts):
            why = "over a limit"  # which only a run with --kernelprof-warn-only lets pass
        if device_folder(environment.kind, environment.device) != self.entry.device:
            why = f"it ran on {environment.device}"
        self._refused = self._refused or why
        self._profiles += kept_of_ranks(profile)
        self._made_now = made_with(environment)

    def _state(self) -> TestState | None:
        if not self._wish.checks:
            return None
        if self.entry.kept is None:
            concerned = self._seen and (self.entry.exists or self.entry.elsewhere)
            return "missing" if concerned else None
        found = {*self._states, *(("missing",) if self._missing else ())}
        if any(count >= self._seen[label] for label, count, _ in self._kept):
            found.add("changed")  # a profile that is kept and was not taken
        return next((state for state in TEST_STATES if state in found), None)


def _badness(verdict: Verdict) -> tuple[int, bool]:
    """Worst first; of those that are kept, the ones that changed."""
    changed = verdict.snapshot is not None and verdict.snapshot.state != "held"
    return OUTCOMES.index(verdict.outcome), not changed


def _state(verdict: Verdict) -> TestState:
    if verdict.outcome in ("over", "not judged"):
        return verdict.outcome
    changed = verdict.snapshot is not None and verdict.snapshot.state == "changed"
    return "changed" if changed else "held"
