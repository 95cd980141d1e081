"""What a test took, in its report, and which tests the tables show."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING

from pytest_kernelprof.errors import IncompleteProfile, KernelprofError, LimitExceeded, NotJudged
from pytest_kernelprof.plugin.collect import EXPECTED_ATTRIBUTE, attach, outcome_of
from pytest_kernelprof.plugin.concerns import (
    BRIDGE,
    all_is_wanted,
    concerns_us,
    is_shown,
    promises_of,
)
from pytest_kernelprof.plugin.devices import why_unmeasured
from pytest_kernelprof.plugin.keys import (
    COLLECTOR,
    EXPECTED,
    MEASURES,
    QUIET,
    RUN_RECORD,
    SERVES,
    SETTINGS,
    TAKEN,
    TEST,
)
from pytest_kernelprof.plugin.properties import tell_suite, tell_verdict
from pytest_kernelprof.plugin.snapshots import SNAPSHOT_JUDGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_kernelprof.schema.run import Test

_LONGEST = 300


def expect(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Note the tests that this run has to account for: those that concern us."""
    from pytest_kernelprof.plugin.places import place_of_test
    from pytest_kernelprof.plugin.portable import portable

    tests = {}
    for item in items:
        place = portable(place_of_test(item), str(config.rootpath))
        tests[item.nodeid] = (promises_of(item), place.file, place.line)
    if hasattr(config, "workerinput"):
        config.stash[EXPECTED] = json.dumps(tests)
    else:
        config.stash[COLLECTOR].expect(tests)


