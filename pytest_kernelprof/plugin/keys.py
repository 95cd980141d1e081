"""The keys under which the plugin keeps its things on pytest's own objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_kernelprof.limits.marks import Marks
    from pytest_kernelprof.plugin.collect import Collector
    from pytest_kernelprof.plugin.earlier import Earlier
    from pytest_kernelprof.plugin.measuring import AfterCall, MeasuredTest
    from pytest_kernelprof.plugin.settings import Settings
    from pytest_kernelprof.plugin.sheet import Sheet
    from pytest_kernelprof.plugin.snapshots import Snapshots
    from pytest_kernelprof.plugin.whole_call import WholeCall
    from pytest_kernelprof.schema.run import Test

# Names of plugins that know how the run compares with what was before: ``comparison()``.
AGAINST, COMPARE = "kernelprof-against", "kernelprof-compare"
SNAPSHOT_KEEPER = "kernelprof-snapshot-keeper"
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
SNAPSHOTS: pytest.StashKey[Snapshots] = pytest.StashKey()
"""Where they are looked up; not there in a run that profiles nothing."""
EARLIER: pytest.StashKey[Earlier] = pytest.StashKey()
"""The earlier run that this one is judged against, where one was named."""
IN_VAIN: pytest.StashKey[list[tuple[str, tuple[str, ...]]]] = pytest.StashKey()
"""The files whose ``pytestmark`` nobody reads, each with the markers of ours in it."""

# On an item.
MARKS: pytest.StashKey[tuple[tuple[int, ...], Marks]] = pytest.StashKey()
"""What its markers say, and which markers that was read of."""
EARLY: pytest.StashKey[Collection[int]] = pytest.StashKey()
"""The markers, by identity, that it had before its set-up."""
SHEET: pytest.StashKey[Sheet] = pytest.StashKey()
"""Its snapshots, where it has any or is to have some."""
KEPT = pytest.StashKey[bool]()
"""There where this run is a reference, and its candidate has a snapshot of the test."""
TEST: pytest.StashKey[MeasuredTest] = pytest.StashKey()
WHOLE_CALL: pytest.StashKey[WholeCall] = pytest.StashKey()
"""Its call phase, while that is profiled as a whole."""
TAKEN: pytest.StashKey[list[Test]] = pytest.StashKey()
"""What it took and no report has yet."""
