"""Reading Chrome traces: exact times, every class of event, and errors that say where."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from corpus import FOLDER, NAMES, document, reading

from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.trace.columns import KERNEL, MEMCPY, MEMSET
from pytest_kernelprof.trace.reader import read_trace

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
    assert len(trace.overheads) == count("overhead") + count("Trace")
    assert len(trace.frames) == count("python_function")
    for kind, category in ((KERNEL, "kernel"), (MEMCPY, "gpu_memcpy"), (MEMSET, "gpu_memset")):
        assert (trace.activities.kind == kind).sum() == count(category)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("4354210648531.347", 4354210648531347),
        ("4398046511104.001", 4398046511104001),  # beyond what a float tells apart
        ("7889231999999.999", 7889231999999999),
        ("-8796093022207.999", -8796093022207999),
        ("8796093022208.001", 8796093022208001),  # where floats lie further apart
        ("1650000000000000.123", 1650000000000000123),
        ("12", 12_000),
        ("1.23456e3", 1_234_560),
        ("-1.500", -1500),
        ("-0.500", -500),
        ("0.001", 1),
        ("5.0004", 5000),  # less than a nanosecond is rounded
        ("5.25", 5250),
        ("1e-7", 0),
    ],
)
def test_times_are_exact_to_the_nanosecond(tmp_path: Path, text: str, ns: int) -> None:
    trace = read_trace(written(tmp_path / "t.json", EVENT % text))
    assert trace.operators.start.tolist() == [ns]


def test_times_stay_exact_where_a_file_goes_beyond_what_floats_hold(tmp_path: Path) -> None:
    times = ["4354210648531.347", "1650000000000000.123", "4354210648531.349"]
    trace = read_trace(written(tmp_path / "t.json", ",".join(EVENT % one for one in times)))
    assert trace.operators.start.tolist() == sorted(int(one.replace(".", "")) for one in times)


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


def test_a_trace_without_events_that_we_read_has_empty_tables(tmp_path: Path) -> None:
    other = '{"ph":"M","name":"process_name","ts":0,"args":{"name":"python"}}'
    assert len(read_trace(written(tmp_path / "t.json", other)).operators) == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b" \n ", "the file is empty"),
        (b"hello", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[]", "traceEvents` is empty"),
        (b"3", "Expected `object`"),
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


@pytest.mark.parametrize(
    "field",
    [
        '"ts":1e999999',
        '"ts":1e99999',
        '"ts":123456789012345678901234567890.000',
        '"ts":1.000,"dur":1e400',
        '"ts":1.000,"dur":1e18',
        '"ts":1.000,"args":{"correlation":1180591620717411303424}',
        '"ts":1.000,"args":{"grid":[1180591620717411303424,1,1]}',
        '"ts":1.000,"args":{"shared memory":1e300}',
        '"ts":9000000000000000.000,"dur":4e15',
    ],
)
def test_a_number_too_large_is_an_error_and_never_wraps(tmp_path: Path, field: str) -> None:
    event = '{"ph":"X","cat":"kernel","name":"k","tid":1,' + field + "}"
    with pytest.raises(TraceError):
        read_trace(written(tmp_path / "t.json", event))


@pytest.mark.parametrize(
    "field",
    ['"ts":"soon"', '"ts":1e400', '"ts":1.000,"args":{"correlation":1180591620717411303424}'],
)
def test_a_number_that_does_not_fit_is_named_by_its_place(tmp_path: Path, field: str) -> None:
    bad = '{"ph":"X","cat":"kernel","name":"k","tid":1,' + field + "}"
    with pytest.raises(TraceError, match=r"traceEvents\[2\]"):
        read_trace(written(tmp_path / "t.json", ",".join([EVENT % "1.000"] * 2 + [bad])))


@pytest.mark.parametrize("keep", [30, 100, -1])
def test_a_file_cut_off_says_where_it_ends(tmp_path: Path, keep: int) -> None:
    whole = '{"traceEvents":[' + ",".join([EVENT % "1.000"] * 3) + "]}"
    path = tmp_path / "cut.json"
    path.write_text(whole[:keep])
    with pytest.raises(TraceError, match=rf"byte {len(whole[:keep])}\b"):
        read_trace(path)


def test_a_byte_that_is_no_text_is_named_by_its_place_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    content = ('{"traceEvents":[' + EVENT % "1.000" + "]}").encode().replace(b'"a"', b'"a\xff"')
    path.write_bytes(content)
    with pytest.raises(TraceError, match=rf"byte {content.index(0xFF)}\b"):
        read_trace(path)


def test_json_nested_without_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text('{"x":' + "[" * 200_000 + "]" * 200_000 + ',"traceEvents":[]}')
    with pytest.raises(TraceError):
        read_trace(path)


def test_a_file_that_begins_with_much_space_is_not_empty(tmp_path: Path) -> None:
    path = tmp_path / "padded.json"
    path.write_text(" " * 5000 + '{"traceEvents":[' + EVENT % "1.000" + "]}")
    assert len(read_trace(path).operators) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(b'{"traceEvents":['), "cut off"),
        (gzip.compress(b""), "the file is empty"),
        (gzip.compress(b'{"traceEvents":[]}')[:-8] + bytes(8), "damaged gzip"),
        (gzip.compress(b'{"traceEvents":[]}') + b"junk", "damaged gzip"),
    ],
    ids=["JSON cut off", "empty", "wrong checksum", "junk behind"],
)
def test_a_faulty_gzip_file_is_an_error_with_its_reason(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=reason):
        read_trace(path)


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path)


@pytest.mark.parametrize(
    ("name", "cut"), [("mlp", 0.3), ("mlp", 0.9), ("syncs", 0.5), ("backward", 0.99)]
)
def test_a_recorded_trace_cut_off_anywhere_is_an_error(
    tmp_path: Path, name: str, cut: float
) -> None:
    text = gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(text[: int(len(text) * cut)])
    with pytest.raises(TraceError, match="cut off"):
        read_trace(path)


def laid_out(path: Path, events: list[dict[str, object]]) -> Path:
    """Written line by line as torch does it, which is read without parsing the file first."""
    lines = (json.dumps(event, indent=4).replace("\n}", "\n  }") for event in events)
    text = ",\n".join("  " + line for line in lines)
    path.write_text('{\n  "traceEvents": [\n' + text + '\n  ],\n  "schemaVersion": 1\n}')
    return path


def test_torchs_own_layout_reads_as_any_other(tmp_path: Path) -> None:
    one = read_trace(laid_out(tmp_path / "t.json", document("backward")["traceEvents"]))
    other = read_trace(FOLDER / "backward.json.gz")
    for table in ("operators", "calls", "activities", "waits"):
        assert getattr(one, table).start.tolist() == getattr(other, table).start.tolist()
        assert getattr(one, table).name.tolist() == getattr(other, table).name.tolist()


def _in_old_layout(document: dict[str, object]) -> str:
    """As Kineto wrote it in 2021: an empty line before the events, and none after them."""
    text = json.dumps(document, indent=1).replace('"traceEvents": [', '"traceEvents": [\n')
    return text.replace("\n ]\n}", "\n]}")


LAYOUTS = {
    "indented": lambda document: json.dumps(document, indent=2),
    "in one line": json.dumps,
    "in one line, close": lambda document: json.dumps(document, separators=(",", ":")),
    "old": _in_old_layout,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("inputs", ["before", "after", "nowhere"])
def test_the_layouts_of_other_programs_are_read_in_chunks_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, inputs: str
) -> None:
    ends: dict[str, object] = {"deviceProperties": [{"id": 0}, {"id": 1}], "traceName": "a"}
    args = {} if inputs == "nowhere" else {"Input Dims": [[2], []]}
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"}}, {{ {i}", "ts": i, "dur": 1, "args": args}
        for i in range(4_000)
    ]
    flag = {"record_shapes": 1}
    head, tail = {"before": (flag, {}), "after": ({}, flag), "nowhere": ({}, {})}[inputs]
    document = {"schemaVersion": 1, **head, "traceEvents": events}
    if layout != "old":
        document |= {**ends, **tail}
    elif inputs == "after":
        pytest.skip("it has nothing after its events")
    (tmp_path / "t.json").write_text(LAYOUTS[layout](document))
    monkeypatch.delattr("pytest_kernelprof.trace.reader.whole")
    trace = read_trace(tmp_path / "t.json")
    assert trace.operators.name.tolist() == [event["name"] for event in events]
    assert (trace.operators.has_inputs is not None) == (inputs != "nowhere")
    assert len(trace.devices) == (0 if layout == "old" else 2)


def test_of_a_file_in_one_line_nothing_is_taken_for_a_name(tmp_path: Path) -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}]
    devices = [{"id": 0, "name": "H200"}]
    document = {"traceName": "a", "deviceProperties": devices, "traceEvents": events, "by": "b"}
    (tmp_path / "t.json").write_text(json.dumps(document))
    assert read_trace(tmp_path / "t.json").devices == tuple(devices)


def test_a_file_of_torchs_layout_is_cut_only_between_events(tmp_path: Path) -> None:
    tricky = "},\n  {\n  ],"  # in a name it is escaped, and no end of an event
    events: list[dict[str, object]] = [
        {"ph": "X", "cat": "cpu_op", "name": f"{tricky}{i}", "ts": i, "dur": 1, "args": {}}
        for i in range(20_000)
    ]
    operators = read_trace(laid_out(tmp_path / "t.json", events)).operators
    assert operators.name.tolist() == [event["name"] for event in events]


def test_a_wrong_value_in_torchs_layout_is_named_by_its_place(tmp_path: Path) -> None:
    events: list[dict[str, object]] = [
        {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1} for _ in range(9_000)
    ]
    events[8_123]["dur"] = "long"
    with pytest.raises(TraceError, match=r"\$\.traceEvents\[8123\]\.dur"):
        read_trace(laid_out(tmp_path / "t.json", events))


def test_tables_are_sorted_by_start_and_end_after_it(tmp_path: Path) -> None:
    events = ",".join(
        f'{{"ph":"X","cat":"kernel","name":"k{ts}","ts":{ts}.250,"dur":0.5}}' for ts in (9, 3, 6)
    )
    activities = read_trace(written(tmp_path / "t.json", events)).activities
    assert activities.name.tolist() == ["k3", "k6", "k9"]
    assert activities.start.tolist() == [3250, 6250, 9250]
    assert activities.end.tolist() == [3750, 6750, 9750]


def test_runtime_calls_of_other_back_ends_are_calls(tmp_path: Path) -> None:
    events = '{"ph":"X","cat":"xpu_runtime","name":"urEnqueueKernelLaunch","ts":1.000,"dur":1}'
    assert read_trace(written(tmp_path / "t.json", events)).calls.name.tolist() == [
        "urEnqueueKernelLaunch"
    ]


def test_absent_ids_are_never_a_valid_id(tmp_path: Path) -> None:
    event = '{"ph":"X","cat":"kernel","name":"k","ts":1.000,"dur":1}'
    activities = read_trace(written(tmp_path / "t.json", event)).activities
    assert activities.correlation.tolist() == activities.external_id.tolist() == [-1]


def test_thread_ids_of_any_kind_are_kept(tmp_path: Path) -> None:
    events = ",".join(
        f'{{"ph":"X","cat":"cpu_op","name":"a","tid":{tid},"ts":{i}.000,"dur":1}}'
        for i, tid in enumerate(("7", '"main"', "7"))
    )
    trace = read_trace(written(tmp_path / "t.json", events))
    assert [trace.threads[code] for code in trace.operators.thread] == [7, "main", 7]


def test_forward_and_backward_are_paired_by_their_flow(tmp_path: Path) -> None:
    flow = '{"ph":"%s","cat":"fwdbwd","name":"fwdbwd","id":%d,"tid":%d,"ts":%s}'
    events = ",".join(
        [flow % ("f", 5, 2, "9.000"), flow % ("s", 5, 1, "1.500"), flow % ("f", 6, 2, "8.000")]
    )
    flows = read_trace(written(tmp_path / "t.json", events)).flows
    assert (flows.forward_at.tolist(), flows.backward_at.tolist()) == ([1500], [9000])


def test_recorded_python_frames_are_read_with_their_thread() -> None:
    frames = reading("stack").trace.frames
    assert any("record.py(" in name for name in frames.name)
    assert len(set(frames.thread.tolist())) > 1
