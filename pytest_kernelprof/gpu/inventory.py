"""torch as this process has it: its functions as torch made them, the device that a measurement
runs on, its software, and whether CUDA still works.

Tests patch ``torch.cuda.is_available``, ``current_device`` or ``synchronize``; a session that goes
through them cannot be ended any more, or sees no GPU. What is called often is bound here before a
test can put others in their place. What torch itself looks up by name, ``as_made`` puts back for a
moment.

After a device-side assert or an illegal address nothing works on the GPU until the process ends:
later tests that did nothing wrong fail too. So the first test that broke CUDA is noted.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import importlib
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType
from typing import Any, Literal

from pytest_kernelprof.errors import ProfilerUnavailable, first_line
from pytest_kernelprof.system import Real, series

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
    now = [(standing, name, standing.get(name, made), made) for standing, name, made in _made]
    patched = [one for one in now if one[2] is not one[3]]
    for standing, name, _, made in patched:
        standing[name] = made
    try:
        yield
    finally:
        for standing, name, patch, _ in patched:
            standing[name] = patch


_broken: list[str] = []


def look_after(who: str) -> None:
    """Note whether CUDA is broken, now that this test is through.

    Asks for the state of a stream, which does not wait for it: what a test leaves to go wrong later
    shows after a later one.
    """
    if why := "" if _broken else _what_is_broken():
        _broken.append(f"{who} broke CUDA in this process ({why})")


def why_broken() -> str:
    """Which test broke CUDA, and what to do; empty where it works."""
    if not _broken:
        return ""
    return (
        f"{_broken[0]}, and nothing works on the GPU until the process ends: fix that test, or "
        "run it in its own process"
    )


def refuse_broken() -> None:
    """Raise if CUDA is broken.

    Raises:
        ProfilerUnavailable: it names the test after which that was so.
    """
    if _broken:
        raise ProfilerUnavailable(why_broken())


def _what_is_broken() -> str:
    torch = bound_already()
    if torch is None or not torch.is_initialized():
        return ""
    # An error that does not last is gone the second time.
    return _answer_of_a_stream(torch) and _answer_of_a_stream(torch)


def _answer_of_a_stream(torch: Torch) -> str:
    """Its error, or nothing."""
    try:
        with as_made():
            if not torch.is_capturing():
                torch.default_stream().query()
    except RuntimeError as error:
        return first_line(error)
    return ""


DeviceKind = Literal["cuda", "cpu"]

# Of an NVIDIA GPU that the system, or this container, has.
_DEVICE_NODES = "/dev/nvidia[0-9]*"

_NO_DEVICE = "no CUDA device"

# The oldest torch whose traces are known to hold all that a count needs.
_OLDEST_TORCH = (2, 9)


@dataclass(frozen=True, slots=True)
class Device:
    """A device and the software around it; what a report says of where a number comes from.

    Attributes:
        kind: "cuda" (ROCm builds of torch say "cuda" too) or "cpu".
        index: the CUDA device index in this process, 0 for the CPU.
        name: for example "NVIDIA H200".
        capability: for example "sm_90", empty on the CPU.
        l2_bytes: size of the L2 cache, 0 where unknown.
        versions: torch, cuda, triton, python; only those that there are. Of the CPU also whether
            mkldnn is "on" or "off", by which some operators are others.
    """

    kind: DeviceKind
    index: int
    name: str
    capability: str
    l2_bytes: int
    versions: dict[str, str]


def load_torch() -> ModuleType:
    """Import torch, quietly set up for profiling, and bind the functions of it that we need.

    Raises:
        ProfilerUnavailable: torch is not installed, or too old.
    """
    torch: ModuleType = bound().module
    _refuse_old(str(getattr(torch, "__version__", "")))
    return torch


def bound() -> Torch:
    """torch's functions as torch made them; it is loaded if it is not there yet.

    Raises:
        ProfilerUnavailable: torch is not installed, or too old to be loaded by us.
    """
    return bound_already() or bind(_load())


def _load() -> ModuleType:
    # Newer Kineto writes two "USDT:" lines a session into stderr unless only errors are logged.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    # A compiled CPU graph shows its kernels only when Inductor was told so before compiling.
    os.environ.setdefault("TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE", "1")
    try:
        import torch as loaded
    except ImportError as error:
        raise ProfilerUnavailable(
            f"torch cannot be imported ({error}); pytest-kernelprof measures code that runs under "
            "PyTorch: install torch in this environment"
        ) from error
    torch: ModuleType = loaded
    if not hasattr(torch, "_C"):  # a folder of that name, or what a test put in its place
        raise ProfilerUnavailable(
            f"the module torch is not PyTorch ({getattr(torch, '__file__', None) or torch!r}): "
            "see what is before it on sys.path or in sys.modules"
        )
    _refuse_old(str(getattr(torch, "__version__", "")))
    return torch


@functools.cache
def _refuse_old(version: str) -> None:
    """Raise if this torch is too old.

    Here and not by pip: a vendor's build, whose version is that of a pre-release (2.9.0a0+nv25.9),
    must not be replaced for its number. What comes after the second number tells nothing of age; a
    version without two numbers is let through.

    Raises:
        ProfilerUnavailable: it names the version that was found, what is needed, and what to do.
    """
    if () < series(version) < _OLDEST_TORCH:
        needed = "{}.{}".format(*_OLDEST_TORCH)
        raise ProfilerUnavailable(
            f"torch {version} is too old: pytest-kernelprof needs torch {needed} or later. "
            f"Install one (pip install 'torch>={needed}'), or where torch belongs to a container, "
            "take a newer image"
        )


def why_no_gpu() -> str:
    """Why there is no usable GPU in this process, in words; empty when there is one."""
    torch: Any = load_torch()
    if torch.version.cuda is None and torch.version.hip is None:
        return f"{_NO_DEVICE}: torch {torch.__version__} is built without CUDA"
    with as_made():
        if torch.cuda._is_in_bad_fork():
            return (
                "CUDA cannot be used: this process was forked after CUDA came up, and CUDA does "
                "not survive a fork; start workers with the 'spawn' method, or run without forking "
                "(pytest --forked)"
            )
        if torch.cuda.is_initialized() or torch.cuda.is_available():
            return ""
    if (hidden := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return f"{_NO_DEVICE}: CUDA_VISIBLE_DEVICES={hidden!r} leaves none visible to torch"
    if nodes := sorted(glob.glob(_DEVICE_NODES)):
        return (
            f"CUDA cannot be used: {nodes[0]} is there, but torch cannot start CUDA: see what "
            "nvidia-smi and torch.cuda.init() say (an update of the driver needs a restart)"
        )
    return f"{_NO_DEVICE}: torch sees none"


def has_no_device() -> bool:
    """Whether there is no CUDA device for this process, not even one that cannot be used."""
    return why_no_gpu().startswith(_NO_DEVICE)


def usual_kind() -> DeviceKind:
    """Where code is measured if nobody says where: on the GPU, if there is a usable one."""
    return "cpu" if why_no_gpu() else "cuda"


def cuda_is_up() -> bool:
    """Whether this process has brought up CUDA through torch."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def usual_kind_untouched() -> DeviceKind:
    """``usual_kind``, asked without importing torch or bringing up CUDA, which a process that forks
    workers would notice: GPUs are counted through the driver's management library."""
    if cuda_is_up():
        return "cuda"
    torch = sys.modules.get("torch")
    return "cuda" if torch is not None and torch.cuda.device_count() > 0 else "cpu"


