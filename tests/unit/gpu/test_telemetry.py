"""What is gathered around blocks of timed rounds."""

from __future__ import annotations

import time

import pynvml
import pytest
from nvml_double import CPU, GPU, ME, OTHER, THIRD, UUID, Driver, forget

from pytest_kernelprof.gpu import conditions, nvml
from pytest_kernelprof.gpu.conditions import watch
from pytest_kernelprof.gpu.inventory import Device, why_no_gpu
from pytest_kernelprof.gpu.nvml import Gpu, Unknown, gpu_of
from pytest_kernelprof.records.recording import Conditions, Neighbour
from pytest_kernelprof.summary import wording


def watched(*, rounds: int = 12, seconds: float = 0.03) -> Conditions:
    with watch(GPU) as looking:
        time.sleep(seconds)
        looking.block(rounds)
    return looking.conditions()


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
    assert watched().contenders == (Neighbour(OTHER, 50),)


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
    assert looking.conditions().contenders == (Neighbour(OTHER, 70),)


def test_who_worked_lately_is_waited_for_although_this_process_is_sampled_before(
    driver: Driver,
) -> None:
    driver.processes, driver.use = {ME, OTHER}, {ME: 20, OTHER: 78}
    driver.sampled_late_s = {OTHER: 0.04}
    assert watched(seconds=0).contenders == (Neighbour(OTHER, 78),)


def test_what_others_begin_while_it_is_waited_for_one_is_no_contention(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pulse(device: Device) -> None:
        driver.pulses += 1
        if driver.pulses == 8:  # this process has had its sample by then
            driver.use[THIRD] = 90

    monkeypatch.setattr(conditions, "_pulse", pulse)
    driver.processes, driver.use = {ME, OTHER, THIRD}, {ME: 20, OTHER: 78}
    driver.sampled_late_s = {OTHER: 0.06}
    with watch(GPU) as looking:
        driver.pulses = 0
        looking.block(12)
        driver.use[OTHER] = 1
    assert driver.pulses > 8
    assert looking.conditions().contenders == ()


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
        ({OTHER: 50, THIRD: 40}, (Neighbour(OTHER, 50), Neighbour(THIRD, 40))),
        ({ME: 0, OTHER: 40}, (Neighbour(OTHER, 40),)),  # numbered as here after all
    ],
)
def test_in_a_container_one_working_process_is_taken_to_be_this_one(
    driver: Driver,
    monkeypatch: pytest.MonkeyPatch,
    use: dict[int, int],
    contenders: tuple[Neighbour, ...],
) -> None:
    monkeypatch.setattr(nvml, "pid_namespace", lambda: "a container's")
    driver.processes, driver.use = set(), use
    assert watched().contenders == contenders


def test_contention_is_unknown_where_the_work_of_processes_is_not_told(driver: Driver) -> None:
    driver.processes = {ME, OTHER}
    driver.refuses = {"nvmlDeviceGetProcessUtilization": pynvml.NVML_ERROR_NOT_SUPPORTED}
    seen = watched()
    assert not seen.contended
    assert seen.why_contention_unknown == "NVML is not available: Not Supported"
    assert seen.sm_clock_mhz_low == 1980


def test_a_refused_query_is_a_reason_and_keeps_the_rounds(driver: Driver) -> None:
    driver.refuses = {"nvmlDeviceGetClockInfo": pynvml.NVML_ERROR_NO_PERMISSION}
    with watch(GPU) as looking:
        assert looking.block(12)
    seen = looking.conditions()
    assert seen.blocks == 1
    words = wording.conditions(seen)
    assert words.startswith("clock and throttling unknown: NVML is not available: Insuff")


def test_a_gpu_that_is_lost_between_blocks_is_a_reason(driver: Driver) -> None:
    with watch(GPU) as looking:
        looking.block(12)
        driver.refuses = {"nvmlDeviceGetClockInfo": pynvml.NVML_ERROR_GPU_IS_LOST}
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


