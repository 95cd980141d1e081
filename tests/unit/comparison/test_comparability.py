"""What of two profiles may be judged, metric by metric, and why not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from records import CPU, H200

from pytest_kernelprof.comparison.judge import differences, forbidding, made_with
from pytest_kernelprof.records.metrics import METRICS

LIMITED = replace(H200, power_limit_w=700)


def with_version(name: str, version: str) -> dict[str, str]:
    return {**H200.versions, name: version}


def test_the_device_comes_first_then_its_power_limit_then_the_software_by_name() -> None:
    other = replace(LIMITED, device="NVIDIA H100", power_limit_w=600, versions={"cuda": "13.0"})
    assert [one.words for one in differences(LIMITED, other)] == [
        "device NVIDIA H200 -> NVIDIA H100",
        "power limit 700 W -> 600 W",
        "cuda none -> 13.0",
        "python 3.13 -> none",
        "torch 2.11.0+cu130 -> none",
        "triton 3.6.0 -> none",
    ]
    assert differences(other, other) == ()


def test_a_power_limit_that_nobody_read_is_unknown() -> None:
    assert [one.words for one in differences(H200, LIMITED)] == ["power limit unknown -> 700 W"]
    assert [one.words for one in differences(LIMITED, H200)] == ["power limit 700 W -> unknown"]


def test_of_a_snapshot_only_what_counts_depend_on_is_another() -> None:
    assert made_with(LIMITED) == {
        "device": "NVIDIA H200",
        "torch": "2.11.0+cu130",
        "triton": "3.6.0",
    }
    now = replace(LIMITED, power_limit_w=500, versions=with_version("python", "3.14"))
    assert differences(made_with(LIMITED), now) == ()


def test_on_the_cpu_it_is_all_one_whether_torch_has_cuda_as_well() -> None:
    without = replace(CPU, versions={"torch": "2.11.0+cpu", "triton": "3.6.0"})
    assert differences(CPU, without) == ()


@pytest.mark.parametrize(
    ("what", "kernels", "cuda_time", "recompiles"),
    [
        ("torch", True, True, True),
        ("power limit", False, True, False),
        ("python", False, True, True),
    ],
)
def test_what_says_nothing_of_a_metric(
    what: str, kernels: bool, cuda_time: bool, recompiles: bool
) -> None:
    other = (
        replace(LIMITED, power_limit_w=600)
        if what == "power limit"
        else replace(LIMITED, versions=with_version(what, "9"))
    )
    found = differences(LIMITED, other)
    names = ("kernels", "cuda_time", "recompiles")
    forbidden = [bool(forbidding(found, METRICS[name])) for name in names]
    assert forbidden == [kernels, cuda_time, recompiles]
