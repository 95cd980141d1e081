"""What the doctor finds: what each fact about the machine means for counts, and its remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_kernelprof.device.attached_tools import tools_of
from pytest_kernelprof.units import format_bytes
from pytest_kernelprof.versions import newer_than_tried

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.cli.facts import Machine, TorchFacts

State = Literal["ok", "warn", "fail", "unknown"]

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
_UNTRIED = (
    "nothing is known to be wrong with it; a newer pytest-kernelprof may have been tried with it"
)
# Bad time stamps came with CUDA 12.6 Update 2, whose number is that of 12.6.
_BAD_TIMES, _GOOD_TIMES, _GOOD_GRAPHS = 24, 130_100, 130_101


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: what was looked at, for example "CUPTI".
        state: "ok"; "warn", where counts can be had but something may disturb; "fail", where they
            cannot; "unknown", where nobody answered.
        text: what was found.
        remedy: what to do; empty for "ok".
    """

    name: str
    state: State
    text: str
    remedy: str = ""


def diagnose(machine: Machine) -> list[Finding]:
    """A finding for each thing that the doctor looks at, most basic first."""
    found = [
        _torch(machine.torch),
        _gpu(machine),
        _division(machine),
        _cupti(machine.torch),
        _permission(machine),
        _subscribers(machine),
        _kineto(machine),
        _host_settings(machine),
        _canary(machine),
        _cpu_first(machine),
        _nvml(machine),
        _triton(machine),
        _pytest(machine),
        _temp_folder(machine),
    ]
    return [finding for finding in found if finding is not None]


def has_failure(findings: Iterable[Finding]) -> bool:
    """Whether counts cannot be had."""
    return any(finding.state == "fail" for finding in findings)


def _torch(torch: TorchFacts) -> Finding:
    if torch.error:
        return Finding(
            "torch", "fail", torch.error, "install a torch that works in this environment"
        )
    builds = {"ROCm": torch.hip, "CUDA": torch.cuda}
    built = next((f"{name} {version}" for name, version in builds.items() if version), "the CPU")
    text = f"{torch.version}, built for {built}"
    newer = newer_than_tried({"torch": torch.version})
    if newer:
        return Finding("torch", "warn", f"{text}; {newer[0]}", _UNTRIED)
    return Finding("torch", "ok", text)


def _gpu(machine: Machine) -> Finding | None:
    torch = machine.torch
    if torch.error:
        return None
    driver = f"driver {machine.driver}" if machine.driver else "driver unknown"
    visible = machine.environment.get("CUDA_VISIBLE_DEVICES")
    if torch.gpus:
        chosen = () if visible is None else (f"CUDA_VISIBLE_DEVICES={visible}",)
        return Finding("GPU", "ok", "; ".join((*torch.gpus, driver, *chosen)))
    if visible is not None and (torch.cuda or torch.hip):
        return Finding(
            "GPU",
            "warn",
            torch.why_no_gpu,
            "unset CUDA_VISIBLE_DEVICES, or name a GPU that nvidia-smi -L lists",
        )
    if machine.driver:
        remedy = (
            "the driver may be too old for this torch, or the container was started without the "
            "GPU (--gpus all); see nvidia-smi"
            if torch.cuda
            else "install a torch that is built for CUDA"
        )
        return Finding("GPU", "fail", f"{torch.why_no_gpu}; {driver} is loaded", remedy)
    return Finding(
        "GPU",
        "warn",
        torch.why_no_gpu,
        "GPU tests are skipped here; --kernelprof-device=cpu counts compute operators instead",
    )


def _division(machine: Machine) -> Finding | None:
    """Divided GPUs: profiling works inside an instance of its own, neighbours disturb times."""
    divided = any(machine.nvml.mig) or any(" MIG " in gpu for gpu in machine.torch.gpus)
    if not machine.torch.gpus or not divided:
        return None
    return Finding(
        "MIG",
        "warn",
        "a GPU of this machine is divided into instances (MIG)",
        "counts hold; instances share power and clocks, so judge times against their own baseline",
    )


