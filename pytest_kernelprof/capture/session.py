"""One profiler session: rounds under our annotations, sentinel kernels around them."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.capture.aftermath import at_work, forks_since, left_at_work
from pytest_kernelprof.capture.holder import outer_holder
from pytest_kernelprof.clock import now_ns
from pytest_kernelprof.device.inventory import Device, load_torch, synchronize
from pytest_kernelprof.errors import IncompleteProfile, ProfilerUnavailable
from pytest_kernelprof.schema.recording import OwnNames

if TYPE_CHECKING:
    from collections.abc import Iterator


class TraceFile:
    """A recorded trace file, which is removed when nobody holds this any more.

    Attributes:
        path: the Chrome trace that torch exported.
        nonce: of the names of our annotations.
        rounds: how many rounds were annotated, so that a reader can see whether one is missing.
        collection_stopped: whether the profiler ran out of buffers and stopped collecting.
        round_us: how long each round took by the clock that times calls, in microseconds.
        left_at_work: what the rounds began and left at work, in words.
        forks: how often the rounds forked this process.
    """

    def __init__(
        self,
        path: str,
        *,
        nonce: str = "",
        rounds: int,
        collection_stopped: bool,
        round_us: tuple[float, ...] = (),
        left_at_work: tuple[str, ...] = (),
        forks: int = 0,
    ) -> None:
        self.path = path
        self.nonce = nonce
        self.rounds = rounds
        self.collection_stopped = collection_stopped
        self.round_us = round_us
        self.left_at_work = left_at_work
        self.forks = forks
        weakref.finalize(self, _remove, path, os.getpid())


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not remove its parent's file
        with contextlib.suppress(OSError):
            os.unlink(path)


class Session:
    """A fresh profiler for one session. Use as a context manager, then ``export()``.

    Args:
        stacks: record Python frames. shapes: record the shapes and types of operators' inputs.
            Both cost host time with every operator.

    Attributes:
        names: what its annotations are called.

    Raises:
        ProfilerUnavailable: on entry, when a profiler is already running.
        IncompleteProfile: on exit, when other code ended our profiler.
    """

    def __init__(self, device: Device, *, stacks: bool, shapes: bool = False) -> None:
        self._device = device
        self._stacks = stacks
        self._shapes = shapes
        self._rounds = 0
        self.names = OwnNames(os.urandom(8).hex())
        self._round_us: list[float] = []
        self._left: dict[str, None] = {}
        self._forks = 0
        self._profiler: Any = None
        self._collection_stopped = False

    def __enter__(self) -> Session:
        refuse_to_nest()
        torch = load_torch()
        synchronize(self._device)
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self._device.kind == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        # The base class of torch.profiler.profile has no schedule and, unlike it, no reference
        # cycle: its buffers are returned as soon as the session is dropped.
        profiler = torch.profiler._KinetoProfile(
            activities=activities,
            with_stack=self._stacks,
            record_shapes=self._shapes,
            experimental_config=_experimental_config(torch, self._device),
        )
        with warnings.catch_warnings():
            # torch 2.11 warns that events of earlier cycles are cleared; ours has one cycle.
            warnings.simplefilter("ignore", UserWarning)
            profiler.start()
        self._profiler = profiler
        self._sentinel(self.names.first_sentinel)
        return self

    def setup(self) -> contextlib.AbstractContextManager[object]:
        """Annotate the making of arguments for the next round: no work of that is the call's."""
        annotation: contextlib.AbstractContextManager[object] = (
            load_torch().profiler.record_function(self.names.setup)
        )
        return annotation

    @contextlib.contextmanager
    def round(self) -> Iterator[None]:
        """Annotate one call of the measured code; synchronises after it, outside the annotation.

        A call that has returned may have left work behind: that is looked at then, too.
        """
        torch = load_torch()
        name = f"{self.names.round}{self._rounds}"
        self._rounds += 1
        before, start = at_work(), now_ns()
        try:
            with torch.profiler.record_function(name):
                yield
        finally:
            self._round_us.append((now_ns() - start) / 1e3)
            synchronize(self._device)
        self._left |= dict.fromkeys(left_at_work(before, patiently=not self._left))
        self._forks += forks_since(before)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        torch = load_torch()
        ended_by_others = not torch.autograd.profiler._is_profiler_enabled
        try:
            if kind is None and not ended_by_others:
                self._sentinel(self.names.last_sentinel)
                # torch 2.13 and later; before, full buffers show as missing kernels only.
                is_stopped = getattr(torch.autograd, "_is_kineto_stopped", None)
                self._collection_stopped = bool(is_stopped and is_stopped())
        finally:
            # Whatever happened, the next test must find no profiler running.
            with contextlib.suppress(RuntimeError) if ended_by_others else contextlib.nullcontext():
                self._profiler.stop()
        if ended_by_others and kind is None:
            raise IncompleteProfile(
                "another profiler was started and stopped inside the measured code, which ended "
                "ours: take torch.profiler (or a tool that uses it) out of the measured code"
            )

    def export(self) -> TraceFile:
        """Export the trace of the finished session."""
        handle, path = tempfile.mkstemp(prefix="kernelprof-", suffix=".json")
        os.close(handle)
        file = TraceFile(
            path,
            nonce=self.names.nonce,
            rounds=self._rounds,
            collection_stopped=self._collection_stopped,
            round_us=tuple(self._round_us),
            left_at_work=tuple(self._left),
            forks=self._forks,
        )
        self._profiler.export_chrome_trace(path)
        self._profiler = None
        return file

    def _sentinel(self, name: str) -> None:
        """Launch a kernel of our own, apart from the rounds: if it is missing, others may be.

        The first also takes the profiler's first buffer request (0.5 ms and more) on itself.
        """
        if self._device.kind != "cuda":
            return
        torch = load_torch()
        with torch.profiler.record_function(name):
            torch.cuda._sleep(1)


def refuse_to_nest() -> None:
    """Raise if a profiler runs: nesting silently empties the outer or the inner one.

    Raises:
        ProfilerUnavailable: with the remedy.
    """
    torch = load_torch()
    # The first is this thread's state only, the second is set by any thread.
    here, anywhere = (
        torch.autograd._profiler_enabled(),
        torch.autograd.profiler._is_profiler_enabled,
    )
    if here or anywhere:
        raise ProfilerUnavailable(_already_running("this thread" if here else "another thread"))
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise ProfilerUnavailable(
            "a CUDA graph is being captured: profile its replay, or the code before capturing it"
        )


def _already_running(thread: str) -> str:
    holder = outer_holder()
    if holder:
        return (
            f"{holder} is being profiled, and torch.profiler cannot nest: profile one after the "
            "other, or only one of them"
        )
    return (
        f"a torch profiler is already running, begun in {thread} by other code than "
        "pytest-kernelprof, and torch.profiler cannot nest: end it before the measured code, or "
        "run with --kernelprof-disable to profile by hand"
    )


def _experimental_config(torch: Any, device: Device) -> Any:
    config = torch._C._profiler._ExperimentalConfig
    if device.kind == "cuda":
        return config(enable_cuda_sync_events=True)
    # Python threads that the measured code starts are seen on the CPU only with this.
    return config(profile_all_threads=True)
