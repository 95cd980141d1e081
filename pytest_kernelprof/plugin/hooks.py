"""The pytest hooks: they register, look whether a test concerns us, and delegate."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_kernelprof.plugin.settings import (
    MARKER_LINE,
    OPTIONS_FORM,
    Options,
    Settings,
    add_options,
    options_of,
    read_settings,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_kernelprof.device.inventory import DeviceKind
    from pytest_kernelprof.plugin.fixture import KernelProfile

_FIXTURE = "kernel_profile"
_DEVICE_FIXTURE = "kernelprof_device"

_settings = pytest.StashKey[Settings]()
_rows = pytest.StashKey[list[dict[str, Any]]]()
_test = pytest.StashKey["KernelProfile"]()
_tables = pytest.StashKey[list[tuple[str, str]]]()
_test_tables = pytest.StashKey[list[str]]()
_test_rows = pytest.StashKey[list[dict[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    from pytest_kernelprof.limits.marks import marker_lines
    from pytest_kernelprof.plugin import benchmark

    config.stash[_settings] = settings = read_settings(config)
    if settings.spread_workers:
        from pytest_kernelprof.device.workers import spread_workers

        spread_workers(config)
    if benchmark.is_active(config):
        config.pluginmanager.register(benchmark.Bridge(settings), benchmark.PLUGIN)
    if settings.trace_dir:
        try:
            os.makedirs(settings.trace_dir, exist_ok=True)
        except OSError as error:
            raise pytest.UsageError(
                f"--kernelprof-trace-dir: {settings.trace_dir!r} cannot be made ({error.strerror})"
            ) from error
    config.stash[_rows] = []
    config.stash[_tables] = []
    for line in (*marker_lines(), MARKER_LINE):
        config.addinivalue_line("markers", line)
    # Read by torch when it is loaded, which test modules do before anything is measured: quiet
    # profiler logs, and compiled CPU graphs that show their kernels.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE", "1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.stash[_settings].only:
        return
    chosen = [item for item in items if _concerns_us(item)]
    dropped = [item for item in items if not _concerns_us(item)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = chosen


def _concerns_us(item: pytest.Item) -> bool:
    from pytest_kernelprof.limits.marks import is_marked

    fixtures = getattr(item, "fixturenames", ())
    return _FIXTURE in fixtures or is_marked(item)


def pytest_runtest_setup(item: pytest.Item) -> None:
    from pytest_kernelprof.limits.marks import limits_of, promises_of, refuse_misspelt

    refuse_misspelt(item, OPTIONS_FORM)
    settings = item.config.stash[_settings]
    if _test in item.stash:  # a plugin that retries calls the phases without reports between
        del item.stash[_test]
    if not _concerns_us(item):
        return
    limits_of(item)  # a malformed marker is an error of this test, before its fixtures run
    _options_of(item)
    promises_of(item)
    if not settings.disable:
        _resolve_device(item)


def _options_of(item: pytest.Item) -> Options:
    from pytest_kernelprof.limits.marks import option_marks

    return options_of(option_marks(item))


def _resolve_device(item: pytest.Item) -> DeviceKind:
    """The device of a test; skips (or fails, if a GPU is required) where there is none for it."""
    from pytest_kernelprof.device.inventory import why_no_gpu
    from pytest_kernelprof.errors import ProfilerUnavailable
    from pytest_kernelprof.limits.marks import limits_of

    settings = item.config.stash[_settings]
    asked = _options_of(item).device or settings.device
    if asked == "cpu":
        return _on_cpu(item)
    reason = why_no_gpu()
    if not reason:
        return "cuda"
    if not _concerns_us(item):  # --kernelprof-all looks at it, nothing asks for a GPU
        return "cpu"
    if settings.require_gpu:
        raise ProfilerUnavailable(f"--kernelprof-require-gpu: {reason}")
    if asked == "auto" and _DEVICE_FIXTURE in getattr(item, "fixturenames", ()):
        return _on_cpu(item)
    if limits_of(item) or asked == "cuda":
        hint = "run with --kernelprof-device=cpu to count compute operators instead"
        pytest.skip(f"{reason}; {hint}" if asked == "auto" else reason)
    pytest.skip(f"{reason}; the test profiles a GPU")


def _on_cpu(item: pytest.Item) -> DeviceKind:
    from pytest_kernelprof.limits.marks import limits_of

    limits = limits_of(item)
    if limits and not any(limit.on_cpu for limit in limits):
        names = ", ".join(limit.name for limit in limits)
        pytest.skip(f"not applicable on the CPU: {names}")
    return "cpu"


def _new_profile(item: pytest.Item) -> KernelProfile:
    from pytest_kernelprof.limits.marks import limits_of, promises_of
    from pytest_kernelprof.plugin.fixture import KernelProfile
    from pytest_kernelprof.report.progress import measuring

    settings = item.config.stash[_settings]
    device: DeviceKind = "cpu" if settings.disable else _resolve_device(item)
    progress = measuring(item.config, item.name)
    item.stash[_test] = KernelProfile(
        settings,
        device,
        limits_of(item),
        _options_of(item),
        progress,
        item.nodeid,
        promises_of(item),
    )
    return item.stash[_test]


@pytest.fixture
def kernel_profile(request: pytest.FixtureRequest) -> KernelProfile:
    """Profile GPU code: kernel_profile(fn, *args) warms up, profiles and measures it, and returns
    fn(*args); limits come from markers or kernel_profile.limit(...)."""
    return _new_profile(request.node)


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
    settings = request.config.stash[_settings]
    if settings.disable:
        from pytest_kernelprof.device.inventory import usual_kind

        asked = _options_of(request.node).device or settings.device
        return "cpu" if asked == "cpu" else usual_kind()
    return _resolve_device(request.node)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    from pytest_kernelprof.plugin.benchmark import has_benchmark, refuse_whole_call

    settings = item.config.stash[_settings]
    if _test not in item.stash and _whole_call_is_profiled(item, settings):
        with _new_profile(item).whole_call():
            outcome = yield
        if has_benchmark(item):  # fetched as the test ran, where it could not be foreseen
            item.stash[_test].dismiss()
            refuse_whole_call(item)
        _conclude(item)
        return outcome
    try:
        outcome = yield
    except BaseException:
        _note_rows(item)  # the test's own failure wins over a limit
        if _test in item.stash:
            item.stash[_test].dismiss()
        raise
    _conclude(item)
    return outcome


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    yield
    if _test in item.stash and item.stash[_test].new_profiles:  # taken while fixtures ended
        _conclude(item)


def _whole_call_is_profiled(item: pytest.Item, settings: Settings) -> bool:
    from pytest_kernelprof.limits.marks import limits_of
    from pytest_kernelprof.plugin.benchmark import timed_by_benchmark

    wanted = not settings.disable and (settings.all or bool(limits_of(item)))
    return wanted and not timed_by_benchmark(item)


def _conclude(item: pytest.Item) -> None:
    from pytest_kernelprof.limits.marks import is_marked, limits_of, promises_of

    __tracebackhide__ = True
    if _test not in item.stash:
        if is_marked(item):
            _refuse_late_markers(item)
        return
    from pytest_kernelprof.plugin.fixture import KernelprofWarning

    # The test may have added markers to itself.
    item.stash[_test].also(limits_of(item), promises_of(item))
    _note_rows(item)
    for text in item.stash[_test].conclude():
        item.warn(KernelprofWarning(text))


def _refuse_late_markers(item: pytest.Item) -> None:
    """A marked test that was not profiled, though nobody asked for that.

    Raises:
        IncompleteProfile: it got its limit when it ran already.
        MarkerError: it got a promise, which needs the fixture.
    """
    from pytest_kernelprof.errors import IncompleteProfile
    from pytest_kernelprof.limits.marks import limits_of, promises_of
    from pytest_kernelprof.plugin.benchmark import timed_by_benchmark

    if item.config.stash[_settings].disable or timed_by_benchmark(item):
        return
    promises_of(item)
    names = ", ".join(limit.name for limit in limits_of(item))
    if names:
        raise IncompleteProfile(
            f"{names} was not judged: its marker came when the test ran already; add it in a "
            "fixture, or ask for the fixture kernel_profile"
        )


def _note_rows(item: pytest.Item) -> None:
    test = item.stash.get(_test, None)
    if test is None:
        return
    item.stash[_test_rows] = test.rows(item.nodeid)
    item.stash[_test_tables] = test.new_tables()
    folder = item.config.stash[_settings].trace_dir
    if folder:
        from pytest_kernelprof.report.traces import save_traces

        save_traces(folder, item.nodeid, test.new_profiles)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when != "setup":
        # Subtests report while their test still runs; the rows are there only once it is judged.
        rows = item.stash.get(_test_rows, None)
        if rows:
            from pytest_kernelprof.plugin.collect import expected_to_fail

            xfailed = report.skipped and hasattr(report, "wasxfail")
            report.kernelprof = expected_to_fail(rows) if xfailed else rows  # type: ignore[attr-defined]
            del item.stash[_test_rows]  # a rerun of the test brings its own
        tables = item.stash.get(_test_tables, None)
        if tables:
            report.kernelprof_tables = tables  # type: ignore[attr-defined]
            del item.stash[_test_tables]
    if call.when == "teardown" and _test in item.stash:
        del item.stash[_test]  # profiles must not outlive their test
    if report.skipped and isinstance(report.longrepr, tuple) and report.longrepr[0] == __file__:
        # Skipped by us: the place to look at is the test.
        path, line = item.reportinfo()[:2]
        report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])
    if call.excinfo is not None:
        from pytest_kernelprof.errors import IncompleteProfile, MarkerError

        if call.excinfo.errisinstance((IncompleteProfile, MarkerError)):
            _make_error(report, call.excinfo)
    return report


def _make_error(report: pytest.TestReport, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Not a verdict but a number that could not be had: an error, also under ``xfail``."""
    report.outcome = "failed"
    if hasattr(report, "wasxfail"):
        del report.wasxfail
    if report.when == "call":
        report.kernelprof_error = True  # type: ignore[attr-defined]
    # Raised by a hook, not by a line of the test: the traceback would only show plugin code.
    inner = ("pytest_kernelprof", "_pytest", "pluggy", "contextlib")
    if all(any(name in str(entry.path) for name in inner) for entry in excinfo.traceback):
        report.longrepr = f"{type(excinfo.value).__name__}: {excinfo.value}"


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, str] | None:
    if getattr(report, "kernelprof_error", False):
        return "error", "E", "ERROR"
    return None


