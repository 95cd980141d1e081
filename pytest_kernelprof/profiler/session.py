"""One profiler session: rounds under our annotations, sentinel kernels around them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from pytest_kernelprof.allowances import recorded_by
from pytest_kernelprof.errors import IncompleteProfile, ProfilerUnavailable, first_line
from pytest_kernelprof.gpu import conditions, inventory, nvml
from pytest_kernelprof.profiler import compiled_code, torch_profiler, unfinished_work
from pytest_kernelprof.profiler.autotuning import Autotuning, Pauses
from pytest_kernelprof.profiler.cuda_graphs import Replays, watch_captures
from pytest_kernelprof.profiler.trace_folder import SCRATCH, TraceFile
from pytest_kernelprof.profiler.triton_kernels import gone
from pytest_kernelprof.records.codec import VERSION
from pytest_kernelprof.records.recording import OwnNames, Recording
from pytest_kernelprof.system import Real, now_ns

_PATIENCE_S = 5.0
"""How long a device may take that a failed session is waited for; a kernel may never end."""


class Recorded(NamedTuple):
    """What a session leaves.

    Attributes:
        recording: the notes beside its trace, as far as they do not depend on the events.
        calls: of compiled code that a trace of the CPU does not show; None on a GPU.
        gone: how many of Triton's kernels were ``gone`` before it.
    """

    file: TraceFile
    recording: Recording
    calls: compiled_code.WatchedCalls | None = None
    gone: int = 0


class Session:
    """A fresh profiler for one session. Use as a context manager, then ``export()``.

    Args:
        stacks: record Python frames. shapes: record the shapes and types of operators' inputs.
            Both cost host time with every operator.

    Attributes:
        names: what its annotations are called.
        autotuning: pauses this session while an autotuner benches, if it is watched inside the
            session.
        compiled_before: what the compilers had done before it.

    Raises:
        ProfilerUnavailable: on entry, when a profiler is already running or none can be started.
        IncompleteProfile: on exit, when other code ended our profiler, or it could not be brought
            to a good end. An exception of the measured code passes through.
    """

    def __init__(self, device: inventory.Device, *, stacks: bool, shapes: bool = False) -> None:
        self.device = device
        self.names = OwnNames(Real.urandom(8).hex())
        self.autotuning = Autotuning(Pauses(device, self.names))
        self._stacks = stacks
        self._shapes = shapes
        self._round_us: list[float] = []
        self._first: unfinished_work.AtWork | None = None
        self._left: dict[str, None] = {}
        self._forks = 0
        self._running: torch_profiler.Running | None = None
        self._results: Any = None
        self._collection_stopped = False
        self._watching = contextlib.ExitStack()
        self._others_started: list[Any] = []
        self._recording_switched: list[Any] = []
        self._children = unfinished_work.Children(device)
        self._replays = Replays() if device.kind == "cuda" else None
        self._calls: compiled_code.WatchedCalls | None = None
        self.compiled_before = compiled_code.compilations()
        self._gone_before = len(gone)

    def __enter__(self) -> Session:
        refuse_to_nest()
        watch_captures()
        try:
            inventory.synchronize(self.device)
        except RuntimeError as error:
            raise ProfilerUnavailable(
                f"CUDA was already broken before these rounds: {first_line(error)}"
            ) from error
        self._running = torch_profiler.start(
            self.device.kind, stacks=self._stacks, shapes=self._shapes
        )
        try:
            with contextlib.ExitStack() as entered:
                self._watch_others(entered)
                entered.enter_context(self._children.watched())
                if self.device.kind == "cpu":
                    self._calls = entered.enter_context(compiled_code.watch_calls())
                self._sentinel(self.names.first_sentinel)
                self._watching = entered.pop_all()
        except BaseException:
            self._running.end()
            raise
        return self

    def _watch_others(self, undoing: contextlib.ExitStack) -> None:
        """Note whether a profiler is started, or recording switched, by torch's one way of either,
        until undone. What the code has bound before is not seen; what it may have put there itself
        is replaced at the end, too.

        The flag that torch keeps tells that a profiler runs, and not whose it is; of recording that
        was off for a while nothing tells.
        """
        torch = inventory.bound().module
        started, switched = self._others_started.append, self._recording_switched.append
        compiled_code.look_first(undoing, torch.autograd.profiler, "_enable_profiler", started)
        for module in (torch.autograd, torch._C._autograd):
            compiled_code.look_first(undoing, module, "_enable_record_function", switched)

    def setup(self) -> contextlib.AbstractContextManager[object]:
        """Annotate the making of arguments for the next round: no work of that is the call's."""
        return inventory.bound().record_function(self.names.setup)

    @contextlib.contextmanager
    def round(self) -> Iterator[None]:
        """Annotate where one call of the measured code begins and ends; synchronises after that.

        An annotation around the call would do, too, but of each launch inside of one the profiler
        keeps some 140 bytes for as long as the process lives (torch 2.11). A call that has returned
        may have left work behind: that is looked at then, too.
        """
        number, names = len(self._round_us), self.names
        before = unfinished_work.at_work(self._first)
        self._first = self._first or before
        allows = recorded_by(lambda text: inventory.bound().record_function(names.allow + text))
        with allows, self._replays or contextlib.nullcontext():
            start = now_ns()
            _annotate(f"{self.names.begin}{number}")
            try:
                yield
            finally:
                _annotate(f"{self.names.end}{number}")
                self._round_us.append((now_ns() - start) / 1e3)
        inventory.synchronize(self.device)
        self._left |= dict.fromkeys(unfinished_work.left_at_work(before, patiently=not self._left))
        self._forks += unfinished_work.forks_since(before)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._running is not None, "entered"
        self._watching.close()
        # One that the measured code has left running is not ours to end.
        left_running = bool(self._others_started) and inventory.bound().any_profiler_runs
        ended_by_others = bool(self._others_started) or self._running.was_ended
        try:
            if kind is not None:
                inventory.try_to_synchronize(self.device, _PATIENCE_S)
            elif not ended_by_others:
                self._sentinel(self.names.last_sentinel)
                # torch 2.13 and later; before, full buffers show as missing kernels only.
                is_stopped = getattr(inventory.load_torch().autograd, "_is_kineto_stopped", None)
                self._collection_stopped = bool(is_stopped and is_stopped())
                inventory.synchronize(self.device)
        except Exception as error:
            raise IncompleteProfile(
                f"the profiler could not be stopped cleanly: {first_line(error)}"
            ) from error
        finally:
            # Whatever happened, the next test must find no profiler running.
            if left_running:
                self._running.let_go()
            else:
                self._results = self._running.end()
        if kind is None and not self._running.is_of_this_thread:
            raise IncompleteProfile(
                "the measured block was entered in one thread and left in another, which cannot "
                "stop a profiler: enter and leave it in the same thread"
            )
        if kind is None and (ended_by_others or self._results is None):
            raise IncompleteProfile(
                "another profiler was started inside the measured code, which ended ours: take "
                "torch.profiler (or a tool that uses it) out of the measured code"
            )
        if kind is None and self._recording_switched:
            raise IncompleteProfile(
                "the measured code switches the recording of operators "
                "(torch.autograd._enable_record_function), which hides some: remove that"
            )

    def export(self) -> Recorded:
        """Export the trace of the finished session.

        Raises:
            IncompleteProfile: it could not be written.
        """
        results, self._results = self._results, None
        device, compiled = self.device, compiled_code.compilations().since(self.compiled_before)
        recording = Recording(
            schema=VERSION,
            device_kind=device.kind,
            device=device.name,
            capability=device.capability,
            versions=device.versions,
            power_limit_w=nvml.power_limit_w(device),
            nonce=self.names.nonce,
            rounds=len(self._round_us),
            round_us=tuple(self._round_us),
            left_at_work=tuple(self._left),
            forks=self._forks,
            children=self._children.seen,
            collection_stopped=self._collection_stopped,
            **compiled.noted(),
            autotuned=self.autotuning.benched,
            replays=None if self._replays is None else tuple(self._replays.seen),
            no_times={} if device.kind == "cpu" else conditions.no_times(device),
        )
        return Recorded(SCRATCH.save(results.save), recording, self._calls, self._gone_before)

    def _sentinel(self, name: str) -> None:
        """Launch a kernel of our own, apart from the rounds: if it is missing, others may be.

        The first also takes the profiler's first buffer request (0.5 ms and more) on itself.
        """
        if self.device.kind == "cuda":
            torch = inventory.bound()
            with torch.record_function(name):
                torch.sleep(1)


