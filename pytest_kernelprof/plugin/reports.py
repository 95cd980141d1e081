"""What a test took, in its report, and which tests the tables show."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_kernelprof.plugin.benchmark_there import BRIDGE
from pytest_kernelprof.plugin.concerns import all_is_wanted
from pytest_kernelprof.plugin.keys import SERVES, SETTINGS, SHEET, TAKEN, TEST

if TYPE_CHECKING:
    import pytest

    from pytest_kernelprof.schema.run import Test


def tell_more(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Attach what the test took to its report, and tell an error of ours as what it is."""
    # Subtests report while their test still runs; there is nothing to tell until it is judged.
    if call.when != "setup" and (
        TAKEN in item.stash or (call.when == "call" and SHEET in item.stash)
    ):
        _attach_taken(item, report)
    if call.when == "teardown" and TEST in item.stash:
        item.stash[TEST].ledger.close()
        del item.stash[TEST]  # profiles must not outlive their test
    if call.excinfo is not None:
        from pytest_kernelprof.plugin.failures import tell

        tell(report, item, call.excinfo.value)


def _attach_taken(item: pytest.Item, report: pytest.TestReport) -> None:
    from pytest_kernelprof.plugin.collect import attach
    from pytest_kernelprof.plugin.rows import for_tables
    from pytest_kernelprof.schema.packing import bounded
    from pytest_kernelprof.schema.run import Place, Test

    taken = item.stash.setdefault(TAKEN, [])
    del item.stash[TAKEN]  # a rerun of the test brings its own
    snapshot = item.stash[SHEET].taken(item.nodeid) if SHEET in item.stash else None
    profiles = tuple(profile for one in taken for profile in one.profiles)
    comparisons = tuple(comparison for one in taken for comparison in one.comparisons)
    file, line = item.location[:2]
    place = Place(file.replace(os.sep, "/"), (line or 0) + 1)
    whole = SERVES in item.config.stash or all_is_wanted(item.config)
    reduced = bounded if whole else for_tables
    attach(
        report, Test(item.nodeid, profiles, comparisons, place=place, snapshot=snapshot), reduced
    )


def tests_to_show(config: pytest.Config, taken: list[Test]) -> list[Test]:
    """All with --kernelprof-report; else those in pytest-benchmark's table, comparisons apart."""
    if config.stash[SETTINGS].report:
        return taken
    bridge = config.pluginmanager.getplugin(BRIDGE)
    if bridge is None or not bridge.shown:
        return []
    from pytest_kernelprof.schema.run import Test

    return [
        Test(one.id, one.profiles, outcome=one.outcome) for one in taken if one.id in bridge.shown
    ]
