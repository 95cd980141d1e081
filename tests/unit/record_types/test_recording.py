"""What capture notes beside a trace: through bytes, through trace files, and what is none of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from built import launched, operator, round_of, written
from corpus import FOLDER, NAMES, document

from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.recording import (
    NOTHING_NOTED,
    ChildProcesses,
    Conditions,
    GraphNodes,
    HostTimings,
    KernelSpills,
    MemoryUse,
    Neighbour,
    Recording,
    Roofline,
    Work,
)
from pytest_kernelprof.trace.reader import read_trace
from pytest_kernelprof.trace.trace_text import write_trace

TIMINGS = HostTimings((10.5, 11.0), (5.0, 6.25), (1.0, 1.0), 9.0, 0.5, 1.25)
EVERYTHING = Recording(
    schema=codec.VERSION,
    device_kind="cuda",
    device="NVIDIA H200",
    capability="sm_90",
    versions={"torch": "2.11.0", "python": "3.13"},
    power_limit_w=700,
    nonce="5eed",
    rounds=2,
    one_shot=True,
    round_us=(12.5, 12.0),
    left_at_work=("thread 'a'",),
    forks=1,
    children=ChildProcesses(checked=False, at_work=("process 17 uses the GPU",), ended_s=0.5),
    collection_stopped=True,
    autotuned=("an autotuner",),
    replays=(GraphNodes(2, 1), None, GraphNodes(conditional=True)),
    no_times={"latency": "launches block"},
    retakes=1,
    settled=False,
    recompiles=3,
    refused=1,
    may_refuse=True,
    jit_compiled=("scale[n = i32, was 1]",),
    autotunes=("scale by Triton's autotuner",),
    reused=1,
    graph_breaks=("a break at x.py:3",),
    graph_breaks_why="why",
    compute_operators=("aten::mm",),
    decomposing_operators=("mine::composite",),
    bare_operators=("mine::make",),
    idle_operators=("aten::t",),
    unseen=("a package",),
    host_timings=TIMINGS,
    second_look=TIMINGS,
    memory=MemoryUse((7, 9), (0, 1)),
    memory_why="why",
    more_rounds={"cuda_time": (1.5, 2.0), "kernels": (3.0, 3.0)},
    more_allowed={"kernels": (1.0, 0.0)},
    roofline=Roofline("memory", "near it"),
    work={"throughput": Work(10**12, ("my::gemm",), 9.9e14), "bandwidth": Work(why="not known")},
    in_place=("x", "y"),
    conditions=Conditions(blocks=2, contenders=(Neighbour(17, 60),)),
    spills=(KernelSpills("add", 32, 128, 0, 8), KernelSpills("mm", 16, 64, None, "why")),
)
SOME = Recording(schema=codec.VERSION, device_kind="cpu", compute_operators=())


def test_the_case_of_everything_leaves_no_field_as_usual() -> None:
    usual = [
        field
        for field in Recording.__struct_fields__
        if getattr(EVERYTHING, field) == getattr(NOTHING_NOTED, field)
    ]
    assert usual == []


@pytest.mark.parametrize("recording", [EVERYTHING, SOME], ids=["everything", "some"])
def test_a_recording_survives_its_bytes(recording: Recording) -> None:
    data = codec.encode(recording)
    assert codec.decode(data, Recording) == recording
    assert codec.encode(codec.decode(data, Recording)) == data


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
@pytest.mark.parametrize("recording", [EVERYTHING, SOME], ids=["everything", "some"])
def test_a_recording_survives_a_trace_file(
    tmp_path: Path, recording: Recording, suffix: str
) -> None:
    source = written(tmp_path, round_of(0, 0, 99), launched("k", 10, 1))
    path = tmp_path / f"saved.{suffix}"
    write_trace(source, recording, path)
    assert read_trace(path).recording == recording


def test_an_empty_table_of_operators_is_not_none() -> None:
    assert codec.decode(codec.encode(SOME), Recording).compute_operators == ()


@pytest.mark.parametrize("name", NAMES)
def test_the_notes_of_recorded_traces_are_read(name: str) -> None:
    noted, found = document(name).get("kernelprof"), read_trace(FOLDER / f"{name}.json.gz")
    if noted is None:
        assert found.recording == NOTHING_NOTED
        return
    recording = found.recording
    assert recording.schema == codec.VERSION
    assert (recording.device_kind, recording.device) == ("cuda", "NVIDIA H200")
    assert recording.versions == noted["versions"]
    assert (recording.recompiles, recording.one_shot) == (0, noted.get("one_shot", False))
    memory = recording.memory
    assert ("memory" in noted) == (memory is not None)
    if memory is not None:
        assert list(memory.peak_bytes) == noted["memory"]["peak_bytes"]
        assert list(memory.device_allocations) == noted["memory"]["device_allocations"]


def test_notes_of_which_nothing_is_known_are_passed_over(tmp_path: Path) -> None:
    noted = {"schema": 1, "device": "GPU", "of_later": [1, 2]}
    path = written(tmp_path, operator("a", 0, 1), kernelprof=noted)
    assert read_trace(path).recording == Recording(schema=1, device="GPU")


def test_a_trace_from_elsewhere_has_no_notes(tmp_path: Path) -> None:
    a = operator("a", 0, 1)
    assert read_trace(written(tmp_path, a)).recording is NOTHING_NOTED
    assert read_trace(written(tmp_path, a, kernelprof=None)).recording is NOTHING_NOTED


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ({}, "version number"),
        ({"schema": "one"}, "version number"),
        ({"schema": 1, "rounds": "many"}, r"\$\.rounds"),
        ({"schema": 1, "device_kind": "tpu"}, "device_kind"),
        ({"schema": 1, "memory": {"peak_bytes": [1]}}, "device_allocations"),
        ({"schema": 1, "host_timings": [1]}, "host_timings"),
    ],
)
def test_notes_that_are_none_of_ours_are_an_error_that_names_the_file(
    tmp_path: Path, notes: dict[str, object], reason: str
) -> None:
    path = written(tmp_path, round_of(0, 0, 99), kernelprof=notes)
    with pytest.raises(TraceError, match="not from pytest-kernelprof") as error:
        read_trace(path)
    assert str(error.value).startswith(f"{path}: the notes under 'kernelprof'")
    with pytest.raises(TraceError, match=reason):
        read_trace(path)


@pytest.mark.parametrize("notes", [3, "text", [1]])
def test_notes_that_are_no_object_are_an_error_that_names_file_and_place(
    tmp_path: Path, notes: object
) -> None:
    path = written(tmp_path, round_of(0, 0, 99), kernelprof=notes)
    with pytest.raises(TraceError, match=r"\$\.kernelprof") as error:
        read_trace(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_notes_of_a_newer_version_say_to_upgrade(tmp_path: Path, packed: bool) -> None:
    changed = document("mlp")
    changed["kernelprof"]["schema"] = codec.VERSION + 1
    data = json.dumps(changed).encode()
    path = tmp_path / "newer.json"
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(TraceError, match=r"newer pytest-kernelprof .* upgrade") as error:
        read_trace(path)
    assert str(path) in str(error.value)


def test_the_rounds_of_two_series_of_timings_become_one() -> None:
    more = HostTimings((12.0,), (7.0,), (2.0,), 1.0, 9.0, 9.0)
    assert TIMINGS.followed_by(more) == HostTimings(
        (10.5, 11.0, 12.0), (5.0, 6.25, 7.0), (1.0, 1.0, 2.0), 9.0, 0.5, 1.25
    )
