"""The pytest hooks: they register, look whether a test concerns us, and delegate."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_kernelprof.limits.marks import is_marked, marker_lines, refuse_misspelt
from pytest_kernelprof.plugin import hookspecs
from pytest_kernelprof.plugin.benchmark_there import (
    BRIDGE,
    has_benchmark,
    is_active,
    timed_by_benchmark,
)
from pytest_kernelprof.plugin.collect import Collector
from pytest_kernelprof.plugin.devices import (
    asks_for_us,
    device_of,
    device_to_look_at,
    resolve_device,
)
from pytest_kernelprof.plugin.keys import (
    AFTER_CALL,
    COLLECTOR,
    EARLIER,
    MEASURES,
    SERVES,
    SETTINGS,
    SHEET,
    TAKEN,
    TEST,
    WHOLE_CALL,
)
from pytest_kernelprof.plugin.marks import (
    find_marks_in_vain,
    known_marks,
    note_defaults,
    refuse_marks_in_vain,
)
from pytest_kernelprof.plugin.run_record import RunRecord, is_hooked
from pytest_kernelprof.plugin.settings import (
    MARKER_LINE,
    OPTIONS_FORM,
    add_options,
    of_a_reference,
    options_of,
    read_settings,
)
from pytest_kernelprof.plugin.sheets import has_snapshot, is_judged, lay_out, sheet_of
from pytest_kernelprof.system import imports_as_ever  # loaded here, before anything is patched

if TYPE_CHECKING:
    from collections.abc import Generator

    import pluggy

    from pytest_kernelprof.plugin.earlier import EarlierTest
    from pytest_kernelprof.plugin.fixture import KernelProfile
    from pytest_kernelprof.plugin.measuring import MeasuredTest
    from pytest_kernelprof.plugin.whole_call import WholeCall
    from pytest_kernelprof.schema.recording import DeviceKind
    from pytest_kernelprof.schema.run import Profile, Test


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    settings = read_settings(config)
    if SERVES in config.stash:  # what is reported, and what fails, is the other run's
        settings = of_a_reference(settings)
    config.stash[SETTINGS] = settings
    if settings.spread_workers and hasattr(config, "workerinput"):
        from pytest_kernelprof.device.workers import spread_workers

        spread_workers(config)
    if is_active(config):
        from pytest_kernelprof.plugin.benchmark import Bridge

        config.pluginmanager.register(Bridge(settings), BRIDGE)
    if settings.trace_dir:
        # Relative to where pytest was started: tests may change their directory.
        folder = os.path.join(config.invocation_params.dir, settings.trace_dir)
        _refuse_unwritable(folder)
        config.stash[SETTINGS] = settings._replace(trace_dir=folder)
    config.stash[COLLECTOR] = collector = Collector()
    if not hasattr(config, "workerinput"):  # what a worker took is for its controller
        config.pluginmanager.register(collector, "kernelprof-collector")
    if SERVES not in config.stash:  # what a reference took is for its candidate
        _begin_what_remembers(config, collector)
    if settings.all and not settings.disable and settings.device != "cpu":
        from pytest_kernelprof.plugin.whole_call import BringUp

        config.pluginmanager.register(BringUp(), "kernelprof-bring-up")
    for line in marker_lines(MARKER_LINE):
        config.addinivalue_line("markers", line)
    # Read by torch when it is loaded, which test modules do before anything is measured: quiet
    # profiler logs, and compiled CPU graphs that show their kernels.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE", "1")


def _begin_what_remembers(config: pytest.Config, collector: Collector) -> None:
    """Run documents, snapshots, and the run on a revision's code."""
    settings = config.stash[SETTINGS]
    if not hasattr(config, "workerinput"):
        _register_readers_of_the_run(config, collector)
    if not settings.disable:
        from pytest_kernelprof.plugin.snapshot_keeper import begin

        begin(config, settings, collector)
    elif settings.against or settings.compare:
        flag = "--kernelprof-against" if settings.against else "--kernelprof-compare"
        raise pytest.UsageError(
            f"{flag}: nothing is measured with --kernelprof-disable, so nothing would be compared; "
            "drop one of the two"
        )
    if config.getoption("kernelprof_compare_fail_on", None) and not settings.compare:
        raise pytest.UsageError(
            "--kernelprof-compare-fail-on: says what fails by an earlier run, and none is named; "
            "add --kernelprof-compare=RUN.json"
        )
    if settings.compare:
        from pytest_kernelprof.plugin import earlier_run

        earlier_run.begin(config, settings, collector)
    if settings.against:
        from pytest_kernelprof.plugin import against

        against.begin(config, settings, partial(_is_measured, config))