@pytest.mark.skipif(not why_no_gpu(), reason="there is a driver here")
def test_a_missing_driver_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "gpu_uuid", lambda index: UUID)
    forget()
    seen = gpu_of(GPU)
    assert isinstance(seen, Unknown)
    assert seen.why.startswith("NVML is not available: NVML Shared Library Not Found")
    conditions = watched()
    assert conditions == Conditions(blocks=1, why_unknown=seen.why, why_contention_unknown=seen.why)
    assert not conditions.contended


def test_of_the_cpu_nothing_is_claimed() -> None:
    with watch(CPU) as looking:
        assert looking.block(12)
    assert looking.conditions() == Conditions()
    assert wording.conditions(looking.conditions()) == ""


def test_an_error_inside_passes_through_and_nothing_waits(driver: Driver) -> None:
    driver.processes = {ME, OTHER}

    def fail() -> None:
        with watch(GPU) as looking:
            looking.block(12)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert driver.pulses == 0


# Processes that the GPU's lock knows of.


class Company:
    """Who rests, and who is a partner."""

    def __init__(self, resting: set[int], partners: set[int]) -> None:
        self._resting, self._partners = frozenset(resting), frozenset(partners)

    def kept_at_rest(self) -> frozenset[int]:
        return self._resting

    def partners(self) -> frozenset[int]:
        return self._partners


def in_company(
    *,
    resting: set[int] = frozenset(),
    partners: set[int] = frozenset(),  # type: ignore[assignment]
) -> Conditions:
    with watch(GPU, Company(resting, partners)) as looking:
        time.sleep(0.03)
        looking.block(12)
    return looking.conditions()


def test_who_rests_does_not_contend_by_what_it_did_before_and_nobody_waits_for_it(
    driver: Driver,
) -> None:
    driver.processes, driver.use = {ME, OTHER, THIRD}, {ME: 40, OTHER: 50, THIRD: 60}
    start = time.monotonic()
    seen = in_company(resting={OTHER, THIRD})
    assert not seen.contended
    assert time.monotonic() - start < 0.9  # a sample may take a second
    assert driver.pulses == 0


def test_a_stranger_beside_those_who_rest_contends(driver: Driver) -> None:
    driver.processes, driver.use = {ME, OTHER, THIRD}, {ME: 40, OTHER: 50, THIRD: 60}
    assert in_company(resting={OTHER}).contenders == (Neighbour(THIRD, 60),)


