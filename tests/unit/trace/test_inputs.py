"""Shapes and types of operators' inputs: read where they were recorded, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from corpus import reading

from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.gpu.inventory import current_device
from pytest_kernelprof.profiler.session import Session
from pytest_kernelprof.trace.columns import Input, Trace
from pytest_kernelprof.trace.reader import read_trace


def inputs_of(trace: Trace, name: str) -> list[tuple[Input, ...]]:
    assert trace.operators.inputs is not None
    return [
        inputs
        for one, inputs in zip(trace.operators.name, trace.operators.inputs, strict=True)
        if one == name
    ]


def test_a_recorded_trace_with_shapes() -> None:
    first, *others = inputs_of(reading("memory").trace, "aten::mm")
    assert first == (
        Input((8192, 768), (768, 1), "c10::BFloat16"),
        Input((768, 3072), (1, 768), "c10::BFloat16"),
    )
    assert first is others[0]  # the same text is decoded once
    assert others[1][0].shape == (8192, 3072)


@pytest.mark.parametrize("name", ["mlp", "stack", "empty"])
def test_without_shapes_there_is_no_column(name: str) -> None:
    assert reading(name).trace.operators.inputs is None


def test_a_session_records_them_when_asked() -> None:
    session = Session(current_device("cpu"), stacks=False, shapes=True)
    x = torch.ones(3, 4)
    with session, session.round():
        torch.cat([x @ x.t(), torch.zeros(1, 3)])
        torch.add(x, 2.5)
    file = session.export().file
    trace = read_trace(file.path, inputs="all")
    assert inputs_of(trace, "aten::mm")[0][1] == Input((4, 3), (1, 4), "float")
    tensors, dim = inputs_of(trace, "aten::cat")[0]
    assert (tensors.shape, tensors.dtype) == ((), "TensorList")
    assert (dim.dtype, dim.value) == ("Scalar", "0")
    (annotation,) = inputs_of(trace, f"{session.names.begin}0")
    assert annotation is None or annotation == ()


def test_a_session_does_not_record_them_by_itself() -> None:
    session = Session(current_device("cpu"), stacks=False)
    with session, session.round():
        torch.ones(2) + 1
    file = session.export().file
    operators = read_trace(file.path, inputs="all").operators
    assert (operators.inputs, operators.has_inputs) == (None, None)


def document(*args: object) -> str:
    event = {"ph": "X", "cat": "cpu_op", "name": "op", "ts": 1, "dur": 1, "tid": 1}
    return json.dumps({"record_shapes": 1, "traceEvents": [event | {"args": one} for one in args]})


def test_any_layout_of_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(document({"Input Dims": [[2], []], "Input type": ["int"]}))
    trace = read_trace(tmp_path / "t.json", inputs="all")
    assert inputs_of(trace, "op") == [(Input((2,), (), "int"), Input((), (), ""))]


def test_operators_without_inputs_have_none(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(document({}))
    assert inputs_of(read_trace(tmp_path / "t.json", inputs="all"), "op") == [None]


def test_which_operators_have_inputs_is_read_in_any_case(tmp_path: Path) -> None:
    args: list[dict[str, object]] = [{"Input Dims": [[2]]}, {"Input Dims": []}, {}]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "op", "ts": i, "dur": 1, "tid": 1, "args": one}
        for i, one in enumerate(args)
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"record_shapes": 1, "traceEvents": events}))
    operators = read_trace(path).operators
    assert operators.has_inputs is not None
    assert operators.has_inputs.tolist() == [True, True, False]
    assert operators.inputs is None


@pytest.mark.parametrize("dims", [3, {"a": 1}, None])
def test_inputs_of_another_form_are_an_error_that_says_so(tmp_path: Path, dims: object) -> None:
    (tmp_path / "t.json").write_text(document({"Input Dims": dims}))
    with pytest.raises(TraceError, match=r"not a Chrome trace .* Expected `array`"):
        read_trace(tmp_path / "t.json")


@pytest.mark.parametrize("args", [{"Input Strides": "x"}, {"Input type": 7}])
def test_what_is_wrong_with_inputs_is_told_with_its_event(
    tmp_path: Path, args: dict[str, object]
) -> None:
    (tmp_path / "t.json").write_text(document({"Input Dims": [[2]]}, {"Input Dims": [[3]], **args}))
    with pytest.raises(TraceError, match=r"Expected `array`, got `\w+` - at `\$\.traceEvents\[1\]"):
        read_trace(tmp_path / "t.json", inputs="all")


def test_odd_shapes_are_no_shapes(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(document({"Input Dims": [["?"], 5, [[1], [2]]]}))
    (found,) = inputs_of(read_trace(tmp_path / "t.json", inputs="all"), "op")
    assert [one.shape for one in found] == [(), (), ()]
