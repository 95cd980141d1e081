"""Throughput and bandwidth on a GPU: against Triton's ``do_bench``, as floors, and where the work
of a call is not known. Each test prints what it measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest
import torch

from pytest_kernelprof.analysis.roofline import peaks_of
from pytest_kernelprof.gpu.inventory import current_device
from pytest_kernelprof.gpu.usage_lock import gpu_lock
from pytest_kernelprof.measure.policy import Needs, plan_of
from pytest_kernelprof.measure.runner import measure

pytestmark = pytest.mark.usefixtures("_minds_who_disturbs_the_gpu")

N = 8192
TIMES, PAUSE_S = 7, 0.3
HEAD = f"""
import pytest, torch
# Ones draw little power: clocks stay the same in calls in a row and in single ones.
a = torch.ones({N}, {N}, device="cuda", dtype=torch.bfloat16)
big = torch.ones(1 << 28, device="cuda", dtype=torch.bfloat16)
out = torch.empty_like(big)
"""
TRITON = """
import triton, triton.language as tl
@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
def double():
    doubled[(triton.cdiv(big.numel(), 4096),)](big, out, big.numel(), BLOCK=4096)
"""


def benched_s(call: Callable[[], object], **options: int) -> float:
    """The median of a call by ``do_bench``, in seconds. It takes no part in the GPU's lock, so the
    GPU is had alone for it."""
    from triton.testing import do_bench

    with gpu_lock(current_device("cuda"), 300, "do_bench"):
        return float(do_bench(call, return_mode="median", **options)) / 1e3


def rates(call: Callable[[], object], metric: str, work: float) -> tuple[float, float]:
    """The median rate by profiles and by ``do_bench``, taken in turn. Both make some twelve calls
    after a pause: in longer rows of calls the GPU lowers its clock, by up to 10 %."""
    plan = plan_of("cuda", Needs(device_times=True, work=True), rounds=12)
    ours, theirs = [], []
    for _ in range(TIMES):
        time.sleep(PAUSE_S)
        profile = measure(call, plan)[1].profile
        found = profile.metrics[metric]
        assert found.value is not None, found.why
        ours.append(found.value)
        time.sleep(PAUSE_S)
        theirs.append(work / benched_s(call, warmup=1, rep=18))
    print(f"{metric}: profiles {[f'{one:.4g}' for one in ours]}")
    print(f"{metric}: do_bench {[f'{one:.4g}' for one in theirs]}")
    medians = statistics.median(ours), statistics.median(theirs)
    print(
        f"{metric}: medians {medians[0]:.5g} and {medians[1]:.5g}, ratio {medians[0] / medians[1]}"
    )
    return medians


def test_the_throughput_of_a_big_product_agrees_with_do_bench() -> None:
    a, b = (torch.ones(N, N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    ours, theirs = rates(lambda: a @ b, "throughput", 2 * N**3)
    peaks = peaks_of(current_device("cuda").name)
    print(f"of the peak: {ours / 1e12 / peaks.tflops['16']:.1%}" if peaks else "no known peak")
    assert ours == pytest.approx(theirs, rel=0.02)


@pytest.mark.parametrize("what", ["add", "copy"])
def test_the_bandwidth_of_big_pointwise_work_agrees_with_do_bench(what: str) -> None:
    # Large, as the events of do_bench take some 7 us of each call.
    x, y = (torch.ones(1 << 30, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(x)
    calls: dict[str, tuple[Callable[[], object], int]] = {
        "add": (lambda: torch.add(x, y, out=out), 3),
        "copy": (lambda: out.copy_(x), 2),  # a memory copy, and no kernel
    }
    call, tensors = calls[what]
    ours, theirs = rates(call, "bandwidth", tensors * x.numel() * 2)
    assert ours == pytest.approx(theirs, rel=0.02)


def run(pytester: pytest.Pytester, code: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=HEAD + code)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rs", *options)


@pytest.fixture
def _known_gpu() -> None:
    name = current_device("cuda").name
    if peaks_of(name) is None:
        pytest.skip(f"the peaks of {name} are not in the table")


@pytest.mark.usefixtures("_known_gpu")
def test_floors_pass_when_reached_and_fail_with_their_words_when_not(
    pytester: pytest.Pytester,
) -> None:
    a = torch.ones(N, N, device="cuda", dtype=torch.bfloat16)
    reached = 2 * N**3 / benched_s(lambda: a @ a) / 1e12
    print(f"do_bench: {reached:.1f} TFLOP/s, the floor is 80 % of it")
    result = run(
        pytester,
        f"""
