"""``kernelprof doctor``: problems of this machine, what each means for counts, and its remedy.

Examined are driver, permissions, environment, torch, CUPTI, and a canary kernel. What loads torch
or CUPTI runs in a process of its own, with a time limit: its crash or hang is an answer, too.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from pytest_kernelprof import errors, system, units
from pytest_kernelprof.gpu import inventory, procfs
from pytest_kernelprof.gpu.nvml import NvmlFacts, nvml_facts
from pytest_kernelprof.profiler.torch_profiler import canary_seen, why_blind

# What is found.

State = Literal["ok", "warn", "fail", "unknown"]
Found = tuple[State, str] | tuple[State, str, str]
"""The state, text and remedy of a finding."""

_LITTLE_SPACE = 200_000_000

# https://docs.nvidia.com/cupti/api/group__CUPTI__VERSION__API.html; from CUDA 13.0 on the number
# is xxyyzz: major, minor, update of CUPTI.
_CUPTI_RELEASES = {
    19: "12.0",
    20: "12.2",
    21: "12.3",
    22: "12.4",
    23: "12.5",
    24: "12.6",
    26: "12.8",
    27: "12.9",
    28: "12.9 Update 1",
}
_UNTRIED = "no problem with it is known; a newer pytest-kernelprof may have been tested with it"
# Bad time stamps came with CUDA 12.6 Update 2, whose number is that of 12.6.
_BAD_TIMES, _GOOD_TIMES, _GOOD_GRAPHS = 24, 130_100, 130_101


class Finding(NamedTuple):
    """The result of one check.

    Attributes:
        name: what was checked, for example "CUPTI".
        state: "ok"; "warn" if something may disturb measurements; "fail" if counts are not
            possible; "unknown" if there was no answer.
        text: what was found.
        remedy: what to do; empty for "ok".
    """

    name: str
    state: State
    text: str
    remedy: str = ""


def run(_: argparse.Namespace) -> int:
    """Print the findings; return 1 if counts are not possible, else 0."""
    if sys.stderr.isatty():
        words = "asking the driver, torch, CUPTI and the profiler (half a minute with a GPU) ..."
        print(words, file=sys.stderr, flush=True)
    findings = diagnose(examine_machine())
    print("\n".join(map(units.printable, lines_of(findings))))
    return int(has_failure(findings))


def lines_of(findings: list[Finding]) -> list[str]:
    """Return a line for each finding, and one for its remedy, if any."""
    wide = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:7}  {finding.name:{wide}}  {finding.text}")
        if finding.remedy:
            lines.append(f"{'':7}  {'':{wide}}  -> {finding.remedy}")
    return lines


def diagnose(machine: Machine) -> list[Finding]:
    """Return the finding of each check, most basic first."""
    checks: dict[str, Callable[[Machine], Found | None]] = {
        "torch": _torch,
        "GPU": _gpu,
        "MIG": _division,
        "CUPTI": _cupti,
        "permission": _permission,
        "other tools": _subscribers,
        "Kineto": _kineto,
        "environment": _host_settings,
        "canary": _canary,
        "CPU-only first": _cpu_first,
        "NVML": _nvml,
        "triton": _triton,
        "pytest": _pytest,
        "temporary files": _temp_folder,
    }
    found = ((name, check(machine)) for name, check in checks.items())
    return [Finding(name, *one) for name, one in found if one is not None]


def has_failure(findings: Iterable[Finding]) -> bool:
    """Whether counts are not possible."""
    return any(finding.state == "fail" for finding in findings)


def _torch(machine: Machine) -> Found:
    torch = machine.torch
    if torch.error:
        return "fail", torch.error, "install a torch that works in this environment"
    builds = {"ROCm": torch.hip, "CUDA": torch.cuda}
    built = next((f"{name} {version}" for name, version in builds.items() if version), "the CPU")
    return _untried({"torch": torch.version}, f"{torch.version}, built for {built}")


def _untried(installed: dict[str, str], text: str) -> Found:
    """Warn of a version that is newer than those that were tested."""
    newer = system.newer_than_tried(installed)
    return ("warn", f"{text}; {newer[0]}", _UNTRIED) if newer else ("ok", text)


def _gpu(machine: Machine) -> Found | None:
    torch = machine.torch
    if torch.error:
        return None
    driver = f"driver {machine.driver}" if machine.driver else "driver unknown"
    visible = machine.environment.get("CUDA_VISIBLE_DEVICES")
    if torch.gpus:
        chosen = () if visible is None else (f"CUDA_VISIBLE_DEVICES={visible}",)
        return "ok", "; ".join((*torch.gpus, driver, *chosen))
    if visible is not None and (torch.cuda or torch.hip):
        remedy = "unset CUDA_VISIBLE_DEVICES, or name a GPU that nvidia-smi -L lists"
        return "warn", torch.why_no_gpu, remedy
    if machine.driver:
        remedy = (
            "the driver may be too old for this torch, or the container was started without the "
            "GPU (--gpus all); see nvidia-smi"
            if torch.cuda
            else "install a torch that is built for CUDA"
        )
        return "fail", f"{torch.why_no_gpu}; {driver} is loaded", remedy
    remedy = "GPU tests are skipped here; --kernelprof-device=cpu counts compute operators instead"
    return "warn", torch.why_no_gpu, remedy


def _division(machine: Machine) -> Found | None:
    """Divided GPUs: profiling works inside an instance, neighbours disturb times."""
    divided = any(machine.nvml.mig) or any(" MIG " in gpu for gpu in machine.torch.gpus)
    if not machine.torch.gpus or not divided:
        return None
    remedy = (
        "counts are correct, but instances share power and clocks: compare times of one instance"
    )
    return "warn", "a GPU of this machine is divided into instances (MIG)", remedy


def _cupti(machine: Machine) -> Found | None:
    torch = machine.torch
    if torch.error or torch.why_no_gpu or torch.hip:
        return None
    if not torch.cuda_activity:
        text = (
            f"torch {torch.version} is built without CUPTI: the profiler cannot record the device"
        )
        return "fail", text, "install a torch build with CUPTI (the official wheels have it)"
    if not torch.cupti_version:
        remedy = "see the canary below; if it fails, install the CUPTI package of this CUDA"
        return "unknown", "no CUPTI library found that gives its version", remedy
    release = f"of CUDA {cupti_release(torch.cupti_version)} ({torch.cupti_path})"
    if torch.cupti_version >= _GOOD_GRAPHS:
        return "ok", release
    faults = ["after a first session, graph launches may carry wrong correlation ids"]
    if _BAD_TIMES <= torch.cupti_version < _GOOD_TIMES:
        since = "from Update 2 on " if torch.cupti_version == _BAD_TIMES else ""
        faults.append(f"{since}kernels may get bad time stamps and be lost")
    remedy = (
        "no test passes because of it: profiles are checked, and retried if incomplete; CUPTI of "
        "CUDA 13.1 Update 1 and later has the fix (use a torch built for it)"
    )
    return "warn", f"{release}, known: {'; '.join(faults)}", remedy


def cupti_release(version: int) -> str:
    """Return the CUDA release of a CUPTI API version: 24 is "12.6", 130001 is "13.0 Update 1"."""
    if version >= 130_000:
        update = f" Update {version % 100}" if version % 100 else ""
        return f"{version // 10_000}.{version // 100 % 100}{update}"
    known = _CUPTI_RELEASES.get(version)
    return known or ("11.8 or older" if version < 19 else f"unknown (API version {version})")


def _permission(machine: Machine) -> Found | None:
    if not machine.driver:
        return None
    if machine.permissions.admin_only is None:
        text = "/proc/driver/nvidia/params does not say who may profile"
        return "unknown", text, "see the canary below: if it passes, this user may profile"
    if not machine.permissions.admin_only:
        return "ok", "the driver lets every user profile"
    if machine.permissions.privileged:
        return "ok", "only administrators may profile; this process may"
    if machine.canary.state == "seen":
        return "ok", "only administrators may profile, but the canary was seen"
    remedy = (
        "load the driver with NVreg_RestrictProfilingToAdminUsers=0, or give the container "
        "CAP_SYS_ADMIN (docker run --cap-add=SYS_ADMIN)"
    )
    return "fail", "this user may not profile (NVreg_RestrictProfilingToAdminUsers=1)", remedy


def _subscribers(machine: Machine) -> Found:
    """CUPTI serves one subscriber per process. DCGM's profiling cannot be seen in the process."""
    tools = procfs.tools_of(machine.environment)
    tools += [f"the loaded library {name}" for name in machine.injected]
    if not tools:
        return "ok", "none seen in this process (DCGM profiling cannot be seen)"
    text = f"another profiling tool seems to be attached: {', '.join(tools)}"
    remedy = "CUPTI serves one tool per process: run without that tool, and unset its variables"
    return "warn", text, remedy


