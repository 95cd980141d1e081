"""How the code of a test is measured: a call, a block, or its whole call phase.

Its settings and limits become a plan, its profiles go into the ledger, and a line on the terminal
says what takes long. The call phase begins and ends in two hooks, so that no exception of the test
passes through frames of ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from traceback import walk_stack  # before a test can patch it
from types import FrameType
from typing import Any, NamedTuple, NoReturn, TextIO, TypeVar

import pytest
from _pytest.outcomes import Exit, Failed, XFailed
from msgspec.structs import replace

from pytest_kernelprof import api, errors, system
from pytest_kernelprof.analysis.session_profile import compiled_profile
from pytest_kernelprof.distributed.agreement import Agreement, agreeing, number_of_rank
from pytest_kernelprof.distributed.rendezvous import name_of_test
from pytest_kernelprof.gpu import inventory, usage_lock
from pytest_kernelprof.limits.kinds import Limit
from pytest_kernelprof.measure import policy, runner
from pytest_kernelprof.measure.arguments import Arguments, preparer
from pytest_kernelprof.measure.callables import OpenProgress
from pytest_kernelprof.measure.sessions import MoreRounds
from pytest_kernelprof.plugin.ledger import Ledger
from pytest_kernelprof.plugin.outcome import Request
from pytest_kernelprof.plugin.settings import Settings
from pytest_kernelprof.plugin.snapshot_judge import SnapshotJudge
from pytest_kernelprof.profiler import torch_profiler
from pytest_kernelprof.profiler.line_annotations import file_of, library_folders
from pytest_kernelprof.profiler.triton_targets import Recorded, Targets
from pytest_kernelprof.records.profile import Place, Profile
from pytest_kernelprof.records.recording import DeviceKind, Environment
from pytest_kernelprof.summary import wording
from pytest_kernelprof.trace.trace_text import write_trace

AfterCall = Callable[["MeasuredTest", "MeasuredCall"], None]


R = TypeVar("R")

CUDA_INITIALIZED = (
    "not profiled: CUDA was initialized inside {tests}; --kernelprof-all does not initialize "
    "CUDA, --kernelprof-device=cuda does so before the first test"
)

TORCH_IMPORTED = (
    "not profiled: torch was first imported inside {tests}; --kernelprof-all does not import "
    "torch: import it in conftest.py"
)

BENCHMARKED = (
    "the test calls benchmark, whose calibration and rounds would all be counted: write "
    "kernel_benchmark(fn, *args) in its place"
)

IN_CALLABLE = "catch expected exceptions inside the callable"
_NOT_AGAINST = (
    "--kernelprof-against cannot compare code on several ranks in turn: run such tests without it, "
    "or compare with an earlier run, --kernelprof-against=RUN.json"
)


class MeasuredTest(NamedTuple):
    """One test, and all that its measurements depend on.

    Attributes:
        id: its node id. place: where it stands.
        settings: those of the run, with the options of its marker in their place.
        device: where its code is measured.
        unmeasured: why its code runs without being measured; empty where it is.
        compiles: what its kernels are compiled for instead, if they are.
        measuring: opens a progress line for one measurement.
        everything: whether all metrics are read, whatever its limits need.
        keeps_timelines: whether somebody reads rounds event by event.
        after_call: is handed each call when it has been measured, its arguments still there.
        snapshot_of: finds what judges the test by its snapshots of another device.
    """

    id: str
    place: Place
    device: DeviceKind
    settings: Settings
    ledger: Ledger
    measuring: OpenProgress = lambda: contextlib.nullcontext(policy.no_progress)
    everything: bool = False
    keeps_timelines: bool = False
    after_call: AfterCall | None = None
    unmeasured: str = ""
    compiles: Targets | None = None
    snapshot_of: Callable[[Environment], SnapshotJudge | None] = lambda _: None

    def request(self, what: str, **more: Any) -> Request:
        """What the line of the test that is running asks for, as ``Request`` has it."""
        place = place_of_call(self.place)
        return Request(f"{what} at {wording.line_of(place)}", place=place, **more)

    def plan(self, needs: policy.Needs, **given: Any) -> policy.Plan:
        """What to take: by the options given for a call, else by the settings of the test."""
        settings = self.settings.changed(**given)
        return policy.plan_of(self.device, needs, rounds=settings.rounds)._replace(
            warmup=settings.warmup,
            flush_l2=settings.flush_l2,
            stacks=settings.stacks,
            lock_timeout_s=settings.lock_timeout,
            who=self.id,
            ignore_children=settings.other_processes == "ignore",
        )

    @contextlib.contextmanager
    def agreeing(self, request: Request) -> Iterator[Agreement]:
        """Make a call of this test together with the other ranks, if there are any, which have to
        make the same one, from the same line: else one that a rank left out would be mixed up with
        its next.

        Raises:
            IncompleteProfile: there are ranks, and the run compares with a revision.
        """
        call, group, limit_s = request.what, request.group, self.settings.rank_timeout
        with agreeing(call, test=name_of_test(self.id), group=group, limit_s=limit_s) as agreement:
            if agreement.rank is not None and self.settings.in_turn:
                raise errors.IncompleteProfile(_NOT_AGAINST)
            agreement.gather(call, None)
            yield agreement

    def end_compiled(self, raised: BaseException | None) -> bool:
        """Whether the test is judged by kernels that were compiled, whatever it has raised: nothing
        was computed. It says what ended it; if it has launched nothing, in a profile."""
        meant = errors.KernelprofError, errors.LimitExceeded, XFailed, Exit
        is_own = isinstance(raised, (Exception, Failed, errors.NotJudged, type(None)))
        if self.compiles is None or not is_own or isinstance(raised, meant):
            return False
        taken = self.ledger.judged()
        if not taken:
            with contextlib.suppress(BaseException), compile_block(self):
                if raised is not None:
                    raise raised
        elif raised is not None and not taken[-1].ended:
            recorded = Recorded()
            recorded.end(raised)
            self.ledger.notes.append(f"the test ended early: {recorded.ended}")
        return True

    def needs(self, own: Iterable[Limit] = ()) -> policy.Needs:
        """Everything where nothing says less, else what the limits need; spills and work only for a
        limit.

        Args:
            own: limits of what is measured alone, beside those of the test.
        """
        limits = (*self.ledger.limits, *own)
        spills, work = (any(of in one.sources for one in limits) for of in ("binaries", "work"))
        against = self.settings.in_turn  # which compares all that is exact
        if self.everything or not (limits or against):
            return policy.EVERYTHING._replace(spills=spills, work=work)
        return policy.Needs(
            spills=spills,
            device_times=any(limit.device_time for limit in limits),
            host_times=any("unprofiled" in limit.sources for limit in limits),
            memory=against or any("memory" in limit.sources for limit in limits),
            work=work,
        )


class MeasuredCall(NamedTuple):
    """A call that has just been measured and can be made again.

    Attributes:
        result: of its first call.
        profile: with the verdicts of the limits of its test.
    """

    more: MoreRounds
    result: object
    profile: Profile


def measure_call(
    test: MeasuredTest,
    plan: policy.Plan,
    fn: Callable[..., R],
    arguments: Arguments,
    request: Request,
) -> R:
    """Measure a callable and keep its profile, or call it once where nothing is measured; returns
    the first call's result.

    Args:
        request: what the test asked for.
    """
    ledger, said = test.ledger, test.ledger.take_work()
    if test.unmeasured:
        ledger.leave_out(test.unmeasured)
        if test.compiles is not None:
            return compile_call(test, fn, arguments, request)
        return run_plainly(fn, arguments)
    with torch_profiler.held_by(request.what), may_be_blind(test):
        with test.agreeing(request) as agreement, test.measuring() as progress:
            label = f"profile {len(ledger) + 1}" if len(ledger) else ""
            result, measurement = runner.measure(
                fn,
                plan,
                arguments,
                label=label,
                judge=ledger.so_far,
                progress=progress,
                agreement=agreement,
                said=said,
            )
            _keep(test, measurement, request)
            if test.after_call is not None and measurement.more is not None:
                test.after_call(test, MeasuredCall(measurement.more, result, ledger.judged()[-1]))
        return result  # type: ignore[no-any-return]
    return run_plainly(fn, arguments)


@contextlib.contextmanager
def may_be_blind(test: MeasuredTest, limits: Iterable[Limit] = ()) -> Iterator[None]:
    """Measure something that the test can do without: where the device cannot be profiled the test
    goes on, and is an error at its end, or by ``kernelprof_blind`` not judged.

    Args:
        limits: what would be judged by it, beside the limits of the test.

    Raises:
        ProfilerUnavailable: other ranks wait for this one.
    """
    try:
        yield
    except errors.ProfilerUnavailable as error:
        if number_of_rank() is not None:
            raise
        if test.settings.blind == "error":
            test.ledger.blind = str(error)
            return
        test.ledger.leave_out(f"the device cannot be profiled: {error}", limits)
        words = f"not judged (kernelprof_blind = not-judged): {error}"
        test.ledger.notes += [] if words in test.ledger.notes else [words]


def nothing_to_look_at(test: MeasuredTest, what: str) -> NoReturn:
    """Leave a test that looks at what was not measured, at the line that does.

    Raises:
        NotJudged: there is no device, or nothing is measured in this run.
        ProfilerUnavailable: the device cannot be profiled.
    """
    if test.ledger.blind:
        raise errors.ProfilerUnavailable(test.ledger.blind)
    raise errors.NotJudged(f"{test.ledger.unmeasured}; there is no {what} to look at")


@contextlib.contextmanager
def measure_block(
    test: MeasuredTest, name: str = "", request: Request | None = None, *, asked: bool = True
) -> Iterator[list[api.Profile]]:
    """Measure a block as it stands, once; its profile is in the list after the block. Ranks run
    it as they do without us, and have each other's profiles when all are through; but where nobody
    asked for numbers, each has its own.

    Args:
        request: what the test asked for; None for its whole call.
        asked: whether a limit or a snapshot judges the block.
    """
    kept: list[api.Profile] = []
    plan = test.plan(test.needs(request.own.values() if request else ()))
    unlimited = request is None and not test.ledger.limits
    if unlimited:  # as cheap as can be
        plan = plan._replace(inputs=False)
    request = request or _whole_call(test)
    found: list[runner.Measurement] = []
    limits = request.own.values()
    with torch_profiler.held_by(request.what, gives_way=unlimited), contextlib.ExitStack() as block:
        with may_be_blind(test, limits) if asked else contextlib.nullcontext():
            found = block.enter_context(runner.measure_once(plan, name, test.ledger.take_work))
        yield kept
        with may_be_blind(test, limits) if asked else contextlib.nullcontext():
            block.close()
    if not found:
        return
    profile = found[0].profile
    if asked:
        with test.agreeing(request) as agreement:
            profile = runner.with_other_ranks(profile, agreement)
    else:
        profile = replace(profile, rank=number_of_rank())
    kept.append(_keep(test, found[0]._replace(profile=profile), request))


class GaveWay(BaseException):
    """Ends a profiled block whose profile nobody wants."""


@contextlib.contextmanager
def judged_call(test: MeasuredTest) -> Iterator[None]:
    """Profile the call phase of a test with a limit: what prevents that is the test's error.

    Raises:
        IncompleteProfile: there is no profile, or the test only loads profiles of others.
    """
    traces = api.traces_loaded()
    with measure_block(test) as kept:
        yield
    names = ", ".join(limit.name for limit in test.ledger.limits)
    launched = any(profile.kernel_count for profile in kept)
    if names and not launched and api.traces_loaded() > traces:
        raise errors.IncompleteProfile(
            f"{names} was not judged: the test launched nothing and read a trace, which markers "
            "judge if the fixture loads it: request kernel_profile, and write "
            "kernel_profile.load(path)"
        )


@contextlib.contextmanager
def observed_call(test: MeasuredTest) -> Iterator[None]:
    """Profile the call phase of a test without a limit (--kernelprof-all), if that leaves torch as
    the test would find it; else the end of the run says why there is no profile, where there would
    have been one. What prevented it otherwise is in the test's row; nothing else changes."""
    needed = [(torch_is_loaded, TORCH_IMPORTED)]
    if test.device == "cuda" and test.settings.device == "auto":
        # If a test keeps that from being asked, measuring will tell.
        needed.append((partial(is_cuda_up, otherwise=True), CUDA_INITIALIZED))
    for is_there, words in needed:
        if not is_there():
            yield
            if is_there():
                test.ledger.end_notes.append(words)
            return
    with contextlib.ExitStack() as block:
        with _told_in_its_row(test):
            block.enter_context(measure_block(test, asked=False))
        yield
        with _told_in_its_row(test):
            block.close()


