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
    found = kernel_profile.compare(once, twice, x, check=None)
    assert 1.8 < found.speedup < 2.2
    low, high = found.interval
    assert high - low < 0.1
    found.min_speedup(1.7).not_slower()
    assert found.candidate.profile.kernel_count == 1
    assert found.reference.profile.kernel_count == 2
@pytest.mark.min_speedup(1.7, over=twice, check=None)
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
big = torch.randn(1 << 27, device="cuda")  # bound by memory: time goes with the size
part = big[: big.numel() * 100 // 105]
def fewer(): return part + 1
def more(): return big + 1
def test_it(kernel_profile):
    kernel_profile.compare(more, fewer, check=None).not_slower(by="2%")
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['*not_slower(by="2%"): more over fewer, GPU time: speedup 0.9*'])


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
    callables = {"once": once, "twice": twice, "again": once}
    kernel_profile.compare_all(callables, x, reference="twice", check=None)
""",
        "--kernelprof-report",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "*= kernel profiles *=*",
            "  kernels *GPU time *speedup *callable",
            "  *1 *1.*..* once",
            "  *2 *reference * twice",
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
    result.stdout.fnmatch_lines(["E   max_kernels: 2 > limit 1*", "*UNSTABLE: *"])


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
    result.assert_outcomes(passed=1)
    # Beside other workers the time may be undecided, too; nothing else is warned of.
    warned = [line for line in result.outlines if "KernelprofWarning: " in line]
    (in_place,) = [line for line in warned if "CONTENDED" not in line]
    assert "the code changes argument 1 in place" in in_place


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
            "*max_launch_overhead: * > limit 1.0us*",
            "  *, 99 % CI *; floor of an *",
            "*host, profiled: * operator dispatch, * launch calls, *waiting",
        ]
    )


REMEMBERS = """
remembered = {}
def remembers(t):
    if t.data_ptr() not in remembered:
        remembered[t.data_ptr()] = t @ t
    return remembered[t.data_ptr()]
def other(): return (torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16),)
"""


def test_a_candidate_that_does_nothing_on_the_gpu_is_no_faster_one(run: RunGpu) -> None:
    result = run(
        REMEMBERS
        + """
def test_it(kernel_profile):
    kernel_profile.compare(remembers, once, x).min_speedup(1.5)
@pytest.mark.min_speedup(1.5, over=once)
def test_marked(kernel_profile):
    kernel_profile(remembers, x)
def test_by_latency(kernel_profile):
    print(kernel_profile.compare(remembers, once, x, metric="latency"))
def test_where_nothing_is_checked(kernel_profile):
    kernel_profile.compare(remembers, once, x, check=None)
""",
        "-rP",
    )
    result.assert_outcomes(passed=1, failed=2, errors=1)
    said = "WrongResult: remembers launched no kernels, copies or memsets, once launched 1 a call"
    assert sum(said in line for line in result.outlines if line.startswith("E ")) == 2
    result.stdout.fnmatch_lines(
        [
            "*MarkerError: *a round took no cuda_time at all*",
            "remembers: results agree (relative norm 0); not checked for remembered results",
        ]
    )


def test_a_result_that_is_remembered_shows_by_other_inputs_at_the_same_place(run: RunGpu) -> None:
    result = run(
        REMEMBERS
        + """
def test_remembered(kernel_profile):
    before = x.clone()
    try:
        kernel_profile.compare(remembers, once, x, metric="latency", fresh=other)
    finally:
        assert torch.equal(x, before)
def test_computed(kernel_profile):
    print(kernel_profile.compare(lambda t: torch.mm(t, t), once, x, fresh=other))
""",
        "-rP",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *WrongResult: remembers returned the result of other inputs*",
            "<lambda>: results agree (relative norm 0); checked with other inputs",
        ]
    )


def test_products_that_sum_in_another_order_agree_and_others_do_not(run: RunGpu) -> None:
    result = run(
        """
def in_two(a, b):
    half = a.shape[1] // 2
    return a[:, :half] @ b[:half] + a[:, half:] @ b[half:]
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("k", [512, 16384])
def test_near(kernel_profile, dtype, k):
    a, b = (torch.randn(1024, k, device="cuda", dtype=dtype) for _ in range(2))
    kernel_profile.compare(in_two, torch.mm, a, b.t())
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_far(kernel_profile, dtype):
    a = torch.randn(1024, 1024, device="cuda", dtype=dtype)
    kernel_profile.compare(lambda a, b: torch.mm(a, b) * 1.02, torch.mm, a, a)
def test_tf32(kernel_profile):
    a = torch.randn(1024, 4096, device="cuda")
    def in_tf32(a, b):
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return a @ b
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False
    kernel_profile.compare(in_tf32, torch.mm, a, a.t())
"""
    )
    result.assert_outcomes(passed=7, failed=3)


def test_a_static_output_of_a_cuda_graph_is_held_before_the_next_replay(run: RunGpu) -> None:
    result = run(
        """
compiled = torch.compile(lambda t: t @ t + 1, mode="reduce-overhead")
def test_it(kernel_profile):
    print(kernel_profile.compare(compiled, lambda t: t @ t + 1, x, fresh=lambda: (x + 1,)))
""",
        "-rP",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*: results agree (*); checked with other inputs"])


def test_comparing_results_needs_little_memory_and_leaves_none_behind(run: RunGpu) -> None:
    result = run(
        """
big = torch.randn(1 << 28, device="cuda")
def times_one(t): return t * 1
def test_it(kernel_profile):
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kernel_profile.compare(times_one, lambda t: t + 0, big)
    results = 2 * big.numel() * big.element_size()
    assert torch.cuda.max_memory_allocated() - held < results + (512 << 20)
    assert torch.cuda.memory_allocated() - held < 512 << 20
"""
    )
    result.assert_outcomes(passed=1)
