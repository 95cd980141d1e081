"""On the CPU the outermost computing operators count."""

from __future__ import annotations

from pathlib import Path

import pytest
from built import Event, annotation, operator, profile_of, reading_of_events, round_of

from pytest_kernelprof.analysis.round_events import (
    counted_rows,
    kernels_of,
    read_rows,
    silent_regions,
)
from pytest_kernelprof.records.profile import Kernel
from pytest_kernelprof.trace.correlation import Reading

NOTED = {"schema": 1, "device_kind": "cpu", "compute_operators": ["aten::mm", "aten::add"]}


def test_a_cpu_trace_counts_the_outermost_computing_operators(tmp_path: Path) -> None:
    beside = {
        "kernelprof": {
            "schema": 1,
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


def cpu(folder: Path, *events: Event) -> Reading:
    return reading_of_events(folder, *events, kernelprof=NOTED)


def rows(found: Reading) -> list[list[float]]:
    """When the operators of each round start."""
    return [(found.trace.operators.start[of] / 1e3).tolist() for of in counted_rows(found)]


def test_each_round_has_its_own_operators(tmp_path: Path) -> None:
    found = cpu(
        tmp_path,
        round_of(0, 0, 50),
        operator("aten::mm", 10, 5),
        operator("aten::add", 20, 5, tid=2),
        operator("aten::mm", 60, 5),
        round_of(1, 100, 50),
        operator("aten::view", 110, 5),
    )
    assert rows(found) == [[10, 20], []]


def test_what_lies_anywhere_below_a_computing_operator_is_its_implementation(
    tmp_path: Path,
) -> None:
    found = cpu(
        tmp_path,
        round_of(0, 0, 99),
        operator("aten::mm", 10, 50),
        operator("aten::reshape", 15, 30),
        operator("aten::add", 20, 5),
    )
    assert rows(found) == [[10]]


def test_an_operator_for_all_devices_counts_where_nothing_below_it_does(tmp_path: Path) -> None:
    events = [
        round_of(0, 0, 99),
        *(
            operator("mine::outer", 10, 30),
            operator("mine::raw", 12, 5),
            operator("aten::t", 13, 1),
        ),
        operator("mine::raw", 20, 5),
        *(operator("mine::outer", 50, 20), operator("aten::t", 52, 9), operator("aten::mm", 53, 5)),
        operator("mine::outer", 80, 5),
    ]
    noted = {**NOTED, "decomposing_operators": ["mine::outer", "mine::raw"]}
    assert rows(reading_of_events(tmp_path, *events, kernelprof=noted)) == [[12, 20, 53, 80]]


@pytest.mark.parametrize("handed", ["PythonDispatchMode", "PythonSubclass"])
def test_what_an_operator_is_handed_on_to_counts_in_its_place(handed: str, tmp_path: Path) -> None:
    found = cpu(
        tmp_path,
        round_of(0, 0, 99),
        *(operator("aten::mm", 10, 30), operator(handed, 11, 28)),
        *(operator("aten::mm", 12, 5), operator("aten::add", 20, 5), operator("aten::mm", 21, 2)),
        *(operator("aten::add", 50, 9), operator(handed, 51, 5)),
    )
    assert rows(found) == [[12, 20]]


def test_an_operator_that_takes_nothing_has_no_inputs(tmp_path: Path) -> None:
    events = [operator("mine::make", 10, 5), operator("aten::mm", 20, 5)]
    noted = {**NOTED, "compute_operators": ["mine::make", "aten::mm"]}
    noted["bare_operators"] = ["mine::make"]
    found = reading_of_events(
        tmp_path, round_of(0, 0, 99), *events, record_shapes=1, kernelprof=noted
    )
    assert rows(found) == [[10]]


def test_what_is_run_while_a_graph_is_traced_is_no_work_of_the_call(tmp_path: Path) -> None:
    found = cpu(
        tmp_path,
        round_of(0, 0, 99),
        operator("dynamo", 10, 30),
        operator("aten::mm", 15, 5),
        operator("aten::mm", 50, 5),
    )
    assert rows(found) == [[50]]


@pytest.mark.parametrize(("recompiles", "counted"), [(1, [50]), (0, [15, 50]), (None, [50])])
def test_without_a_compilation_nothing_is_what_dynamo_runs(
    recompiles: int | None, counted: list[float], tmp_path: Path
) -> None:
    events = [operator("dynamo", 10, 30), operator("aten::mm", 15, 5), operator("aten::mm", 50, 5)]
    noted = {**NOTED, "recompiles": recompiles}
    found = reading_of_events(tmp_path, round_of(0, 0, 99), *events, kernelprof=noted)
    assert rows(found) == [counted]


def test_what_has_no_inputs_where_inputs_are_recorded_is_no_operator(tmp_path: Path) -> None:
    real = operator("aten::mm", 15, 5)
    real["args"] |= {"Input Dims": [[2, 2], [2, 2]], "Input type": ["float", "float"]}
    events = [round_of(0, 0, 99), operator("aten::mm", 10, 30), real, operator("kernel", 50, 5)]
    noted = {**NOTED, "compute_operators": ["aten::mm", "kernel"]}
    shapes = {"record_shapes": 1, "kernelprof": noted}
    assert rows(reading_of_events(tmp_path, *events, **shapes)) == [[15, 50]]
    assert rows(reading_of_events(tmp_path, *events, kernelprof=noted)) == [[10, 50]]


def test_an_annotation_is_no_operator(tmp_path: Path) -> None:
    found = cpu(
        tmp_path, round_of(0, 0, 99), annotation("aten::mm", 10, 30), operator("aten::add", 15, 5)
    )
    assert rows(found) == [[15]]


def test_a_read_of_a_value_counts_unless_an_operator_that_computes_makes_it(
    tmp_path: Path,
) -> None:
    found = cpu(
        tmp_path,
        round_of(0, 0, 99),
        operator("aten::item", 10, 10),
        operator("aten::_local_scalar_dense", 12, 5),
        operator("aten::mm", 30, 10),
        operator("aten::_local_scalar_dense", 32, 5),
        operator("dynamo", 50, 10),
        operator("aten::_local_scalar_dense", 52, 5),
        annotation("aten::_local_scalar_dense", 70, 5),
        round_of(1, 100, 50),
        operator("aten::_local_scalar_dense", 160, 5),
    )
    starts = found.trace.operators.start
    assert [(starts[of] / 1e3).tolist() for of in read_rows(found)] == [[12], []]


REGION = "Torch-Compiled Region: 0/0"


@pytest.mark.parametrize(
    ("inside", "silent"),
    [
        ([], 1),
        ([operator("Pregraph bytecode", 12, 2)], 1),
        ([operator("aten::lift_fresh", 12, 2)], 1),
        ([operator("aten::add", 12, 2)], 0),
        ([operator("## Call CompiledFxGraph fabc ##", 12, 9)], 0),
        ([operator(REGION, 12, 9), operator("aten::mm", 25, 2)], 0),
        ([operator(REGION, 12, 9)], 1),
    ],
    ids=[
        "nothing",
        "dynamo's own",
        "no computing",
        "operator",
        "graph",
        "nested",
        "nested, nothing",
    ],
)
def test_compiled_code_that_leaves_no_operator_is_told(
    inside: list[Event], silent: int, tmp_path: Path
) -> None:
    events = [round_of(0, 0, 99), operator(REGION, 10, 30), *inside]
    assert silent_regions(cpu(tmp_path, *events)) == silent
    assert profile_of(tmp_path, *events, kernelprof=NOTED).integrity.complete is not bool(silent)
    outside = [round_of(0, 50, 9), operator(REGION, 10, 30)]
    assert silent_regions(cpu(tmp_path, *outside)) == 0


def test_an_operator_in_the_form_of_a_kernel_has_no_dimensions(tmp_path: Path) -> None:
    found = cpu(
        tmp_path, round_of(0, 0, 99), operator("aten::linear", 5, 50), operator("aten::mm", 10, 5)
    )
    none = (0, 0, 0)
    assert kernels_of(found, counted_rows(found)[0]) == (
        Kernel("aten::mm", 5.0, none, none, 0, 0, 0, 0, "operator", ("aten::mm", "aten::linear")),
    )
