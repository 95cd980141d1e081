"""Names with quotes, which the profiler writes as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure
from pytest_kernelprof.trace.reader import escape_quotes, read_trace

X = torch.ones(4)


@pytest.mark.parametrize("name", ['say "hi"', '"', '""', 'a", "b', '"\\"', "it's"])
def test_an_annotation_with_quotes_does_not_keep_a_count_from_being_had(name: str) -> None:
    def annotated() -> None:
        with torch.profiler.record_function(name):
            X + 1

    assert measure(annotated, Plan("cpu"))[1].profile.kernel_count == 1


def test_a_file_with_quotes_does_not_either() -> None:
    def from_a_file() -> None:
        exec(compile("def f(): return X + 1\nf()", 'odd "file".py', "exec"), {"X": X})

    plan = Plan("cpu", stacks=True)
    assert measure(from_a_file, plan)[1].profile.kernel_count == 1


def test_a_folder_with_quotes_in_its_name_can_be_read_from(tmp_path: Path) -> None:
    folder = tmp_path / 'a "folder"'
    folder.mkdir()
    with torch.profiler.profile() as profiler:
        X + 1
    profiler.export_chrome_trace(str(folder / "one.json"))
    assert "aten::add" in read_trace(folder / "one.json").operators.name.tolist()


@pytest.mark.parametrize("name", ['say "hi"', '", "pid": 3, "tid": 4,', '"'])
def test_a_name_in_the_middle_of_its_line_ends_before_the_process(name: str) -> None:
    """As torch 2.11 writes it."""
    line = '    "ph": "X", "cat": "user_annotation", "name": "%s", "pid": 785, "tid": 785,\n'
    text = "{\n" + line % name + '    "ts": 1.5\n}'
    assert json.loads(escape_quotes(text.encode()))["name"] == name


@pytest.mark.parametrize("name", ['odd "file".py:2', 'a", "Ev Idx": 1, "b', '", "Ev Idx": 1', '"'])
def test_where_a_frame_was_called_from_ends_before_the_numbers(name: str) -> None:
    """As torch 2.15 writes it."""
    line = '{\n  "CallFrom": "%s", "Python parent id": 15, "Python id": 16, "Ev Idx": 17\n}'
    read = json.loads(escape_quotes((line % name).encode()))
    assert read == {"CallFrom": name, "Python parent id": 15, "Python id": 16, "Ev Idx": 17}


def test_what_is_escaped_stays_as_it_is() -> None:
    text = b'{\n    "name": "a \\"b\\"",\n    "name": "c"\n}'
    assert escape_quotes(text) == text


def test_a_damaged_trace_is_still_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text('{\n  "traceEvents": [\n  {\n    "name": "say "hi"",\n    "ph"')
    with pytest.raises(TraceError, match=r"not JSON, or cut off: .*byte"):
        read_trace(path)
