"""What is made of NVML's answers."""

from __future__ import annotations

import sys

import pynvml
import pytest
from nvml_double import CPU, GPU, ME, OTHER, UUID, Driver, forget

from pytest_kernelprof.gpu import nvml
from pytest_kernelprof.gpu.inventory import why_no_gpu
from pytest_kernelprof.gpu.nvml import (
    Gpu,
    NvmlFacts,
    Sample,
    Unknown,
    gpu_of,
    gpu_uuids,
    nvml_facts,
    power_limit_w,
)


def test_a_sample_holds_what_nvml_says(driver: Driver) -> None:
    driver.counters = {75: 5, 270: 6}
    driver.reasons = 0x40 | 0x80 | 0x04 | 0x01
    driver.processes = {ME, OTHER}
    gpu = gpu_of(GPU)
    assert isinstance(gpu, Gpu)
    assert gpu.sample() == Sample(
        sm_clock_mhz=1980,
        throttling=("thermal slowdown by the hardware", "power brake"),
        power_capped=True,
        throttled_ns={"thermal slowdown": 5, "thermal slowdown by the hardware": 6},
    )
    assert gpu.sm_clock_mhz_max == 1980
    assert gpu.processes() == {ME, OTHER}


def test_the_power_limit_is_in_watts(driver: Driver) -> None:
    driver.power_limit_mw = 649_999
    assert power_limit_w(GPU) == 650


@pytest.mark.parametrize(
    "error", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND]
)
def test_a_power_limit_that_cannot_be_read_is_unknown(driver: Driver, error: int) -> None:
    driver.refuses["nvmlDeviceGetEnforcedPowerLimit"] = error
    assert power_limit_w(GPU) is None


def test_where_nvml_cannot_be_had_the_power_limit_is_unknown(driver: Driver) -> None:
    driver.refuses["nvmlInit"] = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    assert (power_limit_w(GPU), power_limit_w(CPU)) == (None, None)


def test_a_mig_instance_is_named_as_the_reason(driver: Driver) -> None:
    driver.uuid = f"MIG-{UUID}"
    seen = gpu_of(GPU)
    assert isinstance(seen, Unknown)
    assert "MIG instance" in seen.why


def test_a_gpu_that_nvml_does_not_know_is_no_mig_instance(driver: Driver) -> None:
    driver.uuid = "GPU-another"
    seen = gpu_of(GPU)
    assert isinstance(seen, Unknown)
    assert seen.why
    assert "MIG" not in seen.why


def test_a_missing_library_is_a_reason_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    monkeypatch.setattr(nvml, "gpu_uuid", lambda index: UUID)
    forget()
    seen = gpu_of(GPU)
    forget()
    assert isinstance(seen, Unknown)
    assert "install nvidia-ml-py" in seen.why


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
    assert nvml_facts() == NvmlFacts(error="NVML is not available: Insufficient Permissions")


@pytest.mark.skipif(not why_no_gpu(), reason="there is a driver here")
def test_facts_without_a_driver_say_so() -> None:
    forget()
    assert nvml_facts().error.startswith("NVML is not available: NVML Shared Library Not Found")


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
    assert gpu_uuids() == ()


def test_gpus_without_mig_are_listed(driver: Driver) -> None:
    driver.refuses = {"nvmlDeviceGetMigMode": pynvml.NVML_ERROR_NOT_SUPPORTED}
    assert gpu_uuids() == (f"GPU-{UUID}",)
