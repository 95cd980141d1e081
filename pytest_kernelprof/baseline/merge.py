"""One run of several that share the tests, as the jobs of CI do."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.schema.before import (
    EarlierComparison,
    RevisionComparison,
    SnapshotsComparison,
)
from pytest_kernelprof.schema.run import Run, Test
from pytest_kernelprof.schema.runs import RunsComparison

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def merge_runs(runs: Mapping[str, Run]) -> tuple[Run, tuple[str, ...]]:
    """All tests of all runs, and the ids of those that several have, which are the last one's.

    Args:
        runs: by a name that says which of them was not finished.
    """
    tests: dict[str, Test] = {}
    twice: dict[str, None] = {}
    for run in runs.values():
        for test in {one.id: one for one in run.tests}.values():
            if test.id in tests:
                twice[test.id] = None
            tests[test.id] = test
    versions: dict[str, dict[str, None]] = {}
    for run in runs.values():
        for name, version in run.versions.items():
            versions.setdefault(name, {})[version] = None
    merged = Run(
        tuple(tests.values()),
        began=min(run.began for run in runs.values()),
        versions={name: ", ".join(several) for name, several in versions.items()},
        unfinished=tuple(f"{name}: {why}" for name, run in runs.items() for why in run.unfinished),
        against=_against([run.against for run in runs.values() if run.against]),
        snapshots=_snapshots(
            [run.snapshots for run in runs.values() if run.snapshots], tests.values()
        ),
        earlier=_earlier([run.earlier for run in runs.values() if run.earlier], tests.values()),
    )
    return merged, tuple(twice)


def _against(parts: Sequence[RevisionComparison]) -> RevisionComparison | None:
    """Of each test what its last part says."""
    if not parts:
        return None
    tests = {test.id: test for part in parts for test in part.tests}
    return RevisionComparison(
        ", ".join(dict.fromkeys(part.name for part in parts)),
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        dict(Counter(test.result for test in tests.values())),
        tuple(tests.values()),
    )


def _snapshots(
    parts: Sequence[SnapshotsComparison], tests: Iterable[Test]
) -> SnapshotsComparison | None:
    if not parts:
        return None
    states = (test.snapshot.state for test in tests if test.snapshot)
    unused = (one for part in parts for one in part.unused)
    return SnapshotsComparison(
        dict(Counter(state for state in states if state is not None)),
        tuple(dict.fromkeys(unused)),
    )


def _earlier(parts: Sequence[EarlierComparison], tests: Iterable[Test]) -> EarlierComparison | None:
    """Parts that were compared with different runs are no one comparison."""
    if len({part.began for part in parts}) != 1:
        return None
    several = [part.comparison for part in parts]
    # Which profiles were compared is said by their verdicts, each once.
    ones = [
        verdict.comparison
        for test in tests
        for profile in test.profiles
        for verdict in profile.verdicts
        if verdict.comparison is not None
    ]
    return replace(
        parts[0],
        comparison=RunsComparison(
            compared=len(ones),
            untimed=dict(Counter(one.untimed for one in ones if one.untimed)),
            other=dict(Counter(one.other for one in ones if one.other)),
            gone=_in_all([one.gone for one in several]),
            fresh=_in_any([one.fresh for one in several]),
            uncompared=_in_any([one.uncompared for one in several]),
            lost=dict(Counter(name for one in ones for name in one.lost)),
            nowhere=_in_all([one.nowhere for one in several]),
            unfinished=_in_any([one.unfinished for one in several]),
        ),
    )


def _in_all(lists: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(one for one in lists[0] if all(one in other for other in lists))


def _in_any(lists: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for several in lists for one in several))