def _kineto(machine: Machine) -> Found:
    names = [one for one in machine.environment if one.startswith("KINETO_") or "CUPTI" in one]
    set_here = {name: machine.environment[name] for name in sorted(names)}
    shown = ", ".join(f"{name}={value}" for name, value in set_here.items())
    if on_demand := [name for name in ("KINETO_USE_DAEMON", "KINETO_CONFIG") if name in set_here]:
        text = f"{shown}: traces on demand may start during a measurement"
        return "warn", text, f"unset {' and '.join(on_demand)} for tests"
    if _is_on(set_here, "TEARDOWN_CUPTI"):
        text = f"{shown}: CUPTI stops after each session and starts again for the next"
        remedy = "sessions take long, and CUDA graphs are known to fail with it"
        return "warn", text, f"unset TEARDOWN_CUPTI: {remedy}"
    return "ok", shown or "no settings in the environment"


def _is_on(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "0") not in ("", "0")


def _host_settings(machine: Machine) -> Found | None:
    """Variables that change what is measured."""
    if _is_on(machine.environment, "TRITON_INTERPRET"):
        text = "TRITON_INTERPRET is set: Triton kernels run in Python and launch other kernels"
        return "warn", text, "unset it when you count kernels"
    if _is_on(machine.environment, "CUDA_LAUNCH_BLOCKING"):
        text = "CUDA_LAUNCH_BLOCKING is set: every launch waits for its kernel"
        remedy = "unset it: host times and the bound verdict are wrong with it; counts are correct"
        return "warn", text, remedy
    return None