def current_device(kind: DeviceKind) -> Device:
    """The current device of a kind.

    Raises:
        ProfilerUnavailable: "cuda" was asked for and there is none, or a test has broken it; the
            message says why.
    """
    torch = load_torch()
    if kind == "cpu":
        name = f"CPU ({platform.machine()})"
        mkldnn = torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()
        versions = {**_versions(torch), "mkldnn": "on" if mkldnn else "off"}
        return Device("cpu", 0, name, "", 0, versions)
    refuse_broken()
    if reason := why_no_gpu():
        raise ProfilerUnavailable(reason)
    with as_made():
        index = torch.cuda.current_device()
        properties = torch.cuda.get_device_properties(index)
    capability = f"sm_{properties.major}{properties.minor}"
    l2_bytes = int(getattr(properties, "L2_cache_size", 0))
    return Device("cuda", index, properties.name, capability, l2_bytes, _versions(torch))


@functools.cache
def gpu_uuid(index: int) -> str:
    """The UUID of the CUDA device of that index, which means one GPU as long as the process lives.

    As torch has it: without the prefix that NVML and ``CUDA_VISIBLE_DEVICES`` put before it
    ("GPU-", for a MIG instance "MIG-"). An index would not do as a name: ``CUDA_VISIBLE_DEVICES``
    renumbers, and NVML counts by the PCI bus.

    Raises:
        RuntimeError: CUDA is broken.
    """
    torch = load_torch()
    with as_made():
        return str(torch.cuda.get_device_properties(index).uuid)


def devices_in_use() -> list[int]:
    """Indices of the CUDA devices on which this process has a context.

    Synchronising the others would create a context on each of them.
    """
    torch = bound_already()
    if torch is None or not torch.is_initialized():
        return []
    return [i for i in range(torch.count()) if torch.has_context(i)]


def is_capturing() -> bool:
    """Whether the current stream captures a CUDA graph; False where CUDA is broken."""
    torch = bound_already()
    with contextlib.suppress(RuntimeError):
        return torch is not None and torch.is_initialized() and torch.is_capturing()
    return False


def synchronize(device: Device) -> None:
    """Wait for all work on every device in use; nothing on the CPU.

    Raises:
        RuntimeError: CUDA is broken, or was broken by the work.
    """
    if device.kind == "cuda":
        synchronize_in_use()


def synchronize_in_use() -> None:
    """Wait for all work on every device in use.

    Raises:
        RuntimeError: CUDA is broken, or was broken by the work.
    """
    for index in devices_in_use():
        torch = bound()
        current = torch.exchange_device(index)
        try:
            torch.synchronize()
        finally:
            torch.put_back_device(current)


def try_to_synchronize(device: Device, limit_s: float) -> bool:
    """Wait for the devices, but not for longer than this and whatever they answer; whether they
    are done. Signals are handled meanwhile."""
    if device.kind != "cuda":
        return True
    waiting, done = Real.lock(), list[bool]()

    def wait() -> None:
        with contextlib.suppress(Exception):
            synchronize(device)
            done.append(True)
        waiting.release()

    waiting.acquire()
    with contextlib.suppress(RuntimeError):  # no more threads
        Real.start_thread(wait, ())
        waiting.acquire(timeout=limit_s)
    return bool(done)


@functools.cache
def _versions(torch: Any) -> dict[str, str]:
    versions = {"torch": str(torch.__version__), "python": platform.python_version()}
    of_torch = {name: getattr(torch.version, name) for name in ("cuda", "hip")}
    versions |= {name: version for name, version in of_torch.items() if version}
    loaded = getattr(sys.modules.get("triton"), "__version__", "")
    triton = loaded or installed_version("triton")
    return versions | ({"triton": triton} if triton else {})


def installed_version(package: str) -> str:
    """The version of a package that is installed here; empty where it is not."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""
