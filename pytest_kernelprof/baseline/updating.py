"""An update of kernel snapshots: what a run gives, what it writes, removes and loosens."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_kernelprof.baseline.shelf import change, device_folder
from pytest_kernelprof.baseline.snapshots import kept_of, loosened, made_with, why_not_kept
from pytest_kernelprof.schema.snapshot import Edited, KeptTest

if TYPE_CHECKING:
    from pytest_kernelprof.schema.run import Profile, Run, Test


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to become of a file.

    Attributes:
        entries: of tests that ran. removed: the keys of tests that there are no more.
        only_new: whether entries that are there stay as they are.
    """

    entries: dict[str, KeptTest] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    only_new: bool = False


@dataclass(slots=True)
class Gathered:
    """What a run gives.

    Attributes:
        entries: by test file (from pytest's root folder) and device, then by key.
        refused: of which tests nothing is kept, and why.
    """

    entries: dict[tuple[str, str], dict[str, KeptTest]] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)


def gather(run: Run) -> Gathered:
    """The entries of a run's tests, as an update in that run would have made them."""
    by_test: defaultdict[str, list[Test]] = defaultdict(list)
    for test in run.tests:
        if test.outcome != "rerun":  # a try that was repeated
            by_test[test.id].append(test)
    found = Gathered()
    for name, tests in by_test.items():
        profiles = [profile for test in tests for profile in test.profiles]
        bad = next(filter(None, map(why_failed, tests)), "")
        if not profiles or bad == "skipped":
            continue
        devices = {device_folder(one.environment.kind, one.environment.device) for one in profiles}
        why = next(filter(None, map(why_not_kept, profiles)), "") or bad
        if len(devices) > 1:
            why = why or f"it ran on {' and '.join(sorted(devices))}"
        if why:
            found.refused.append((name, why))
            continue
        file, _, key = name.partition("::")
        found.entries.setdefault((file, devices.pop()), {})[key] = _entry(profiles)
    return found


def why_failed(test: Test) -> str:
    """Why nothing is kept of a test that ended so; empty if it passed, or its snapshot alone
    refused it."""
    if test.outcome not in ("passed", "failed"):
        return test.outcome
    over = [v for one in test.profiles for v in one.verdicts if v.outcome == "over"]
    limits = dict.fromkeys(one.limit for one in over if one.snapshot is None)
    if limits:
        return f"limit exceeded: {', '.join(limits)}"
    taken = test.snapshot
    if test.outcome == "passed" or (taken and taken.accepts):
        return ""
    return taken.refused if taken and taken.refused else "the test failed for another reason"


def _entry(profiles: list[Profile]) -> KeptTest:
    return KeptTest(tuple(map(kept_of, profiles)), made_with(profiles[-1].environment))


def update(path: str, edit: Edit) -> Edited:
    """Bring a file up to date. Entries that the edit does not name stay.

    Raises:
        SnapshotError: it cannot be read, or not be written.
    """
    old, new = change(path, lambda tests: _edited(tests, edit))
    looser = tuple(
        (key, label, counts)
        for key in sorted(edit.entries)
        if key in old
        for label, counts in loosened(old[key], new[key]).items()
    )
    written = sum(new[key] != old.get(key) for key in edit.entries)
    return Edited(written, len(edit.entries) - written, len(set(old) - set(new)), looser)


def _edited(tests: dict[str, KeptTest], edit: Edit) -> dict[str, KeptTest]:
    kept = {key: test for key, test in tests.items() if key not in edit.removed}
    return {**edit.entries, **kept} if edit.only_new else {**kept, **edit.entries}