def test_who_works_although_it_is_to_rest_contends(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of a test, for one: what a sample shows that began since then is new work."""
    monkeypatch.setattr(conditions, "_SAMPLED_WITHIN_US", 10_000)
    driver.processes, driver.use = {ME, OTHER}, {ME: 40, OTHER: 50}
    with watch(GPU, Company({OTHER}, set())) as looking:
        time.sleep(0.06)
        looking.block(12)
    assert looking.conditions().contenders == (Neighbour(OTHER, 50),)


def test_the_work_of_partners_belongs_to_what_is_timed(driver: Driver) -> None:
    driver.processes, driver.use = {ME, OTHER}, {ME: 40, OTHER: 50}
    assert not in_company(partners={OTHER}).contended
    assert driver.pulses == 0


def test_where_the_driver_numbers_otherwise_nobody_is_known(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "pid_namespace", lambda: "a container's")
    driver.processes, driver.use = set(), {OTHER: 50, THIRD: 40}
    assert in_company(resting={OTHER, THIRD}, partners={OTHER}).contended


@pytest.mark.parametrize(("use", "contended"), [({OTHER: 50, THIRD: 40}, False), ({7: 9}, True)])
def test_where_the_driver_numbers_otherwise_as_many_as_are_timed_are_taken_to_be_those(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, use: dict[int, int], contended: bool
) -> None:
    monkeypatch.setattr(nvml, "pid_namespace", lambda: "a container's")
    driver.processes, driver.use = {OTHER, THIRD}, {OTHER: 50, THIRD: 40, **use}
    with watch(GPU, at_work=2) as looking:
        time.sleep(0.03)
        looking.block(12)
    assert looking.conditions().contended == contended
    assert contended or driver.pulses == 0  # of strangers a sample may be there at once


# What the driver is asked.

LOOK = ["CurrentClocksEventReasons", "ClockInfo", "FieldValues"]
USE, WHO = "ProcessUtilization", "ComputeRunningProcesses"


def asked_by(driver: Driver, blocks: int) -> list[str]:
    """What the driver is asked around so many blocks."""
    driver.asked.clear()
    with watch(GPU) as looking:
        for _ in range(blocks):
            assert looking.block(12)
    return list(driver.asked)


def test_what_cannot_change_is_asked_once(driver: Driver) -> None:
    first = asked_by(driver, 2)
    once = ["nvmlInit", "HandleByUUID"]
    assert first == [*once, *LOOK, USE, *LOOK, "MaxClockInfo", USE, *LOOK, USE, WHO]


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_a_watch_that_follows_another_asks_after_each_block_alone(
    driver: Driver, blocks: int
) -> None:
    asked_by(driver, 1)
    assert asked_by(driver, blocks) == [WHO, *[*LOOK, USE] * blocks, WHO]


def test_counters_that_a_gpu_has_not_are_asked_for_once(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[list[int]] = []
    answer = pynvml.nvmlDeviceGetFieldValues

    def fields(handle: str, numbers: list[int]) -> object:
        wanted.append(list(numbers))
        return answer(handle, numbers)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", fields)
    driver.counters = {269: 0, 270: 0}
    watched()
    assert wanted == [[75, 269, 270, 271], [269, 270]]
    driver.counters = {}
    watched()
    assert asked_by(driver, 1).count("FieldValues") == 0


def test_a_watch_long_after_another_looks_anew(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "_STILL_KNOWN_US", -1_000_000)
    asked_by(driver, 1)
    driver.counters[75] += 1_000_000  # throttled meanwhile, and none of the block's
    assert asked_by(driver, 1) == [*LOOK, USE, *LOOK, USE, WHO]


def test_throttling_right_after_a_watch_costs_the_next_ones_first_block(driver: Driver) -> None:
    asked_by(driver, 1)
    driver.counters[75] += 1_000_000
    with watch(GPU) as looking:
        assert not looking.block(12)
        assert looking.block(12)


def test_a_watch_that_ended_throttled_is_no_beginning_of_the_next(driver: Driver) -> None:
    driver.reasons = 0x40
    with watch(GPU) as looking:
        assert not looking.block(12)
    driver.reasons = 0
    assert asked_by(driver, 1)[:3] == LOOK


@pytest.mark.parametrize("processes", [set[int](), {ME, OTHER}, {OTHER}])
def test_only_certainly_alone_is_the_work_before_not_asked_for(
    driver: Driver, processes: set[int]
) -> None:
    asked_by(driver, 1)
    driver.processes = processes
    assert asked_by(driver, 1)[:2] == [WHO, USE]


@pytest.mark.parametrize("use", [{OTHER: 50}, {ME: 40, OTHER: 50}])
def test_where_others_worked_in_the_last_watch_the_next_asks(
    driver: Driver, use: dict[int, int]
) -> None:
    driver.use = use
    watched()
    assert USE in asked_by(driver, 1)[: asked_by(driver, 1).index("ClockInfo")]


def test_who_worked_on_after_a_watch_is_a_contender_of_the_next(driver: Driver) -> None:
    asked_by(driver, 1)
    driver.use = {OTHER: 60}
    assert watched().contenders == (Neighbour(OTHER, 60),)


def test_the_highest_clock_is_told(driver: Driver) -> None:
    assert watched().sm_clock_mhz_max == 1980


def test_a_gpu_is_the_same_object_for_all_watches(driver: Driver) -> None:
    assert isinstance(gpu_of(GPU), Gpu)
    assert gpu_of(GPU) is gpu_of(GPU)