def _cupti(torch: TorchFacts) -> Finding | None:
    if torch.error or torch.why_no_gpu or torch.hip:
        return None
    if not torch.cuda_activity:
        return Finding(
            "CUPTI",
            "fail",
            f"torch {torch.version} is built without it: the profiler cannot record the device",
            "install a torch build with CUPTI (the official wheels have it)",
        )
    if not torch.cupti_version:
        return Finding(
            "CUPTI",
            "unknown",
            "no library found that tells its version",
            "see the canary below; if it was not seen, install the CUPTI package of this CUDA",
        )
    release = f"of CUDA {cupti_release(torch.cupti_version)} ({torch.cupti_path})"
    if torch.cupti_version >= _GOOD_GRAPHS:
        return Finding("CUPTI", "ok", release)
    faults = ["after a first session, graph launches may carry wrong correlation ids"]
    if _BAD_TIMES <= torch.cupti_version < _GOOD_TIMES:
        since = "from Update 2 on " if torch.cupti_version == _BAD_TIMES else ""
        faults.append(f"{since}kernels may get bad time stamps and be lost")
    return Finding(
        "CUPTI",
        "warn",
        f"{release}, known: {'; '.join(faults)}",
        "nothing passes by it: profiles are checked, and taken again where incomplete; CUPTI of "
        "CUDA 13.1 Update 1 and later has it fixed (a torch built for it)",
    )


def cupti_release(version: int) -> str:
    """The CUDA release of a CUPTI API version: 24 is "12.6", 130001 is "13.0 Update 1"."""
    if version >= 130_000:
        update = f" Update {version % 100}" if version % 100 else ""
        return f"{version // 10_000}.{version // 100 % 100}{update}"
    known = _CUPTI_RELEASES.get(version)
    return known or ("11.8 or older" if version < 19 else f"unknown (API version {version})")


def _permission(machine: Machine) -> Finding | None:
    if not machine.driver:
        return None
    if machine.permissions.admin_only is None:
        return Finding(
            "permission",
            "unknown",
            "/proc/driver/nvidia/params does not say who may profile",
            "the canary decides: if it was seen, this user may",
        )
    if not machine.permissions.admin_only:
        return Finding("permission", "ok", "the driver lets every user profile")
    if machine.permissions.privileged:
        return Finding("permission", "ok", "only administrators may profile; this process may")
    if machine.canary.state == "seen":
        return Finding(
            "permission", "ok", "only administrators may profile, yet the canary was seen"
        )
    return Finding(
        "permission",
        "fail",
        "this user may not profile (NVreg_RestrictProfilingToAdminUsers=1)",
        "load the driver with NVreg_RestrictProfilingToAdminUsers=0, or give the container "
        "CAP_SYS_ADMIN (docker run --cap-add=SYS_ADMIN)",
    )


def _subscribers(machine: Machine) -> Finding:
    """CUPTI serves one subscriber a process. DCGM's profiling shows nowhere in the process."""
    tools = tools_of(machine.environment)
    tools += [f"the loaded library {name}" for name in machine.injected]
    if tools:
        return Finding(
            "other tools",
            "warn",
            f"another profiling tool seems to be attached: {', '.join(tools)}",
            "CUPTI serves one tool a process: run without it, unset its variables",
        )
    return Finding("other tools", "ok", "none seen in this process (DCGM's profiling cannot be)")


def _kineto(machine: Machine) -> Finding:
    set_here = {
        name: value
        for name, value in machine.environment.items()
        if name.startswith("KINETO_") or "CUPTI" in name
    }
    shown = ", ".join(f"{name}={value}" for name, value in set_here.items())
    on_demand = [name for name in ("KINETO_USE_DAEMON", "KINETO_CONFIG") if name in set_here]
    if on_demand:
        return Finding(
            "Kineto",
            "warn",
            f"{shown}: traces on demand may start in the middle of ours",
            f"unset {' and '.join(on_demand)} for tests",
        )
    if set_here.get("TEARDOWN_CUPTI", "0") not in ("", "0"):
        return Finding(
            "Kineto",
            "warn",
            f"{shown}: CUPTI is taken down after each session and comes up again for the next",
            "unset TEARDOWN_CUPTI: sessions take long, and CUDA graphs are known to fail with it",
        )
    return Finding("Kineto", "ok", shown or "no settings in the environment")