def _register_readers_of_the_run(config: pytest.Config, collector: Collector) -> None:
    """Those who want all of it as it ends."""
    path = config.stash[SETTINGS].json
    if path:
        from pytest_kernelprof.plugin.run_document import RunDocument

        config.pluginmanager.register(RunDocument(config, path), "kernelprof-run-document")
    if is_hooked(config):
        record = RunRecord(config, collector)
        config.pluginmanager.register(record, "kernelprof-run-record")


def _refuse_unwritable(folder: str) -> None:
    """Say at the start that the traces would be lost, not at the first of them.

    Raises:
        pytest.UsageError: nothing can be written to the folder, with the reason.
    """
    from pytest_kernelprof.report.traces import why_unwritable

    why = why_unwritable(folder)
    if why:
        raise pytest.UsageError(
            f"--kernelprof-trace-dir: {folder!r} cannot be made, or not be written to ({why})"
        )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first fixture runs: what a test may take away is taken hold of."""
    config = session.config
    settings = config.stash[SETTINGS]
    if not settings.disable and (settings.all or any(map(_concerns_us, session.items))):
        from pytest_kernelprof.capture.scratch import SCRATCH

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
        from pytest_kernelprof.capture.graphs import watch_captures
        from pytest_kernelprof.device.bindings import bind_if_loaded

        bind_if_loaded()
        watch_captures()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    find_marks_in_vain(config, items)
    if not config.stash[SETTINGS].only:
        return
    chosen = [item for item in items if _concerns_us(item)]
    dropped = [item for item in items if not _concerns_us(item)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = chosen


def _concerns_us(item: pytest.Item) -> bool:
    return asks_for_us(item) or has_snapshot(item)


def _is_measured(config: pytest.Config, item: pytest.Item) -> bool:
    return config.stash[SETTINGS].all or _concerns_us(item)


def pytest_runtest_setup(item: pytest.Item) -> None:
    _bind_torch(item.config)  # a test before this one may have loaded it
    note_defaults(item)
    refuse_misspelt(item, OPTIONS_FORM)
    refuse_marks_in_vain(item)
    settings = item.config.stash[SETTINGS]
    # A plugin that retries calls the phases without reports between.
    if TEST in item.stash:
        del item.stash[TEST]
    if SHEET in item.stash:
        del item.stash[SHEET]
    if not _concerns_us(item):
        return
    # A malformed marker is an error of this test, before its fixtures run.
    options_of(known_marks(item).options)
    if not settings.disable:
        device = device_of(item)
        if device is not None:
            lay_out(item, device)


def _begin(item: pytest.Item, device: DeviceKind, *, asked: bool = True) -> MeasuredTest:
    """What the test's measurements depend on, and the ledger that they go to.

    Args:
        asked: whether the test asks for numbers, by the fixture or a limit.
    """
    from pytest_kernelprof.plugin.ledger import Ledger
    from pytest_kernelprof.plugin.measuring import MeasuredTest
    from pytest_kernelprof.report.progress import measuring
    from pytest_kernelprof.schema.run import Place

    item.config.stash[MEASURES] = True  # which a fixture fetched by name did not tell before
    settings, marks = item.config.stash[SETTINGS], known_marks(item)
    path, line = item.reportinfo()[:2]
    item.stash[TEST] = test = MeasuredTest(
        id=item.nodeid,
        place=Place(str(path), (line or 0) + 1),
        device=device,
        settings=settings,
        options=options_of(marks.options),
        ledger=Ledger(
            marks,
            settings.undecided,
            asked=asked,
            lines=bool(settings.against),
            sheet=sheet_of(item, device, asked=asked),
            earlier=_earlier_of(item),
        ),
        measuring=measuring(item.config, item.name),
        everything=settings.report or bool(settings.compare) or _all_is_wanted(item.config),
        keeps_timelines=_all_is_wanted(item.config),
        after_call=item.config.stash.get(AFTER_CALL, None),
    )
    return test


def _earlier_of(item: pytest.Item) -> EarlierTest | None:
    stash = item.config.stash
    return stash[EARLIER].of(item.nodeid) if EARLIER in stash else None


@pytest.fixture
def kernel_profile(request: pytest.FixtureRequest) -> KernelProfile:
    """Profile GPU code: kernel_profile(fn, *args) warms up, profiles and measures it, and returns
    fn(*args); limits come from markers or kernel_profile.limit(...)."""
    from pytest_kernelprof.plugin.fixture import KernelProfile

    item: pytest.Item = request.node
    if WHOLE_CALL in item.stash:  # fetched as the test runs, which measures by itself from here on
        item.stash[WHOLE_CALL].give_way()
    disable = item.config.stash[SETTINGS].disable
    return KernelProfile(_begin(item, "cpu" if disable else resolve_device(item)))


@pytest.fixture
def kernel_benchmark(kernel_profile: KernelProfile) -> None:
    """As kernel_profile, and times with pytest-benchmark, which has to be installed and active."""
    # Where it is, the bridge's fixture of this name takes the place of this one.
    from pytest_kernelprof.errors import IncompleteProfile

    raise IncompleteProfile(
        "kernel_benchmark needs pytest-benchmark, which is not active in this run: pip install "
        "'pytest-kernelprof[benchmark]', drop -p no:benchmark, or use kernel_profile(fn, *args) "
        "instead"
    )


@pytest.fixture
def kernelprof_device(request: pytest.FixtureRequest) -> str:
    """The device to run on, "cuda" or "cpu". A test that asks for it runs without a GPU too, where
    compute operators are counted instead of kernels."""
    settings = request.config.stash[SETTINGS]
    if settings.disable:
        from pytest_kernelprof.device.inventory import usual_kind

        asked = options_of(known_marks(request.node).options).device or settings.device
        return "cpu" if asked == "cpu" else usual_kind()
    return resolve_device(request.node)


# Of the older kind: an exception of the test does not pass through a frame of ours.
@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, pluggy.Result[Any], None]:
    with imports_as_ever():
        if TEST not in item.stash and _whole_call_is_profiled(item):
            item.stash[WHOLE_CALL] = _begin_whole_call(item)
    outcome = yield
    try:
        with imports_as_ever():
            _end_call(item, outcome.exception)
    except BaseException as error:
        outcome.force_exception(error)


def _end_call(item: pytest.Item, raised: BaseException | None) -> None:
    """Judge what the test took, and tell others of it. What they raise hides no failure, and is no
    try of the test, which it may expect to fail."""
    try:
        _judge_call(item, raised)
    except BaseException as verdict:
        _tell_others(item, verdict)
        raise
    _tell_others(item, raised)


def _tell_others(item: pytest.Item, failure: BaseException | None) -> None:
    if SERVES in item.config.stash:  # of a reference nobody hears
        return
    try:
        for profile in _untold(item):
            item.ihook.pytest_kernelprof_profile(item=item, profile=profile)
    except Exception as error:
        words = f"a hook pytest_kernelprof_profile raised {type(error).__name__}: {error}"
        if failure is None:
            from pytest_kernelprof.errors import IncompleteProfile

            raise IncompleteProfile(words) from error
        item.add_report_section("call", "kernelprof", words)


def _untold(item: pytest.Item) -> tuple[Profile, ...]:
    """The profiles that no hook of others has seen."""
    return item.stash[TEST].ledger.untold() if TEST in item.stash else ()


def _judge_call(item: pytest.Item, raised: BaseException | None) -> None:
    """Judge what the test took, unless it has failed by itself: that wins over a limit."""
    whole_call = item.stash.get(WHOLE_CALL, None)
    if whole_call is not None:
        del item.stash[WHOLE_CALL]
    if raised is not None:
        if whole_call is not None:
            whole_call.abandon(raised)
        _dismiss(item)
        return
    if whole_call is not None:
        _end_whole_call(item, whole_call)
    _conclude(item)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    try:
        yield
    finally:
        with imports_as_ever():
            _leave_all_as_it_was(item)
    if TEST not in item.stash:
        return
    try:
        if item.stash[TEST].ledger.unconcluded:  # taken as fixtures ended
            _conclude(item)
    finally:
        _warn_of_unsaved(item)


def _warn_of_unsaved(item: pytest.Item) -> None:
    """Once the verdict is out, which a warning that is made an error would hide."""
    from pytest_kernelprof.plugin.fixture import KernelprofWarning

    for words in item.stash[TEST].ledger.unsaved:
        item.warn(KernelprofWarning(words))


def _leave_all_as_it_was(item: pytest.Item) -> None:
    """For the next test: no profiler of ours runs on, and who broke CUDA is known."""
    if item.config.stash.get(MEASURES, False) and "torch" in sys.modules:
        from pytest_kernelprof.capture.profiler import end_left_open, end_taken_over
        from pytest_kernelprof.device.health import look_after

        end_left_open()
        if _concerns_us(item):  # of a test that is only looked at, another may count on it
            end_taken_over()
        look_after(item.nodeid)


def _end_what_runs() -> None:
    """Where a run breaks off in the middle of a test: a process that exits while it is profiled
    crashes."""
    if "torch" in sys.modules:
        from pytest_kernelprof.capture.profiler import end_left_open

        end_left_open()


def _whole_call_is_profiled(item: pytest.Item) -> bool:
    settings = item.config.stash[SETTINGS]
    if settings.disable or not (settings.all or is_judged(item)):
        return False
    return not timed_by_benchmark(item)


def _dismiss(item: pytest.Item) -> None:
    """The test's own failure wins over what it took: that is told, and not judged."""
    _note_taken(item)
    if TEST in item.stash:
        item.stash[TEST].ledger.dismiss()


