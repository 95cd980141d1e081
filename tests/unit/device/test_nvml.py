"""What is made of NVML's answers. The driver's part of pynvml is a double: there is no GPU here."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from pytest_kernelprof.device import nvml
from pytest_kernelprof.device.inventory import Device, why_no_gpu
from pytest_kernelprof.device.nvml import (
    NvmlFacts,
    Sample,
    Unknown,
    gpu_uuids,
    nvml_facts,
    sample,
    watch,
)
from pytest_kernelprof.schema.conditions import Conditions, Contender

GPU = Device("cuda", 0, "NVIDIA H200", "sm_90", 1, {})
CPU = Device("cpu", 0, "CPU", "", 0, {})
UUID = "c9d0e785-39da-0bdc-778f-5f6a330f7f55"
ME, OTHER, THIRD = os.getpid(), 4_000_001, 4_000_002


@dataclass
class Driver:
    """A driver with one GPU: what it answers, and errors that it answers instead."""

    uuid: str = f"GPU-{UUID}"
    clock: int = 1980
    reasons: int = 0
    counters: dict[int, int] = field(default_factory=lambda: {75: 0, 269: 0, 270: 0, 271: 0})
    processes: set[int] = field(default_factory=lambda: {ME})
    use: dict[int, int] = field(default_factory=dict)
    stops_at: float = float("inf")
    mig: int = 0
    refuses: dict[str, int] = field(default_factory=dict)
    pulses: int = 0

    def _answering(self, name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*given: Any) -> Any:
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
        stamp = int(min(time.time(), last) * 100) * 10_000
        if not self.use or stamp <= since_us:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        unused = SimpleNamespace(pid=0, timeStamp=0, smUtil=0)
        return [unused] + [
            SimpleNamespace(pid=pid, timeStamp=stamp, smUtil=use) for pid, use in self.use.items()
        ]

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = {
            "nvmlInit": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "590.44.01",
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda _: self.uuid,
            "nvmlDeviceGetUUID": lambda handle: handle,
            "nvmlDeviceGetMigMode": lambda _: [self.mig, self.mig],
            "nvmlDeviceGetHandleByUUID": self.by_uuid,
            "nvmlDeviceGetClockInfo": lambda *_: self.clock,
            "nvmlDeviceGetMaxClockInfo": lambda *_: 1980,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda _: self.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: self.reasons,
            "nvmlDeviceGetFieldValues": self.fields,
            "nvmlDeviceGetComputeRunningProcesses": lambda _: [
                SimpleNamespace(pid=pid) for pid in self.processes
            ],
            "nvmlDeviceGetProcessUtilization": self.utilisation,
            "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=1 << 30),
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, self._answering(name, answer))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    made = Driver()
    made.install(monkeypatch)
    monkeypatch.setattr(nvml, "gpu_uuid", lambda device: UUID)
    monkeypatch.setattr(nvml, "_in_first_pid_namespace", lambda: True)
    monkeypatch.setattr(nvml, "_SAMPLED_WITHIN_S", 0.1)
    monkeypatch.setattr(nvml, "_POLL_S", 0.002)

    def pulse(device: Device) -> None:
        made.pulses += 1

    monkeypatch.setattr(nvml, "_pulse", pulse)
    forget()
    yield made
    forget()


def forget() -> None:
    nvml._gpu_of.cache_clear()
    nvml._library.cache_clear()


def watched(*, rounds: int = 12, seconds: float = 0.03) -> Conditions:
    with watch(GPU) as looking:
        time.sleep(seconds)
        looking.block(rounds)
    return looking.conditions()


def test_a_sample_holds_what_nvml_says(driver: Driver) -> None:
    driver.counters = {75: 5, 270: 6}
    driver.reasons = 0x40 | 0x80 | 0x04 | 0x01
    driver.processes = {ME, OTHER}
    assert sample(GPU) == Sample(
        sm_clock_mhz=1980,
        sm_clock_mhz_max=1980,
        throttling=("thermal slowdown by the hardware", "power brake"),
        power_capped=True,
        throttled_ns={"thermal slowdown": 5, "thermal slowdown by the hardware": 6},
        processes=frozenset({ME, OTHER}),
        memory_used_bytes=1 << 30,
    )


@pytest.mark.parametrize("reasons", [0x0, 0x1, 0x2, 0x4, 0x10, 0x100, 0x200, 0x400])
def test_idle_settings_and_the_power_cap_are_no_throttling(driver: Driver, reasons: int) -> None:
    driver.reasons = reasons
    seen = watched()
    assert seen.throttled_blocks == seen.discarded_rounds == 0
    assert seen.power_capped_blocks == (reasons == 0x4)


@pytest.mark.parametrize("reasons", [0x8, 0x20, 0x40, 0x80])
def test_a_block_that_ends_throttled_is_discarded_and_counted(driver: Driver, reasons: int) -> None:
    with watch(GPU) as looking:
        assert looking.block(12)
        driver.reasons = reasons
        assert not looking.block(24)
        driver.reasons = 0
        assert not looking.block(48)  # it began throttled
        assert looking.block(96)
    seen = looking.conditions()
    assert (seen.blocks, seen.throttled_blocks, seen.discarded_rounds) == (4, 2, 72)
    assert len(seen.throttle_reasons) == 1


@pytest.mark.parametrize("counter", [75, 269, 270, 271])
def test_throttling_that_came_and_went_between_two_looks_is_found(
    driver: Driver, counter: int
) -> None:
    with watch(GPU) as looking:
        driver.counters[counter] += 1_000_000
        assert not looking.block(12)
        assert looking.block(12)
    assert looking.conditions().throttled_blocks == 1


def test_lowest_and_highest_clock_are_kept(driver: Driver) -> None:
    with watch(GPU) as looking:
        for driver.clock in (1800, 1410, 1980):
            looking.block(1)
    seen = looking.conditions()
    assert (seen.sm_clock_mhz_low, seen.sm_clock_mhz_high) == (1410, 1980)


def test_a_process_that_works_is_a_contender(driver: Driver) -> None:
    driver.processes, driver.use = {ME, OTHER}, {ME: 40, OTHER: 50}
    assert watched().contenders == (Contender(OTHER, 50),)


def test_a_process_that_is_merely_there_is_none(driver: Driver) -> None:
    driver.processes, driver.use = {ME, OTHER, THIRD}, {ME: 90, OTHER: 1}
    seen = watched()
    assert not seen.contended
    assert not seen.why_contention_unknown


def test_alone_on_the_gpu_nothing_waits(driver: Driver) -> None:
    driver.use = {ME: 99}
    watched()
    assert driver.pulses == 0


def test_work_of_others_that_has_ended_before_is_no_contention(driver: Driver) -> None:
    driver.processes, driver.use = {ME, OTHER}, {OTHER: 99}
    driver.stops_at = time.time()
    assert not watched(seconds=0.01).contended


def test_a_short_block_waits_for_the_sample_that_holds_it(driver: Driver) -> None:
    driver.processes = {ME, OTHER}
    with watch(GPU) as looking:
        looking.block(12)
        assert not looking.conditions().contended
        driver.use = {OTHER: 70}
    assert looking.conditions().contenders == (Contender(OTHER, 70),)


def test_waiting_ends_where_no_sample_comes(driver: Driver) -> None:
    driver.processes = {ME, OTHER}
    start = time.time()
    assert not watched(seconds=0).contended
    assert 0.1 <= time.time() - start < 5
    assert driver.pulses > 0


@pytest.mark.parametrize(
    ("use", "contenders"),
    [
        ({OTHER: 90}, ()),  # this process, as the host numbers it
        ({OTHER: 90, THIRD: 1}, ()),
        ({OTHER: 50, THIRD: 40}, (Contender(OTHER, 50), Contender(THIRD, 40))),
        ({ME: 0, OTHER: 40}, (Contender(OTHER, 40),)),  # numbered as here after all
    ],
)
def test_in_a_container_one_working_process_is_taken_to_be_this_one(
    driver: Driver,
    monkeypatch: pytest.MonkeyPatch,
    use: dict[int, int],
    contenders: tuple[Contender, ...],
) -> None:
    monkeypatch.setattr(nvml, "_in_first_pid_namespace", lambda: False)
    driver.processes, driver.use = set(), use
    assert watched().contenders == contenders


def test_contention_is_unknown_where_the_work_of_processes_is_not_told(driver: Driver) -> None:
    driver.processes = {ME, OTHER}
    driver.refuses = {"nvmlDeviceGetProcessUtilization": pynvml.NVML_ERROR_NOT_SUPPORTED}
    seen = watched()
    assert not seen.contended
    assert seen.why_contention_unknown == "NVML could not be had: Not Supported"
    assert seen.sm_clock_mhz_low == 1980


def test_a_refused_query_is_a_reason_and_keeps_the_rounds(driver: Driver) -> None:
    driver.refuses = {"nvmlDeviceGetClockInfo": pynvml.NVML_ERROR_NO_PERMISSION}
    assert sample(GPU) == Unknown("NVML could not be had: Insufficient Permissions")
    with watch(GPU) as looking:
        assert looking.block(12)
    seen = looking.conditions()
    assert seen.blocks == 1
    assert seen.words().startswith("clock and throttling unknown: NVML could not be had: Insuff")


def test_a_gpu_that_is_lost_between_blocks_is_a_reason(driver: Driver) -> None:
    with watch(GPU) as looking:
        looking.block(12)
        driver.refuses = {"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_GPU_IS_LOST}
        assert looking.block(12)
        assert looking.block(12)
    seen = looking.conditions()
    assert (seen.blocks, seen.sm_clock_mhz_low) == (3, 1980)
    assert "GPU is lost" in seen.why_unknown


def test_an_older_driver_is_asked_by_the_older_name(driver: Driver) -> None:
    driver.reasons = 0x40
    driver.refuses = {
        "nvmlDeviceGetCurrentClocksEventReasons": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        "nvmlDeviceGetFieldValues": pynvml.NVML_ERROR_NOT_SUPPORTED,
    }
    assert watched().throttle_reasons == ("thermal slowdown by the hardware",)


def test_a_mig_instance_is_named_as_the_reason(driver: Driver) -> None:
    driver.uuid = f"MIG-{UUID}"
    seen = sample(GPU)
    assert isinstance(seen, Unknown)
    assert "MIG instance" in seen.why


def test_a_missing_library_is_a_reason_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    monkeypatch.setattr(nvml, "gpu_uuid", lambda device: UUID)
    forget()
    seen = sample(GPU)
    forget()
    assert isinstance(seen, Unknown)
    assert "install nvidia-ml-py" in seen.why


@pytest.mark.skipif(not why_no_gpu(), reason="there is a driver here")
def test_a_missing_driver_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "gpu_uuid", lambda device: UUID)
    forget()
    seen = sample(GPU)
    assert isinstance(seen, Unknown)
    assert seen.why.startswith("NVML could not be had: NVML Shared Library Not Found")
    conditions = watched()
    assert conditions.why_unknown == seen.why
    assert not conditions.contended


def test_of_the_cpu_nothing_is_claimed() -> None:
    with watch(CPU) as looking:
        assert looking.block(12)
    assert looking.conditions() == Conditions(blocks=1)
    assert looking.conditions().words() == ""


def test_an_error_inside_passes_through_and_nothing_waits(driver: Driver) -> None:
    driver.processes = {ME, OTHER}

    def fail() -> None:
        with watch(GPU) as looking:
            looking.block(12)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert driver.pulses == 0


@pytest.mark.parametrize("version", ["590.44.01", b"590.44.01"], ids=["text", "bytes"])
@pytest.mark.parametrize("mig", [0, 1])
def test_the_facts_are_driver_and_division(
    driver: Driver, version: str | bytes, mig: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: version)
    driver.mig = mig
    assert nvml_facts() == NvmlFacts(driver="590.44.01", mig=(bool(mig),))


def test_a_gpu_that_cannot_be_divided_is_not(driver: Driver) -> None:
    driver.refuses["nvmlDeviceGetMigMode"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert nvml_facts().mig == (False,)


def test_facts_that_are_refused_say_why(driver: Driver) -> None:
    driver.refuses["nvmlDeviceGetCount"] = pynvml.NVML_ERROR_NO_PERMISSION
    assert nvml_facts() == NvmlFacts(error="NVML could not be had: Insufficient Permissions")


@pytest.mark.skipif(not why_no_gpu(), reason="there is a driver here")
def test_facts_without_a_driver_say_so() -> None:
    forget()
    assert nvml_facts().error.startswith("NVML could not be had: NVML Shared Library Not Found")


def test_facts_without_nvidia_ml_py_say_that_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    forget()
    assert "install nvidia-ml-py" in nvml_facts().error
    forget()


def test_gpus_are_listed_by_uuid(driver: Driver) -> None:
    assert gpu_uuids() == (f"GPU-{UUID}",)


def test_gpus_in_mig_mode_are_for_the_user_to_name(driver: Driver) -> None:
    driver.mig = 1
    listed = gpu_uuids()
    assert isinstance(listed, Unknown)
    assert "MIG" in listed.why


def test_gpus_without_mig_are_listed(driver: Driver) -> None:
    driver.refuses = {"nvmlDeviceGetMigMode": pynvml.NVML_ERROR_NOT_SUPPORTED}
    assert gpu_uuids() == (f"GPU-{UUID}",)
