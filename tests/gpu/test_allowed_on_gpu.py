"""``allow`` on the GPU: what the block's thread waits for, copies and launches does not count."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_kernelprof import allow
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_limit
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure
from pytest_kernelprof.records.profile import Profile, Verdict

pytestmark = pytest.mark.usefixtures("_shares_the_gpu")

Block = Callable[[], contextlib.AbstractContextManager[object]]


def every() -> contextlib.AbstractContextManager[object]:
    return allow("syncs", "copies", "kernels", why="wanted")


def take(fn: Callable[[], object]) -> Profile:
    _, measurement = measure(fn, Plan("cuda"))
    profile = measurement.profile
    counts = {name: one.allowed for name, one in profile.metrics.items() if one.allowed}
    values = {name: profile.metrics[name].value for name in ("kernels", "syncs", "memcpys")}
    print(f"{values}, allowed a round: {counts}")
    assert profile.integrity.complete, profile.integrity
    return profile


def left(profile: Profile, name: str, **more: Any) -> float | None:
    """What a limit counts."""
    value = "0 B" if name == "max_memcpy_bytes" else 0
    (verdict,) = evaluate(profile, [parse_limit(name, (value,), more)])
    assert isinstance(verdict, Verdict)
    print(f"{name}: {verdict.outcome}, {verdict.measured}, {verdict.apart}")
    return verdict.measured


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(1024, device="cuda")


def work(x: torch.Tensor, block: Block) -> Callable[[], object]:
    """One wait, copy and kernel in the block, and one of each outside of it."""

    def step() -> object:
        with block():
            x.sum().item()
        return x.mean().item()

    return step


def test_metrics_are_the_same_with_and_without_blocks(x: torch.Tensor) -> None:
    with_blocks, without = take(work(x, every)), take(work(x, contextlib.nullcontext))
    for name in ("kernels", "launches", "syncs", "memsets", "memcpys", "memcpy_bytes"):
        assert with_blocks.metrics[name].rounds == without.metrics[name].rounds, name
    names = [[(one.name, one.operators) for one in each.kernels] for each in (with_blocks, without)]
    assert names[0] == names[1]
    waits = [[(one.call, one.operators) for one in each.waits] for each in (with_blocks, without)]
    assert waits[0] == waits[1]


@pytest.mark.parametrize(
    ("limit", "more", "metric"),
    [
        ("max_syncs", {}, "syncs"),
        ("max_memcpys", {}, "memcpys"),
        ("max_memcpys", {"direction": "d2h"}, "memcpys_d2h"),
        ("max_memcpy_bytes", {}, "memcpy_bytes"),
        ("max_kernels", {}, "kernels"),
    ],
)
def test_half_of_the_work_is_allowed(
    x: torch.Tensor, limit: str, more: dict[str, Any], metric: str
) -> None:
    profile = take(work(x, every))
    whole = profile.metrics[metric].value
    assert whole
    assert left(profile, limit, **more) == whole / 2


@pytest.mark.parametrize("kind", ["syncs", "copies", "kernels"])
def test_each_kind_takes_out_its_own(x: torch.Tensor, kind: str) -> None:
    profile = take(work(x, lambda: allow(kind, why="one kind")))
    limits = {"syncs": "max_syncs", "copies": "max_memcpys", "kernels": "max_kernels"}
    counted = {one: left(profile, limit) for one, limit in limits.items()}
    assert counted == {one: 1 if one == kind else 2 for one in limits}


def test_waits_without_an_operator_are_allowed_one_by_one() -> None:
    def step() -> None:
        torch.cuda.synchronize()
        with allow("syncs", why="timing"):
            torch.cuda.synchronize()
            torch.cuda.current_stream().synchronize()

    profile = take(step)
    assert profile.metrics["syncs"].value == 3
    assert left(profile, "max_syncs") == 1


def test_a_kernel_that_runs_after_its_block_is_allowed_by_its_launch(x: torch.Tensor) -> None:
    def step() -> None:
        torch.cuda._sleep(2_000_000)
        with allow("kernels", why="late"):
            x.add_(1)
        x.mul_(1)

    profile = take(step)
    assert [bool(one.allowed) for one in profile.kernels] == [False, True, False]
    assert left(profile, "max_kernels") == 2


def test_work_of_another_thread_counts(x: torch.Tensor) -> None:
    def step() -> None:
        with every():
            thread = threading.Thread(target=lambda: x.sum().item())
            thread.start()
            thread.join()

    profile = take(step)
    assert left(profile, "max_syncs") == profile.metrics["syncs"].value == 1
    assert left(profile, "max_kernels") == profile.metrics["kernels"].value == 1


def test_kernels_of_the_autograd_thread_count(x: torch.Tensor) -> None:
    weight = torch.randn(1024, device="cuda", requires_grad=True)

    def step() -> None:
        weight.grad = None
        loss = (x * weight).sum()
        with allow("kernels", why="backward"):
            loss.backward()

    profile = take(step)
    backward = [one for one in profile.kernels if "MulBackward0" in one.operators]
    assert backward
    assert not any(one.allowed for one in backward)


def test_a_replayed_graph_is_allowed_with_all_its_kernels(x: torch.Tensor) -> None:
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        x.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        x.add_(1)
        x.mul_(1)

    def step() -> None:
        with allow("kernels", why="replay"):
            graph.replay()
        x.sub_(1)

    profile = take(step)
    assert profile.metrics["kernels"].value == 3
    assert left(profile, "max_kernels") == 1


def test_a_block_in_compiled_code_breaks_no_graph_and_has_no_effect(x: torch.Tensor) -> None:
    def inside(x: torch.Tensor) -> torch.Tensor:
        with allow("kernels", why="inside"):
            y = x.sin()
        return y + 1

    compiled = torch.compile(inside, fullgraph=True)

    def around(x: torch.Tensor) -> torch.Tensor:
        with allow("kernels", why="around"):
            return compiled(x)

    profile = take(lambda: compiled(x))
    assert left(profile, "max_kernels") == profile.metrics["kernels"].value == 1
    assert profile.metrics["recompiles"].value == 0
    profile = take(lambda: around(x))
    assert profile.metrics["kernels"].value == 1
    assert left(profile, "max_kernels") == 0
    assert profile.metrics["recompiles"].value == 0


NOISY = """
def log(x):
    print(x.sum().item())
    return x.cpu()
