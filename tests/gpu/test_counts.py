"""Counts of known work, live on the GPU: what was launched is what is reported."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from pytest_kernelprof.api import Profile
from pytest_kernelprof.measure.arguments import Arguments
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import Measurement, measure, measure_once

pytestmark = pytest.mark.usefixtures("_shares_the_gpu")


def take(fn: Callable[[], object], **plan: object) -> Profile:
    _, measurement = measure(fn, Plan("cuda", **plan))  # type: ignore[arg-type]
    assert measurement.profile.integrity.complete, measurement.profile.integrity
    return Profile.of(measurement)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(1024, device="cuda")


@pytest.mark.parametrize("n", [0, 1, 2, 7, 100, 3000])
def test_n_small_operators_are_n_kernels_and_n_launches(x: torch.Tensor, n: int) -> None:
    def work() -> None:
        for _ in range(n):
            x.add_(1)

    profile = take(work)
    assert (profile.kernel_count, profile.launches) == (n, n)
    assert len(profile.kernels) == n


def test_a_kernel_carries_grid_block_stream_launch_and_operators(x: torch.Tensor) -> None:
    (kernel,) = take(lambda: F.gelu(x)).kernels
    assert kernel.short_name.startswith("vectorized_elementwise [")
    assert kernel.operators == ("aten::gelu",)
    assert kernel.launch == "cudaLaunchKernel"
    assert min(*kernel.grid, *kernel.block, kernel.registers) >= 1
    assert 0 < kernel.duration_us < 1000


def test_backward_kernels_of_the_autograd_thread_count(x: torch.Tensor) -> None:
    weight = torch.randn(1024, device="cuda", requires_grad=True)

    def step() -> None:
        weight.grad = None
        (x * weight).sum().backward()

    chains = [kernel.operators for kernel in take(step).kernels]
    assert any("MulBackward0" in chain for chain in chains)
    assert chains[0] == ("aten::mul",)


def test_work_of_python_threads_and_of_other_streams_counts(x: torch.Tensor) -> None:
    side = torch.cuda.Stream()

    def work() -> None:
        worker = threading.Thread(target=lambda: x + 1)
        worker.start()
        with torch.cuda.stream(side):
            x * 2
        worker.join()

    profile = take(work)
    assert profile.kernel_count == 2
    assert len({kernel.stream for kernel in profile.kernels}) == 2


def test_a_graph_replay_is_one_launch_and_proved_by_its_nodes(x: torch.Tensor) -> None:
    graph = torch.cuda.CUDAGraph()
    x + 1
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        (x + 1) * 2
    profile = take(graph.replay)
    assert (profile.kernel_count, profile.launches) == (2, 1)
    assert profile.integrity.graph_replays == "proved"


def test_a_capture_inside_executes_only_its_replay(x: torch.Tensor) -> None:
    def work() -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x + 1
        graph.replay()

    captured = [k for k in take(work).kernels if k.launch == "cudaGraphLaunch"]
    assert len(captured) == 1


def test_compiled_code_is_warm_when_it_is_counted(x: torch.Tensor) -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda t: F.gelu(t * 2) + 1)
    _, measurement = measure(compiled, Plan("cuda"), Arguments((x,)))
    assert measurement.profile.integrity.settled
    assert measurement.profile.kernel_count == 1
    assert measurement.profile.metrics["recompiles"].value == 0


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (lambda x: x.sum().item(), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: torch.nonzero(x), 1),
        (lambda x: torch.cuda.synchronize(), 1),
        (lambda x: torch.cuda.current_stream().synchronize(), 1),
        (lambda x: bool((x > 0).any()), 1),
        (lambda x: x.cpu(), 1),
        (lambda x: torch.empty(1024).copy_(x, non_blocking=True), 1),
        (lambda x: torch.cuda.Event().query(), 0),
        (lambda x: x + 1, 0),
    ],
    ids=["item", "tolist", "nonzero", "device", "stream", "bool", "cpu", "pageable", "poll", "no"],
)
def test_each_wait_for_the_device_is_one_sync(
    x: torch.Tensor, wait: Callable[[torch.Tensor], object], expected: int
) -> None:
    assert take(lambda: wait(x)).syncs == expected


def test_copies_are_told_apart_by_direction_size_and_memory(x: torch.Tensor) -> None:
    host = torch.randn(1024)
    pinned = host.pin_memory()

    def work() -> None:
        x.copy_(host)
        x.copy_(pinned, non_blocking=True)
        x.cpu()
        x.clone()

    profile = take(work)
    assert (profile.memcpys, profile.memcpys_h2d, profile.memcpys_d2h, profile.memcpys_d2d) == (
        4, 2, 1, 1,
    )  # fmt: skip
    assert (profile.memcpy_bytes, profile.memcpy_bytes_h2d) == (4 * 4096, 2 * 4096)
    assert profile.memcpys_pageable == 2


def test_peak_memory_is_what_the_call_asked_for_above_its_start(x: torch.Tensor) -> None:
    held = torch.empty(1 << 24, dtype=torch.int8, device="cuda")

    def work() -> None:
        a = torch.empty(1 << 20, dtype=torch.int8, device="cuda")
        b = torch.empty(1 << 21, dtype=torch.int8, device="cuda")
        del a, b
        torch.empty(1 << 19, dtype=torch.int8, device="cuda")

    assert take(work, memory=True).peak_memory == 3 * (1 << 20)
    del held


def test_the_users_peak_statistics_stay_as_they_are(x: torch.Tensor) -> None:
    torch.empty(1 << 28, dtype=torch.int8, device="cuda")
    before = torch.cuda.max_memory_allocated()
    take(lambda: x + 1, memory=True)
    assert torch.cuda.max_memory_allocated() == before


def test_allocations_count_what_the_caching_allocator_asks_of_the_device() -> None:
    def work() -> None:
        torch.cuda.empty_cache()
        torch.empty(1 << 26, dtype=torch.int8, device="cuda")

    cached = torch.empty(1 << 10, device="cuda")
    assert take(lambda: cached + 1, memory=True).allocations == 0
    assert (take(work, memory=True).allocations or 0) >= 1


def test_a_recompilation_in_the_measured_calls_is_counted() -> None:
    torch.compiler.reset()
    sizes = iter(range(3, 10_000))
    compiled = torch.compile(lambda t, n: t[:n] * n, dynamic=False)
    x = torch.randn(20_000, device="cuda")
    with torch._dynamo.config.patch(recompile_limit=1000, accumulated_recompile_limit=1000):
        _, measurement = measure(lambda: compiled(x, next(sizes)), Plan("cuda"))
    assert not measurement.profile.integrity.settled
    assert (measurement.profile.metrics["recompiles"].value or 0) > 0
    torch.compiler.reset()


def test_host_times_come_from_unprofiled_rounds_and_overhead_from_both() -> None:
    x = torch.randn(64, 64, device="cuda")
    profile = take(lambda: F.gelu(x @ x) + 1, rounds=12, host_rounds=12)
    assert len(profile.metrics["latency"].rounds) == 12
    assert (profile.record.cupti_ratio or 0) > 0
    assert profile.latency > profile.gpu_busy > 0  # type: ignore[operator]
    overhead = profile.metrics["launch_overhead"]
    assert (overhead.value or 0) > 0
    if overhead.low is not None:  # rounds that drift have no interval
        assert 0 <= overhead.low <= overhead.value <= overhead.high  # type: ignore[operator]
    contended = profile.record.conditions.contended  # beside workers that do not ask for the lock
    assert profile.bound.verdict == ("unknown" if contended else "overhead")


def test_a_big_gemm_is_bound_by_the_gpu_and_an_item_loop_by_waiting() -> None:
    big = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    tries = (take(lambda: big @ big, rounds=12, host_rounds=12) for _ in range(20))
    assert "gpu" in (one.bound.verdict for one in tries)  # beside other tests one may be "mixed"
    x = torch.randn(64, device="cuda")
    waiting = take(lambda: [x.sum().item() for _ in range(3)], rounds=12, host_rounds=12)
    assert waiting.bound.verdict == "sync"


def test_setup_runs_outside_the_region(x: torch.Tensor) -> None:
    def fresh() -> tuple[torch.Tensor]:
        return (x.clone().mul_(2),)

    _, measurement = measure(lambda t: t.add_(1), Plan("cuda"), Arguments(setup=fresh))
    assert measurement.profile.kernel_count == 1


def test_the_l2_flush_is_no_kernel_of_the_region(x: torch.Tensor) -> None:
    assert take(lambda: x + 1, rounds=12, flush_l2=True).kernel_count == 1


def test_a_cold_one_shot_profile_says_that_it_is_cold() -> None:
    x = torch.rand(16, device="cuda") + 2
    with measure_once(Plan("cuda")) as found:
        torch.special.polygamma(3, x)
    (measurement,) = found
    assert isinstance(measurement, Measurement)
    assert measurement.profile.kernel_count >= 1
    assert measurement.profile.integrity.cold


def test_counts_that_differ_between_rounds_are_unstable_and_the_largest_counts() -> None:
    x = torch.randn(64, device="cuda")
    calls = iter(range(1000))

    def work() -> None:
        for _ in range(1 + next(calls) % 2):
            x.add_(1)

    kernels = take(work).metrics["kernels"]
    assert not kernels.stable
    assert kernels.value == 2


def test_source_lines_of_kernels_are_found_by_the_attribution_run(x: torch.Tensor) -> None:
    weight = torch.randn(1024, device="cuda", requires_grad=True)

    def step() -> None:
        weight.grad = None
        y = x * weight  # forward
        z = F.gelu(y)
        z.sum().backward()

    first = step.__code__.co_firstlineno
    _, measurement = measure(step, Plan("cuda"))
    assert measurement.attribute is not None
    lines = {
        (kernel.operators[0], int(kernel.source.rsplit(":", 1)[1]) - first)
        for kernel in measurement.attribute().kernels
        if kernel.source
    }
    assert {("aten::mul", 2), ("aten::gelu", 3), ("aten::gelu_backward", 3)} <= lines
