"""What recorded traces mean: kernels, metrics, and files that give the same profile back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from built import launched, operator, profile_of, round_of
from corpus import NAMES, Event, document, edited, recorded

from pytest_kernelprof.analysis.profile import (
    Profile,
    copy_table,
    kernel_table,
    shorten,
    wait_table,
)

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


@pytest.mark.parametrize("name", ["mlp", "decode", "backward", "graph", "copies", "two_streams"])
def test_device_times_are_ordered_as_their_definitions_say(name: str) -> None:
    profile = recorded(name)
    spans = zip(
        profile.metrics["gpu_busy"].rounds,
        profile.metrics["gpu_span"].rounds,
        profile.metrics["gpu_idle"].rounds,
        strict=True,
    )
    for busy, span, idle in spans:
        assert 0 < busy <= span
        assert idle == pytest.approx(span - busy)
    alone = sum(kernel.duration_us for kernel in profile.kernels)
    assert any(alone == pytest.approx(total) for total in profile.metrics["cuda_time"].rounds)


def test_kernels_come_in_launch_order_with_their_operators() -> None:
    profile = recorded("mlp")
    assert [kernel.operators[0] for kernel in profile.kernels] == [
        "aten::mm", "aten::gelu", "aten::mm", "aten::mul", "aten::mm",
    ]  # fmt: skip
    assert profile.kernels[0].operators == ("aten::mm", "aten::matmul", "aten::linear")


def test_a_kernel_carries_its_launch_and_its_resources() -> None:
    gemm = recorded("linear").kernels[0]
    assert gemm.launch == "cuLaunchKernelEx"
    assert gemm.short_name.startswith("nvjet_sm90")
    assert min(*gemm.grid, *gemm.block, gemm.registers, gemm.shared_memory) > 0


def test_backward_kernels_belong_to_their_own_operators() -> None:
    chains = [kernel.operators for kernel in recorded("backward").kernels]
    assert sum("MmBackward0" in chain for chain in chains) >= 5
    assert any(chain[0] == "aten::gelu_backward" for chain in chains)


def test_copies_are_told_apart_by_direction_size_and_memory() -> None:
    profile = recorded("copies")
    assert [copy.direction for copy in profile.copies] == ["h2d", "h2d", "d2h", "d2d", "d2h", "d2d"]
    assert profile.memcpy_bytes == sum(copy.bytes for copy in profile.copies) == 20_975_616
    assert profile.memcpys_d2h == 2
    assert profile.memcpys_pageable == 2
    assert "4.19 MB" in copy_table(profile, 120)[1]


def test_each_wait_is_told_with_its_operator() -> None:
    profile = recorded("syncs")
    operators = [wait.operators[0] if wait.operators else "" for wait in profile.waits]
    assert operators == [
        "aten::_local_scalar_dense", "", "", "", "aten::nonzero", "aten::copy_",
        "aten::_local_scalar_dense",
    ]  # fmt: skip
    assert len(wait_table(profile, 100)) == 1 + 7


def test_polling_an_event_is_no_wait(tmp_path: Path) -> None:
    def only_polling(events: list[Event]) -> list[Event]:
        return [
            e
            for e in events
            if e.get("cat") != "cuda_runtime"
            or not re.search("Synchronize|Memcpy", e["name"])
            or "External id" not in e["args"]
        ]

    calls = [w.call for w in edited(tmp_path, "syncs", only_polling).waits]
    assert "cudaEventQuery" not in calls
    assert "cudaEventSynchronize" in calls


def test_the_profilers_own_last_synchronisation_is_no_wait_of_a_foreign_trace() -> None:
    calls = [wait.call for wait in recorded("memory").waits]
    assert calls == ["cudaDeviceSynchronize"]  # the recorded program's own, just before


def test_a_trace_without_our_annotations_is_one_region(tmp_path: Path) -> None:
    def strip(events: list[Event]) -> list[Event]:
        return [e for e in events if "kernelprof" not in e["name"] and "spin_" not in e["name"]]

    whole = edited(tmp_path, "mlp", strip)
    rounds = recorded("mlp").rounds
    assert whole.rounds == 1
    assert whole.kernel_count == 5 * rounds


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_a_saved_profile_reads_back_the_same(tmp_path: Path, suffix: str) -> None:
    before = recorded("backward")
    path = tmp_path / f"saved.{suffix}"
    before.save_trace(path)
    after = Profile.from_trace(path)
    assert after.kernels == before.kernels
    assert after.metrics == before.metrics
    assert after.place == before.place == "NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0"


def test_what_was_not_measured_is_none_and_says_why() -> None:
    profile = recorded("mlp")
    assert profile.latency is None
    assert "kernel_profile(fn)" in profile.metrics["latency"].why
    with pytest.raises(AttributeError, match="no attribute or metric 'kernal_count'"):
        _ = profile.kernal_count


def test_memory_was_measured_beside_the_trace() -> None:
    # Three hidden layers of 8192 x 3072 bf16 numbers live at once.
    assert recorded("mlp").peak_memory == 3 * 8192 * 3072 * 2
    assert recorded("mlp").allocations == 0


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::reduce_kernel<512, 1>(int)", "reduce_kernel"),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", None),
        ("void (anonymous namespace)::softmax<float>(float*)", "softmax"),
        ("aten::mm", None),
        ("triton_poi_fused_gelu_mul_0", None),
    ],
)
def test_short_names_drop_what_is_common(name: str, short: str | None) -> None:
    assert shorten(name) == (short or name)


def test_the_table_names_kernels_operators_and_times() -> None:
    lines = recorded("mlp").table(100).splitlines()
    assert len(lines) == 6
    assert max(map(len, lines)) <= 100
    assert "aten::mm < aten::linear" in lines[1]


def test_kernels_are_those_of_the_round_that_had_most(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), launched("one", 10, 1),
        round_of(1, 200, 99), launched("two", 210, 2), launched("three", 240, 3),
    )  # fmt: skip
    assert [kernel.name for kernel in profile.kernels] == ["two", "three"]


def test_kernels_of_two_streams_come_in_the_order_of_their_launches(tmp_path: Path) -> None:
    late, early = launched("launched_first", 10, 1), launched("launched_second", 20, 2)
    late[1]["ts"] = 90.0
    profile = profile_of(tmp_path, round_of(0, 0, 99), late, early)
    assert [kernel.name for kernel in profile.kernels] == ["launched_first", "launched_second"]


def test_our_own_annotations_are_in_no_chain() -> None:
    chains = {name for kernel in recorded("mlp").kernels for name in kernel.operators}
    assert not any(name.startswith("kernelprof::") for name in chains)


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_profile_saves_and_reads_back_the_same(tmp_path: Path, name: str) -> None:
    before = recorded(name)
    before.save_trace(tmp_path / "saved.json")
    after = Profile.from_trace(tmp_path / "saved.json")
    assert after.kernels == before.kernels
    assert after.metrics == before.metrics
    assert after.integrity == before.integrity
    assert after.recording == before.recording


def test_what_is_noted_later_is_saved_too(tmp_path: Path) -> None:
    noted = recorded("mlp").with_recording({"recompiles": 3})
    noted.save_trace(tmp_path / "saved.json.gz")
    assert Profile.from_trace(tmp_path / "saved.json.gz").recompiles == 3


def test_the_same_profile_saves_to_the_same_bytes(tmp_path: Path) -> None:
    for path in (tmp_path / "a.json.gz", tmp_path / "b.json.gz"):
        recorded("linear").save_trace(path)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_lines_belong_to_kernels_copies_and_waits_by_their_number() -> None:
    lines = {("kernel", 1): "a.py:1", ("copy", 0): "b.py:2", ("wait", 6): "c.py:3"}
    profile = recorded("syncs").with_lines(lines)  # type: ignore[arg-type]
    assert [kernel.source for kernel in profile.kernels] == ["", "a.py:1", "", "", "", ""]
    assert [copy.source for copy in profile.copies] == ["b.py:2", "", "", ""]
    assert [wait.source for wait in profile.waits][-1] == "c.py:3"


def test_a_line_that_is_not_known_says_so_in_the_table() -> None:
    table = recorded("linear").with_lines({("kernel", 0): "some/where/mlp.py:31"}).table(120)
    assert "mlp.py:31" in table
    assert "line unknown" in recorded("linear").table(120)


def test_a_foreign_trace_knows_its_device_by_the_file() -> None:
    foreign = recorded("memory")
    assert (foreign.device_kind, foreign.place) == ("cuda", "NVIDIA H200")
    assert foreign.recompiles is None


def test_a_foreign_trace_without_a_device_is_incomplete_and_not_zero_kernels(
    tmp_path: Path,
) -> None:
    profile = profile_of(tmp_path, operator("aten::mm", 0, 10))
    assert profile.device_kind == "cpu"
    assert "no device and no table of compute operators" in profile.integrity.problems[0]


def test_a_cpu_trace_counts_the_outermost_computing_operators(tmp_path: Path) -> None:
    beside = {
        "kernelprof": {
            "device_kind": "cpu",
            "compute_operators": ["aten::mm", "aten::native_layer_norm", "aten::copy_"],
        }
    }
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), operator("aten::linear", 1, 20), operator("aten::mm", 2, 10),
        operator("aten::native_layer_norm", 30, 20), operator("aten::copy_", 35, 5),
        operator("aten::copy_", 150, 5), **beside,
    )  # fmt: skip
    assert [kernel.operators for kernel in profile.kernels] == [
        ("aten::mm", "aten::linear"),
        ("aten::native_layer_norm",),
    ]
    assert profile.cuda_time is None
    assert profile.metrics["syncs"].why == "not applicable on the CPU"


def test_a_long_table_keeps_its_ends(tmp_path: Path) -> None:
    events = [launched(f"k{i}", 10 * i, i) for i in range(100)]
    lines = kernel_table(profile_of(tmp_path, *events), 100, most=20)
    assert len(lines) == 1 + 20 + 1
    assert [line.split()[1] for line in lines[1:16]] == [f"k{i}" for i in range(15)]
    assert "... 80 more ..." in lines[16]
    assert [line.split()[1] for line in lines[17:]] == [f"k{i}" for i in range(95, 100)]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("name", ["backward", "syncs", "compiled"])
def test_tables_fit_the_width(name: str, width: int) -> None:
    profile = recorded(name)
    for lines in (f(profile, width) for f in (kernel_table, copy_table, wait_table)):
        assert max(map(len, lines)) <= width


def test_recorded_python_frames_are_read_with_their_thread() -> None:
    frames = recorded("stack").trace.frames
    assert any("record.py(" in name for name in frames.name)
    assert len(set(frames.thread.tolist())) > 1


def test_a_profile_says_what_it_is() -> None:
    assert repr(recorded("mlp")).startswith("<Profile : 5 kernels, complete, NVIDIA H200, torch")


def test_private_names_are_no_metrics() -> None:
    with pytest.raises(AttributeError, match="_nothing"):
        _ = recorded("empty")._nothing


@pytest.mark.parametrize(
    ("name", "stranger"), [("memory", "[memory]"), ("mlp", "kernelprof::round#0")]
)
def test_memory_events_and_annotations_on_the_device_are_no_kernels(
    name: str, stranger: str
) -> None:
    assert any(event["name"] == stranger for event in document(name)["traceEvents"])
    assert recorded(name).kernel_count == 5