def _begin_whole_call(item: pytest.Item) -> WholeCall:
    """Begin to profile the call phase: of a test with a limit as it asks, of others as far as they
    do not notice."""
    from pytest_kernelprof.plugin import whole_call

    if is_judged(item):
        device = device_of(item)
        assert device is not None, "without a device nothing is laid out"
        begun: WholeCall = whole_call.Judged(_begin(item, device))
    else:
        begun = whole_call.look_at(_begin(item, device_to_look_at(item), asked=False))
    return begun


def _end_whole_call(item: pytest.Item, whole_call: WholeCall) -> None:
    try:
        if has_benchmark(item):  # fetched as the test ran, where it could not be foreseen
            whole_call.benchmarked()
        else:
            whole_call.finish()
    except BaseException:
        _dismiss(item)
        raise


def _conclude(item: pytest.Item) -> None:
    """Judge what the test took; raise or warn as that says."""
    if TEST not in item.stash:
        if is_marked(item):
            _refuse_late_markers(item)
        return
    from pytest_kernelprof.errors import IncompleteProfile, LimitExceeded
    from pytest_kernelprof.plugin.conclusion import conclude
    from pytest_kernelprof.plugin.fixture import KernelprofWarning

    test = item.stash[TEST]
    test.ledger.mark(known_marks(item))  # the test may have added markers to itself
    _note_taken(item)
    settings = test.settings
    found = conclude(test.ledger.records(disabled=settings.disable, warn_only=settings.warn_only))
    for words in found.warnings:
        item.warn(KernelprofWarning(words))
    if found.failure:
        raise LimitExceeded(found.failure, pytrace=False, place=found.place)
    if found.error:
        raise IncompleteProfile(found.error)
    if found.skip:
        pytest.skip(found.skip)


