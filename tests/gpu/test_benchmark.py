"""pytest-benchmark about the GPU: device times are the kernels', wall times wait for the device."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("_minds_who_disturbs_the_gpu")

HEAD = """
import pytest, torch
small = torch.randn(1024, device="cuda")
big = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
def add(): return small + small
def mm(): return big @ big
def two_mms(): return big @ big @ big
"""
QUICK = ("-p", "benchmark", "--benchmark-max-time=0.05", "--benchmark-min-rounds=5")


def run(pytester: pytest.Pytester, code: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=HEAD + code)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *QUICK, *options)


def medians(pytester: pytest.Pytester, code: str, *options: str) -> dict[str, float]:
    """The median of each test in microseconds."""
    result = run(pytester, code, "--benchmark-json=out.json", *options)
    assert result.ret == 0
    return {one["name"]: one["stats"]["median"] * 1e6 for one in saved(pytester)["benchmarks"]}


def saved(pytester: pytest.Pytester) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((pytester.path / "out.json").read_text())
    return data


BOTH_TIMERS = """
@pytest.mark.parametrize("timer", ["wall", "cuda"])
@pytest.mark.parametrize("fn", [add, mm], ids=["add", "mm"])
@pytest.mark.max_kernels(1)
def test_it(kernel_benchmark, fn, timer):
    kernel_benchmark(fn, timer=timer)
"""


def test_device_time_of_a_small_kernel_is_that_of_the_kernel(pytester: pytest.Pytester) -> None:
    took = medians(pytester, BOTH_TIMERS)
    assert 0.3 < took["test_it[add-cuda]"] < 4  # an event pair says 20 us
    assert took["test_it[add-wall]"] > took["test_it[add-cuda]"]
    (facts,) = (
        one["extra_info"]["kernelprof"]
        for one in saved(pytester)["benchmarks"]
        if one["name"] == "test_it[add-cuda]"
    )
    assert facts["kernels"] == facts["launches"] == 1
    assert facts["gpu_busy_us"] == pytest.approx(took["test_it[add-cuda]"])
    assert facts["latency_us"] > facts["launch_overhead_us"] > 0
    assert facts["peak_memory_bytes"] == 4096
    assert facts["bound"] == "overhead"
    assert 0.5 < facts["cupti_ratio"] < 3  # near 1 where a call is quick, with noise


@pytest.mark.parametrize("options", [(), ("--kernelprof-disable", "-k", "mm and wall")], ids=str)
def test_wall_time_waits_for_the_device(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    device = medians(pytester, BOTH_TIMERS, "-k", "mm and cuda")["test_it[mm-cuda]"]
    wall = medians(pytester, BOTH_TIMERS, *options)["test_it[mm-wall]"]
    assert wall > 0.8 * device  # the launch alone takes some 20 us, the product 200 and more
    assert device > 100


def test_the_machine_info_names_gpu_driver_and_software(pytester: pytest.Pytester) -> None:
    import torch

    medians(pytester, BOTH_TIMERS, "-k", "add and cuda")
    gpu = saved(pytester)["machine_info"]["gpu"]
    assert gpu["name"] == torch.cuda.get_device_name()
    assert gpu["torch"] == torch.__version__
    assert gpu["capability"].startswith("sm_")


COMPARED = """
def test_it(kernel_benchmark):
    kernel_benchmark(FN, timer="cuda")
"""
FAIL = ("--benchmark-compare", "--benchmark-compare-fail=median:30%")


def test_saved_runs_are_compared_by_device_time(pytester: pytest.Pytester) -> None:
    assert run(pytester, COMPARED.replace("FN", "mm"), "--benchmark-save=first").ret == 0
    same = run(pytester, COMPARED.replace("FN", "mm"), *FAIL)
    assert same.ret == 0
    assert "machine_info is different" not in str(same.stdout) + str(same.stderr)
    slower = run(pytester, COMPARED.replace("FN", "two_mms"), *FAIL)
    assert slower.ret != 0
    slower.stderr.fnmatch_lines(["*Performance has regressed*"])
    slower.stdout.fnmatch_lines(["* benchmark: 2 tests *", "* kernel profiles *"])


def test_a_broken_limit_fails_whatever_the_timer(pytester: pytest.Pytester) -> None:
    result = run(pytester, BOTH_TIMERS.replace("max_kernels(1)", "max_kernels(0)"))
    result.assert_outcomes(failed=4)


def test_without_device_work_there_is_no_device_time(pytester: pytest.Pytester) -> None:
    code = 'def test_it(kernel_benchmark):\n    kernel_benchmark(int, timer="cuda")\n'
    result = run(pytester, code)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['*timer="cuda": the call gave the GPU nothing to do*'])


def test_fresh_arguments_and_rounds(pytester: pytest.Pytester) -> None:
    code = """
def test_it(kernel_benchmark):
    def in_place(t):
        t.add_(1)
    kernel_benchmark.run(
        in_place, setup=lambda: (torch.ones(8, device="cuda"),), timer="cuda", rounds=7
    )
"""
    medians(pytester, code)
    assert saved(pytester)["benchmarks"][0]["stats"]["rounds"] == 7
