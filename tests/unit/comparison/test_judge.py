"""What follows of a profile and its baseline: what may grow by how much; what two traces say."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from records import CPU, H200, MLP, absent, counted, kernel, profile, timed

from pytest_kernelprof.comparison.judge import (
    Allowance,
    allowances,
    compare_traces,
    deltas,
    parse_allowance,
)
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.comparison import ProfileComparison
from pytest_kernelprof.records.recording import Integrity

PROBLEM = "1 of 5 launches has no kernel"


def test_metrics_that_differ_are_told_with_their_intervals() -> None:
    times = [100 + i % 7 for i in range(24)]
    old = profile(MLP, [counted("syncs", 0, 0), timed("cuda_time", times), absent("latency")])
    later = [2 * us for us in times]
    new = profile(MLP, [counted("syncs", 2, 2), timed("cuda_time", later), counted("memsets", 1)])
    found = {delta.name: delta for delta in deltas(old, new)}
    assert set(found) == {"syncs", "cuda_time", "memsets"}
    assert (found["syncs"].baseline, found["syncs"].current) == (0, 2)
    assert (found["memsets"].baseline, found["memsets"].why) == (None, "not measured: nobody asked")


def test_of_two_traces_nothing_is_judged() -> None:
    found = compare_traces(profile(MLP), profile([*MLP, kernel("mine")]))
    assert found.change == "changed"
    assert [one.name for one in found.metrics] == ["kernels", "launches"]
    assert {one.change for one in found.metrics} == {None}
    assert codec.decode(codec.encode(found), ProfileComparison) == found


def test_of_two_traces_what_of_device_and_software_is_known_and_another_is_told() -> None:
    newer = replace(H200, versions={**H200.versions, "torch": "2.13.0", "cudnn": "9"})
    found = compare_traces(profile(MLP), profile(MLP, environment=newer))
    assert (found.change, found.differences) == ("same", ("torch 2.11.0+cu130 -> 2.13.0",))
    on_cpu = compare_traces(profile(MLP), profile(MLP, environment=CPU))
    assert "device NVIDIA H200 -> CPU (x86_64)" in on_cpu.differences


def test_what_either_trace_lacks_is_told_once() -> None:
    lost = profile(MLP, integrity=Integrity(problems=(PROBLEM,)))
    assert compare_traces(profile(MLP), lost).incomplete == (PROBLEM,)
    assert compare_traces(lost, lost).incomplete == (PROBLEM,)


def test_metrics_of_all_steps_say_nothing_of_one() -> None:
    steps = [
        replace(one, operators=(*one.operators, f"ProfilerStep#{number}"))
        for number in (1, 2)
        for one in MLP
    ]
    found = compare_traces(profile(MLP), profile(steps))
    assert (found.change, found.metrics) == ("same", ())


@pytest.mark.parametrize(
    ("text", "allowance"),
    [
        ("cuda_time:5%", Allowance("cuda_time", share=0.05)),
        ("cuda_time:10us", Allowance("cuda_time", amount=10.0)),
        ("kernels:0", Allowance("kernels")),
        ("kernels:2", Allowance("kernels", amount=2)),
        ("peak_memory:1 MB", Allowance("peak_memory", amount=1e6)),
        ("peak_memory:512", Allowance("peak_memory", amount=512)),
    ],
)
def test_a_margin_is_a_share_or_an_amount(text: str, allowance: Allowance) -> None:
    assert parse_allowance(text) == allowance


def test_a_metric_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="kernels is given twice"):
        allowances((Allowance("kernels"), Allowance("kernels", amount=5)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kernel:0", "'kernel' is not a metric that can be judged; these are: kernels, "),
        ("gpu_idle:5%", "'gpu_idle' is not a metric that can be judged"),
        ("throughput:5%", "'throughput' is not a metric that can be judged"),
        ("cuda_time", "write cuda_time:5%"),
        ("cuda_time:", "write cuda_time:5%"),
        ("cuda_time:fast", "write for example cuda_time:5%"),
        ("kernels:-1", "neither a whole number of zero or more"),
        ("kernels:1.5", "neither a whole number of zero or more"),
        ("kernels:²", "neither a whole number of zero or more"),
        ("peak_memory:lots", "write for example peak_memory:1 MB"),
        ("cuda_time:nan%", "write for example cuda_time:5%"),
        ("cuda_time:-5%", "write for example cuda_time:5%"),
        ("", "'' is not a metric"),
    ],
)
def test_a_margin_that_is_none_says_the_form(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        parse_allowance(text)
