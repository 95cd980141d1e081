"""Verdicts on recorded profiles: pass, fail, inconclusive, or a value that could not be had."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from built import launched, profile_of, round_of
from corpus import recorded

from pytest_kernelprof.analysis.metrics import timed
from pytest_kernelprof.analysis.profile import Profile
from pytest_kernelprof.limits.evaluate import Verdict, judge
from pytest_kernelprof.limits.kinds import parse_limit
from pytest_kernelprof.schema.conditions import Conditions, Contender

MIXED = (6, 1, 11, 4, 9, 2, 7, 0, 10, 3, 8, 5)
"""The numbers below 12 as independent rounds would have them: neighbours are not alike."""


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
    profile.metrics["cuda_time"] = timed("cuda_time", [100.0 + i for i in MIXED])
    assert verdict(profile, "max_cuda_time", bound).outcome == outcome


def test_a_failed_time_says_how_far_how_sure_and_of_how_many_rounds() -> None:
    profile = recorded("mlp")
    profile.metrics["cuda_time"] = timed("cuda_time", [100.0 + i for i in MIXED])
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


@pytest.fixture
def alternating(tmp_path: Path) -> Profile:
    """Two complete rounds of one kernel each, another in each round."""
    return profile_of(
        tmp_path,
        round_of(0, 0, 99),
        launched("first", 10, 1),
        round_of(1, 200, 99),
        launched("second", 210, 2),
    )


@pytest.fixture
def cpu(tmp_path: Path) -> Profile:
    noted = {"device_kind": "cpu", "compute_operators": []}
    return profile_of(tmp_path, round_of(0, 0, 99), kernelprof=noted)


@pytest.mark.parametrize("name", ["first", "second"])
@pytest.mark.parametrize("limit", ["forbid_kernels", "expect_kernels", "max_kernels"])
def test_limits_on_names_hold_for_every_round(alternating: Profile, limit: str, name: str) -> None:
    arguments: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "forbid_kernels": ((name,), {}),
        "expect_kernels": ((name,), {}),
        "max_kernels": ((0,), {"match": name}),
    }
    args, kwargs = arguments[limit]
    assert verdict(alternating, limit, *args, **kwargs).outcome == "fail"


def test_patterns_look_at_full_name_short_name_and_operators() -> None:
    profile = recorded("mlp")
    for pattern in ("GeluCUDAKernel", "^vectorized_elementwise_kernel$", "^aten::gelu$"):
        assert verdict(profile, "forbid_kernels", pattern).outcome == "fail"


def test_one_kernel_that_two_patterns_match_is_forbidden_once() -> None:
    text = verdict(recorded("mlp"), "forbid_kernels", "gelu", "aten::gelu").text
    assert text.startswith("forbid_kernels: 1 forbidden: #2 vectorized_elementwise_kernel")


def test_many_forbidden_kernels_are_cut_short() -> None:
    text = verdict(recorded("backward"), "forbid_kernels", ".").text
    assert text.startswith("forbid_kernels: 16 forbidden: #1 ")
    assert text.endswith(" and 12 more")


def test_many_wildcards_are_judged_quickly() -> None:
    patterns = [..., "nothing like it"] * 30
    start = time.perf_counter()
    assert verdict(recorded("backward"), "expect_kernels", *patterns).outcome == "fail"
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize(
    ("trace", "name", "args", "kwargs", "text"),
    [
        ("mlp", "max_kernels", (1,), {}, "max_kernels: 5 kernels launched, limit 1"),
        ("linear", "max_kernels", (0,), {}, "max_kernels: 1 kernel launched, limit 0"),
        ("graph_twice_a_round", "max_launches", (1,), {}, "max_launches: 2 launch calls, limit 1"),
        ("syncs", "max_syncs", (0,), {}, "max_syncs: 7 waits for the device, limit 0"),
        ("threads", "max_syncs", (0,), {}, "max_syncs: 1 wait for the device, limit 0"),
        (
            *("copies", "max_memcpys", (0,), {"direction": "d2h"}),
            "max_memcpys(d2h): 2 memory copies, limit 0",
        ),
        (
            *("copies", "max_memcpy_bytes", ("1 MB",), {}),
            "max_memcpy_bytes: 21 MB copied, limit 1 MB",
        ),
        (
            *("mlp", "max_kernels", (2,), {"match": "nvjet"}),
            "max_kernels(match='nvjet'): 3 kernels match, limit 2",
        ),
    ],
)
def test_the_words_of_a_violation(
    trace: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], text: str
) -> None:
    assert verdict(recorded(trace), name, *args, **kwargs).text == text


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("max_launches", 0),
        ("max_cuda_time", "0us"),
        ("max_syncs", 0),
        ("max_memcpys", 0),
        ("max_memcpy_bytes", "0 B"),
        ("max_allocations", 0),
        ("max_peak_memory", "0 B"),
        ("max_launch_overhead", "0us"),
    ],
)
def test_limits_of_the_gpu_are_not_applicable_on_the_cpu(
    cpu: Profile, name: str, argument: Any
) -> None:
    assert verdict(cpu, name, argument).outcome == "not applicable"


@pytest.mark.parametrize(
    ("name", "args", "outcome"),
    [
        ("max_kernels", (0,), "pass"),
        ("expect_kernels", (), "pass"),
        ("expect_kernels", ("mm",), "fail"),
        ("forbid_kernels", (".",), "pass"),
        ("max_latency", ("1s",), "unavailable"),
        ("max_recompiles", (0,), "unavailable"),
    ],
)
def test_limits_that_the_cpu_can_judge_are_judged(
    cpu: Profile, name: str, args: tuple[Any, ...], outcome: str
) -> None:
    assert verdict(cpu, name, *args).outcome == outcome


def test_a_bound_that_is_met_exactly_is_kept() -> None:
    profile = recorded("mlp")
    profile.metrics["cuda_time"] = timed("cuda_time", [100.0] * 12)
    assert verdict(profile, "max_cuda_time", "100us").outcome == "pass"


def test_a_time_far_above_its_limit_is_told_as_a_multiple() -> None:
    profile = recorded("mlp")
    profile.metrics["cuda_time"] = timed("cuda_time", [100.0] * 12)
    assert "(x100, " in verdict(profile, "max_cuda_time", "1us").text


def test_an_inconclusive_time_says_why() -> None:
    profile = recorded("mlp")
    profile.metrics["cuda_time"] = timed("cuda_time", [100.0 + i for i in MIXED])
    text = verdict(profile, "max_cuda_time", "105us").text
    assert text.endswith("INCONCLUSIVE, the interval holds the limit")


@pytest.mark.parametrize("bound", ["1us", "1s"], ids=["would fail", "would pass"])
def test_rounds_too_alike_for_an_interval_decide_nothing(bound: str) -> None:
    """By their median alone a machine that drifts would fail what has not changed."""
    profile = recorded("mlp")
    profile.metrics["cuda_time"] = timed("cuda_time", [100.0 + i for i in range(12)])
    found = verdict(profile, "max_cuda_time", bound)
    assert found.outcome == "inconclusive"
    assert found.text.endswith("INCONCLUSIVE, neighbouring rounds are too alike")


def test_a_value_that_could_not_be_had_says_why() -> None:
    found = verdict(recorded("mlp"), "max_latency", "1s")
    assert found.text.startswith("max_latency: latency not measured")


def timings(latency: float) -> dict[str, Any]:
    rounds = tuple(latency + i / 10 for i in MIXED)
    return {"latency_us": rounds, "dispatch_us": rounds, "floor_us": (10.0,) * len(rounds)}


@pytest.mark.parametrize(
    ("second", "outcome", "words"),
    [
        (520.0, "fail", "a second look: 520.5us)"),
        (480.0, "inconclusive", "): INCONCLUSIVE, the second look does not"),
        (499.8, "inconclusive", "does not confirm it"),
    ],
)
def test_a_limit_on_host_time_fails_only_if_a_second_look_agrees(
    second: float, outcome: str, words: str
) -> None:
    """Enqueue times differ by 40 % between processes and states of a machine."""
    noted = {"host_timings": timings(510.0), "second_look": timings(second)}
    found = verdict(recorded("mlp").with_recording(noted), "max_latency", "500us")
    assert found.outcome == outcome
    assert words in found.text


def test_a_kept_limit_needs_no_second_look() -> None:
    noted = {"host_timings": timings(400.0), "second_look": timings(900.0)}
    found = verdict(recorded("mlp").with_recording(noted), "max_latency", "500us")
    assert found.outcome == "pass"


def test_rounds_of_further_sessions_count() -> None:
    """Sampling on adds rounds that left no trace: times get more of them, counts their largest."""
    profile = recorded("mlp")
    more = {"cuda_time": [250.0] * 12, "kernels": [5] * 11 + [7]}
    profile = profile.with_recording({"more_rounds": more})
    assert (
        len(profile.metrics["cuda_time"].rounds)
        == len(recorded("mlp").metrics["cuda_time"].rounds) + 12
    )
    found = verdict(profile, "max_kernels", 5)
    assert found.outcome == "fail"
    assert "UNSTABLE" in found.text
    assert len(profile.kernels) == 5, "the table is of the rounds that were recorded"


@pytest.mark.parametrize("limit", ["1us", "1s"], ids=["would fail", "would pass"])
@pytest.mark.parametrize(
    "noted",
    [
        Conditions(blocks=1, contenders=(Contender(7, 60),)),
        Conditions(blocks=3, discarded_rounds=36, throttle_reasons=("heat",)).keeping_throttled(12),
    ],
    ids=["contended", "throttled"],
)
def test_no_time_is_judged_by_rounds_of_a_disturbed_gpu(noted: Conditions, limit: str) -> None:
    profile = recorded("mlp").with_recording({"conditions": noted.plain()})
    assert verdict(profile, "max_cuda_time", limit).outcome == "inconclusive"
    assert verdict(profile, "max_kernels", 5).outcome == "pass", "counts need no quiet GPU"