def _annotate(name: str) -> None:
    """Leave an annotation of no length. What torch raises there is not raised by the test."""
    try:
        with inventory.bound().record_function(name):
            pass
    except Exception as error:
        raise IncompleteProfile(f"a round cannot be annotated: {first_line(error)}") from error


def refuse_to_nest() -> None:
    """Raise if a profiler runs: nesting silently empties the outer or the inner one.

    Raises:
        ProfilerUnavailable: with the remedy.
    """
    torch = inventory.bound()
    torch_profiler.refuse_others(may_be_own=True)
    if torch_profiler.who_gives_way():
        torch_profiler.end_own_of_this_thread()
    # The first is this thread's state only, the second is set by any thread.
    here = torch.runs_in_this_thread()
    if here or torch.any_profiler_runs:
        holder, where = torch_profiler.who_gives_way(), "this thread" if here else "another thread"
        raise ProfilerUnavailable(
            holder.refusal
            if holder is not None
            else f"a torch profiler is already running, started in {where} by other code than "
            "pytest-kernelprof, and torch.profiler cannot nest: stop it before the measured code, "
            "or run with --kernelprof-disable to profile by hand"
        )
    monitor = sys.modules.get("torch.profiler._cupti_monitor")
    if monitor is not None and monitor.get_monitor() is not None:
        raise ProfilerUnavailable(
            "torch's cupti_monitor is collecting in this process, and a profile beside it may be "
            "incomplete: stop it (stop_collection) before the measured code"
        )
    if inventory.is_capturing():
        raise ProfilerUnavailable(
            "a CUDA graph is being captured: profile its replay, or the code before capturing it"
        )
