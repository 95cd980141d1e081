"""The user's line of each operator: from annotations, along autograd's flows, from frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from built import Event, annotation, operator, reading_of_events, span
from corpus import reading

from pytest_kernelprof.analysis.session_profile import session_facts
from pytest_kernelprof.trace.columns import NO_ID, Names
from pytest_kernelprof.trace.correlation import Reading, annotated_lines, frame_lines


def line(where: str, ts: float, dur: float, tid: int = 1) -> Event:
    return annotation(f"kernelprof::line#{where}", ts, dur, tid)


def flow(phase: str, ts: float, tid: int) -> Event:
    return {"ph": phase, "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "ts": ts, "tid": tid}


def frame(name: str, ts: float, dur: float, tid: int = 1) -> Event:
    return span("python_function", name, ts, dur, tid)


def by_name(found: Reading, lines: dict[int, str]) -> dict[str, str]:
    names = found.trace.operators.name
    return {names[i]: where for i, where in lines.items() if "::" not in names[i]}


def annotated(folder: Path, *events: Event) -> dict[str, str]:
    found = reading_of_events(folder, *events)
    return by_name(found, annotated_lines(found))


def framed(folder: Path, *events: Event) -> dict[str, str]:
    found = reading_of_events(folder, *events)
    rows = range(len(found.trace.operators))
    return by_name(found, frame_lines(found.trace, rows))


def test_an_operator_takes_the_innermost_annotation_around_it(tmp_path: Path) -> None:
    assert annotated(
        tmp_path,
        line("a.py:1", 0, 100),
        operator("outer", 5, 80),
        line("b.py:2", 10, 20),
        operator("inner", 12, 10),
        operator("later", 40, 10),
    ) == {"outer": "a.py:1", "inner": "b.py:2", "later": "a.py:1"}


def test_an_operator_outside_all_annotations_has_no_line(tmp_path: Path) -> None:
    events = [line("a.py:1", 0, 10), operator("k", 20, 5), operator("other", 2, 5, tid=2)]
    assert annotated(tmp_path, *events) == {}


def test_a_backward_operator_takes_the_line_of_its_forward_one(tmp_path: Path) -> None:
    assert annotated(
        tmp_path,
        line("a.py:1", 0, 20),
        operator("mm", 5, 10),
        flow("s", 5, 1),
        line("a.py:9", 100, 50),
        operator("backward", 110, 20),
        operator("mm_below", 115, 5),
        flow("f", 110, 1),
        operator("unpaired", 135, 5),
    ) == {"mm": "a.py:1", "backward": "a.py:1", "mm_below": "a.py:1", "unpaired": "a.py:9"}


def test_a_backward_operator_whose_forward_one_has_no_line_keeps_its_own(tmp_path: Path) -> None:
    assert annotated(
        tmp_path,
        operator("mm", 5, 10),
        flow("s", 5, 1),
        line("a.py:9", 100, 50),
        operator("backward", 110, 20),
        flow("f", 110, 1),
    ) == {"backward": "a.py:9"}


def test_frames_name_the_innermost_line_of_the_user(tmp_path: Path) -> None:
    assert framed(
        tmp_path,
        frame("test_x.py(3): test", 0, 100),
        frame("model.py(7): forward", 5, 80),
        frame("torch/nn/functional.py(100): linear", 6, 70),
        frame("lib/site-packages/else.py(5): f", 7, 60),
        frame("<built-in function linear>", 8, 50),
        operator("linear", 10, 20),
        operator("after", 90, 5),
    ) == {"linear": "model.py:7", "after": "test_x.py:3"}


def test_frames_of_another_thread_or_time_name_no_line(tmp_path: Path) -> None:
    assert (
        framed(
            tmp_path,
            frame("a.py(3): f", 0, 100, tid=2),
            frame("b.py(3): g", 50, 10),
            operator("k", 10, 5),
        )
        == {}
    )


def test_each_frame_is_looked_at_once_however_many_operators_there_are(tmp_path: Path) -> None:
    count = 300
    frames = [frame(f"a.py({i}): f", i, 10 * count - 2 * i) for i in range(count)]
    operators = [operator(f"op{i}", count + 2 * i, 1) for i in range(count)]
    found = reading_of_events(tmp_path, frames, operators)
    names = found.trace.frames.name
    watched = Watched(names.codes, names.values)
    trace = replace(found.trace, frames=replace(found.trace.frames, name=watched))
    lines = frame_lines(trace, range(count))
    assert lines == dict.fromkeys(range(count), f"a.py:{count - 1}")
    assert watched.handed_out <= count


class Watched(Names):
    """Counts the names that are handed out of it, by columns of them."""

    handed_out = 0

    def __getitem__(self, rows: Any) -> Any:
        found = super().__getitem__(rows)
        self.handed_out += len(found) if isinstance(found, Names) else 1
        return found


def test_only_the_operators_that_are_asked_for_get_a_line(tmp_path: Path) -> None:
    found = reading_of_events(
        tmp_path, frame("a.py(3): f", 0, 100), operator("one", 10, 5), operator("two", 20, 5)
    )
    assert frame_lines(found.trace, [NO_ID, 1, 1]) == {1: "a.py:3"}


def test_the_frames_of_a_recorded_trace_name_its_program() -> None:
    found = reading("stack")
    operators = session_facts(found).operators["kernels"]
    lines = frame_lines(found.trace, operators)
    assert set(lines) == set(operators)
    assert all("record.py:" in where for where in lines.values())
