"""The keys under which the plugin keeps its things on pytest's own objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_kernelprof.limits.marks import Marks
    from pytest_kernelprof.plugin.collect import Collector
    from pytest_kernelprof.plugin.measuring import AfterCall, MeasuredTest
    from pytest_kernelprof.plugin.settings import Settings
    from pytest_kernelprof.plugin.whole_call import WholeCall
    from pytest_kernelprof.schema.run import Test

# Names of plugins that know how the run compares with what was before: ``comparison()``.
AGAINST = "kernelprof-against"
RUN_BASELINE = "kernelprof-run-baseline"
"""Also the name, in what workers of pytest-xdist are sent, of the run document and its profiles."""
SNAPSHOT_UPDATE = "kernelprof-snapshot-update"
RUN_RECORD = "kernelprof-run-record"
"""The name of who gathers the run as a record, where anybody reads that."""

# On the config.
SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()
MEASURES = pytest.StashKey[bool]()
"""Whether any test of the run asks for a measurement."""
COLLECTOR: pytest.StashKey[Collector] = pytest.StashKey()
EXPECTED = pytest.StashKey[str]()
"""In an xdist worker: the tests of this run, until a report takes them to the controller."""
SERVES = pytest.StashKey[bool]()
"""There where this run is the reference of another one (--kernelprof-against)."""
QUIET = pytest.StashKey[bool]()
"""There where another process reports and writes for this one: of ranks, rank 0."""
AFTER_CALL: pytest.StashKey[AfterCall] = pytest.StashKey()
"""Who waits for each measured call of a run against a revision; not there in other runs."""
BASELINE_OF = pytest.StashKey[Callable[[str], Any]]()
"""Looks up what a run document has of a test, where one is compared with."""
IN_VAIN: pytest.StashKey[list[tuple[str, tuple[str, ...]]]] = pytest.StashKey()
"""The files whose ``pytestmark`` nobody reads, each with the markers of ours in it."""

# On an item.
MARKS: pytest.StashKey[tuple[tuple[int, ...], Marks]] = pytest.StashKey()
"""What its markers say, and which markers that was read of."""
EARLY: pytest.StashKey[Collection[int]] = pytest.StashKey()
"""The markers, by identity, that it had before its set-up."""
KEPT = pytest.StashKey[bool]()
"""There where this run is a reference, and its candidate has a snapshot of the test."""
TEST: pytest.StashKey[MeasuredTest] = pytest.StashKey()
WHOLE_CALL: pytest.StashKey[WholeCall] = pytest.StashKey()
"""Its call phase, while that is profiled as a whole."""
TAKEN: pytest.StashKey[list[Test]] = pytest.StashKey()
"""What it took and no report has yet."""
