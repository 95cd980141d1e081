"""What a test took, in its report, and which tests the tables show."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from pytest_kernelprof.plugin.benchmark_there import BRIDGE
from pytest_kernelprof.plugin.concerns import all_is_wanted, concerns_us, is_shown
from pytest_kernelprof.plugin.keys import (
    MEASURES,
    RUN_RECORD,
    SERVES,
    SETTINGS,
    SHEET,
    TAKEN,
    TEST,
)

if TYPE_CHECKING:
    import pytest

    from pytest_kernelprof.schema.run import Run, Test

_LONGEST = 300
_NO_GPU = ("Skipped: no GPU", "Skipped: not applicable on the CPU")


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


def tell_other_ranks(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """That the test's call, or its teardown, has ended here, so that no other rank waits in it."""
    if "torch" not in sys.modules or not concerns_us(item):
        return
    from pytest_kernelprof.capture.ranks import left_test

    raised = call.excinfo
    how = "" if raised is None else f" ({raised.typename}: {_first_line(raised.value)})"
    left_test(item.nodeid, f"has ended the test{how}")


def tell_end_of_run(config: pytest.Config) -> None:
    """That this rank makes no call any more, so that no other one waits for it."""
    if "torch" in sys.modules and config.stash.get(MEASURES, False):
        from pytest_kernelprof.capture.ranks import left_run

        left_run()


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")[:_LONGEST]


def _attach_taken(item: pytest.Item, report: pytest.TestReport) -> None:
    from pytest_kernelprof.plugin.collect import attach
    from pytest_kernelprof.plugin.places import place_of_test
    from pytest_kernelprof.plugin.portable import portable
    from pytest_kernelprof.plugin.rows import for_tables
    from pytest_kernelprof.schema.packing import bounded
    from pytest_kernelprof.schema.run import Test

    taken = item.stash.setdefault(TAKEN, [])
    del item.stash[TAKEN]  # a rerun of the test brings its own
    snapshot = item.stash[SHEET].taken(item.nodeid) if SHEET in item.stash else None
    profiles = tuple(profile for one in taken for profile in one.profiles)
    comparisons = tuple(comparison for one in taken for comparison in one.comparisons)
    place = portable(place_of_test(item), str(item.config.rootpath))
    whole = SERVES in item.config.stash or all_is_wanted(item.config)
    one_by_one = item.config.get_verbosity() > 1
    reduced = bounded if whole else partial(for_tables, kernels=one_by_one)
    attach(
        report, Test(item.nodeid, profiles, comparisons, place=place, snapshot=snapshot), reduced
    )


def show(terminal: pytest.TerminalReporter, taken: list[Test]) -> None:
    """Write at the end what tests took, as far as that was asked for, and limits that were not
    judged in any case."""
    from pytest_kernelprof.report.comparisons import write_comparisons, write_unjudged
    from pytest_kernelprof.report.terminal import write_report

    run = _run_to_show(terminal.config, taken)
    every_row = terminal.config.stash[SETTINGS].report_all
    write_report(terminal, run, every_row=every_row, without_gpu=_without_gpu(terminal))
    if not is_shown(terminal.config):
        write_unjudged(terminal, taken)
    write_comparisons(terminal, run.tests)


def _run_to_show(config: pytest.Config, taken: list[Test]) -> Run:
    """All with --kernelprof-report; else the tests in pytest-benchmark's table, comparisons
    apart."""
    from pytest_kernelprof.schema.run import Run, Test

    record = config.pluginmanager.getplugin(RUN_RECORD)
    if is_shown(config) and record is not None:
        return record.run_of(taken)  # type: ignore[no-any-return]
    bridge = config.pluginmanager.getplugin(BRIDGE)
    shown = bridge.shown if bridge is not None else ()
    return Run(
        tuple(Test(one.id, one.profiles, outcome=one.outcome) for one in taken if one.id in shown)
    )


def _without_gpu(terminal: pytest.TerminalReporter) -> int:
    """How many tests were skipped since they need a GPU."""
    skipped = (report.longrepr for report in terminal.stats.get("skipped", ()))
    reasons = (str(one[2]) for one in skipped if isinstance(one, tuple) and len(one) == 3)
    return sum(one.startswith(_NO_GPU) for one in reasons)
