"""The pytest hooks and fixtures: a run begins; a test is set up, called, judged and reported.

Each hook first asks whether the test concerns us: an unused plugin loads no more than this."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_kernelprof.errors import NO_GPU, IncompleteProfile, LimitExceeded, ProfilerUnavailable
from pytest_kernelprof.limits.marks import MEASURING, is_marked, marker_lines, refuse_misspelt
from pytest_kernelprof.plugin import reporting
from pytest_kernelprof.plugin.items import Target, find_ignored_marks, run_state, state_of
from pytest_kernelprof.plugin.settings import MARKER_LINE, OPTIONS_FORM, Settings, add_options
from pytest_kernelprof.system import imports_as_ever  # loaded here, before anything is patched

if TYPE_CHECKING:
    from collections.abc import Generator

    import pluggy

    from pytest_kernelprof.plugin.fixture import KernelProfile
    from pytest_kernelprof.plugin.measuring import MeasuredTest
    from pytest_kernelprof.records.document import Run
    from pytest_kernelprof.records.profile import Profile


class Specifications:
    """The hooks that this plugin calls, for conftest.py files and other plugins."""

    def pytest_kernelprof_profile(self, item: pytest.Item, profile: Profile) -> None:
        """A test has taken a profile: called as its call ends, in the process that ran it.

        Args:
            profile: the record with its metrics, kernels and verdicts so far. It is frozen and
                holds no trace, so a hook may keep it.
        """

    def pytest_kernelprof_run(self, config: pytest.Config, run: Run) -> None:
        """The run ends, however: called once, in the process that reports, before its last lines.

        Only a hook of a plugin or of the ``conftest.py`` files that pytest loads at its start is
        called. Where there is one, as much is measured as for ``--kernelprof-json``.

        Args:
            run: all tests that took something, as ``--kernelprof-json`` keeps them.
        """


pytest_addoption = add_options


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Specifications)


def pytest_configure(config: pytest.Config) -> None:
    """Read the settings, and register who takes part in the run.

    Raises:
        pytest.UsageError: an option cannot be satisfied.
    """
    state = run_state(config)
    settings = _with_baselines(config, Settings.of(config))
    # The run that a baseline serves reports for it, and decides what fails.
    state.settings = settings = settings.of_a_baseline() if state.serves else settings
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _begin_rank(config)
        settings = state.settings
    if settings.spread_workers and hasattr(config, "workerinput"):
        from pytest_kernelprof.gpu.allocation import spread_workers

        spread_workers(config)
    # pytest-benchmark is there, whatever way it was loaded: its hooks are specified.
    hook = getattr(config.hook, "pytest_benchmark_update_machine_info", None)
    if hook is not None and hook.has_spec():
        from pytest_kernelprof.plugin.benchmark import Bridge

        config.pluginmanager.register(Bridge())
        state.has_bridge = True
    if settings.benchmarks:
        from pytest_kernelprof.plugin.triton_benchmarks import TritonBenchmarks

        config.pluginmanager.register(TritonBenchmarks(config))
    if settings.trace_dir:
        # Relative to where pytest was started: tests may change their directory.
        folder = os.path.join(config.invocation_params.dir, settings.trace_dir)
        from pytest_kernelprof.records.codec import why_unwritable

        if why := why_unwritable(folder):  # said at the start, not at the first trace
            raise pytest.UsageError(
                f"--kernelprof-trace-dir: {folder!r} cannot be created or written to ({why})"
            )
        state.settings = settings.changed(trace_dir=folder)
    if not hasattr(config, "workerinput"):  # what a worker took is for its controller
        config.pluginmanager.register(state.collector)
    if not state.serves:  # what a baseline took is for the run that it serves
        _begin_features(config)
    for line in marker_lines(MARKER_LINE):
        config.addinivalue_line("markers", line)
    # Read by torch when it is loaded, which test modules do before anything is measured: quiet
    # profiler logs, and compiled CPU graphs that show their kernels.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE", "1")


def _with_baselines(config: pytest.Config, settings: Settings) -> Settings:
    """The settings with what is compared with, by its kind.

    Raises:
        pytest.UsageError: there are two of one kind.
    """
    alone = "" if settings.against_python else None
    if run_state(config).serves:  # run documents are the other run's concern
        return settings.changed(revision=next(iter(settings.against), alone))
    found: dict[str, str] = {}
    for one in settings.against:
        kind = "run_document" if _is_run_document(config, one) else "revision"
        if kind in found:
            what, other = "run documents", "revision or folder"
            if kind == "revision":
                what, other = "revisions or folders", "run document"
            raise pytest.UsageError(
                f"--kernelprof-against: got two {what}, {found[kind]!r} and {one!r} "
                f"(addopts count too); give one, and with it at most one {other}"
            )
        found[kind] = one
    return settings.changed(**{"revision": alone, **found})


def _is_run_document(config: pytest.Config, given: str) -> bool:
    """Whether it is a file, and not a revision whose name a file without the ending .json has. In
    a worker, whose files may be others, it is what the controller says."""
    if hasattr(config, "workerinput"):
        return bool(given == run_state(config).collector.prepared.get("run_document"))
    path = os.path.join(config.invocation_params.dir, given)
    is_named_so = given.endswith((".json", ".json.gz"))
    if os.path.isdir(path) or not (is_named_so or os.path.isfile(path)):
        return False
    if is_named_so and os.path.isfile(path):
        return True
    from pytest_kernelprof.baselines.revision import asked

    return asked(str(config.rootpath), "rev-parse", "--verify", "--quiet", given) is None


def _begin_rank(config: pytest.Config) -> None:
    """This process is one of those that torchrun has started.

    Raises:
        pytest.UsageError: an option does not work on several ranks.
    """
    from pytest_kernelprof.plugin import torchrun

    place = torchrun.place_of_rank() if torchrun.takes_part(config) else None
    if place is None:
        return
    state = run_state(config)
    if state.settings.in_turn:
        raise pytest.UsageError(
            "--kernelprof-against: code on several ranks cannot be compared in turn; run "
            "without torchrun, or compare with an earlier run, --kernelprof-against=RUN.json"
        )
    if place.rank:
        state.settings, state.quiet = state.settings.quiet(), True
    kind = torchrun.QuietRank if place.rank else torchrun.FirstRank
    config.pluginmanager.register(kind(config, place))


def _begin_features(config: pytest.Config) -> None:
    """Run documents, snapshots, and the run on a revision's code."""
    state, register = run_state(config), config.pluginmanager.register
    settings = state.settings
    if state.is_read and not hasattr(config, "workerinput"):
        from pytest_kernelprof.plugin.run_record import RunRecord

        register(RunRecord(config))
    if not settings.disable:
        from pytest_kernelprof.plugin.run_snapshots import Snapshots

        state.snapshots = Snapshots(config, settings, state.collector, reports=not state.quiet)
        register(state.snapshots)
        state.comparisons.append(state.snapshots.comparison)
    elif settings.compares:
        given = "--kernelprof-against" if settings.against else "--kernelprof-against-python"
        raise pytest.UsageError(
            f"{given}: nothing is measured with --kernelprof-disable, so nothing would be "
            "compared; remove one of the two"
        )
    if settings.run_document:
        from pytest_kernelprof.plugin import run_baseline

        baseline_of = run_baseline.begin(config, settings, state.collector, state.comparisons)
        state.baseline_of = None if state.quiet else baseline_of  # rank 0 compares
    if settings.in_turn:
        from pytest_kernelprof.plugin import against_revision

        against_revision.begin(config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first fixture runs: take hold of what a test may replace."""
    config, state = session.config, run_state(session.config)
    settings = state.settings
    concerned = [item for item in session.items if state_of(item).concerns_us]
    if concerned and not config.getoption("collectonly", False):
        reporting.expect(config, concerned)
    if not settings.disable and (settings.all or concerned):
        from pytest_kernelprof.profiler.compiled_code import watch_compilers
        from pytest_kernelprof.profiler.torch_profiler import end_left_open
        from pytest_kernelprof.profiler.trace_folder import SCRATCH

        state.measures = True
        watch_compilers()
        SCRATCH.hold()
        config.add_cleanup(SCRATCH.let_go)
        # A process that exits while it is profiled crashes.
        config.add_cleanup(end_left_open)  # type: ignore[arg-type]
        if settings.device != "cpu":
            from pytest_kernelprof.plugin.measuring import OnGpu

            config.pluginmanager.register(OnGpu(settings))
        _bind_torch(config)


def _bind_torch(config: pytest.Config) -> None:
    """Take hold of torch, if it is loaded: of its functions before a test patches them, of CUDA
    graphs before a fixture captures any."""
    if run_state(config).measures and "torch" in sys.modules:
        from pytest_kernelprof.gpu.inventory import bind_if_loaded
        from pytest_kernelprof.profiler.cuda_graphs import watch_captures

        bind_if_loaded()
        watch_captures()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    find_ignored_marks(config, items)
    if not run_state(config).settings.only:
        return
    if dropped := [item for item in items if not state_of(item).concerns_us]:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if state_of(item).concerns_us]


def pytest_runtest_setup(item: pytest.Item) -> None:
    _bind_torch(item.config)  # a test before this one may have loaded it
    state = state_of(item)
    state.note_defaults()
    refuse_misspelt(item, OPTIONS_FORM)
    state.refuse_ignored_marks()
    state.begin_attempt()
    reporting.forget_properties(item)
    if not state.concerns_us:
        return
    # A malformed marker is an error of this test, before its fixtures run.
    if not state.settings.disable:
        from pytest_kernelprof.distributed.rendezvous import next_attempt

        if hasattr(item.config, "workerinput") and "TORCHELASTIC_RUN_ID" in os.environ:
            from pytest_kernelprof.plugin.torchrun import why_no_worker

            if why := why_no_worker(item.config):  # one rank's workers would meet others' tests
                raise IncompleteProfile(why)
        next_attempt(item.nodeid)
    state.find_snapshot(state.find_target(), asked=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, None]:
    # Others keep what they are told of the device for further tests.
    is_own = fixturedef.scope == "function"
    with state_of(request.node).standing_in if is_own else contextlib.nullcontext():
        yield


# Of the older kind: an exception of the test does not pass through a frame of ours.
@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, pluggy.Result[Any], None]:
    with imports_as_ever():
        begin_call(item)
    with state_of(item).standing_in:
        outcome = yield
    try:
        with imports_as_ever():
            end_call(item, outcome.exception)
    except BaseException as error:
        outcome.force_exception(error)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    if item.session.shouldfail or item.session.shouldstop:  # as long as there is a process group
        reporting.tell_end_of_run(item.config)
    try:
        with state_of(item).standing_in:
            yield
    finally:
        with imports_as_ever():
            _clean_up(item)
    test = state_of(item).test
    if test is None:
        return
    try:
        if test.ledger.unconcluded:  # taken as fixtures ended
            conclude_test(item)
    finally:
        # Once the verdict is out, which a warning that is made an error would hide.
        for words in test.ledger.unsaved:
            state_of(item).warn(words)


def _clean_up(item: pytest.Item) -> None:
    """For the next test: no profiler of ours runs on, and who broke CUDA is known."""
    if run_state(item.config).measures and "torch" in sys.modules:
        from pytest_kernelprof.gpu.inventory import look_after
        from pytest_kernelprof.profiler.torch_profiler import end_left_open, end_taken_over

        end_left_open()
        if state_of(item).concerns_us:  # of a test that is only looked at, another may count on it
            end_taken_over()
        look_after(item.nodeid)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if call.excinfo is not None and call.when != "teardown" and (why := state_of(item).lacks_gpu):
        error, by = ProfilerUnavailable(why), call.excinfo
        error.__cause__ = None if isinstance(by.value, ProfilerUnavailable) else by.value
        call.excinfo = pytest.ExceptionInfo.from_exc_info((type(error), error, by.tb))
    if call.excinfo is not None and not item.config.getoption("fulltrace", False):
        with imports_as_ever():
            reporting.hide_our_frames(call.excinfo)
    report = yield
    with imports_as_ever():
        reporting.tell_more(item, call, report)
        if report.when != "setup" or not report.passed:
            reporting.tell_other_ranks(item, call)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)  # rank 0 waits for the others in one that is none
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    reporting.tell_end_of_run(session.config)
    reporting.tell_open(session.config)
    reporting.fold_failures(session.config)
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
        state = run_state(terminalreporter.config)
        taken = list(state.collector.tests())
        if taken or state.settings.compares:
            reporting.show(terminalreporter, taken)


def begin_test(item: pytest.Item, target: Target, *, asked: bool = True) -> MeasuredTest:
    """What the test's measurements depend on, and the ledger that they go to.

    Args:
        asked: whether the test asks for numbers, by the fixture or a limit.
    """
    from pytest_kernelprof.plugin.ledger import Ledger
    from pytest_kernelprof.plugin.measuring import MeasuredTest, measuring

    state = state_of(item)
    run, settings = state.run, state.settings
    run.measures = True  # which a fixture fetched by name did not tell before
    state.test = test = MeasuredTest(
        id=item.nodeid,
        place=state.place,
        **target._asdict(),
        settings=settings,
        ledger=Ledger(
            state.marks,
            asked=asked,
            lines=settings.in_turn,
            snapshot=state.find_snapshot(target, asked=asked),
            baseline=run.baseline_of(item.nodeid) if run.baseline_of is not None else None,
        ),
        measuring=measuring(item.config, item.name),
        everything=bool(settings.report or settings.run_document)
        or run.is_wanted_whole
        or "kernel_benchmark" in state.fixtures,
        keeps_timelines=run.is_wanted_whole,
        after_call=run.after_call,
        snapshot_of=state.find_snapshot_of,
    )
    return test


@pytest.fixture
def kernel_profile(request: pytest.FixtureRequest) -> KernelProfile:
    """Profile GPU code: kernel_profile(fn, *args) warms up, profiles and measures it, and returns
    fn(*args); limits come from markers or kernel_profile.limit(...)."""
    from pytest_kernelprof.plugin.fixture import KernelProfile

    item: pytest.Item = request.node
    state = state_of(item)
    state.fetched = ("kernel_profile",)
    if state.whole_call is not None:  # fetched as the test runs: it measures by itself from here on
        from pytest_kernelprof.plugin.measuring import GaveWay, abandon

        abandon(state.whole_call, GaveWay())
        state.whole_call = None
    return KernelProfile(begin_test(item, state.find_target()))


@pytest.fixture
def kernel_benchmark(kernel_profile: KernelProfile) -> None:
    """As kernel_profile, and times with pytest-benchmark, which has to be installed and active."""
    # Where it is, the bridge's fixture of this name takes the place of this one.
    raise IncompleteProfile(
        "kernel_benchmark needs pytest-benchmark, which is not active in this run: pip install "
        "'pytest-kernelprof[benchmark]', drop -p no:benchmark, or use kernel_profile(fn, *args) "
        "instead"
    )


@pytest.fixture
def kernelprof_device(request: pytest.FixtureRequest) -> str:
    """The device to run on, "cuda" or "cpu". A test that asks for it runs without a GPU too, where
    compute operators are counted instead of kernels."""
    state = state_of(request.node)
    settings = state.settings
    if settings.disable:
        from pytest_kernelprof.gpu.inventory import usual_kind

        return "cpu" if settings.device == "cpu" else usual_kind()
    return state.find_target().device


def begin_call(item: pytest.Item) -> None:
    """Note what fixtures measure around the call phase, or begin to profile it: of a test with a
    limit as it asks, of others as far as they do not notice."""
    state = state_of(item)
    if state.test is not None:
        asked = getattr(getattr(item, "_fixtureinfo", None), "initialnames", MEASURING)
        state.test.ledger.begin_call(for_fixtures=MEASURING.isdisjoint(asked))
        return
    settings, judged = state.run.settings, state.is_judged
    if state.target is not None and state.target.compiles:
        judged = True
    elif settings.disable or not (settings.all or judged) or state.is_benchmarked:
        return
    target = state.find_target() if judged else Target(state.device_to_look_at())
    if target.compiles or not target.unmeasured:
        from pytest_kernelprof.plugin.measuring import compile_block, judged_call, observed_call

        profiled = judged_call if judged else observed_call
        profiled = compile_block if target.compiles else profiled
        state.whole_call = contextlib.ExitStack()
        state.whole_call.enter_context(profiled(begin_test(item, target, asked=judged)))


def end_call(item: pytest.Item, raised: BaseException | None) -> None:
    """Judge what the test took, and tell others of it. What they raise hides no failure, and is no
    try of the test, which it may expect to fail."""
    state, failure = state_of(item), raised
    whole_call, state.whole_call = state.whole_call, None
    try:
        try:
            if whole_call is not None:
                _end_whole_call(item, whole_call, raised)
        except BaseException:
            _dismiss(item)
            raise
        if state.test is not None and state.test.end_compiled(raised):
            conclude_test(item)
        elif raised is not None:  # which wins over a limit
            _dismiss(item)
        elif state.test is None or not state.test.ledger.waits_for_fixtures:
            conclude_test(item)
    except BaseException as verdict:
        failure = verdict
        raise
    finally:
        _tell_others(item, failure)


def _tell_others(item: pytest.Item, failure: BaseException | None) -> None:
    test = state_of(item).test
    if test is None or run_state(item.config).serves:  # of a baseline nobody hears
        return
    try:
        for profile in test.ledger.judged():
            item.ihook.pytest_kernelprof_profile(item=item, profile=profile)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also skip() and fail() of pytest: they are not the test's
        words = f"a hook pytest_kernelprof_profile raised {type(error).__name__}: {error}"
        if failure is None:
            raise IncompleteProfile(words) from error
        item.add_report_section("call", "kernelprof", words)


def _end_whole_call(
    item: pytest.Item, whole_call: contextlib.ExitStack, raised: BaseException | None
) -> None:
    from pytest_kernelprof.plugin import measuring

    state = state_of(item)
    if raised is not None:
        measuring.abandon(whole_call, raised)
    elif not state.has_benchmark:
        whole_call.close()
    else:  # fetched as the test ran, where it could not be foreseen
        measuring.abandon(whole_call, measuring.GaveWay())
        if state.is_judged:
            measuring.refuse_whole_call(state.marks.limits)
        if measuring.torch_is_loaded() and state.test is not None:
            state.test.ledger.keep_unmeasured(state.test.device, measuring.BENCHMARKED)


def _dismiss(item: pytest.Item) -> None:
    """The test has failed by itself: what it took is reported, and not judged."""
    if (test := state_of(item).test) is not None:
        _note_taken(item, test)
        test.ledger.dismiss()


def conclude_test(item: pytest.Item) -> None:
    """Judge what the test took; raise or warn as that says."""
    state = state_of(item)
    test = state.test
    if test is None:
        if is_marked(item):
            _refuse_late_markers(item)
        return
    from pytest_kernelprof.plugin.outcome import conclude

    test.ledger.marks = state.marks  # the test may have added markers to itself
    if test.ledger.has_nothing and not test.unmeasured:
        from pytest_kernelprof.distributed.agreement import group_without_this

        # Of several ranks, one may have nothing to profile: others make the calls (group=[0]).
        if ranks := group_without_this(test.id, test.settings.rank_timeout):
            test.ledger.leave_out(f"profiled on other ranks: {ranks} make the calls of this test")
    _note_taken(item, test)
    records = test.ledger.records(test.unmeasured)
    found = conclude(records, state.as_told(), test.settings)
    if state.snapshot is not None:
        state.snapshot.accepts = found.accepts
    for words in found.warnings:
        state.warn(words)
    is_required = test.settings.require_gpu and not test.settings.disable
    if is_required and records.unmeasured and not isinstance(found.raises, LimitExceeded):
        raise ProfilerUnavailable(NO_GPU + records.unmeasured.removeprefix(NO_GPU))
    if found.raises is not None:
        raise found.raises


def _refuse_late_markers(item: pytest.Item) -> None:
    """A marked test that was not profiled, though nobody asked for that.

    Raises:
        IncompleteProfile: it got its limit when it ran already.
        MarkerError: it got a limit that compares, which needs the fixture.
    """
    state = state_of(item)
    if state.is_benchmarked or state.find_target().unmeasured:
        return
    if names := ", ".join(limit.name for limit in state.marks.limits):
        raise IncompleteProfile(
            f"{names} was not judged: its marker was added while the test ran; add it in a "
            "fixture, or request the fixture kernel_profile"
        )


def _note_taken(item: pytest.Item, test: MeasuredTest) -> None:
    """Keep what the test took for its report, where anybody reads it. Each run tells of a verdict
    that is missing or undecided, or that a skip hides, whatever reports it writes."""
    from pytest_kernelprof.records.document import Test

    state = state_of(item)
    before = state.taken or Test(item.nodeid)
    taken = test.ledger.report(before)
    reporting.tell_properties(item, test.ledger.judged(), taken.comparisons)
    is_open = any(one.outcome in ("not judged", "undecided") for one in taken.verdicts)
    is_open |= test.compiles is not None
    if taken is not before and (is_open or state.run.is_read or state.run.has_bridge):
        state.taken = taken
