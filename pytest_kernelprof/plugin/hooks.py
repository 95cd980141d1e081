"""The pytest hooks: they look whether a test concerns us, and delegate."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_kernelprof.limits.marks import refuse_misspelt
from pytest_kernelprof.plugin import hookspecs
from pytest_kernelprof.plugin.concerns import concerns_us
from pytest_kernelprof.plugin.devices import TARGET, target_of
from pytest_kernelprof.plugin.judging import (
    begin_call,
    conclude_test,
    end_call,
    warn_of_unsaved,
)
from pytest_kernelprof.plugin.keys import (
    COLLECTOR,
    MEASURES,
    SETTINGS,
    TEST,
)
from pytest_kernelprof.plugin.marks import (
    find_marks_in_vain,
    known_marks,
    note_defaults,
    refuse_marks_in_vain,
)
from pytest_kernelprof.plugin.options import OPTIONS_FORM
from pytest_kernelprof.plugin.properties import forget_properties
from pytest_kernelprof.plugin.pytest_fixtures import (
    kernel_benchmark as kernel_benchmark,  # where pytest looks for them
)
from pytest_kernelprof.plugin.pytest_fixtures import (
    kernel_profile as kernel_profile,
)
from pytest_kernelprof.plugin.pytest_fixtures import (
    kernelprof_device as kernelprof_device,
)
from pytest_kernelprof.plugin.reports import (
    expect,
    show,
    tell_end_of_run,
    tell_more,
    tell_open,
    tell_other_ranks,
)
from pytest_kernelprof.plugin.settings import add_options, options_of
from pytest_kernelprof.plugin.snapshots import SNAPSHOT_JUDGE, look_up
from pytest_kernelprof.plugin.start import begin_run, refuse_workers_of_ranks
from pytest_kernelprof.system import imports_as_ever  # loaded here, before anything is patched

if TYPE_CHECKING:
    from collections.abc import Generator

    import pluggy


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    begin_run(config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first fixture runs: what a test may take away is taken hold of."""
    config = session.config
    settings = config.stash[SETTINGS]
    concerned = list(filter(concerns_us, session.items))
    if concerned and not config.getoption("collectonly", False):
        expect(config, concerned)
    if not settings.disable and (settings.all or concerned):
        from pytest_kernelprof.capture.trace_folder import SCRATCH

        config.stash[MEASURES] = True
        SCRATCH.hold()
        config.add_cleanup(SCRATCH.let_go)
        config.add_cleanup(_end_what_runs)
        if settings.device != "cpu":
            from pytest_kernelprof.plugin.sharing import Sharing

            config.pluginmanager.register(Sharing(settings.lock_timeout), "kernelprof-sharing")
        _bind_torch(config)


def _bind_torch(config: pytest.Config) -> None:
    """Take hold of torch, if it is loaded: of its functions before a test patches them, of CUDA
    graphs before a fixture captures any."""
    if config.stash.get(MEASURES, False) and "torch" in sys.modules:
        from pytest_kernelprof.capture.cuda_graphs import watch_captures
        from pytest_kernelprof.device.bindings import bind_if_loaded

        bind_if_loaded()
        watch_captures()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    find_marks_in_vain(config, items)
    if not config.stash[SETTINGS].only:
        return
    chosen = [item for item in items if concerns_us(item)]
    dropped = [item for item in items if not concerns_us(item)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = chosen


def pytest_runtest_setup(item: pytest.Item) -> None:
    _bind_torch(item.config)  # a test before this one may have loaded it
    note_defaults(item)
    refuse_misspelt(item, OPTIONS_FORM)
    refuse_marks_in_vain(item)
    # A plugin that retries calls the phases without reports between.
    keys: tuple[pytest.StashKey[Any], ...] = (TARGET, TEST, SNAPSHOT_JUDGE)
    for key in keys:
        if key in item.stash:
            del item.stash[key]
    forget_properties(item)
    if not concerns_us(item):
        return
    # A malformed marker is an error of this test, before its fixtures run.
    options_of(known_marks(item).options)
    if not item.config.stash[SETTINGS].disable:
        from pytest_kernelprof.capture.rendezvous import next_attempt

        refuse_workers_of_ranks(item.config)
        next_attempt(item.nodeid)
    target = target_of(item)
    if not target.unmeasured:
        look_up(item, target.device)


# Of the older kind: an exception of the test does not pass through a frame of ours.
@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, pluggy.Result[Any], None]:
    with imports_as_ever():
        begin_call(item)
    outcome = yield
    try:
        with imports_as_ever():
            end_call(item, outcome.exception)
    except BaseException as error:
        outcome.force_exception(error)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    if item.session.shouldfail or item.session.shouldstop:  # as long as there is a process group
        tell_end_of_run(item.config)
    try:
        yield
    finally:
        with imports_as_ever():
            _leave_all_as_it_was(item)
    if TEST not in item.stash:
        return
    try:
        if item.stash[TEST].ledger.unconcluded:  # taken as fixtures ended
            conclude_test(item)
    finally:
        warn_of_unsaved(item)


def _leave_all_as_it_was(item: pytest.Item) -> None:
    """For the next test: no profiler of ours runs on, and who broke CUDA is known."""
    if item.config.stash.get(MEASURES, False) and "torch" in sys.modules:
        from pytest_kernelprof.capture.torch_profiler import end_left_open, end_taken_over
        from pytest_kernelprof.device.inventory import look_after

        end_left_open()
        if concerns_us(item):  # of a test that is only looked at, another may count on it
            end_taken_over()
        look_after(item.nodeid)


def _end_what_runs() -> None:
    """Where a run breaks off in the middle of a test: a process that exits while it is profiled
    crashes."""
    if "torch" in sys.modules:
        from pytest_kernelprof.capture.torch_profiler import end_left_open

        end_left_open()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if call.excinfo is not None and not item.config.getoption("fulltrace", False):
        with imports_as_ever():
            from pytest_kernelprof.plugin.failures import hide_our_frames

            hide_our_frames(call.excinfo)
    report = yield
    with imports_as_ever():
        tell_more(item, call, report)
        if report.when != "setup" or not report.passed:
            tell_other_ranks(item, call)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)  # rank 0 waits for the others in one that is none
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    tell_end_of_run(session.config)
    tell_open(session.config)
    yield


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, str] | None:
    if getattr(report, "kernelprof_error", False) and report.failed:  # no try to be repeated
        return "error", "E", "ERROR"
    return None


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    try:
        yield
    finally:  # after pytest-benchmark's table, also where its comparison fails the run
        config = terminalreporter.config
        taken = list(config.stash[COLLECTOR].tests())
        if taken or config.stash[SETTINGS].against:
            show(terminalreporter, taken)
