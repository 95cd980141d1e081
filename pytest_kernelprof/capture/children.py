"""Child processes that are at work while a session runs: what they do is in no count of ours."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.clock import now_ns
from pytest_kernelprof.device import procfs
from pytest_kernelprof.device.nvml import Unknown, gpu_of
from pytest_kernelprof.schema.recording import ChildProcesses
from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_kernelprof.device.inventory import Device
    from pytest_kernelprof.device.procfs import Process

_MOST_NAMED = 3
_LONGEST = 60
# Processes that libraries keep for themselves: workers that load data or compile, managers.
_HELPERS = (
    "torch.utils.data.",
    "torch._inductor.",
    "multiprocessing.managers",
    "pytest_kernelprof.",  # ranks
)
# Programs that compile: they bring up CUDA to ask it for the properties of the GPU, or to autotune.
_COMPILES = "/torch/_inductor/"
# Of threads other than the first: those of CUDA and NCCL wake up now and then, with nothing to do.
_LEAST_NS, _LEAST_SHARE = 1_000_000, 0.01
# What ends sooner has not imported torch.
_SHORT_S = 0.3


@dataclass(frozen=True, slots=True)
class _Started:
    """A process that was started through ``multiprocessing``.

    Attributes:
        runs: the name of its function. forked: whether it began as a copy of this one.
        helps: whether a library keeps it for itself.
    """

    pid: int
    runs: str
    forked: bool
    helps: bool


class Children:
    """Looks at the children of this process between ``watch`` and ``unwatch``.

    A child that ``multiprocessing`` starts and that has ended by then could have done anything:
    the one function that starts them is watched. Of others that have ended nothing is known.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._started: list[_Started] = []
        self._before: Mapping[int, Process] = {}
        self._begun_ns = 0
        self._ended_s = 0.0
        self._start: Any = None
        self._start_and_tell: Any = None

    def watch(self) -> None:
        """Begin."""
        if not procfs.TELLS_CHILDREN:
            return
        self._begun_ns, self._ended_s = now_ns(), _seconds_of_ended()
        self._before = procfs.processes_below()
        self._start = start = BaseProcess.start
        started = self._started

        def start_and_tell(process: BaseProcess) -> None:
            target = getattr(process, "_target", None) or type(process)
            start(process)
            started.append(_started(process, target))

        BaseProcess.start = self._start_and_tell = start_and_tell  # type: ignore[method-assign, assignment]

    def unwatch(self) -> ChildProcesses:
        """End; what was seen."""
        if not procfs.TELLS_CHILDREN:
            return ChildProcesses(checked=False)
        if BaseProcess.start is self._start_and_tell:
            BaseProcess.start = self._start  # type: ignore[method-assign]
        at_work = list(dict.fromkeys((*self._living(), *self._gone())))
        left = len(at_work) - _MOST_NAMED
        more = [f"and {left} more"] if left > 0 else []
        seconds = _seconds_of_ended() - self._ended_s
        is_known = bool(at_work or self._started)
        return ChildProcesses(
            at_work=(*at_work[:_MOST_NAMED], *more),
            ended_s=seconds if seconds > _SHORT_S and not is_known else 0.0,
        )

    def _living(self) -> Iterator[str]:
        """Those that worked meanwhile, and still live."""
        now = procfs.processes_below()
        for pid, before in self._before.items():  # another process may have taken it in
            process = procfs.process_of(pid)
            if process is not None and process.started == before.started:
                now.setdefault(pid, process)
        ran = [one for one in sorted(now.items()) if self._ran(one[1], self._before.get(one[0]))]
        own = procfs.process_of(Real.getpid()) if ran else None
        for pid, process in ran:
            is_fork = own is not None and own.image == process.image
            parent = own if is_fork else now.get(process.parent)
            is_copy = parent is not None and parent.image == process.image
            if self._computes(pid, is_copy=is_copy):
                what = "forked from this one" if is_fork else _cut(procfs.command_of(pid))
                yield f"process {pid} ({what}) {self._what_it_has}"

    def _ran(self, now: Process, before: Process | None) -> bool:
        if before is None or before.started != now.started:
            return True
        least = max(_LEAST_NS, _LEAST_SHARE * (now_ns() - self._begun_ns))
        return now.main_ns > before.main_ns or now.all_ns - before.all_ns > least

    @property
    def _what_it_has(self) -> str:
        if self._device.kind == "cpu":
            return "has loaded torch and ran during the call; its operators are not counted"
        return "uses the GPU; its kernels are not counted"

    def _computes(self, pid: int, *, is_copy: bool) -> bool:
        """Whether it has started CUDA itself; on the CPU, whether it has loaded torch.

        Args:
            is_copy: whether it runs what its parent runs, and may have its open files from there.
        """
        if _COMPILES in procfs.command_of(pid):
            return False
        if self._device.kind == "cpu":
            helps = any(one.helps for one in self._started if one.pid == pid)
            return not helps and any("libtorch" in path for path in procfs.maps_of(pid))
        if not procfs.holds_gpu(pid):
            return False
        return not is_copy or procfs.has_cuda_threads(pid) or self._driver_lists(pid)

    def _driver_lists(self, pid: int) -> bool:
        gpu = gpu_of(self._device)
        if isinstance(gpu, Unknown) or not gpu.numbers_like_us:
            return False
        try:
            return pid in gpu.processes()
        except gpu.nvml.NVMLError:
            return False

    def _gone(self) -> Iterator[str]:
        """Those that the call started through ``multiprocessing``, and that have ended. After CUDA
        came up no fork can use it."""
        for one in self._started:
            harmless = one.helps or (one.forked and self._device.kind == "cuda")
            if not harmless and procfs.process_of(one.pid) is None:
                what = "operators" if self._device.kind == "cpu" else "kernels"
                yield (
                    f"a process that the call started ({one.runs}) ended before it could be "
                    f"checked; its {what} are not counted"
                )


def _started(process: BaseProcess, target: object) -> _Started:
    name = getattr(target, "__qualname__", type(target).__qualname__)  # a partial has none
    runs = f"{target.__module__}.{name}"
    started_by = getattr(process, "_popen", None)
    return _Started(
        pid=process.pid or 0,
        runs=_cut(runs),
        forked=getattr(started_by, "method", "") == "fork",
        helps=runs.startswith(_HELPERS),
    )


def _seconds_of_ended() -> float:
    """How long the children ran that have ended and been waited for."""
    times = Real.times()
    return times.children_user + times.children_system


def _cut(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}..."