def _canary(machine: Machine) -> Found | None:
    text = machine.canary.text
    log = "run with KINETO_LOG_LEVEL=0 to see the profiler's own log; try another torch"
    found: dict[CanaryState, Found] = {
        "seen": ("ok", "the profiler saw the kernel that was launched for it"),
        "blind": ("fail", text, "see the cause above"),
        "crashed": ("fail", text, log),
    }
    return found.get(machine.canary.state)


def _cpu_first(machine: Machine) -> Found | None:
    after = machine.canary_after_cpu
    if after is None or machine.canary.state != "seen":
        return None
    if after.state == "seen":
        return "ok", "a CPU-only profile leaves the GPU visible"
    if after.state == "crashed":
        return "unknown", after.text, "run again; if it fails again, avoid CPU-only profiles"
    text = "after a CPU-only profile this torch no longer sees the GPU (pytorch #186036)"
    remedy = (
        "let pytest-kernelprof profile first in each process: remove CPU-only profilers from "
        "conftest files and from code that runs on import"
    )
    return "warn", text, remedy


def _nvml(machine: Machine) -> Found | None:
    if not machine.driver and not machine.torch.gpus:
        return None
    if not machine.nvml.error:
        return "ok", f"{len(machine.nvml.mig)} GPUs"
    remedy = "pip install nvidia-ml-py, so that clocks, throttling and other processes can be seen"
    return "unknown", machine.nvml.error, remedy


def _triton(machine: Machine) -> Found:
    return "ok", machine.packages.get("triton", "not installed; only code that uses it needs it")


def _pytest(machine: Machine) -> Found:
    """Pairs of pytest and pytest-benchmark that are known to break."""
    ours, bench = machine.packages.get("pytest", ""), machine.packages.get("pytest-benchmark", "")
    text = f"{ours or 'version unknown'}, pytest-benchmark {bench or 'not installed'}"
    if bench and system.series(bench) < (5, 3) and system.series(ours) >= (9, 2):
        text = f"{text}: pytest-benchmark before 5.3 breaks on pytest 9.2"
        return "warn", text, "pip install 'pytest-benchmark>=5.3'"
    return _untried({"pytest": ours}, text) if ours else ("unknown", text, "reinstall pytest")


def _temp_folder(machine: Machine) -> Found:
    if machine.temp_error:
        text = f"traces cannot be written: {machine.temp_error}"
        return "fail", text, "set TMPDIR to a writable folder"
    if machine.temp_free_bytes is None:
        return "ok", machine.temp_folder
    free = units.format_bytes(machine.temp_free_bytes)
    if machine.temp_free_bytes < _LITTLE_SPACE:
        text = f"{machine.temp_folder} has {free} free; a large trace takes more"
        return "warn", text, "free space, or set TMPDIR to another folder"
    return "ok", f"{machine.temp_folder}, {free} free"


# What is examined.

CanaryState = Literal["seen", "blind", "no gpu", "crashed"]

_TIMEOUT_S = 180.0
_PACKAGES = ("pytest", "pytest-benchmark", "pytest-kernelprof", "triton")
_DRIVER_VERSION = Path("/proc/driver/nvidia/version")
_ANSWER = "kernelprof-answer:"
Answer = TypeVar("Answer", "TorchFacts", "Canary")


class TorchFacts(NamedTuple):
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


class Canary(NamedTuple):
    """Whether the profiler saw a kernel that was launched for it, and if not, why."""

    state: CanaryState
    text: str = ""


