"""Where a time cannot be had, its metric says why, and a limit on it is incomplete."""

from __future__ import annotations

from typing import Any

import pytest
from corpus import FOLDER
from msgspec.structs import replace

from pytest_kernelprof.analysis.session_profile import profile_of, session_facts
from pytest_kernelprof.gpu import conditions
from pytest_kernelprof.gpu.conditions import no_times
from pytest_kernelprof.gpu.inventory import Device
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_keyword
from pytest_kernelprof.records.profile import Profile
from pytest_kernelprof.records.recording import HostTimings
from pytest_kernelprof.trace.correlation import reading_of
from pytest_kernelprof.trace.reader import read_trace

GPU = Device("cuda", 0, "a GPU", "sm_90", 0, {})


class Driver:
    def __init__(self, shared: int, code: int = 0) -> None:
        self._shared, self._code = shared, code

    def cuDeviceGet(self, device: Any, index: int) -> int:  # noqa: N802
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:  # noqa: N802
        assert attribute == 133
        value._obj.value = self._shared
        return self._code


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    conditions.is_shared.cache_clear()
    conditions._launches_block.cache_clear()
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    monkeypatch.setattr(conditions, "cuda_driver", lambda: Driver(0))


def profile_with(why: dict[str, str]) -> Profile:
    trace = read_trace(FOLDER / "mlp.json.gz")
    times = (50.0,) * 12
    noted = replace(
        trace.recording, no_times=why, host_timings=HostTimings(times, times, (1.0,) * 12)
    )
    return profile_of(session_facts(reading_of(trace)), noted)


def test_usually_all_times_can_be_had() -> None:
    assert no_times(GPU) == {}


def test_launches_that_block_leave_no_time_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    profile = profile_with(no_times(GPU))
    for name in ("latency", "dispatch_time", "launch_overhead"):
        assert profile.metrics[name].value is None
        assert "CUDA_LAUNCH_BLOCKING=1" in profile.metrics[name].why
    assert profile.metrics["cuda_time"].value
    (verdict,) = evaluate(profile, [parse_keyword("max_latency", "1s")])
    assert verdict.outcome == "incomplete"
    assert "CUDA_LAUNCH_BLOCKING=1" in verdict.why


def test_the_driver_reads_that_once_and_so_do_we(monkeypatch: pytest.MonkeyPatch) -> None:
    assert no_times(GPU) == {}
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert no_times(GPU) == {}


def test_a_gpu_that_is_shared_through_mps_leaves_counts_and_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conditions, "cuda_driver", lambda: Driver(1))
    profile = profile_with(no_times(GPU))
    assert profile.kernel_count == 5
    limits = {"max_cuda_time": "1s", "max_latency": "1s", "max_launch_overhead": "99%"}
    for verdict in evaluate(profile, [parse_keyword(*one) for one in limits.items()]):
        assert (verdict.outcome, "MPS" in verdict.why) == ("incomplete", True)
    assert profile.bound.verdict == "unknown"


@pytest.mark.parametrize("driver", [Driver(1, code=1), None], ids=["older", "none"])
def test_a_driver_that_does_not_tell_is_taken_to_be_ones_own(
    driver: Driver | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "cuda_driver", lambda: driver)
    assert no_times(GPU) == {}
