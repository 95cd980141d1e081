"""What the doctor examines: driver, permissions, environment, torch, CUPTI, and a canary kernel.

What loads torch or CUPTI runs in a process of its own, with a time limit: its crash or hang is an
answer, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pytest_kernelprof.errors import ProfilerUnavailable
from pytest_kernelprof.gpu.inventory import load_torch, why_no_gpu
from pytest_kernelprof.gpu.nvml import NvmlFacts, nvml_facts
from pytest_kernelprof.gpu.procfs import (
    Permissions,
    injected_libraries,
    mapped_files,
    permissions,
    text_of,
)
from pytest_kernelprof.profiler.torch_profiler import canary_seen, why_blind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CanaryState = Literal["seen", "blind", "no gpu", "crashed"]
Question = Literal["torch", "canary", "canary_after_cpu"]

_TIMEOUT_S = 180.0
_PACKAGES = ("pytest", "pytest-benchmark", "pytest-kernelprof", "triton")
_VARIABLES = re.compile(
    r"CUDA_VISIBLE_DEVICES$|CUDA_INJECTION64_PATH$|CUDA_LAUNCH_BLOCKING$|NVIDIA_VISIBLE_DEVICES$"
    r"|NSYS_|NV_NSIGHT_|NV_COMPUTE_PROFILER|KINETO_|TEARDOWN_CUPTI$|DISABLE_CUPTI|TRITON_INTERPRET$"
)
_DRIVER_VERSION = Path("/proc/driver/nvidia/version")
_ANSWER = "kernelprof-answer:"
_NOT_ASKED = NvmlFacts(error="not asked")
_UNKNOWN = Permissions()


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """What torch says in a process of its own.

    Attributes:
        error: why torch could not be imported or asked; the other fields are empty then.
        version, cuda, hip: versions; ``cuda`` and ``hip`` are empty for other builds.
        why_no_gpu: why torch has no usable GPU; empty if it has one.
        gpus: name and capability of each visible GPU, for example "NVIDIA H200, sm_90".
        cuda_activity: whether this build can record the device at all.
        cupti_path: the CUPTI library that torch loads; empty if none was found.
        cupti_version: what ``cuptiGetVersion`` returns; 0 if it could not be called.
    """

    error: str = ""
    version: str = ""
    cuda: str = ""
    hip: str = ""
    why_no_gpu: str = ""
    gpus: tuple[str, ...] = ()
    cuda_activity: bool = False
    cupti_path: str = ""
    cupti_version: int = 0


@dataclass(frozen=True, slots=True)
class Canary:
    """Whether the profiler saw a kernel that was launched for it, and if not, why."""

    state: CanaryState
    text: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """All that the doctor examines.

    Attributes:
        packages: versions of installed packages by name, without those that are missing.
        driver: version of the NVIDIA driver; empty if none is loaded.
        permissions: who may profile, and whether this process may.
        environment: the environment variables that matter to CUDA, CUPTI and Kineto.
        injected: profiling libraries that are loaded into this process.
        canary: a canary kernel under a CPU and CUDA profile, in a new process.
        canary_after_cpu: the same after a CPU-only profile; None if not tried.
        temp_folder, temp_error: where traces are written, and why they cannot be (or empty).
        temp_free_bytes: free space there; None if unknown.
    """

    torch: TorchFacts
    canary: Canary
    canary_after_cpu: Canary | None = None
    nvml: NvmlFacts = _NOT_ASKED
    packages: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""
    permissions: Permissions = _UNKNOWN
    environment: Mapping[str, str] = field(default_factory=dict)
    injected: tuple[str, ...] = ()
    temp_folder: str = ""
    temp_error: str = ""
    temp_free_bytes: int | None = None


def examine_machine() -> Machine:
    """Examine everything; what cannot be examined says so. Takes up to half a minute."""
    torch = _torch_facts()
    has_gpu = bool(torch.version) and not torch.why_no_gpu
    nvml = nvml_facts()
    folder, temp_error, free = _temp_folder()
    return Machine(
        torch=torch,
        canary=_canary("canary") if has_gpu else Canary("no gpu"),
        canary_after_cpu=_canary("canary_after_cpu") if has_gpu else None,
        nvml=nvml,
        packages=_packages(),
        driver=nvml.driver or driver_version(text_of(_DRIVER_VERSION)),
        permissions=permissions(),
        environment=_environment(),
        injected=injected_libraries(mapped_files()),
        temp_folder=folder,
        temp_error=temp_error,
        temp_free_bytes=free,
    )


def _environment() -> dict[str, str]:
    """Return the variables that matter; bytes that are no text become printable escapes."""
    return {
        name: value.encode(errors="backslashreplace").decode()
        for name, value in sorted(os.environ.items())
        if _VARIABLES.match(name)
    }


def driver_version(text: str) -> str:
    """Return the version in ``/proc/driver/nvidia/version``; empty if there is none."""
    match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match[1] if match else ""


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _temp_folder() -> tuple[str, str, int | None]:
    """Return the folder for traces, why it cannot be written to (or empty), and its free bytes."""
    try:
        folder = tempfile.gettempdir()
        with tempfile.TemporaryFile(prefix="kernelprof-") as file:
            file.write(b"x")
            file.flush()
        return folder, "", shutil.disk_usage(folder).free
    except OSError as error:
        return tempfile.tempdir or "", str(error), None


def _torch_facts() -> TorchFacts:
    answer = _ask("torch")
    if isinstance(answer, str):
        return TorchFacts(error=answer)
    return msgspec.convert(answer, TorchFacts)


def _canary(question: Question) -> Canary:
    answer = _ask(question)
    if isinstance(answer, str):
        return Canary("crashed", answer)
    return msgspec.convert(answer, Canary)


def _ask(question: Question) -> dict[str, Any] | str:
    """Return the answer of a new process, or why there was none."""
    try:
        done = run_fresh(
            f"from pytest_kernelprof.cli.machine_checks import answer; answer({question!r})",
            _TIMEOUT_S,
        )
    except NotFinished as error:
        return str(error)
    lines = [line for line in done.stdout.splitlines() if line.startswith(_ANSWER)]
    if lines:
        found: dict[str, Any] = json.loads(lines[-1].removeprefix(_ANSWER))
        return found
    return f"the process ended with status {done.returncode}: {last_words(done)}"


def answer(question: Question) -> None:
    """Print the answer to one question; runs in the process that ``examine_machine`` starts.

    Raises:
        ProfilerUnavailable: torch cannot be imported.
    """
    asked: dict[Question, Callable[[], TorchFacts | Canary]] = {
        "torch": _ask_torch,
        "canary": _try_canary,
        "canary_after_cpu": _try_canary_after_cpu,
    }
    print(_ANSWER + msgspec.json.encode(asked[question]()).decode(), flush=True)


def _ask_torch() -> TorchFacts:
    try:
        torch = load_torch()
    except ProfilerUnavailable as error:
        return TorchFacts(error=str(error))
    reason = why_no_gpu()
    cupti_path, cupti_version = ("", 0) if reason else _cupti(torch)
    activities = torch.profiler.supported_activities()
    return TorchFacts(
        version=str(torch.__version__),
        cuda=torch.version.cuda or "",
        hip=torch.version.hip or "",
        why_no_gpu=reason,
        gpus=() if reason else _gpus(torch),
        cuda_activity=torch.profiler.ProfilerActivity.CUDA in activities,
        cupti_path=cupti_path,
        cupti_version=cupti_version,
    )


def _gpus(torch: Any) -> tuple[str, ...]:
    properties = [
        torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())
    ]
    return tuple(f"{one.name}, sm_{one.major}{one.minor}" for one in properties)


def _cupti(torch: Any) -> tuple[str, int]:
    """Return path and version of the CUPTI library: the one that torch loaded, else the one beside
    it."""
    torch.cuda.init()
    loaded = [path for path in mapped_files() if "libcupti.so" in path]
    folder = Path(torch.__file__).parent
    beside = [
        str(path)
        for place in (folder / "lib", folder.parent / "nvidia")
        for path in sorted(place.rglob("libcupti.so*"))
    ]
    for path in [*loaded, *beside]:
        version = ctypes.c_uint32()
        try:
            failed = ctypes.CDLL(path).cuptiGetVersion(ctypes.byref(version))
        except (OSError, AttributeError):
            continue
        return (path, 0 if failed else version.value)
    return "", 0


def _try_canary() -> Canary:
    return Canary("seen") if canary_seen() else Canary("blind", why_blind())


def _try_canary_after_cpu() -> Canary:
    """Try the canary after a CPU-only profile (pytorch #186036)."""
    torch = load_torch()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        torch.ones(1).add_(1)
    return _try_canary()


# Python code in a new process that can import this package.


class NotFinished(Exception):  # noqa: N818 (what happened, not an error of ours)
    """The process did not start, or did not answer in time; the message says which."""


def run_fresh(code: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run Python code in a new process without standard input.

    Raises:
        NotFinished: it did not end in time and was killed, or could not be started.
    """
    root = str(Path(__file__).parents[2])
    try:
        return subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.append({root!r}); {code}"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise NotFinished(f"no answer within {timeout_s:.0f} s") from None
    except OSError as error:
        raise NotFinished(f"no process could be started: {error}") from error


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of a process's standard error, which says why it failed."""
    return (done.stderr.strip().splitlines() or ["no message"])[-1]
