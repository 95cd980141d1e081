"""The verdict on cases whose answer is known: big products, big copies, waits, empty kernels."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest
import torch

from pytest_kernelprof.analysis.roofline import Rate, peaks_of, rates
from pytest_kernelprof.gpu.inventory import current_device
from pytest_kernelprof.gpu.usage_lock import gpu_lock
from pytest_kernelprof.measure.policy import TIMED_ROUNDS, Plan
from pytest_kernelprof.measure.runner import measure
from pytest_kernelprof.measure.sessions import profile_rounds
from pytest_kernelprof.profiler.unprofiled_rounds import RepeatedCall
from pytest_kernelprof.records.profile import Bound

BESIDE_WORKERS = "PYTEST_XDIST_WORKER" in os.environ

pytestmark = pytest.mark.usefixtures("_shares_the_gpu")


def achieved(call: Callable[[], object]) -> tuple[Rate, ...]:
    device = current_device("cuda")
    taken = profile_rounds(RepeatedCall(device, lambda: call), 1, shapes=True)
    operators, kernels = taken.facts.operators["kernels"], taken.facts.profile.kernels
    return rates(taken.reading, operators, kernels, peaks_of(device.name))


def bound(call: Callable[[], object], known: str) -> Bound:
    """That of rounds which no other process disturbed, ``known`` among several of them.

    Beside other workers several are taken: their tests start processes that use the GPU, and a
    process that starts holds up the launches of this one, as an overhead that is no sign of others.
    """
    plan = Plan("cuda", rounds=TIMED_ROUNDS, host_rounds=TIMED_ROUNDS, roofline=True)
    undisturbed: list[Bound] = []
    for _ in range(20):
        profile = measure(call, plan)[1].profile
        if profile.conditions.contended:
            assert profile.bound.verdict in ("unknown", "sync")
            continue
        undisturbed.append(profile.bound)
        if profile.bound.verdict == known or not BESIDE_WORKERS or len(undisturbed) == 5:
            return undisturbed[-1]
    pytest.skip("other processes never left this GPU alone")


@pytest.fixture
def _known_gpu() -> None:
    name = current_device("cuda").name
    if peaks_of(name) is None:
        pytest.skip(f"the peaks of {name} are not in the table")


@pytest.mark.usefixtures("_known_gpu")
def test_a_big_product_is_compute_bound() -> None:
    # Ones draw little power: clocks stay the same in calls in a row and in single ones.
    a, b = (torch.ones(8192, 8192, device="cuda", dtype=torch.float16) for _ in range(2))
    found = bound(lambda: a @ b, "compute")
    assert found.verdict == "compute", found.reason
    assert "TFLOP/s" in found.reason


@pytest.mark.usefixtures("_known_gpu")
@pytest.mark.parametrize("what", ["add", "gelu", "relu", "in place"])
def test_big_pointwise_work_is_memory_bound(what: str) -> None:
    x, y = (torch.randn(1 << 27, device="cuda", dtype=torch.float16) for _ in range(2))
    out = torch.empty_like(x)
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: torch.add(x, y, out=out),
        "gelu": lambda: torch.nn.functional.gelu(x),
        "relu": lambda: torch.relu(x),
        "in place": lambda: x.mul_(1.0),
    }
    found = bound(calls[what], "memory")
    assert found.verdict == "memory", found.reason
    assert "GB/s" in found.reason


@pytest.mark.usefixtures("_known_gpu")
def test_a_conversion_that_reaches_a_third_of_the_memory_is_near_neither_roof() -> None:
    """bfloat16 to float16 goes number by number: its instructions bound it, which are neither
    bytes nor the FLOPs that are counted, and the verdict does not pretend to know."""
    x = torch.randn(1 << 27, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(x, dtype=torch.float16)
    found = bound(lambda: out.copy_(x), "gpu")
    reached = re.search(r"(\d+)% of the memory's peak", found.reason)
    if found.verdict == "memory" and reached and int(reached[1]) < 50:
        pytest.skip(f"of this GPU's memory it reaches more than 40 %: {found.reason}")
    assert found.verdict == "gpu", found.reason
    assert "neither roof is near" in found.reason


def test_a_loop_of_items_is_sync_bound() -> None:
    x = torch.ones(16, device="cuda")

    def items() -> float:
        return sum(x[i].item() for i in range(16))

    assert bound(items, "sync").verdict == "sync"


def test_empty_kernels_are_overhead_bound() -> None:
    x = torch.zeros(1, device="cuda")

    def tiny() -> None:
        for _ in range(50):
            x.add_(1)

    assert bound(tiny, "overhead").verdict == "overhead"


def test_no_rate_lies_far_above_a_peak() -> None:
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    big = torch.randn(1 << 27, device="cuda", dtype=torch.float16)
    found = achieved(lambda: (a @ a, big + 1, big.sum(), torch.softmax(a, -1)))
    assert len(found) >= 4
    assert all((rate.of_compute or 0) < 1.05 for rate in found)
    assert all((rate.of_memory or 0) < 1.05 for rate in found if rate.amount.bytes > 2e8)


def test_gaps_of_tiny_kernels_are_waits_for_the_host() -> None:
    x = torch.zeros(1, device="cuda")
    # Beside the work of others, the kernels would wait for theirs.
    with gpu_lock(current_device("cuda"), 300, "gaps of tiny kernels"):
        _, measurement = measure(lambda: [x.add_(1) for _ in range(50)], Plan("cuda", rounds=3))
    profile = measurement.profile
    found = profile.gaps
    if profile.integrity.clock_skew:
        assert found.rounds == ()
        return
    sums = [one.host_wait + one.kernel_wait + one.other for one in found.rounds]
    assert sums == pytest.approx(list(profile.metrics["gpu_idle"].rounds))
    assert all(one.host_wait > one.kernel_wait for one in found.rounds)
