"""Reading Chrome traces: exact times, every class of event, and errors that say where."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from corpus import FOLDER, NAMES, document

from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.trace import read_trace
from pytest_kernelprof.trace.model import KERNEL, MEMCPY, MEMSET

EVENT = '{"ph":"X","cat":"cpu_op","name":"a","tid":1,"ts":%s,"dur":1}'


def written(path: Path, events: str) -> Path:
    path.write_text('{"traceEvents":[' + events + "]}")
    return path


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_event_of_a_known_class_is_in_its_table(name: str) -> None:
    trace = read_trace(FOLDER / f"{name}.json.gz")
    events = [event for event in document(name)["traceEvents"] if event["ph"] == "X"]

    def count(*categories: str) -> int:
        return sum(event["cat"] in categories for event in events)

    assert len(trace.operators) == count("cpu_op", "user_annotation")
    assert len(trace.calls) == count("cuda_runtime", "cuda_driver")
    assert len(trace.waits) == count("cuda_sync")
    assert len(trace.overheads) == count("overhead")
    assert len(trace.frames) == count("python_function")
    for kind, category in ((KERNEL, "kernel"), (MEMCPY, "gpu_memcpy"), (MEMSET, "gpu_memset")):
        assert (trace.activities.kind == kind).sum() == count(category)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("4354210648531.347", 4354210648531347),
        ("4398046511104.001", 4398046511104001),  # beyond what a float tells apart
        ("7889231999999.999", 7889231999999999),
        ("12", 12_000),
        ("1.23456e3", 1_234_560),
        ("-1.500", -1500),
    ],
)
def test_times_are_exact_to_the_nanosecond(tmp_path: Path, text: str, ns: int) -> None:
    trace = read_trace(written(tmp_path / "t.json", EVENT % text))
    assert trace.operators.start.tolist() == [ns]


def test_plain_and_gzip_files_read_the_same(tmp_path: Path) -> None:
    packed = FOLDER / "mlp.json.gz"
    plain = tmp_path / "mlp.json"
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    one, other = read_trace(packed), read_trace(plain)
    assert one.activities.start.tolist() == other.activities.start.tolist()
    assert one.activities.name.tolist() == other.activities.name.tolist()


def test_many_chunks_read_as_one(tmp_path: Path) -> None:
    events = ",".join(EVENT % f"{i}.000" for i in reversed(range(40_000)))
    starts = read_trace(written(tmp_path / "t.json", events)).operators.start.tolist()
    assert starts == [i * 1000 for i in range(40_000)]


def test_a_trace_without_events_has_empty_tables(tmp_path: Path) -> None:
    assert len(read_trace(written(tmp_path / "t.json", "")).operators) == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b" \n ", "the file is empty"),
        (b"hello", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[]", "Expected `object`"),
        (b"{}", "traceEvents"),
        (b'{"traceEvents": 3}', r"\$.traceEvents"),
        (b'{"traceEvents": [{"ph": "X", "ts": 1.0', "cut off"),
        (('{"traceEvents":[' + EVENT % "1e400" + "]}").encode(), "does not fit"),
        (('{"traceEvents":[' + EVENT % "9" * 25 + "]}").encode(), "not JSON|does not fit|cut off"),
        (('{"traceEvents":[' + EVENT % '"soon"' + "]}").encode(), "not a number"),
        (b"\x1f\x8b\x08broken", "gzip"),
    ],
)
def test_what_is_no_trace_is_an_error_with_file_and_reason(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=reason) as error:
        read_trace(path)
    assert str(path) in str(error.value)


def test_a_wrong_value_is_named_by_its_place_in_the_file(tmp_path: Path) -> None:
    events = [EVENT % f"{i}.000" for i in range(20_000)]
    events[18_000] = '{"ph":"X","cat":"kernel","name":"k","ts":1.000,"args":{"grid":"big"}}'
    with pytest.raises(TraceError, match=r"\$\.traceEvents\[18000\]\.args\.grid"):
        read_trace(written(tmp_path / "t.json", ",".join(events)))


def test_a_missing_file_and_a_gzip_file_cut_off_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / "nowhere.json")
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes((FOLDER / "mlp.json.gz").read_bytes()[:1000])
    with pytest.raises(TraceError, match="damaged gzip"):
        read_trace(cut)


def test_recorded_traces_name_no_machine() -> None:
    for name in NAMES:
        text = json.dumps(document(name))
        assert "host_name" not in text
        assert not any(f'"/{root}' in text for root in ("root", "home", "opt", "tmp", "usr"))
