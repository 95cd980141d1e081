"""A driver with one GPU: the part of pynvml that asks it is a double, there is no GPU here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from pytest_kernelprof.gpu import nvml
from pytest_kernelprof.gpu.inventory import Device

GPU = Device("cuda", 0, "NVIDIA H200", "sm_90", 1, {})
CPU = Device("cpu", 0, "CPU", "", 0, {})
UUID = "c9d0e785-39da-0bdc-778f-5f6a330f7f55"
ME, OTHER, THIRD = os.getpid(), 4_000_001, 4_000_002


@dataclass
class Driver:
    """What it answers, errors that it answers instead, and what it was asked."""

    uuid: str = f"GPU-{UUID}"
    clock: int = 1980
    power_limit_mw: int = 700_000
    reasons: int = 0
    counters: dict[int, int] = field(default_factory=lambda: {75: 0, 269: 0, 270: 0, 271: 0})
    processes: set[int] = field(default_factory=lambda: {ME})
    use: dict[int, int] = field(default_factory=dict)
    stops_at: float = float("inf")
    sampled_late_s: dict[int, float] = field(default_factory=dict)
    mig: int = 0
    refuses: dict[str, int] = field(default_factory=dict)
    pulses: int = 0
    asked: list[str] = field(default_factory=list)

    def _answering(self, name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*given: Any) -> Any:
            self.asked.append(name.removeprefix("nvmlDevice").removeprefix("Get"))
            if name in self.refuses:
                raise pynvml.NVMLError(self.refuses[name])
            return answer(*given)

        return ask

    def by_uuid(self, uuid: str) -> str:
        if uuid != self.uuid:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid

    def fields(self, _: str, numbers: list[int]) -> list[Any]:
        return [
            SimpleNamespace(
                fieldId=number,
                nvmlReturn=0 if number in self.counters else pynvml.NVML_ERROR_NOT_SUPPORTED,
                value=SimpleNamespace(ullVal=self.counters.get(number, 0)),
            )
            for number in numbers
        ]

    def utilisation(self, _: str, since_us: int) -> list[Any]:
        """Like an H200: one sample a process, stamped every 10 ms here while anyone works."""
        last = self.stops_at + 0.01  # the sample in which the work ended
        now, used = time.time(), []
        for pid, use in self.use.items():
            stamp = int(min(now - self.sampled_late_s.get(pid, 0), last) * 100) * 10_000
            if stamp > since_us:
                used.append(SimpleNamespace(pid=pid, timeStamp=stamp, smUtil=use))
        if not used:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return [SimpleNamespace(pid=0, timeStamp=0, smUtil=0), *used]  # one that is unused

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers: dict[str, Callable[..., Any]] = {
            "nvmlInit": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "590.44.01",
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda _: self.uuid,
            "nvmlDeviceGetUUID": lambda handle: handle,
            "nvmlDeviceGetMigMode": lambda _: [self.mig, self.mig],
            "nvmlDeviceGetHandleByUUID": self.by_uuid,
            "nvmlDeviceGetClockInfo": lambda *_: self.clock,
            "nvmlDeviceGetMaxClockInfo": lambda *_: 1980,
            "nvmlDeviceGetEnforcedPowerLimit": lambda _: self.power_limit_mw,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda _: self.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: self.reasons,
            "nvmlDeviceGetFieldValues": self.fields,
            "nvmlDeviceGetComputeRunningProcesses": lambda _: [
                SimpleNamespace(pid=pid) for pid in self.processes
            ],
            "nvmlDeviceGetProcessUtilization": self.utilisation,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, self._answering(name, answer))


def installed(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """One that answers in place of the driver, and numbers processes as this one does."""
    made = Driver()
    made.install(monkeypatch)
    monkeypatch.setattr(nvml, "gpu_uuid", lambda index: UUID)
    monkeypatch.setattr(nvml, "pid_namespace", lambda: nvml.FIRST_PID_NAMESPACE)
    return made


def forget() -> None:
    """Ask the driver anew."""
    nvml._gpu_of.cache_clear()
    nvml._library.cache_clear()
