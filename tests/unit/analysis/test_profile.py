"""What recorded traces mean, and what a session's facts and notes make together."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from built import (
    call,
    copy,
    kernel,
    launched,
    operator,
    profile_of,
    reading_of_events,
    round_of,
)
from corpus import NAMES, Event, document, edited, reading, record, recorded
from msgspec.structs import replace

from pytest_kernelprof.analysis.session_profile import profile_of as profile_of_facts
from pytest_kernelprof.analysis.session_profile import session_facts, with_lines
from pytest_kernelprof.records.metrics import METRICS
from pytest_kernelprof.records.profile import Profile
from pytest_kernelprof.records.recording import (
    NOTHING_NOTED,
    Conditions,
    HostTimings,
    Integrity,
    MemoryUse,
    Neighbour,
    Recording,
    Roofline,
)
from pytest_kernelprof.trace.correlation import frame_lines

EXPECTED = {
    #                       kernels launches memcpys syncs memsets
    "linear": (1, 1, 0, 0, 1),
    "mlp": (5, 5, 0, 0, 2),
    "decode": (6, 6, 0, 0, 0),
    "backward": (16, 16, 0, 0, 4),
    "compiled": (4, 4, 0, 0, 2),
    "compiled_graphs": (6, 2, 0, 0, 0),
    "graph": (5, 1, 0, 0, 2),
    "graph_twice_a_round": (10, 2, 0, 0, 4),
    "triton": (1, 1, 0, 0, 0),
    "triton_coop": (1, 1, 0, 0, 0),
    "copies": (0, 0, 6, 2, 0),
    "syncs": (6, 6, 4, 7, 0),
    "syncs_nosync": (6, 6, 4, 7, 0),
    "two_streams": (2, 2, 0, 0, 0),
    "side_stream_nojoin": (1, 1, 0, 0, 0),
    "threads": (2, 2, 1, 1, 0),
    "memset": (2, 2, 0, 0, 0),
    "memory": (5, 5, 0, 1, 2),
    "stack": (5, 5, 0, 0, 2),
    "empty": (0, 0, 0, 0, 0),
    "view": (0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_counts_of_recorded_work(name: str) -> None:
    profile = recorded(name)
    names = ("kernels", "launches", "memcpys", "syncs", "memsets")
    assert tuple(profile.metrics[n].value for n in names) == EXPECTED[name]
    assert len(profile.kernels) == profile.kernel_count
    assert all(metric.stable for metric in profile.metrics.values() if metric.kind == "exact")


def test_a_trace_without_our_annotations_is_one_region(tmp_path: Path) -> None:
    def strip(events: list[Event]) -> list[Event]:
        return [e for e in events if "kernelprof" not in e["name"] and "spin_" not in e["name"]]

    whole = edited(tmp_path, "mlp", strip)
    rounds = recorded("mlp").rounds
    assert whole.rounds == 1
    assert whole.kernel_count == 5 * rounds


def test_memory_was_measured_beside_the_trace() -> None:
    # Three hidden layers of 8192 x 3072 bf16 numbers live at once.
    assert recorded("mlp").peak_memory == 3 * 8192 * 3072 * 2
    assert recorded("mlp").allocations == 0


def test_kernels_are_those_of_the_round_that_had_most(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), launched("one", 10, 1),
        round_of(1, 200, 99), launched("two", 210, 2), launched("three", 240, 3),
    )  # fmt: skip
    assert [kernel.name for kernel in profile.kernels] == ["two", "three"]


def test_lines_belong_to_kernels_copies_and_waits_by_their_number() -> None:
    operators = {"kernels": range(6), "copies": range(6, 10), "waits": range(10, 17)}
    facts = dataclasses.replace(session_facts(reading("syncs")), operators=operators)
    profile = with_lines(record("syncs"), facts, {1: "a.py:1", 6: "b.py:2", 16: "c.py:3"})
    assert [kernel.source for kernel in profile.kernels] == ["", "a.py:1", "", "", "", ""]
    assert [copy.source for copy in profile.copies] == ["b.py:2", "", "", ""]
    assert [wait.source for wait in profile.waits][-1] == "c.py:3"


def test_a_foreign_trace_without_a_device_is_incomplete_and_not_zero_kernels(
    tmp_path: Path,
) -> None:
    profile = profile_of(tmp_path, operator("aten::mm", 0, 10))
    assert profile.device_kind == "cpu"
    assert "outermost operators are counted" in profile.integrity.problems[0]
    assert profile.metrics["kernels"].why == "outermost operators, not classified"


@pytest.mark.parametrize(
    ("name", "stranger"), [("memory", "[memory]"), ("mlp", "kernelprof::round#0")]
)
def test_memory_events_and_annotations_on_the_device_are_no_kernels(
    name: str, stranger: str
) -> None:
    assert any(event["name"] == stranger for event in document(name)["traceEvents"])
    assert recorded(name).kernel_count == 5


@pytest.mark.parametrize("name", NAMES)
def test_every_profile_has_all_metrics_in_the_order_of_their_table(name: str) -> None:
    metrics = record(name).metrics
    assert list(metrics) == list(METRICS)
    for found, spec in zip(metrics.values(), METRICS.values(), strict=True):
        assert (found.name, found.kind, found.unit) == (spec.name, spec.kind, spec.unit)
        assert found.value is not None or found.why


def test_what_cannot_be_had_on_the_cpu_says_so(tmp_path: Path) -> None:
    metrics = profile_of(tmp_path, operator("aten::mm", 0, 10)).metrics
    assert list(metrics) == list(METRICS)
    for spec in METRICS.values():
        if "cpu" not in spec.devices:
            only = spec.name in ("launch_overhead", "overhead_per_launch")
            assert metrics[spec.name].value is None
            assert only or metrics[spec.name].why == "not applicable on the CPU"


def test_a_trace_is_of_the_device_that_was_noted_else_of_the_one_that_it_records(
    tmp_path: Path,
) -> None:
    noted = {"kernelprof": {"schema": 1, "device_kind": "cpu"}}
    assert reading_of_events(tmp_path, launched("k", 1, 1), **noted).trace.device_kind == "cpu"
    assert reading_of_events(tmp_path, launched("k", 1, 1)).trace.device_kind == "cuda"
    assert reading_of_events(tmp_path, operator("aten::mm", 1, 1)).trace.device_kind == "cpu"


def under(name: str, ts: float, correlation: int, tid: int = 1) -> list[Event]:
    """A kernel ``k`` that is launched inside an operator of this name."""
    return [operator(name, ts, 20, tid), *launched("k", ts + 5, correlation, tid=tid)]


def test_rounds_whose_operators_differ_are_variants_though_their_kernels_are_named_alike(
    tmp_path: Path,
) -> None:
    profile = profile_of(
        tmp_path,
        *([round_of(i, 100.0 * i, 90), *under(name, 100.0 * i + 5, i + 1)]
          for i, name in enumerate(("aten::add", "aten::mul", "aten::add", "aten::mul"))),
    )  # fmt: skip
    assert [[one.operators for one in kernels] for kernels in profile.variants] == [
        [("aten::add",)],
        [("aten::mul",)],
    ]
    assert profile.variants[0] == profile.kernels
    assert profile.metrics["kernels"].stable


def test_rounds_whose_outer_operators_differ_are_variants(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        [round_of(0, 0, 90), operator("outer", 1, 50), *under("aten::add", 5, 1)],
        [round_of(1, 100, 90), *under("aten::add", 105, 2)],
    )
    assert [kernels[0].operators for kernels in profile.variants] == [
        ("aten::add", "outer"),
        ("aten::add",),
    ]


@pytest.mark.parametrize("inside", [True, False], ids=["in an operator", "in none"])
def test_the_same_kernels_launched_by_another_thread_are_no_variant(
    tmp_path: Path, inside: bool
) -> None:
    """Our annotation of the round lies around the launches of one thread alone."""
    rounds = [
        [round_of(i, 100.0 * i, 90)]
        + (
            under("aten::add", 100.0 * i + 5, i + 1, tid=i + 1)
            if inside
            else launched("k", 100.0 * i + 5, i + 1, tid=i + 1)
        )
        for i in range(2)
    ]
    profile = profile_of(tmp_path, *rounds)
    assert profile.kernels[0].operators == (("aten::add",) if inside else ())
    assert profile.variants == (profile.kernels,)


def test_rounds_with_more_or_other_kernels_are_variants_once_each(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        [round_of(0, 0, 90), *launched("a", 5, 1)],
        [round_of(1, 100, 90), *launched("a", 105, 2), *launched("b", 125, 3)],
        [round_of(2, 200, 90), *launched("c", 205, 4)],
        [round_of(3, 300, 90), *launched("a", 305, 5)],
    )
    named = [[one.name for one in kernels] for kernels in profile.variants]
    assert named == [["a", "b"], ["a"], ["c"]]


def test_rounds_of_the_cpu_have_variants_too(tmp_path: Path) -> None:
    noted = {"schema": 1, "device_kind": "cpu", "compute_operators": ["aten::mm", "aten::add"]}
    profile = profile_of(
        tmp_path,
        [round_of(0, 0, 90), operator("aten::linear", 5, 40), operator("aten::mm", 10, 20)],
        [round_of(1, 100, 90), operator("aten::mm", 110, 20)],
        [round_of(2, 200, 90), operator("aten::add", 210, 20)],
        [round_of(3, 300, 90), operator("aten::mm", 310, 20)],
        kernelprof=noted,
    )
    assert [kernels[0].operators for kernels in profile.variants] == [
        ("aten::mm", "aten::linear"),
        ("aten::mm",),
        ("aten::add",),
    ]


def test_a_trace_read_once_gives_kernels_copies_and_waits_with_their_lines(
    tmp_path: Path,
) -> None:
    found = reading_of_events(
        tmp_path,
        round_of(0, 0, 99),
        operator("aten::mm", 10, 10, external_id=1),
        launched("gemm", 12, 1, external_id=1),
        operator("aten::copy_", 30, 20, external_id=2),
        call("cudaMemcpyAsync", 32, 2, external_id=2),
        copy("Memcpy DtoH (Device -> Pageable)", 35, 2),
        launched("nobodys", 60, 3),
    )
    facts = session_facts(found)
    rows = {name: row for row, name in enumerate(found.trace.operators.name)}
    lines = {rows["aten::mm"]: "a.py:1", rows["aten::copy_"]: "b.py:2"}
    placed = with_lines(profile_of_facts(facts, NOTHING_NOTED), facts, lines)
    assert [(one.name, one.source) for one in placed.kernels] == [
        ("gemm", "a.py:1"),
        ("nobodys", ""),
    ]
    assert [one.source for one in placed.copies] == ["b.py:2"]
    assert [(one.call, one.source) for one in placed.waits] == [("cudaMemcpyAsync", "b.py:2")]


def test_the_kernels_of_a_recorded_trace_with_frames_get_their_lines() -> None:
    found = reading("stack")
    facts = session_facts(found)
    lines = frame_lines(found.trace, facts.operators["kernels"])
    placed = with_lines(profile_of_facts(facts, found.trace.recording), facts, lines)
    assert all("record.py:" in one.source for one in placed.kernels)
    bare = tuple(replace(one, source="") for one in placed.kernels)
    assert replace(placed, kernels=bare) == record("stack")


@pytest.mark.parametrize("name", NAMES)
def test_each_kernel_copy_and_wait_has_one_operator_or_none(name: str) -> None:
    facts = session_facts(reading(name))
    numbers = {what: len(rows) for what, rows in facts.operators.items()}
    assert numbers == {
        "kernels": len(facts.profile.kernels),
        "copies": len(facts.profile.copies),
        "waits": len(facts.profile.waits),
    }


def test_only_what_is_the_same_in_both_gets_lines_kernels_copies_and_waits_each_by_themselves() -> (
    None
):
    facts, profile = session_facts(reading("syncs")), record("syncs")
    lines = {row: "a.py:1" for rows in facts.operators.values() for row in rows}

    def placed(of: Profile) -> list[set[str]]:
        found = with_lines(of, facts, lines)
        return [{one.source for one in part} for part in (found.kernels, found.copies, found.waits)]

    assert placed(profile) == [{"a.py:1"}] * 3
    other = replace(profile, kernels=profile.kernels[::-1], waits=profile.waits[:-1])
    assert placed(other) == [{""}, {"a.py:1"}, {""}]
    assert "a.py:1" not in set().union(*placed(record("mlp")))


def test_the_rounds_of_further_sessions_join_the_metrics_and_leave_the_kernels() -> None:
    facts = session_facts(reading("mlp"))
    more: dict[str, tuple[float, ...]] = {"kernels": (5.0, 7.0), "cuda_time": (1.0, 2.0)}
    before = profile_of_facts(facts, NOTHING_NOTED)
    after = profile_of_facts(facts, Recording(more_rounds=more))
    for name, rounds in more.items():
        assert after.metrics[name].rounds == (*before.metrics[name].rounds, *rounds)
    assert after.kernel_count == 7
    assert (after.kernels, after.rounds) == (before.kernels, before.rounds)
    assert after.metrics["launches"] == before.metrics["launches"]


def test_what_skewed_clocks_took_away_further_sessions_do_not_bring_back(tmp_path: Path) -> None:
    facts = session_facts(
        reading_of_events(
            tmp_path, round_of(0, 0, 99), call("cudaLaunchKernel", 20, 1), kernel("a", 10, 1)
        )
    )
    more: dict[str, tuple[float, ...]] = {
        "gpu_span": (8.0, 9.0),
        "gpu_idle": (1.0, 2.0),
        "gpu_busy": (7.0, 7.0),
    }
    metrics = profile_of_facts(facts, Recording(more_rounds=more)).metrics
    for name in ("gpu_span", "gpu_idle"):
        assert (metrics[name].value, metrics[name].rounds) == (None, ())
        assert "clocks" in metrics[name].why
    assert metrics["gpu_busy"].rounds == (10.0, 7.0, 7.0)


def test_what_was_noted_goes_into_the_profile() -> None:
    timings = HostTimings((300.0,) * 3, (90.0,) * 3, (5.0,) * 3, 100.0, cupti_ratio=1.2)
    noted = Recording(
        one_shot=True,
        retakes=2,
        settled=False,
        recompiles=4,
        host_timings=timings,
        second_look=replace(timings, latency_us=(400.0,) * 3),
        memory=MemoryUse((7, 9), (0, 1)),
        roofline=Roofline("memory", "near it"),
        in_place=("x",),
        conditions=Conditions(blocks=3),
    )
    facts = session_facts(reading("mlp"))
    profile = profile_of_facts(facts, noted, "region")
    values = {name: metric.value for name, metric in profile.metrics.items()}
    assert (profile.label, profile.one_shot, profile.in_place) == ("region", True, ("x",))
    assert profile.integrity == replace(facts.profile.integrity, retakes=2, settled=False)
    assert (values["latency"], values["dispatch_time"], values["recompiles"]) == (300, 90, 4)
    assert (values["peak_memory"], values["allocations"]) == (9, 1)
    assert profile.second_look["latency"].value == 400
    assert set(profile.second_look) == {
        "dispatch_time", "latency", "launch_overhead", "overhead_per_launch",
    }  # fmt: skip
    assert (profile.bound.verdict, profile.bound.reason.endswith("near it")) == ("memory", True)
    assert (profile.conditions, profile.cupti_ratio) == (Conditions(blocks=3), 1.2)


def test_where_others_worked_on_the_gpu_no_bound_is_given() -> None:
    timings = HostTimings((300.0,) * 3, (90.0,) * 3, (5.0,) * 3, 100.0)
    facts, others = session_facts(reading("mlp")), Conditions(contenders=(Neighbour(17, 60),))
    alone = profile_of_facts(facts, Recording(host_timings=timings, conditions=Conditions()))
    beside = profile_of_facts(facts, Recording(host_timings=timings, conditions=others))
    assert alone.bound.verdict != "unknown"
    assert beside.bound.verdict == "unknown"


def test_of_what_was_not_noted_nothing_is_claimed() -> None:
    profile = profile_of_facts(session_facts(reading("memory")), NOTHING_NOTED)
    assert (profile.label, profile.one_shot, profile.in_place) == ("", False, ())
    assert (profile.second_look, profile.cupti_ratio) == ({}, None)
    assert (profile.bound.verdict, profile.conditions) == ("unknown", Conditions())
    told = {profile.metrics[name].why for name in ("latency", "recompiles", "peak_memory")}
    assert told == {"not recorded with the trace: only kernel_profile(fn) measures it"}


def test_why_memory_could_not_be_watched_is_told() -> None:
    facts = session_facts(reading("mlp"))
    metrics = profile_of_facts(facts, Recording(memory_why="another allocator")).metrics
    assert metrics["peak_memory"].why == metrics["allocations"].why == "another allocator"


def cpu_integrity(folder: Path, **noted: object) -> Integrity:
    """Of a call of a compiled graph on the CPU."""
    beside = {"schema": 1, "device_kind": "cpu", **noted}
    events = [round_of(0, 0, 99), operator("CompiledFxGraph abc", 5, 50)]
    return profile_of(folder, *events, kernelprof=beside).integrity


@pytest.mark.parametrize("computing", [["aten::mm"], []], ids=["some", "none"])
def test_a_compiled_graph_whose_kernels_may_be_hidden_is_incomplete(
    tmp_path: Path, computing: list[str]
) -> None:
    assert cpu_integrity(tmp_path, compute_operators=computing).complete
    hidden = cpu_integrity(tmp_path, compute_operators=computing, unseen=["hidden kernels"])
    assert hidden.problems == ("hidden kernels",)


def test_a_missing_round_makes_a_cpu_session_incomplete(tmp_path: Path) -> None:
    integrity = cpu_integrity(tmp_path, compute_operators=["aten::mm"], rounds=2)
    assert any("1 of 2 rounds are in the trace" in problem for problem in integrity.problems)


NOTED = Recording(
    schema=1,
    recompiles=0,
    jit_compiled=("scale[n = 1, was i32]",) * 2,
    autotunes=(),
    graph_breaks=("a break at x.py:3",),
)


def test_what_compilers_did_is_counted_and_named_once() -> None:
    metrics = profile_of_facts(session_facts(reading("mlp")), NOTED).metrics
    found = {name: (metrics[name].value, metrics[name].why) for name in COMPILERS}
    assert found == {
        "jit_compiles": (2, "scale[n = 1, was i32]"),
        "autotunes": (0, ""),
        "graph_breaks": (1, "a break at x.py:3"),
    }


COMPILERS = ("jit_compiles", "autotunes", "graph_breaks")


@pytest.mark.parametrize(
    ("noted", "unknown"),
    [
        ({"graph_breaks": None, "graph_breaks_why": "a reason"}, {"graph_breaks": "a reason"}),
        ({"reused": 1}, {"graph_breaks": "torch._dynamo.reset()"}),
        ({"refused": 1}, {"graph_breaks": "gave up"}),
        ({"autotuned": ("an autotuner",)}, {"graph_breaks": "benched in the block"}),
        ({"jit_compiled": None}, {"jit_compiles": "loaded unseen"}),
        ({"autotunes": None}, {"autotunes": "loaded unseen"}),
        ({"schema": 0, "jit_compiled": None}, {"jit_compiles": "not recorded with the trace"}),
    ],
)
def test_what_compilers_did_may_be_unknown(noted: dict[str, Any], unknown: dict[str, str]) -> None:
    metrics = profile_of_facts(session_facts(reading("mlp")), replace(NOTED, **noted)).metrics
    assert {name for name in COMPILERS if metrics[name].value is None} == set(unknown)
    for name, why in unknown.items():
        assert why in metrics[name].why
