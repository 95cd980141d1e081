"""What process groups say of their kernels is read from every layout of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from built import Event, call, collective, kernel, span

from pytest_kernelprof.trace.columns import Announced
from pytest_kernelprof.trace.correlation import of_each_process
from pytest_kernelprof.trace.reader import read_trace

NAME = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SAID = Announced("broadcast", "3", 4, (0, 2, 4, 6), 11, 4096)
EVENTS = [
    call("cudaLaunchKernel", 1, 1),
    kernel("gemm", 5, 1),
    call("cudaLaunchKernel", 2, 2),
    collective(
        NAME, 20, 2,
        **{
            "Collective name": "broadcast", "In msg nelems": 1024, "Out msg nelems": 1024,
            "dtype": "Float", "Group size": 4, "Process Group Name": "3",
            "Process Group Ranks": "[0, 2, 4, 6]", "Seq": 11,
        },
    ),
    call("cudaLaunchKernel", 30, 3),
    kernel(NAME, 40, 3),
]  # fmt: skip
ODD = {"ph": "X", "cat": "other", "name": 7, "ts": "soon", "args": 3}


def as_torch_writes(events: list[Event]) -> str:
    body = ",\n".join(f"  {{\n    {json.dumps(event)[1:-1]}\n  }}" for event in events)
    return f'{{\n  "schemaVersion": 1,\n  "traceEvents": [\n{body}\n  ],\n  "traceName": "a"\n}}\n'


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"traceEvents": EVENTS}),
        json.dumps(EVENTS),
        as_torch_writes(EVENTS),
        json.dumps({"traceEvents": [*EVENTS, ODD]}),
        as_torch_writes([ODD, *EVENTS]),
    ],
    ids=["compact", "a list", "torch's", "with an odd event", "torch's with an odd event"],
)
def test_it_is_of_its_kernel_whatever_the_layout(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    acts = read_trace(path).activities
    assert acts.announced is not None
    assert dict(zip(acts.start.tolist(), acts.announced.tolist(), strict=True)) == {
        5_000: None,
        20_000: SAID,
        40_000: Announced(),
    }


def test_a_trace_without_communication_has_no_column(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": EVENTS[:2]}))
    assert read_trace(path).activities.announced is None


def test_beyond_one_chunk_too(tmp_path: Path) -> None:
    many = [kernel("add", i * 100, i) for i in range(10, 2_500)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [*many, *EVENTS]}))
    announced = read_trace(path).activities.announced
    assert announced is not None
    assert [one for one in announced.tolist() if one] == [SAID, Announced()]
    assert len(announced) == len(many) + 3


@pytest.mark.parametrize("args", [3, None, [], "text", {"Seq": {}}, {"Src Rank": "a"}])
def test_arguments_that_make_no_sense_say_nothing(tmp_path: Path, args: Any) -> None:
    event = {**span("kernel", NAME, 5, 3, 7), "args": args}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [event]}))
    announced = read_trace(path).activities.announced
    assert announced is not None
    assert announced.tolist() == [Announced()]


def test_a_send_names_the_other_one(tmp_path: Path) -> None:
    said = {"Collective name": "send", "Dst Rank": 3, "Process Group Ranks": "[0, 1, 2, 3]"}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [collective(NAME, 5, 1, **said)]}))
    announced = read_trace(path).activities.announced
    assert announced is not None
    (found,) = announced.tolist()
    assert found is not None
    assert (found.operation, found.ranks) == ("send", (3,))


def test_processes_of_a_file_keep_theirs(tmp_path: Path) -> None:
    events = [
        {**event, "pid": pid if event["cat"] == "cuda_runtime" else device}
        for pid, device in ((100, 0), (200, 1))
        for event in (
            call("cudaLaunchKernel", 1, pid),
            {
                **collective(NAME, 20, pid, Seq=pid),
                "args": {"correlation": pid, "device": device, "stream": 7, "Seq": pid},
            },
        )
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    numbers = [
        [one.number for one in trace.activities.announced.tolist() if one]
        for trace in of_each_process(read_trace(path))
        if trace.activities.announced is not None
    ]
    assert numbers == [[100], [200]]