def _host_settings(machine: Machine) -> Finding | None:
    """Variables that change what is measured."""
    environment = machine.environment
    if environment.get("TRITON_INTERPRET", "0") not in ("", "0"):
        return Finding(
            "environment",
            "warn",
            "TRITON_INTERPRET is set: Triton kernels run in Python and launch other kernels",
            "unset it where kernels are counted",
        )
    if environment.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        return Finding(
            "environment",
            "warn",
            "CUDA_LAUNCH_BLOCKING is set: every launch waits for its kernel",
            "unset it: host times and the bound verdict mean nothing with it; counts hold",
        )
    return None


def _canary(machine: Machine) -> Finding | None:
    canary = machine.canary
    if canary.state == "no gpu":
        return None
    if canary.state == "seen":
        return Finding("canary", "ok", "the profiler saw the kernel that was launched for it")
    if canary.state == "blind":
        return Finding("canary", "fail", canary.text, "the cause above names the remedy")
    return Finding(
        "canary",
        "fail",
        canary.text,
        "run with KINETO_LOG_LEVEL=0 to see the profiler's own log; try another torch",
    )


def _cpu_first(machine: Machine) -> Finding | None:
    after = machine.canary_after_cpu
    if after is None or machine.canary.state != "seen":
        return None
    if after.state == "seen":
        return Finding("CPU-only first", "ok", "a CPU-only profile leaves the GPU visible")
    if after.state == "crashed":
        return Finding(
            "CPU-only first", "unknown", after.text, "run again; if it stays, avoid such profiles"
        )
    return Finding(
        "CPU-only first",
        "warn",
        "after a CPU-only profile this torch no longer sees the GPU (pytorch #186036)",
        "let the first profile of a process be ours: take CPU-only profilers out of conftest files "
        "and of code that runs on import",
    )


def _nvml(machine: Machine) -> Finding | None:
    if not machine.driver and not machine.torch.gpus:
        return None
    if not machine.nvml.error:
        return Finding("NVML", "ok", f"{len(machine.nvml.mig)} GPUs")
    return Finding(
        "NVML",
        "unknown",
        machine.nvml.error,
        "pip install nvidia-ml-py, so that clocks, throttling and other processes can be seen",
    )


def _triton(machine: Machine) -> Finding:
    version = machine.packages.get("triton")
    return Finding("triton", "ok", version or "not installed; only code that uses it needs it")


def _pytest(machine: Machine) -> Finding:
    """Pairs of pytest and pytest-benchmark that are known to break."""
    ours, bench = machine.packages.get("pytest", ""), machine.packages.get("pytest-benchmark", "")
    text = f"{ours or 'version unknown'}, pytest-benchmark {bench or 'not installed'}"
    if bench and _number(bench) < (5, 3) and _number(ours) >= (9, 2):
        return Finding(
            "pytest",
            "warn",
            f"{text}: pytest-benchmark before 5.3 breaks on pytest 9.2",
            "pip install 'pytest-benchmark>=5.3'",
        )
    newer = newer_than_tried({"pytest": ours})
    if newer:
        return Finding("pytest", "warn", f"{text}; {newer[0]}", _UNTRIED)
    return Finding("pytest", "ok" if ours else "unknown", text, "" if ours else "reinstall pytest")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _temp_folder(machine: Machine) -> Finding:
    if machine.temp_error:
        return Finding(
            "temporary files",
            "fail",
            f"traces cannot be written: {machine.temp_error}",
            "set TMPDIR to a folder that can be written to",
        )
    free = machine.temp_free_bytes
    if free is not None and free < _LITTLE_SPACE:
        return Finding(
            "temporary files",
            "warn",
            f"{machine.temp_folder} has {format_bytes(free)} free; a large trace takes more",
            "make room, or set TMPDIR to another folder",
        )
    shown = "" if free is None else f", {format_bytes(free)} free"
    return Finding("temporary files", "ok", f"{machine.temp_folder}{shown}")