class Machine(NamedTuple):
    """All that the doctor examines.

    Attributes:
        packages: versions of installed packages by name, without those that are missing.
        driver: version of the NVIDIA driver; empty if none is loaded.
        permissions: who may profile, and whether this process may.
        environment: the environment variables.
        injected: profiling libraries that are loaded into this process.
        canary: a canary kernel under a CPU and CUDA profile, in a new process.
        canary_after_cpu: the same after a CPU-only profile; None if not tried.
        temp_folder, temp_error: where traces are written, and why they cannot be (or empty).
        temp_free_bytes: free space there; None if unknown.
    """

    torch: TorchFacts
    canary: Canary
    canary_after_cpu: Canary | None = None
    nvml: NvmlFacts = NvmlFacts("not asked")
    packages: Mapping[str, str] = MappingProxyType({})
    driver: str = ""
    permissions: procfs.Permissions = procfs.Permissions()
    environment: Mapping[str, str] = MappingProxyType({})
    injected: tuple[str, ...] = ()
    temp_folder: str = ""
    temp_error: str = ""
    temp_free_bytes: int | None = None


def examine_machine() -> Machine:
    """Examine everything; what cannot be examined says so. Takes up to half a minute."""
    torch, crashed = _ask(_ask_torch, TorchFacts), functools.partial(Canary, "crashed")
    has_gpu = bool(torch.version) and not torch.why_no_gpu
    nvml = nvml_facts()
    folder, temp_error, free = _try_temp_folder()
    return Machine(
        torch=torch,
        canary=_ask(_try_canary, crashed) if has_gpu else Canary("no gpu"),
        canary_after_cpu=_ask(_try_canary_after_cpu, crashed) if has_gpu else None,
        nvml=nvml,
        packages={one: found for one in _PACKAGES if (found := inventory.installed_version(one))},
        driver=nvml.driver or driver_version(procfs.text_of(_DRIVER_VERSION)),
        permissions=procfs.permissions(),
        environment=os.environ,
        injected=procfs.injected_libraries(procfs.mapped_files()),
        temp_folder=folder,
        temp_error=temp_error,
        temp_free_bytes=free,
    )


def driver_version(text: str) -> str:
    """Return the version in ``/proc/driver/nvidia/version``; empty if there is none."""
    match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match[1] if match else ""


def _try_temp_folder() -> tuple[str, str, int | None]:
    """Return the folder for traces, why it cannot be written to (or empty), and its free bytes."""
    try:
        folder = tempfile.gettempdir()
        with tempfile.TemporaryFile(prefix="kernelprof-") as file:
            file.write(b"x")
            file.flush()
        return folder, "", shutil.disk_usage(folder).free
    except OSError as error:
        return tempfile.tempdir or "", str(error), None


def _ask(question: Callable[[], Answer], failed: Callable[[str], Answer]) -> Answer:
    """Return what a function of this module returns in a new process.

    Args:
        failed: makes the answer of the words that say why there is none.
    """
    asked = f"doctor.answer(doctor.{question.__name__}())"
    try:
        done = run_fresh(f"from pytest_kernelprof.cli import doctor; {asked}", _TIMEOUT_S)
    except NotFinished as error:
        return failed(str(error))
    lines = [line for line in done.stdout.splitlines() if line.startswith(_ANSWER)]
    no_answer = failed(f"the process ended with status {done.returncode}: {last_words(done)}")
    if not lines:
        return no_answer
    return msgspec.json.decode(lines[-1].removeprefix(_ANSWER), type=type(no_answer))


def answer(found: TorchFacts | Canary) -> None:
    """Print the answer to one question, in the process that ``examine_machine`` starts."""
    print(_ANSWER + msgspec.json.encode(found).decode(), flush=True)


def _ask_torch() -> TorchFacts:
    try:
        torch = inventory.load_torch()
    except errors.ProfilerUnavailable as error:
        return TorchFacts(error=str(error))
    reason = inventory.why_no_gpu()
    cupti_path, cupti_version = ("", 0) if reason else _cupti_of(torch)
    numbers = () if reason else range(torch.cuda.device_count())
    gpus = map(torch.cuda.get_device_properties, numbers)
    activities = torch.profiler.supported_activities()
    return TorchFacts(
        version=str(torch.__version__),
        cuda=torch.version.cuda or "",
        hip=torch.version.hip or "",
        why_no_gpu=reason,
        gpus=tuple(f"{one.name}, sm_{one.major}{one.minor}" for one in gpus),
        cuda_activity=torch.profiler.ProfilerActivity.CUDA in activities,
        cupti_path=cupti_path,
        cupti_version=cupti_version,
    )


def _cupti_of(torch: Any) -> tuple[str, int]:
    """Return path and version of the CUPTI library: the one that torch loaded, else the one beside
    it."""
    torch.cuda.init()
    loaded = [path for path in procfs.mapped_files() if "libcupti.so" in path]
    folder = Path(torch.__file__).parent
    places = (folder / "lib", folder.parent / "nvidia")
    beside = (str(path) for place in places for path in sorted(place.rglob("libcupti.so*")))
    for path in (*loaded, *beside):
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
    torch = inventory.load_torch()
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