def tell_more(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Attach what the test took to its report, and tell an error of ours as what it is."""
    if EXPECTED in item.config.stash:
        setattr(report, EXPECTED_ATTRIBUTE, item.config.stash[EXPECTED])
        del item.config.stash[EXPECTED]
    raised = call.excinfo.value if call.excinfo is not None else None
    not_judged = _why_not_judged(item, call, raised)
    if not_judged and raised is None:
        from pytest_kernelprof.plugin.failures import skip_unexpected_pass

        skip_unexpected_pass(report, item, not_judged)
    # Subtests report while their test still runs; there is nothing to tell until it is judged.
    has_taken = call.when != "setup" and (
        TAKEN in item.stash or (call.when == "call" and SNAPSHOT_JUDGE in item.stash)
    )
    if has_taken or not_judged or isinstance(raised, KernelprofError):
        _attach_taken(item, report, not_judged)
    if call.when == "teardown" and TEST in item.stash:
        item.stash[TEST].ledger.close()
        del item.stash[TEST]  # profiles must not outlive their test
    if raised is not None:
        from pytest_kernelprof.plugin.failures import hint_at_cuda, tell

        tell(report, item, raised)
        hint_at_cuda(report, item, raised)
    verdict = _verdict_of(report, raised, not_judged)
    if verdict and concerns_us(item):
        tell_verdict(item, report, verdict)


def _verdict_of(report: pytest.TestReport, raised: BaseException | None, not_judged: str) -> str:
    """How a test fared, as far as no profile of it says so; empty for all others."""
    if not_judged:
        return "not judged"
    if not report.failed:
        return ""
    if isinstance(raised, LimitExceeded):
        return "failed"
    if isinstance(raised, IncompleteProfile):
        return "incomplete"
    ended = outcome_of(report)
    return "failed otherwise" if ended == "failed" else ended


def _why_not_judged(
    item: pytest.Item, call: pytest.CallInfo[None], raised: BaseException | None
) -> str:
    """Why none of the limits of a test was judged that did not fail; empty if some were."""
    if isinstance(raised, NotJudged):
        return raised.why
    if raised is not None or call.when != "call" or not concerns_us(item):
        return ""
    promises = promises_of(item)
    if TEST not in item.stash:
        return (why_unmeasured(item) or "not measured").partition(":")[0] if promises else ""
    ledger = item.stash[TEST].ledger
    if ledger.has_judged or ledger.waits_for_fixtures or not (promises or ledger.left_out):
        return ""
    otherwise = "no snapshot of this device" if len(ledger) else "not measured"
    return (why_unmeasured(item) or ledger.unmeasured or otherwise).partition(":")[0]


def _left_out(item: pytest.Item) -> tuple[str, ...]:
    """The names of the limits that were not judged, also of those that came as the test ran."""
    return item.stash[TEST].ledger.left_out if TEST in item.stash else promises_of(item)


def tell_other_ranks(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """That the test's call, or its teardown, has ended here, so that no other rank waits in it."""
    if "torch" not in sys.modules or not concerns_us(item):
        return
    from pytest_kernelprof.capture.agreement import left_test

    raised = call.excinfo
    how = "" if raised is None else f" ({raised.typename}: {_first_line(raised.value)})"
    left_test(item.nodeid, f"has ended the test{how}")


def tell_end_of_run(config: pytest.Config) -> None:
    """That this rank makes no call any more, so that no other one waits for it."""
    if "torch" in sys.modules and config.stash.get(MEASURES, False):
        from pytest_kernelprof.capture.agreement import left_run

        left_run()


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")[:_LONGEST]


def _attach_taken(item: pytest.Item, report: pytest.TestReport, not_judged: str) -> None:
    from pytest_kernelprof.plugin.places import place_of_test
    from pytest_kernelprof.plugin.portable import portable
    from pytest_kernelprof.plugin.rows import for_tables
    from pytest_kernelprof.schema.document import bounded
    from pytest_kernelprof.schema.run import Test

    taken = item.stash.setdefault(TAKEN, [])
    del item.stash[TAKEN]  # a rerun of the test brings its own
    snapshot = item.stash[SNAPSHOT_JUDGE].report() if SNAPSHOT_JUDGE in item.stash else None
    profiles = tuple(profile for one in taken for profile in one.profiles)
    comparisons = tuple(comparison for one in taken for comparison in one.comparisons)
    place = portable(place_of_test(item), str(item.config.rootpath))
    whole = SERVES in item.config.stash or all_is_wanted(item.config)
    one_by_one = item.config.get_verbosity() > 1
    reduced = bounded if whole else partial(for_tables, kernels=one_by_one)
    test = Test(
        item.nodeid,
        profiles,
        comparisons,
        place=place,
        snapshot=snapshot,
        limits=_left_out(item) if not_judged else (),
        not_judged=not_judged,
    )
    attach(report, test, reduced)


def tell_open(config: pytest.Config) -> None:
    """Say in the JUnit file, before it is written, what of the run was not judged."""
    if config.getoption("xmlpath", None) and not hasattr(config, "workerinput"):
        tests = tuple(config.stash[COLLECTOR].tests())
        if tests:  # else nothing of ours is loaded
            from pytest_kernelprof.schema.run import Run
            from pytest_kernelprof.summary.run import summary_of

            tell_suite(config, summary_of(Run(tests)).open)


def show(terminal: pytest.TerminalReporter, taken: list[Test]) -> None:
    """Write at the end what tests took, as far as that was asked for; how the run compares with a
    baseline; in any case what was not judged, or not decided."""
    from pytest_kernelprof.report.terminal import open_lines, write_report
    from pytest_kernelprof.schema.run import Run
    from pytest_kernelprof.summary.run import summary_of

    config = terminal.config
    if QUIET in config.stash or SERVES in config.stash:
        return
    record, bridge = map(config.pluginmanager.getplugin, (RUN_RECORD, BRIDGE))
    run = record.run_of(taken) if record is not None else Run(tuple(taken))
    asked, warn_only = is_shown(config) and record is not None, config.stash[SETTINGS].warn_only
    if asked or any(one.source != "snapshot" for one in run.baselines):
        write_report(terminal, run, brief=not asked, warn_only=warn_only)
        return
    shown = bridge.shown if bridge is not None else ()
    if any(one.id in shown and one.profiles for one in taken):  # beside pytest-benchmark's table
        write_report(terminal, run, only=shown)
    elif terminal.verbosity > -2:
        for line in open_lines(summary_of(run)):
            terminal.write_line(line, yellow=True)