@contextlib.contextmanager
def _told_in_its_row(test: MeasuredTest) -> Iterator[None]:
    """What goes wrong is the reason why the test has no profile, and nothing else."""
    try:
        yield
    except Exception as error:
        known = isinstance(error, errors.KernelprofError)
        why = str(error) if known else f"{type(error).__name__}: {error}"
        test.ledger.keep_unmeasured(test.device, why)


def abandon(block: contextlib.ExitStack, raised: BaseException) -> None:
    """End a call phase that has raised; that error stands, whatever the end meets."""
    where = raised.__traceback__
    with contextlib.suppress(Exception, GaveWay):
        block.__exit__(type(raised), raised, where)
    raised.__traceback__ = where


def refuse_whole_call(limits: Iterable[Limit]) -> NoReturn:
    """A call phase that pytest-benchmark repeats as it likes has no count of its own.

    Raises:
        MarkerError: always, with the remedy.
    """
    names = ", ".join(limit.name for limit in limits)
    raise errors.MarkerError(
        f"{names}: {BENCHMARKED}, which profiles fn once, outside the timed rounds"
    )


def is_cuda_up(*, otherwise: bool) -> bool:
    """Whether CUDA is up.

    Args:
        otherwise: the answer if a fixture has put something in place of torch's functions.
    """
    with contextlib.suppress(Exception):
        return inventory.cuda_is_up()
    return otherwise


