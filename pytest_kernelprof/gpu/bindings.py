"""torch's functions as torch made them, bound before a test can put others in their place.

Tests patch ``torch.cuda.is_available``, ``current_device`` or ``synchronize``; a session that goes
through them cannot be ended any more, or sees no GPU. What is called often is bound here. What
torch itself looks up by name, ``as_made`` puts back for a moment.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

# Where torch's profiler, and what we ask of a device, look functions up.
_LOOKED_UP_IN = (
    *("torch.cuda", "torch.cuda.memory", "torch.autograd", "torch.autograd.profiler"),
    *("torch.profiler", "torch.profiler.profiler", "uuid"),
)


class Torch:
    """The functions that a session needs; those of CUDA are None in a build without it.

    Attributes:
        module: torch itself, whatever stands in ``sys.modules`` later.
        profiler: the class under ``torch.profiler.profile``. It has no schedule and, unlike that
            one, no reference cycle: its buffers are returned as soon as it is dropped.
        record_function: annotates.
        enable_profiler: pushes a profiler on this thread.
        disable_profiler, run_on_profiler_stop: end whatever profiler runs.
        toggle_collection: switches what a running one collects.
        runs_in_this_thread: whether the thread has a profiler of its own.
        is_initialized, default_stream, sleep, synchronize, exchange_device, put_back_device, count,
            has_context, is_capturing: of CUDA.
    """

    def __init__(self, torch: Any) -> None:
        def of_cuda(name: str) -> Any:
            return getattr(torch._C, name, None)

        self.module: Any = torch
        self.profiler: Any = torch.profiler._KinetoProfile
        self.record_function: Callable[[str], contextlib.AbstractContextManager[object]] = (
            torch.profiler.record_function
        )
        autograd = torch._C._autograd
        self.enable_profiler: Callable[[Any, set[Any]], None] = autograd._enable_profiler
        self.disable_profiler: Callable[[], Any] = autograd._disable_profiler
        self.run_on_profiler_stop: Callable[[], None] = (
            torch.autograd.profiler._run_on_profiler_stop
        )
        self.toggle_collection: Callable[[bool, set[Any]], None] = (
            autograd._toggle_collection_dynamic
        )
        self.runs_in_this_thread: Callable[[], bool] = autograd._profiler_enabled
        self.is_initialized: Callable[[], bool] = torch.cuda.is_initialized
        self.default_stream: Callable[[], Any] = torch.cuda.default_stream
        self.sleep: Callable[[int], None] = of_cuda("_cuda_sleep")
        self.synchronize: Callable[[], None] = of_cuda("_cuda_synchronize")
        self.exchange_device: Callable[[int], int] = of_cuda("_cuda_exchangeDevice")
        self.put_back_device: Callable[[int], int] = of_cuda("_cuda_maybeExchangeDevice")
        self.count: Callable[[], int] = of_cuda("_cuda_getDeviceCount")
        self.has_context: Callable[[int], bool] = of_cuda("_cuda_hasPrimaryContext")
        self.is_capturing: Callable[[], bool] = of_cuda("_cuda_isCurrentStreamCapturing")

    @property
    def any_profiler_runs(self) -> bool:
        """Whether one runs in any thread, as Python's side of the profiler has it."""
        return bool(self.module.autograd.profiler._is_profiler_enabled)


_bound: list[Torch] = []
# What stands in torch's modules: whose names, and what each meant.
_made: list[tuple[dict[str, Any], str, Any]] = []


def bind_if_loaded() -> None:
    """Bind torch's functions if torch is there already; it is not loaded for this."""
    torch = sys.modules.get("torch")
    if not _bound and torch is not None:
        with contextlib.suppress(AttributeError):  # too old, half loaded, or no torch at all
            bind(torch)


def bind(torch: ModuleType | None) -> Torch:
    """The functions as they are now, of the first call as long as the process lives."""
    if not _bound:
        functions = Torch(torch)
        _made.extend(_found(_LOOKED_UP_IN))
        _bound.append(functions)
    return _bound[0]


def bound_already() -> Torch | None:
    """The functions, if any were needed so far."""
    return _bound[0] if _bound else None


def _found(modules: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """The functions, classes and modules that stand in these modules."""
    for module in modules:
        standing = vars(importlib.import_module(module))
        for name, value in list(standing.items()):
            if callable(value) or isinstance(value, ModuleType):
                yield standing, name, value


@functools.cache
def cuda_driver() -> Any | None:
    """The CUDA driver's library; None where there is none."""
    with contextlib.suppress(OSError):
        return ctypes.CDLL("libcuda.so.1")
    return None


@contextlib.contextmanager
def without_modes() -> Iterator[None]:
    """Within this, tensors are plain and real, whatever modes the test is in: what we keep for the
    process would be of no use to the next test if it were an inference tensor, or a fake one."""
    torch = _bound[0].module
    dispatch = importlib.import_module("torch.utils._python_dispatch")
    with (
        dispatch._disable_current_modes(),
        torch._C.DisableTorchFunction(),
        torch.inference_mode(False),
        torch.no_grad(),
    ):
        yield


@contextlib.contextmanager
def as_made() -> Iterator[None]:
    """Within this, torch finds its own functions, whatever a test has patched; outside of it the
    patches stand again."""
    patched = [
        (standing, name, standing[name], made)
        for standing, name, made in _made
        if standing.get(name, made) is not made
    ]
    for standing, name, _, made in patched:
        standing[name] = made
    try:
        yield
    finally:
        for standing, name, patch, _ in patched:
            standing[name] = patch
