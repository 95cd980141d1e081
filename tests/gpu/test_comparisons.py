"""Comparisons on the GPU, and callables that misbehave: each is named or handled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

RunGpu = Callable[..., pytest.RunResult]

pytestmark = pytest.mark.usefixtures("_minds_who_disturbs_the_gpu")

HEAD = """
import itertools
import pytest, torch, torch.nn.functional as F
x = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
def once(t=x): return t @ t
def twice(t=x): return t @ t @ t
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> RunGpu:
    def run_it(code: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=HEAD + code)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)

    return run_it


def test_speedup_of_known_work_is_found_by_gpu_time(run: RunGpu) -> None:
    result = run(
        """
def test_it(kernel_profile):
    found = kernel_profile.compare(once, twice, x)
    assert 1.8 < found.speedup < 2.2
    low, high = found.interval
    assert high - low < 0.1
    found.min_speedup(1.7).not_slower()
    assert found.candidate.profile.kernel_count == 1
    assert found.reference.profile.kernel_count == 2
@pytest.mark.min_speedup(1.7, over=twice)
@pytest.mark.max_kernels(1)
def test_marked(kernel_profile):
    kernel_profile(once, x)
"""
    )
    result.assert_outcomes(passed=2)


def test_a_function_against_itself_is_not_slower(run: RunGpu) -> None:
    result = run(
        """
def test_it(kernel_profile):
    found = kernel_profile.compare(once, once, x)
    found.not_slower(by="2%")
    assert 0.98 < found.speedup < 1.02
"""
    )
    result.assert_outcomes(passed=1)


def test_five_percent_more_is_found(run: RunGpu) -> None:
    result = run(
        """
big = torch.randn(8192, 2048, device="cuda", dtype=torch.bfloat16)
def fewer(): return big[:7680] @ x
def more(): return big @ x
def test_it(kernel_profile):
    kernel_profile.compare(more, fewer).not_slower(by="2%")
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['*not_slower(by="2%"): more over fewer, GPU time: 0.9*'])


def test_peak_memory_compares_bytes(run: RunGpu) -> None:
    result = run(
        """
def hold_two(): return x + 1, x + 2
def hold_one(): return x + 1
def test_it(kernel_profile):
    found = kernel_profile.compare(hold_one, hold_two, metric="peak_memory")
    assert found.speedup == pytest.approx(2.0)
    found.min_speedup(1.9)
"""
    )
    result.assert_outcomes(passed=1)


def test_several_give_a_table_in_the_report(run: RunGpu) -> None:
    result = run(
        """
def test_it(kernel_profile):
    kernel_profile.compare_all({"once": once, "twice": twice, "again": once}, x, reference="twice")
""",
        "--kernelprof-report",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "*= comparisons =*",
            "  callable  kernels  *GPU time *",
            "  once *1.*..*",
            "  twice *reference",
        ]
    )


def test_another_number_of_kernels_now_and_then_is_unstable(run: RunGpu) -> None:
    result = run(
        """
calls = itertools.count()
def uneven(t): return t @ t @ t if next(calls) % 3 else t @ t
def test_compared(kernel_profile):
    found = kernel_profile.compare(uneven, once, x)
    assert "UNSTABLE: uneven launched 1 to 2 kernels a call" in str(found)
@pytest.mark.max_kernels(1)
@pytest.mark.max_cuda_time("1s")
def test_limited(kernel_profile):
    kernel_profile(uneven, x)
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*max_kernels: 2 > 1 (UNSTABLE: *"])


def test_a_side_stream_that_is_not_joined_counts_and_its_time_too(run: RunGpu) -> None:
    result = run(
        """
side = torch.cuda.Stream()
def not_joined(t):
    with torch.cuda.stream(side):
        return t @ t
@pytest.mark.max_kernels(1)
@pytest.mark.max_latency("10s")
def test_it(kernel_profile):
    kernel_profile(not_joined, x)
    assert kernel_profile.last.cuda_time > 5
    assert kernel_profile.last.latency > kernel_profile.last.cuda_time
"""
    )
    result.assert_outcomes(passed=1)


def test_memory_that_is_freed_late_is_held_by_the_call_that_kept_it(run: RunGpu) -> None:
    result = run(
        """
kept = []
def keeps(t):
    kept.append(t + 1)
    if len(kept) > 3:
        kept.pop(0)
@pytest.mark.max_peak_memory("8.5 MB")
def test_it(kernel_profile):
    kernel_profile(keeps, x)
    assert kernel_profile.last.metrics["peak_memory"].value >= x.numel() * 2
"""
    )
    result.assert_outcomes(passed=1)


def test_an_exception_in_round_seven_is_the_tests_own_and_the_next_test_measures(
    run: RunGpu,
) -> None:
    result = run(
        """
calls = itertools.count()
def breaks(t):
    if next(calls) == 7:
        raise RuntimeError("round 7")
    return t @ t
@pytest.mark.max_cuda_time("1s")
def test_it(kernel_profile):
    kernel_profile(breaks, x)
@pytest.mark.max_kernels(1)
def test_next(kernel_profile):
    kernel_profile(once, x)
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *RuntimeError: round 7"])


def test_inputs_changed_in_place_are_named(run: RunGpu) -> None:
    result = run(
        """
def scales(t):
    t.mul_(1.0)
@pytest.mark.max_cuda_time("1s")
def test_it(kernel_profile):
    assert kernel_profile(scales, x) is None
"""
    )
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*the code changes argument 1 in place*"])


def test_a_broken_overhead_limit_says_where_the_time_goes(run: RunGpu) -> None:
    result = run(
        """
@pytest.mark.max_launch_overhead("1us")
def test_it(kernel_profile):
    kernel_profile(lambda: [x.add_(0) for _ in range(20)])
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*max_launch_overhead: * > 1.0us (*floor of an empty call *",
            "*host, profiled: * operator dispatch, * launch calls, *waiting",
            "*device idle between activities, profiled: * waits for the host, *",
        ]
    )
