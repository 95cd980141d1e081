"""torch's profiler, started and ended by functions that no test can patch.

``torch.profiler`` ends by synchronising first, through functions that tests patch and that a broken
CUDA refuses; it is never ended then, and every later profile of the process is refused.
"""

from __future__ import annotations

import contextlib
import operator
import threading
import warnings
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.capture.holder import forget_holders
from pytest_kernelprof.device.bindings import as_made
from pytest_kernelprof.device.inventory import bound
from pytest_kernelprof.errors import ProfilerUnavailable
from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.schema.recording import DeviceKind


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

    def toggle_collection(self, on: bool, activities: Iterable[Any]) -> None:
        """Go on to collect these activities, or stop to, until it is said otherwise.

        Raises:
            RuntimeError: torch's, where no profiler runs.
        """
        bound().toggle_collection(on, set(activities))

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
        with as_made(), warnings.catch_warnings():
            # torch 2.11 warns that events of earlier cycles are cleared; ours has one cycle.
            warnings.simplefilter("ignore", UserWarning)
            profiler = torch.profiler(
                activities=activities,
                with_stack=stacks,
                record_shapes=shapes,
                experimental_config=_experimental_config(torch.module, kind),
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
    except ProfilerUnavailable:
        _end_all()
        raise
    except Exception as error:
        _end_all()
        raise ProfilerUnavailable(
            f"the profiler cannot be started: {type(error).__name__}: {error}"
        ) from error
    except BaseException:  # an interrupt, at any of these lines
        _end_all()
        raise
    return running


def end_left_open() -> bool:
    """End a profiler of ours that a test has left running (a region that it entered and never
    left); whether there was one."""
    left = list(_open)
    for running in left:
        running.end()
    forget_holders()
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


def _experimental_config(torch: Any, kind: DeviceKind) -> Any:
    config = torch._C._profiler._ExperimentalConfig
    if kind == "cuda":
        return config(enable_cuda_sync_events=True)
    # Python threads that the measured code starts are seen on the CPU only with this.
    return config(profile_all_threads=True)


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