@pytest.mark.min_throughput("{0.8 * reached:.1f} TFLOP/s")
def test_reached(kernel_profile):
    kernel_profile(torch.mm, a, a)
    print("throughput", kernel_profile.last.throughput, kernel_profile.last.peak_throughput)
@pytest.mark.min_throughput("50%")
@pytest.mark.min_bandwidth("1 GB/s")
def test_share(kernel_profile):
    kernel_profile(torch.mm, a, a)
@pytest.mark.min_bandwidth("60%")
def test_bytes(kernel_profile):
    kernel_profile(torch.add, big, big, out=out)
@pytest.mark.min_throughput("50 PFLOP/s")
def test_impossible(kernel_profile):
    kernel_profile(torch.mm, a, a)
@pytest.mark.min_throughput("100%")
def test_whole_peak(kernel_profile):
    kernel_profile(torch.mm, a, a)
@pytest.mark.min_throughput("1%")
def test_no_peak(kernel_profile):
    kernel_profile(torch.mm, *([torch.ones(512, 512, device="cuda", dtype=torch.float64)] * 2))
def test_region(kernel_profile):
    with kernel_profile.region(min_throughput="1 TFLOP/s"):
        a @ a
""",
        "-s",
    )
    result.assert_outcomes(passed=4, failed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*the peaks of * are not known for aten::mm*",
            "E   min_throughput: * TFLOP/s < limit 50 PFLOP/s*",
            "E   min_throughput: * TFLOP/s < limit * TFLOP/s*",
            "  100% of the peak * TFLOP/s, -*",
        ]
    )


def test_a_triton_kernel_is_judged_by_the_work_that_is_said(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        TRITON
        + """
@pytest.mark.min_bandwidth("1 GB/s")
def test_unknown(kernel_profile):
    kernel_profile(double)
@pytest.mark.max_kernels(2)
@pytest.mark.min_throughput("50 PFLOP/s")
def test_in_part(kernel_profile):
    kernel_profile(lambda: (double(), a @ a))
@pytest.mark.min_throughput("1 TFLOP/s")
def test_a_part_is_enough(kernel_profile):
    kernel_profile(lambda: (double(), a @ a))
@pytest.mark.min_bandwidth("1 TB/s")
def test_said(kernel_profile):
    kernel_profile.work(bytes=2 * 2 * big.numel())
    kernel_profile(double)
    print("bandwidth", kernel_profile.last.bandwidth)
@pytest.mark.min_bandwidth("100 TB/s")
def test_impossible(kernel_profile):
    kernel_profile.work(bytes=2 * 2 * big.numel())
    kernel_profile(double)
""",
        "-s",
    )
    result.assert_outcomes(passed=3, failed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "E   min_bandwidth: * TB/s < limit 100 TB/s*",
            "*SKIPPED*min_bandwidth: the work of doubled is not known: say that of a call with "
            "kernel_profile.work(bytes=...)*",
        ]
    )
    assert "min_throughput not judged in 1 test" in " ".join(" ".join(result.outlines).split())


def test_the_replay_of_a_graph_has_no_operators_and_is_not_judged(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
@pytest.mark.min_throughput("1 MFLOP/s")
def test_graph(kernel_profile):
    small, graph = a[:512, :512].contiguous(), torch.cuda.CUDAGraph()
    small @ small
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        small @ small
    kernel_profile(graph.replay)
@pytest.mark.min_throughput("1 MFLOP/s")
def test_said(kernel_profile):
    small, graph = a[:512, :512].contiguous(), torch.cuda.CUDAGraph()
    small @ small
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        small @ small
    kernel_profile.work(flops=2 * 512**3)
    kernel_profile(graph.replay)
""",
    )
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*SKIPPED*min_throughput: the work of * is not known*"])
