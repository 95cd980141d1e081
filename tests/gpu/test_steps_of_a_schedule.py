"""Traces that torch.profiler's schedule records on a GPU, as an engine's worker does: each step is
judged by itself, and counts what the fixture measures of the same code."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("_minds_who_disturbs_the_gpu")

HEAD = """
import pytest, torch, torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, schedule
x = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
def mlp():
    return F.gelu(x @ x) @ x

@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("worker") / "worker.json")
    mlp()
    torch.cuda.synchronize()
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda one: one.export_chrome_trace(path),
    ) as recorded:
        for step in range(4):
            mlp()
            if step == 3:
                x + 1
            torch.cuda.synchronize()
            recorded.step()
    return path
"""


def test_each_step_of_a_schedule_is_judged(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HEAD
        + """
@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.max_kernels(3)
@pytest.mark.max_memcpys(0)
@pytest.mark.expect_kernels("mm", "gelu", "mm")
def test_step(kernel_profile, trace, step):
    loaded = kernel_profile.load(trace, step=step)
    print("STEP", step, loaded.metrics["launches"].value, loaded.integrity, [
        (one.short_name, round(one.duration_us, 2)) for one in loaded.kernels])

@pytest.mark.max_kernels(3)
def test_no_step(kernel_profile, trace):
    kernel_profile.load(trace)
"""
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rA")
    print(*[line for line in result.outlines if line.startswith("STEP")], sep="\n")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines_random(
        [
            "PASSED *test_step[[]2]",
            "FAILED *test_step[[]3]*",
            "*the trace has step 2 with 3 kernels, step 3 with *. Choose one with step=N*",
        ]
    )


def test_a_step_counts_what_the_fixture_measures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HEAD
        + """
def test_same(kernel_profile, trace):
    kernel_profile(mlp)
    measured = kernel_profile.last
    loaded = kernel_profile.load(trace, step=2)
    counts = ("kernels", "launches", "memcpys")
    for one in (measured, loaded):
        print("COUNTS", [one.metrics[name].value for name in counts], one.environment.device)
    assert [one.name for one in loaded.kernels] == [one.name for one in measured.kernels]
    assert all(loaded.metrics[n].value == measured.metrics[n].value for n in counts)
    assert loaded.environment.device == measured.environment.device
    assert loaded.latency is None and measured.record.loaded is False
"""
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rA")
    print(*[line for line in result.outlines if line.startswith("COUNTS")], sep="\n")
    result.assert_outcomes(passed=1)


def test_a_snapshot_of_a_step_is_kept_for_this_gpu(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HEAD
        + """
def test_step(kernel_profile, trace):
    kernel_profile.load(trace, step=2)
"""
    )
    update = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--kernelprof-update")
    update.assert_outcomes(passed=1)
    print(*pytester.path.glob("__kernelprof__/*/*.json"), sep="\n")
    assert len(list(pytester.path.glob("__kernelprof__/*/*.json"))) == 1
    pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "--kernelprof-require-snapshots"
    ).assert_outcomes(passed=1)


def test_a_whole_call_that_reads_a_trace_says_how_to_judge_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HEAD
        + """
from pytest_kernelprof import Profile
@pytest.mark.max_kernels(3)
def test_reads(trace):
    assert Profile.load(trace, step=2).kernel_count == 3
"""
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*write kernel_profile.load(path)*"])
