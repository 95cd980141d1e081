"""Ranks on two GPUs, with NCCL: counts, times that end, and ranks that do not come."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

RunGpu = Callable[..., pytest.RunResult]

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two GPUs")

HEAD = "import pytest\nfrom ranks_of_gpus import *\n"


@pytest.fixture
def run(pytester: pytest.Pytester) -> RunGpu:
    """Run a test file whose ranks find what they run beside it."""

    def run_it(code: str, *options: str) -> pytest.RunResult:
        shutil.copy(Path(__file__).with_name("ranks_of_gpus.py"), pytester.path)
        pytester.makepyfile(test_it=code)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options, timeout=300)

    return run_it


def test_counts_are_those_of_the_profiler_on_each_rank(run: RunGpu) -> None:
    result = run(
        HEAD
        + """
@pytest.mark.max_kernels(500)
def test_steps(kernel_profile):
    for of_rank in kernel_profile.ranks(2).run(counted):
        for name, (ours, by_hand) in of_rank.items():
            assert (name, ours) == (name, by_hand)
"""
    )
    result.assert_outcomes(passed=1)


def test_timed_limits_end_and_hold_on_each_rank(run: RunGpu) -> None:
    result = run(
        HEAD
        + """
@pytest.mark.max_cuda_time("1s")
@pytest.mark.max_latency("1s")
@pytest.mark.max_launch_overhead("1s")
@pytest.mark.max_exposed_comm("1s")
def test_steps(kernel_profile):
    kernel_profile.ranks(2).run(taken, *STEPS)
@pytest.mark.max_kernels(2)
def test_one_more(kernel_profile):
    kernel_profile.ranks(2).run(more_on, 1)
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*max_kernels: 3 > limit 2 on rank 1*"])


def test_under_torchrun_comparisons_warm_up_alike_and_a_rank_may_measure_alone(
    pytester: pytest.Pytester,
) -> None:
    shutil.copy(Path(__file__).with_name("ranks_of_gpus.py"), pytester.path)
    pytester.makepyfile(
        test_it=HEAD
        + """
@pytest.fixture(scope="session", autouse=True)
def group():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    yield
    dist.destroy_process_group()
def test_steps(kernel_profile):
    kernel_profile(ddp())
    found = kernel_profile.compare(ddp(), ddp(), rounds=1)
    compared = [one.profile.kernel_count for one in (found.candidate, found.reference)]
    assert compared == [kernel_profile.last.kernel_count] * 2
@pytest.mark.max_kernels(1)
def test_of_rank_0_alone(kernel_profile):
    if dist.get_rank() == 0:
        x = torch.ones(16, device="cuda")
        kernel_profile.run(lambda: x + 1, group=[0])
"""
    )
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "pytest")
    result = pytester.run(sys.executable, "-m", *torchrun, "-p", "no:cacheprovider", timeout=300)
    result.assert_outcomes(passed=2)


def test_many_profiles_in_a_row_are_complete_and_alike(run: RunGpu) -> None:
    result = run(
        HEAD
        + """
@pytest.mark.max_kernels(500)
def test_many(kernel_profile):
    assert kernel_profile.ranks(2).run(many, 500) == [[1] * 6] * 2
"""
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raises", "ValueError: boom"),
        ("dies", "rank 1 of 2 died (SIGKILL)"),
        ("is late", "rank 1 did not reach a collective in which others waited"),
        ("skips a collective", "rank "),
    ],
)
def test_a_rank_that_does_not_come_is_named(run: RunGpu, how: str, words: str) -> None:
    code = f"""
def test_lost(kernel_profile):
    kernel_profile.ranks(2).run(lost, {how!r})
"""
    result = run(HEAD + code, "-o", "kernelprof_rank_timeout=5")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"*{words}*"])