def _refuse_late_markers(item: pytest.Item) -> None:
    """A marked test that was not profiled, though nobody asked for that.

    Raises:
        IncompleteProfile: it got its limit when it ran already.
        MarkerError: it got a limit that compares, which needs the fixture.
    """
    from pytest_kernelprof.errors import IncompleteProfile

    if item.config.stash[SETTINGS].disable or timed_by_benchmark(item):
        return
    names = ", ".join(limit.name for limit in known_marks(item).limits)
    if names:
        raise IncompleteProfile(
            f"{names} was not judged: its marker came when the test ran already; add it in a "
            "fixture, or ask for the fixture kernel_profile"
        )


def _note_taken(item: pytest.Item) -> None:
    """Keep what the test took for its report, where anybody reads it."""
    if TEST not in item.stash:
        return
    taken = item.stash[TEST].ledger.report(item.nodeid)
    if taken is not None and (_is_reported(item.config) or _any_unjudged(taken)):
        item.stash.setdefault(TAKEN, []).append(taken)


def _any_unjudged(taken: Test) -> bool:
    """Whether a limit says nothing of the device that was measured, which is always told."""
    return any(
        verdict.outcome == "not judged"
        for profile in taken.profiles
        for verdict in profile.verdicts
    )


def _is_reported(config: pytest.Config) -> bool:
    settings = config.stash[SETTINGS]
    bridged = config.pluginmanager.hasplugin(BRIDGE)
    compared = bool(settings.against or settings.compare)
    return settings.report or compared or bridged or _all_is_wanted(config)


def _all_is_wanted(config: pytest.Config) -> bool:
    """Whether somebody reads all that tests took; a worker has no such reader itself."""
    return bool(config.stash[SETTINGS].json) or is_hooked(config)


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
        _tell_more(item, call, report)
    return report


def _tell_more(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
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
    whole = SERVES in item.config.stash or _all_is_wanted(item.config)
    reduced = bounded if whole else for_tables
    attach(
        report, Test(item.nodeid, profiles, comparisons, place=place, snapshot=snapshot), reduced
    )


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
        taken = list(terminalreporter.config.stash[COLLECTOR].tests())
        if taken:
            from pytest_kernelprof.report.terminal import (
                write_comparisons,
                write_report,
                write_unjudged,
            )

            shown = _tests_to_show(terminalreporter.config, taken)
            write_report(terminalreporter, shown)
            write_unjudged(terminalreporter, taken)
            write_comparisons(terminalreporter, shown)


def _tests_to_show(config: pytest.Config, taken: list[Test]) -> list[Test]:
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
