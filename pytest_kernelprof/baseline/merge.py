"""One run of several that share the tests, as the jobs of CI do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.schema.run import Run, Test

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    )
    return merged, tuple(twice)
