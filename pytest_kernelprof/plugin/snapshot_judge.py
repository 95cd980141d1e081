"""Judges a test by its kernel snapshots, and gathers its next snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec.structs import replace

from pytest_kernelprof.baselines import snapshots
from pytest_kernelprof.baselines.snapshots import KeptKey
from pytest_kernelprof.comparison import judge
from pytest_kernelprof.limits.evaluate import on_every_rank
from pytest_kernelprof.records import comparison
from pytest_kernelprof.records.profile import STATUSES, Profile, Verdict

_MOST_CHANGES = 10


class SnapshotJudge:
    """Compares each profile of a test with its snapshot, or gathers the next snapshot.

    Args:
        entry: which entry is the test's. file: the entries of its file for this device; None where
            there is no such file.
        checks: whether profiles are compared with what is kept. collects: whether what the test
            launches is to be kept; a run does one of both.
        strict: whether a test fails that has no snapshot, or none that could fail.

    Attributes:
        entry: as above. kept: what is kept of the test; None where there is no such entry.
        accepts: as of ``SnapshotReport``; known once the test is judged.
    """

    def __init__(
        self,
        entry: comparison.SnapshotReport,
        file: Mapping[str, comparison.KeptTest] | None,
        *,
        checks: bool,
        collects: bool,
        strict: bool,
    ) -> None:
        self.entry, self.kept = entry, (file or {}).get(entry.key)
        self.accepts = False
        self._file_exists = file is not None
        self._checks, self._collects, self._strict = checks, collects, strict
        kept = self.kept if checks else None
        profiles, self._made = (kept.profiles, kept.made_with) if kept else ((), {})
        self._kept: dict[KeptKey, comparison.KeptProfile] = dict(snapshots.numbered(profiles))
        self._seen: Counter[str] = Counter()
        self._states: list[comparison.TestState] = []
        self._whys: dict[str, None] = {}
        self._missing: list[str] = []
        self._changes: tuple[comparison.KernelChange, ...] = ()
        self._profiles: list[comparison.KeptProfile] = []
        self._made_now: dict[str, str] = {}
        self._refused = ""

    @property
    def profiles(self) -> bool:
        """Whether the test is profiled for its snapshot, as it would be for a limit."""
        return self.kept is not None or (self._collects and bool(self.entry.elsewhere))

    def verdicts(self, profile: Profile) -> tuple[Verdict, ...]:
        """How the test's next profile compares with its snapshot; none without. Of several ranks
        the worst counts."""
        label, number = profile.label, self._seen[profile.label]
        first = self._kept.get((label, number, None))
        if first is None:
            return ()

        def verdict(one: Profile) -> Verdict:
            kept = self._kept.get((label, number, one.rank), first)
            test = f"{self.entry.file}::{self.entry.key}"
            found = replace(snapshots.compare(kept, self._made, one), test=test)
            return judge.verdict_of(found, one, *judge.status_of(found, one, strict=self._strict))

        return (on_every_rank(profile, verdict, _badness),)

    def note(self, profile: Profile) -> None:
        """Take note of the test's next profile, with its verdicts."""
        made = [one for one in profile.verdicts if one.of_snapshot]
        if self.kept is not None and self._checks and not made:
            self._missing.append(profile.label)
        for one in made:
            self._states.append(_state(one))
            if one.outcome == "not judged":
                self._whys[one.why] = None
            found = one.comparison.kernels if one.comparison is not None else None
            if found is not None and one.outcome != "failed":
                told = found.of(*comparison.ADDED_OR_REMOVED, "operator", "reconfigured")
                self._changes = (*self._changes, *told)[:_MOST_CHANGES]
        self._seen[profile.label] += 1
        if self._collects:
            environment, why = profile.environment, snapshots.why_not_kept(profile)
            if any(one.outcome == "failed" for one in profile.verdicts):
                why = "over a limit"  # which only a run with --kernelprof-warn-only lets pass
            if snapshots.device_folder(environment.kind, environment.device) != self.entry.device:
                why = f"it ran on {environment.device}"
            self._refused = self._refused or why
            self._profiles += snapshots.kept_of_ranks(profile)
            self._made_now = judge.made_with(environment)

    def broken(self) -> list[str]:
        """Why the test fails where snapshots are required; each reason is given once."""
        if not (self._strict and self._checks and self._seen):
            return []
        told = []
        if self.kept is None:
            told.append(f"snapshot: this test has none for {self.entry.device}")
        told += [f"snapshot: it has no entry for {one!r}" for one in self._missing]
        told += [f"snapshot: not judged: {why}" for why in self._whys]
        self._missing, self._whys = [], {}
        return told

    def report(self) -> comparison.SnapshotReport:
        """What there is to say of it."""
        state = self._state()
        whole = self._collects and self._profiles and not self._refused
        bare = state == "missing" and not self._file_exists
        return replace(
            self.entry,
            state=state,
            why="; ".join(self._whys) if state == "not compared" else "",
            entry=comparison.KeptTest(tuple(self._profiles), self._made_now) if whole else None,
            refused=self._refused,
            accepts=self.accepts,
            elsewhere=self.entry.elsewhere if bare else (),
            changes=() if state == "worse" else self._changes,
        )

    def _state(self) -> comparison.TestState | None:
        if not self._checks:
            return None
        if self.kept is None:
            return "missing" if self._seen and (self._file_exists or self.entry.elsewhere) else None
        found = {*self._states, *(("missing",) if self._missing else ())}
        if any(count >= self._seen[label] for label, count, _ in self._kept):
            found.add("changed")  # a profile that is kept and was not taken
        return next((state for state in comparison.TEST_STATES if state in found), None)


def _badness(verdict: Verdict) -> tuple[int, bool]:
    """Worst first; of those that are kept, the ones that changed."""
    changed = verdict.comparison is not None and verdict.comparison.change != "same"
    return STATUSES.index(verdict.outcome), not changed


def _state(verdict: Verdict) -> comparison.TestState:
    if verdict.outcome in ("not judged", "incomplete"):
        return "not compared"
    change = verdict.comparison.change if verdict.comparison is not None else "same"
    return change if change == "worse" or change == "changed" else "same"