class _Gatherer:
    """Collects the rows of all reports, this process's own or those that xdist workers sent."""

    def __init__(self, rows: list[dict[str, Any]], tables: list[tuple[str, str]]) -> None:
        self._rows = rows
        self._tables = tables

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._rows.extend(getattr(report, "kernelprof", ()))
        for table in getattr(report, "kernelprof_tables", ()):
            self._tables.append((report.nodeid, table))


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    gatherer = _Gatherer(config.stash[_rows], config.stash[_tables])
    config.pluginmanager.register(gatherer, "kernelprof-gatherer")


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    try:
        yield
    finally:  # after pytest-benchmark's table, also where its comparison fails the run
        config = terminalreporter.config
        rows = _rows_to_show(config)
        tables = config.stash[_tables] if config.stash[_settings].report else []
        if rows or tables:
            from pytest_kernelprof.report.terminal import write_comparisons, write_report

            if rows:
                write_report(terminalreporter, rows)
            if tables:
                write_comparisons(terminalreporter, tables)


def _rows_to_show(config: pytest.Config) -> list[dict[str, Any]]:
    """All with --kernelprof-report; else those of the tests in pytest-benchmark's table."""
    from pytest_kernelprof.plugin import benchmark

    rows = config.stash[_rows]
    if config.stash[_settings].report:
        return rows
    bridge = config.pluginmanager.getplugin(benchmark.PLUGIN)
    return [row for row in rows if bridge is not None and row["test"] in bridge.shown]
