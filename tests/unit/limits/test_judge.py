"""Verdicts on recorded profiles: pass, fail, inconclusive, or a value that could not be had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from corpus import recorded

from pytest_kernelprof.limits.judge import Verdict, judge
from pytest_kernelprof.limits.kinds import parse_limit
from pytest_kernelprof.metrics import timed
from pytest_kernelprof.profiles import Profile


def verdict(profile: Profile, name: str, *args: Any, **kwargs: Any) -> Verdict:
    return judge(profile, [parse_limit(name, args, kwargs)])[0]


@pytest.mark.parametrize(
    ("trace", "name", "args", "kwargs", "outcome"),
    [
        ("mlp", "max_kernels", (5,), {}, "pass"),
        ("mlp", "max_kernels", (4,), {}, "fail"),
        ("mlp", "max_kernels", (2,), {"match": "nvjet"}, "fail"),
        ("mlp", "max_kernels", (3,), {"match": "NVJET"}, "pass"),
        ("graph", "max_launches", (1,), {}, "pass"),
        ("syncs", "max_syncs", (6,), {}, "fail"),
        ("copies", "max_memcpys", (2,), {"direction": "d2h"}, "pass"),
        ("copies", "max_memcpys", (5,), {}, "fail"),
        ("copies", "max_memcpy_bytes", ("20 MB",), {}, "fail"),
        ("copies", "max_memcpy_bytes", ("21 MB",), {}, "pass"),
        ("mlp", "max_peak_memory", ("150 MB",), {}, "fail"),
        ("mlp", "max_peak_memory", ("151 MB",), {}, "pass"),
        ("mlp", "max_recompiles", (0,), {}, "pass"),
        ("mlp", "max_cuda_time", ("1us",), {}, "fail"),
        ("mlp", "max_cuda_time", ("1s",), {}, "pass"),
        ("mlp", "max_latency", ("1s",), {}, "unavailable"),
        ("mlp", "max_launch_overhead", ("1s",), {}, "unavailable"),
        ("stack", "max_allocations", (0,), {}, "unavailable"),
        ("mlp", "forbid_kernels", ("softmax",), {}, "pass"),
        ("mlp", "forbid_kernels", ("softmax", "gelu"), {}, "fail"),
        ("mlp", "expect_kernels", ("mm", "gelu", "mm", "mul", "mm"), {}, "pass"),
        ("mlp", "expect_kernels", ("mm", ..., "mm"), {}, "pass"),
        ("mlp", "expect_kernels", (...,), {}, "pass"),
        ("mlp", "expect_kernels", (..., "mul", ..., "mm", ...), {}, "pass"),
        ("mlp", "expect_kernels", (..., "gelu"), {}, "fail"),
        ("mlp", "expect_kernels", ("mm", "gelu", "mm", "mul"), {}, "fail"),
        ("mlp", "expect_kernels", ("mm", "gelu", "mm", "mul", "mm", "mm"), {}, "fail"),
        ("empty", "expect_kernels", (), {}, "pass"),
        ("mlp", "expect_kernels", (), {}, "fail"),
    ],
)
def test_outcomes(
    trace: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], outcome: str
) -> None:
    assert verdict(recorded(trace), name, *args, **kwargs).outcome == outcome


@pytest.mark.parametrize(
    ("bound", "outcome"), [("90us", "fail"), ("105us", "inconclusive"), ("120us", "pass")]
)
def test_a_time_is_judged_by_its_whole_interval(bound: str, outcome: str) -> None:
    profile = recorded("mlp")
    profile.metrics["cuda_time"] = timed("cuda_time", [100.0 + i for i in range(12)])
    assert verdict(profile, "max_cuda_time", bound).outcome == outcome


def test_a_failed_time_says_how_far_how_sure_and_of_how_many_rounds() -> None:
    profile = recorded("mlp")
    profile.metrics["cuda_time"] = timed("cuda_time", [100.0 + i for i in range(12)])
    assert verdict(profile, "max_cuda_time", "90us").text == (
        "max_cuda_time: 105.5us, limit 90.0us (+17.2 %, 99 % CI 101.0..110.0us, 12 rounds)"
    )


def test_a_single_round_is_judged_and_says_so() -> None:
    assert verdict(recorded("stack"), "max_cuda_time", "1us").text.endswith(
        "one round, too few for an interval)"
    )


def test_a_share_of_the_latency_is_judged_against_it() -> None:
    profile = recorded("mlp")
    profile.metrics["latency"] = timed("latency", [300.0] * 12)
    profile.metrics["launch_overhead"] = timed("launch_overhead", [100.0] * 12)
    assert verdict(profile, "max_launch_overhead", "30%").outcome == "fail"
    assert verdict(profile, "max_launch_overhead", "40%").outcome == "pass"


def test_counts_that_differ_between_rounds_are_judged_by_the_largest() -> None:
    profile = recorded("mlp")
    kernels = profile.metrics["kernels"]
    profile.metrics["kernels"] = replace(kernels, rounds=(4.0, 5.0), value=5.0)
    found = verdict(profile, "max_kernels", 4)
    assert found.outcome == "fail"
    assert "UNSTABLE: 4, 5 in 2 rounds" in found.text


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        (("mm", "relu", ...), "kernel 2 is vectorized_elementwise_kernel (aten::gelu), not 'relu'"),
        (("mm", "gelu", "mm", "mul", "mm", "add"), "nothing is left for 'add'"),
        (
            ("mm",),
            "kernel 2 is vectorized_elementwise_kernel (aten::gelu), where no more were expected",
        ),
    ],
)
def test_the_first_unexpected_kernel_is_named(patterns: tuple[Any, ...], words: str) -> None:
    assert words in verdict(recorded("mlp"), "expect_kernels", *patterns).text
