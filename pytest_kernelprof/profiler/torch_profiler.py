"""Start and end torch's profiler, one at a time, and prove that it sees the GPU.

``torch.profiler`` ends by synchronising first, through functions that tests patch and that a broken
CUDA refuses. It would then never end, and every later profile of the process would be refused. So
the functions used here are those that no test can patch.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
import os
import statistics
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pytest_kernelprof.errors import IncompleteProfile, ProfilerUnavailable
from pytest_kernelprof.gpu.inventory import Device, as_made, bound, load_torch, without_modes
from pytest_kernelprof.gpu.procfs import mapped_files, permissions, tools_of
from pytest_kernelprof.records.recording import DeviceKind
from pytest_kernelprof.system import Real, now_ns


@dataclass(frozen=True, slots=True, eq=False)
class ActiveMeasurement:
    """A measurement that runs, and has the profiler of this process.

    Attributes:
        who: in words.
        gives_way: whether no test asked for this measurement, so that one that a test asks for
            takes its place.
        thread: the thread that measures.
    """

    who: str
    gives_way: bool = False
    thread: int = field(default_factory=Real.this_thread)

    @property
    def refusal(self) -> str:
        """Why nothing else is measured meanwhile, in words."""
        if self.thread == Real.this_thread():
            return (
                f"{self.who} is being profiled, and torch.profiler cannot nest: profile one after "
                "the other, or only one of them"
            )
        return (
            f"{self.who} is being profiled in {thread_words(self.thread)}, and a process has one "
            "profiler: profile one at a time, for example join that thread before this one begins"
        )


_active: list[ActiveMeasurement] = []
_taking = Real.lock_of_thread()
_newest_of_thread = threading.local()


@contextlib.contextmanager
def held_by(who: str, *, gives_way: bool = False) -> Iterator[None]:
    """Say who measures until the block ends, from the first warm-up to the last read.

    Raises:
        IncompleteProfile: somebody else does who does not give way.
    """
    holder = ActiveMeasurement(who, gives_way)
    with _taking:
        refuse_others()
        _active.append(holder)
    _newest_of_thread.newest = holder
    try:
        yield
    finally:
        if getattr(_newest_of_thread, "newest", None) is holder:
            del _newest_of_thread.newest
        with contextlib.suppress(ValueError):  # forgotten: its test is over
            _active.remove(holder)


def refuse_others(*, may_be_own: bool = False) -> None:
    """Raise if somebody measures who does not give way.

    Args:
        may_be_own: whether this thread may be the one, unless its test has ended meanwhile.

    Raises:
        IncompleteProfile: with who it is.
    """
    for one in tuple(_active):
        if not (one.gives_way or (may_be_own and one.thread == Real.this_thread())):
            raise IncompleteProfile(one.refusal)
    own: ActiveMeasurement | None = getattr(_newest_of_thread, "newest", None)
    if may_be_own and own is not None and own not in _active:
        raise IncompleteProfile(
            f"the test of {own.who} has ended: join the thread that measures before it does"
        )


def who_gives_way() -> ActiveMeasurement | None:
    """The measurement that must give way to the newest; None where there is none."""
    return next((one for one in _active[:-1] if one.gives_way), None)


def thread_words(number: int) -> str:
    """A thread by its name, for example ``thread 'worker-1'``."""
    name = next((str(one.name) for one in Real.threads() if one.ident == number), str(number))
    return f"thread {name!r}"


def _put_back(overload: Any, call: Any) -> None:
    vars(overload)["_op"] = call


# What an operator calls is ``_op``: one way or the other. A property of the class goes before what
# the operators have themselves, also those that are made meanwhile. It has no frame in Python,
# which recorded stacks would show.
_THROUGH_THE_DISPATCHER: Any = property(operator.attrgetter("_cpp_dispatch_handle"), _put_back)


def dispatch_recorded() -> None:
    """Send operators through the dispatcher, where they are recorded, from now on, from any thread,
    where torch has another way at all.

    Since torch 2.15 what ``custom_op`` makes is dispatched in Python ("PyObject dispatch", pytorch
    #187949), past the place where profilers note an operator. Of a custom
    operator there is no event then: the operators that it calls would count for it, and no kernel
    below it would have it in its chain.
    """
    torch = bound().module
    if hasattr(torch.ops.aten.relu.default, "_cpp_dispatch_handle"):
        torch._ops.OpOverload._op = _THROUGH_THE_DISPATCHER


def dispatch_as_before() -> None:
    """Let them go the way that torch has chosen."""
    overloads = bound().module._ops.OpOverload
    if vars(overloads).get("_op") is _THROUGH_THE_DISPATCHER:
        del overloads._op


_DEEPEST = 3
# Python threads that the measured code starts are seen on the CPU only with its option.
_MORE = {"cuda": {"enable_cuda_sync_events": True}, "cpu": {"profile_all_threads": True}}
_STUCK = "Can't disable Kineto profiler when it's not running"

_open: list[Running] = []
# Those in whose place the measured code has left a profiler of its own running.
_taken_over: list[Running] = []
_of_thread = threading.local()


class Running:
    """A profiler that runs until ``end``."""

    def __init__(self, in_this_thread: bool, python_profiler: Any) -> None:
        # Else all threads have it, and any of them may end it.
        self._in_one_thread = in_this_thread
        self._python_profiler = python_profiler
        _of_thread.running = self

    @property
    def is_of_this_thread(self) -> bool:
        """Whether this thread may end it."""
        # Not by the thread's number, which another has when it is gone.
        return not self._in_one_thread or getattr(_of_thread, "running", None) is self

    @property
    def was_ended(self) -> bool:
        """Whether other code has ended it."""
        torch = bound()
        if self not in _open or not torch.any_profiler_runs:
            return True
        looks_here = self._in_one_thread and self.is_of_this_thread
        return looks_here and not torch.runs_in_this_thread()

    def end(self) -> Any:
        """End it, and whatever was started on top of it; hands back what it recorded, or None.

        What could not be recorded is missing there; nothing is raised for it.
        """
        if self not in _open:
            return None
        results = _end_all()
        _profile_python_as_before(self._python_profiler)
        _open.remove(self)  # not if it was interrupted: then `end_left_open` ends it
        return results

    def let_go(self) -> None:
        """Leave what runs to the measured code, whose profiler has taken the place of this one."""
        if self not in _open:  # of a region that was left open, and is collected as garbage later
            return
        dispatch_as_before()
        _open.remove(self)
        _taken_over.append(self)


@contextlib.contextmanager
def _without_the_compiler(torch: Any) -> Iterator[None]:
    """Keep torch.profiler from loading torch's compiler, which takes seconds: it would only ask
    whether its CUDA graphs are on, which they are not before it is loaded."""
    lazy = vars(torch).get("_lazy_modules", ())
    is_on = "torch._inductor" in sys.modules or os.environ.get("TORCHINDUCTOR_CUDAGRAPHS") == "1"
    hidden = {"_inductor"} & set(() if is_on else lazy)
    for name in hidden:
        lazy.discard(name)
    try:
        yield
    finally:
        for name in hidden:
            lazy.add(name)


def start(kind: DeviceKind, *, stacks: bool = False, shapes: bool = False) -> Running:
    """Start a profiler of the CPU and, of that kind, CUDA.

    Raises:
        ProfilerUnavailable: it cannot be started, or would see no GPU; the message says why.
    """
    torch = bound()
    activity = torch.module.profiler.ProfilerActivity
    activities = [activity.CPU] + [activity.CUDA] * (kind == "cuda")
    running: Running | None = None
    python_profiler = Real.getprofile()
    try:
        with as_made(), _without_the_compiler(torch.module), warnings.catch_warnings():
            # torch 2.11 warns that events of earlier cycles are cleared; ours has one cycle.
            warnings.simplefilter("ignore", UserWarning)
            profiler = torch.profiler(
                activities=activities,
                with_stack=stacks,
                record_shapes=shapes,
                experimental_config=torch.module._C._profiler._ExperimentalConfig(**_MORE[kind]),
            )
            try:
                profiler.start()
            except RuntimeError as error:
                if _STUCK not in str(error):
                    raise
                _end_what_a_thread_left(profiler, activities)
                profiler.start()
        running = Running(torch.runs_in_this_thread(), python_profiler)
        if kind == "cuda" and profiler.profiler.use_device != "cuda":
            raise ProfilerUnavailable(
                "the profiler started without CUDA: torch.cuda.is_available() now says that "
                "there is no GPU; patch it only inside the measured code"
            )
        dispatch_recorded()
        _open.append(running)
        _taken_over.clear()
    except BaseException as error:  # an interrupt, too, at any of these lines
        _end_all()
        if isinstance(error, ProfilerUnavailable) or not isinstance(error, Exception):
            raise
        raise ProfilerUnavailable(
            f"the profiler cannot be started: {type(error).__name__}: {error}"
        ) from error
    return running


def end_left_open() -> bool:
    """End a profiler of ours that a test has left running (a region that it entered and never
    left); whether there was one."""
    left = list(_open)
    for running in left:
        running.end()
    # Measurements whose block was left open hold nothing any more.
    _active.clear()
    _newest_of_thread.__dict__.clear()
    return bool(left)


def end_own_of_this_thread() -> None:
    """End a profiler of ours that this thread may end."""
    for running in [one for one in _open if one.is_of_this_thread]:
        running.end()


def end_taken_over() -> None:
    """End a profiler that the measured code of a test has left running in place of ours."""
    if _taken_over:
        _taken_over.clear()
        _end_all()


def _end_what_a_thread_left(profiler: Any, activities: list[Any]) -> None:
    """End the collection of a thread that is gone, and had a profiler of its own.

    The profiler went with its thread, but Kineto collects on. To start anew, torch 2.11 first ends
    what this thread has, which is nothing, and fails at that. So this thread gets something to end.
    """
    torch = bound()
    torch.enable_profiler(profiler.profiler.config(), set(activities))
    torch.disable_profiler()


def _profile_python_as_before(python_profiler: Any) -> None:
    """Give this thread back what it had by ``sys.setprofile``: to record stacks, torch takes its
    place, and leaves none."""
    if Real.getprofile() is None and callable(python_profiler):
        Real.setprofile(python_profiler)
    elif Real.getprofile() is None and hasattr(python_profiler, "enable"):  # cProfile's
        python_profiler.enable()


def _end_all() -> Any:
    """End the profiler that runs in this thread (or in all), and any below it; the last results."""
    torch, results = bound(), None
    try:
        with contextlib.suppress(RuntimeError):  # torch 2.11: it was ended already
            results = torch.disable_profiler()
        for _ in range(_DEEPEST):
            if not torch.runs_in_this_thread():
                break
            with contextlib.suppress(RuntimeError):
                torch.disable_profiler()
    finally:
        dispatch_as_before()
        torch.run_on_profiler_stop()
    # Of a profiler that other code has ended they are empty, and `save` would crash.
    return results if results is not None and results.trace_start_ns() else None


_PROBE_LAUNCHES = 16
_PROBE_ROUNDS = 30
_CUPTI_MULTIPLE_SUBSCRIBERS = 39
_CUPTI_INSUFFICIENT_PRIVILEGES = 35
_CUPTI_KIND_CONCURRENT_KERNEL = 10


class Primed(NamedTuple):
    """The state after priming.

    Attributes:
        cupti_us_per_launch: host time that the attached CUPTI adds to one launch, profiled or
            not, in microseconds: the cost after priming less the cost before; never negative.
        cupti_ratio: the same as a ratio, after over before.
    """

    cupti_us_per_launch: float = 0.0
    cupti_ratio: float = 1.0


def prime(device: Device) -> Primed:
    """Bring up CUPTI with CPU and CUDA activities, before anything else profiles.

    A first profile with CPU activity only can leave the device unseen for the rest of the process
    (pytorch #186036), hence before. Once per process and device; later calls cost nothing. The CPU
    needs none.

    Raises:
        ProfilerUnavailable: the canary kernel was not seen; the message names the cause.
    """
    return _prime(Real.getpid(), device.index) if device.kind == "cuda" else Primed()


@functools.cache
def _prime(process: int, index: int) -> Primed:
    before = _cost_of_a_launch()
    if not canary_seen():
        raise ProfilerUnavailable(why_blind())
    after = _cost_of_a_launch()
    return Primed(max(0.0, after - before), after / before)


def canary_seen() -> bool:
    """Whether a fresh profiler session sees a kernel that is certainly launched.

    Raises:
        ProfilerUnavailable: no profiler can be started.
    """
    torch = bound()
    with as_made():
        torch.module.cuda.init()
    torch.synchronize()
    running = start("cuda")
    try:
        torch.sleep(1)
        torch.synchronize()
    finally:
        results = running.end()
    on_gpu = torch.module.autograd.DeviceType.CUDA
    events = results.events() if results is not None else ()
    return any(one.device_type() == on_gpu and "spin_kernel" in one.name() for one in events)


def _cost_of_a_launch() -> float:
    """Host microseconds of launching one tiny kernel; median over rounds."""
    torch = bound()
    costs = []
    with as_made(), without_modes():
        cell = torch.module.zeros(1, device="cuda")
        for _ in range(_PROBE_ROUNDS):
            torch.synchronize()
            start = now_ns()
            for _ in range(_PROBE_LAUNCHES):
                cell.add_(1)
            costs.append((now_ns() - start) / 1e3 / _PROBE_LAUNCHES)
    return statistics.median(costs)


def why_blind() -> str:
    """The cause for which the profiler sees no kernels, and its remedy."""
    torch = load_torch()
    if torch.profiler.ProfilerActivity.CUDA not in torch.profiler.supported_activities():
        return (
            f"the profiler is blind: torch {torch.__version__} is built without CUPTI (no CUDA "
            "activity in torch.profiler.supported_activities()); install a build that has it"
        )
    return f"the profiler is blind: the canary kernel ran but was not recorded. {_cupti_cause()}"


def _cupti_cause() -> str:
    loaded = [path for path in mapped_files() if "libcupti.so" in path]
    if not loaded:
        return (
            "CUPTI (libcupti) is not loaded into this process: install the CUPTI package that "
            "belongs to this CUDA, or a torch wheel that brings it."
        )
    code = _try_subscribing(ctypes.CDLL(loaded[0]))
    if code == _CUPTI_MULTIPLE_SUBSCRIBERS:
        tool = ", ".join(tools_of(os.environ))
        return (
            "Another CUPTI subscriber holds this process"
            + (f" ({tool})" if tool else "")
            + ": CUPTI allows one. Run without nsys, ncu, Proton, DCGM profiling or another "
            "tracing library."
        )
    if code == _CUPTI_INSUFFICIENT_PRIVILEGES or permissions().refused:
        return (
            "This user may not profile (NVreg_RestrictProfilingToAdminUsers=1): load the driver "
            "with NVreg_RestrictProfilingToAdminUsers=0, or give the container CAP_SYS_ADMIN."
        )
    return (
        f"CUPTI returned {code}, so the cause is elsewhere: a CPU-only profiler that ran first "
        "in this process (pytorch #186036), or a known-bad CUPTI; run with KINETO_LOG_LEVEL=0 "
        "to see Kineto's own log."
    )


def _try_subscribing(cupti: Any) -> int:
    """CUPTI's own answer to a subscription and to enabling kernel records, undone at once."""
    callback_type = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p
    )
    handle = ctypes.c_void_p()
    callback = callback_type(lambda *_: None)
    code = int(cupti.cuptiSubscribe(ctypes.byref(handle), callback, None))
    if code == 0:
        cupti.cuptiUnsubscribe(handle)
        code = int(cupti.cuptiActivityEnable(_CUPTI_KIND_CONCURRENT_KERNEL))
        cupti.cuptiActivityDisable(_CUPTI_KIND_CONCURRENT_KERNEL)
    return code