def torch_is_loaded() -> bool:
    """Whether anybody has imported torch."""
    return "torch" in sys.modules


class OnGpu:
    """The plugin of a run that measures on a GPU.

    Args:
        settings: those of the run.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        """Where all tests are profiled, also those that did not ask for it: bring up the profiler
        once CUDA is up, between two tests, before other plugins time them.

        It takes seconds, which a time limit of the test (pytest-timeout) must not see. What goes
        wrong is told when a test is measured.
        """
        if self._settings.all and is_cuda_up(otherwise=True):
            with contextlib.suppress(Exception):
                torch_profiler.prime(inventory.current_device("cuda"))
        return (yield)

    # Of the older kind: an exception of the test does not pass through a frame of ours.
    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, None]:
        """Share the GPU: in the test itself, likewise in its fixtures, those of its module and
        session, and their ends, also of tests that are not measured. Between them nothing is held:
        a worker may wait there for its next test."""
        usage_lock.begin(item.nodeid, self._settings.lock_timeout)
        yield
        usage_lock.end()

    pytest_runtest_setup = pytest_runtest_teardown = pytest_runtest_call

    def pytest_enter_pdb(self) -> None:
        """A breakpoint in a test: others do not wait for who sits before it."""
        usage_lock.stop()

    def pytest_leave_pdb(self) -> None:
        """The test goes on."""
        usage_lock.go_on()


def call_request(test: MeasuredTest, group: object = None) -> Request:
    """What ``kernel_profile(fn)`` asks for; the limits that compare are about it, too."""
    return test.request("kernel_profile", remedy=IN_CALLABLE, compares=True, group=group)


def run_plainly(fn: Callable[..., R], arguments: Arguments) -> R:
    """Call once, and measure nothing."""
    return preparer(fn, arguments)()()  # type: ignore[no-any-return]


def compile_call(
    test: MeasuredTest, fn: Callable[..., R], arguments: Arguments, request: Request
) -> R:
    """Call once for each target that the test's kernels are compiled for; returns the first result.
    What one call raises keeps no other from being made."""
    results: list[R] = []

    def call(target: str) -> None:
        with compile_block(test, request, (target,)):
            results.append(run_plainly(fn, arguments))

    with contextlib.ExitStack() as calls:  # which makes all of them, the last first
        for target in reversed(test.settings.targets):
            calls.callback(call, target)
    return results[0]


@contextlib.contextmanager
def compile_block(
    test: MeasuredTest,
    request: Request | None = None,
    targets: Sequence[str] = (),
    name: str = "",
    inside: Any = None,
) -> Iterator[Any]:
    """Compile the Triton kernels that a block would launch, and keep what they need.

    Args:
        request: what the test asked for; None for its whole call.
        targets: what they are compiled for, if not for all targets of the test.
        name: of the block, where it has one. inside: what the block is given.
    """
    targets, request = targets or test.settings.targets, request or _whole_call(test)
    assert test.compiles is not None, "the test has targets"
    recorded = Recorded()
    try:
        with test.compiles.recording(targets, recorded):
            yield inside
    finally:
        versions = {name: inventory.installed_version(name) for name in ("torch", "triton")}
        for target in targets:
            launches = [one[target] for one in recorded.launches]
            found = compiled_profile(target, launches, versions, recorded.ended)
            label = ", ".join(filter(None, [name, target]))
            test.ledger.keep_record(replace(found, label=label), request)


def _whole_call(test: MeasuredTest) -> Request:
    """What is asked for where a limit judges all that a test does."""
    return Request(f"the whole call of {test.id}", place=test.place)


def _keep(test: MeasuredTest, measurement: runner.Measurement, request: Request) -> api.Profile:
    timeline = measurement.timeline() if test.keeps_timelines else None
    path, folder, label = "", test.settings.trace_dir, measurement.profile.label
    if folder:
        path = trace_path(folder, test.id, len(test.ledger) + 1, label, number_of_rank())
        try:
            write_trace(measurement.file.path, measurement.recording, path)
        except (OSError, errors.TraceError) as error:  # the profile is judged all the same
            why = f"{path} cannot be written ({getattr(error, 'strerror', None) or error})"
            test.ledger.unsaved.append(f"--kernelprof-trace-dir: {why}")
            path = ""
    return test.ledger.keep(measurement, request, timeline, path)


def place_of_call(test: Place) -> Place:
    """The line that the running call came from, as the test's reader looks for it: the test
    function's own, else the nearest of its file, else the nearest that is no library's (a helper's,
    a fixture's); the test's first where there is none, as in a thread of a library.

    Args:
        test: where the test function begins, decorators included.
    """
    stack = walk_stack(sys._getframe())
    inner = (system.PACKAGE, "<")
    outside = [one for one, _ in stack if not one.f_code.co_filename.startswith(inner)]
    wanted: tuple[Callable[[FrameType], bool], ...] = (
        lambda frame: Place(file_of(frame), frame.f_code.co_firstlineno) == test,
        lambda frame: file_of(frame) == test.file,
        lambda frame: not os.path.abspath(file_of(frame)).startswith(library_folders()),
    )
    found = next((frame for is_it in wanted for frame in filter(is_it, outside)), None)
    return Place(file_of(found), found.f_lineno) if found is not None else test


_QUIET_SECONDS = 1.0
_BETWEEN_SECONDS = 0.1

# The line stands below the one that pytest is writing, and the cursor always goes back to where
# pytest left it, so that nothing of pytest's own output is lost or written twice. "Index" and up
# again first: at the bottom of the screen that makes room and keeps the column, as a line feed
# would not; only then may the position be saved.
_MAKE_ROOM = "\x1bD\x1b[A"
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_BELOW, _ERASE_REST = "\x1b[B\r", "\x1b[K"


def measuring(config: pytest.Config, test: str) -> OpenProgress:
    """What opens a progress line for one measurement of a test, and erases it at its end.

    The line appears after a second of work. It is there on a terminal only: not when standard
    output is piped, in an xdist worker, with ``-q``, or where what tests or loggers print goes to
    the terminal at once (``-s``, ``--capture=tee-sys``, ``log_cli``) and would mix with it.
    """
    capture = config.pluginmanager.getplugin("capturemanager")
    out = sys.__stdout__  # not sys.stdout, which the test may have redirected into a buffer
    if capture is None or out is None or not _can_show(config):
        return lambda: contextlib.nullcontext(policy.no_progress)
    return lambda: progress_line(test, out, capture.global_and_fixture_disabled)


def _can_show(config: pytest.Config) -> bool:
    plugins = config.pluginmanager
    terminal = plugins.getplugin("terminalreporter")
    return (
        terminal is not None
        and bool(getattr(terminal, "isatty", False))
        and not hasattr(config, "workerinput")
        and config.get_verbosity() >= 0
        and config.getoption("capture") in ("fd", "sys")
        and not (
            plugins.hasplugin("logging-plugin")
            and (config.getini("log_cli") or config.getoption("log_cli_level") is not None)
        )
        and os.environ.get("TERM") != "dumb"
        and sys.platform != "win32"  # its consoles know the control sequences only on request
    )


@contextlib.contextmanager
def progress_line(
    test: str, out: TextIO, uncaptured: Callable[[], contextlib.AbstractContextManager[object]]
) -> Iterator[policy.Progress]:
    """One line of progress, rewritten in place; nothing of it is left behind."""
    next_s, visible = system.now_s() + _QUIET_SECONDS, False

    def write(text: str) -> None:
        with uncaptured():
            out.write(_MAKE_ROOM + _SAVE + _BELOW + text + _ERASE_REST + _RESTORE)
            out.flush()

    def show(what: str, done: int, of: int, reason: str = "") -> None:
        nonlocal next_s, visible
        if system.now_s() < next_s and done < of:
            return
        text = f"{test}: {what} {done}/{of}" + (f" ({reason})" if reason else "")
        text = text.encode("ascii", "backslashreplace").decode()  # one column a character
        text = "".join(char if char.isprintable() else "?" for char in text)
        columns = shutil.get_terminal_size().columns
        write(text if len(text) < columns else text[: columns - 4] + "...")
        next_s, visible = system.now_s() + _BETWEEN_SECONDS, True

    try:
        yield show
    finally:
        if visible:
            write("")


# The names of traces.

_LONGEST = 150
# Of such an id, label and number each hyphen in a file name can be told what it stands for.
_PLAIN_TEST = re.compile(r"(?:[A-Za-z_][\w.]*/)*[A-Za-z_]\w*\.py(?:::[A-Za-z_]\w*)+", re.ASCII)
_PLAIN_LABEL = re.compile(r"[\w.]*", re.ASCII)


def trace_path(folder: str, test: str, index: int, label: str = "", rank: int | None = None) -> str:
    """Return the file of a profile, a gzip Chrome trace; ``index`` counts a test's profiles from 1.

    No two profiles have the same file: where plain characters do not suffice, the name has a
    digest. Each rank has its own file.
    """
    name = f"{test}-{index}-{label}" if label else f"{test}-{index}"
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name.replace("::", "-").replace("/", "-")).strip("-")
    if not _is_told_apart(test, label) or len(plain) > _LONGEST:
        whole = f"{test}\n{index}\n{label}".encode("utf-8", "backslashreplace")
        plain = f"{plain[-_LONGEST:]}-{hashlib.sha1(whole, usedforsecurity=False).hexdigest()[:8]}"
    of_rank = "" if rank is None else f".rank{rank}"
    return os.path.join(folder, f"{plain}{of_rank}.json.gz")


def _is_told_apart(test: str, label: str) -> bool:
    """Whether the name in plain characters is that of no other profile."""
    if sys.platform in ("darwin", "win32") and (test + label).lower() != test + label:
        return False  # there A and a are one
    folders = test.partition("::")[0].split("/")[:-1]
    plain = _PLAIN_TEST.fullmatch(test) and _PLAIN_LABEL.fullmatch(label)
    return bool(plain) and not any(folder.endswith(".py") for folder in folders)