"""
TESTS = """
import pytest, torch, noisy
from pytest_kernelprof import allow
x = torch.randn(512, 512, device="cuda")
def step():
    noisy.log(x)
    return x + 1
def waits():
    noisy.log(x)
    return (x + 1).sum().item()
def blocked():
    with allow("syncs", "copies", why="logging"):
        noisy.log(x)
    return x + 1
@pytest.mark.max_syncs(0, allow="noisy.py")
@pytest.mark.max_memcpys(0, allow="noisy.py")
@pytest.mark.max_memcpy_bytes("0 B", allow=["noisy.py:2", "noisy.py:3"])
def test_lines(kernel_profile):
    kernel_profile(step)
@pytest.mark.max_latency("1s")
@pytest.mark.max_cuda_time("1s")
@pytest.mark.max_syncs(0)
@pytest.mark.max_memcpys(0, direction="d2h")
def test_block_with_times(kernel_profile):
    kernel_profile(blocked)
@pytest.mark.max_syncs(0)
def test_region(kernel_profile):
    with kernel_profile.region():
        blocked()
@pytest.mark.max_syncs(0, allow="noisy.py")
def test_too_many(kernel_profile):
    kernel_profile(waits)
@pytest.mark.max_syncs(0)
def test_counted(kernel_profile):
    kernel_profile(step)
"""


def test_limits_allow_lines_and_blocks_and_fail_by_other_waits(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(noisy=NOISY, test_it=TESTS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(
        [
            "E   max_syncs: 1 > limit 0",
            "  2 more allowed: noisy.py:2, noisy.py:3",
            "E   max_syncs: 2 > limit 0*",
        ]
    )


@pytest.mark.parametrize("rounds", [3, 30])
def test_all_rounds_tell_what_is_allowed(x: torch.Tensor, rounds: int) -> None:
    from pytest_kernelprof.measure.policy import EVERYTHING, plan_of

    _, measurement = measure(work(x, every), plan_of("cuda", EVERYTHING, rounds=rounds))
    metric = measurement.profile.metrics["syncs"]
    print(f"rounds {metric.rounds}, allowed {metric.allowed}")
    assert len(metric.allowed) == len(metric.rounds)
    assert set(zip(metric.rounds, metric.allowed, strict=True)) == {(2, 1)}
