"""On the CPU the outermost computing operators count."""

from __future__ import annotations

from pathlib import Path

from built import Event, operator, profile_of, reading_of_events, round_of

from pytest_kernelprof.analysis.cpu_operators import operator_rows, operators_as_kernels
from pytest_kernelprof.schema.run import Kernel
from pytest_kernelprof.trace.reading import Reading

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
    return [(found.trace.operators.start[of] / 1e3).tolist() for of in operator_rows(found)]


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


def test_what_is_run_while_a_graph_is_traced_is_no_work_of_the_call(tmp_path: Path) -> None:
    found = cpu(
        tmp_path,
        round_of(0, 0, 99),
        operator("dynamo", 10, 30),
        operator("aten::mm", 15, 5),
        operator("aten::mm", 50, 5),
    )
    assert rows(found) == [[50]]


def test_an_operator_in_the_form_of_a_kernel_has_no_dimensions(tmp_path: Path) -> None:
    found = cpu(
        tmp_path, round_of(0, 0, 99), operator("aten::linear", 5, 50), operator("aten::mm", 10, 5)
    )
    none = (0, 0, 0)
    assert operators_as_kernels(found, operator_rows(found)[0]) == (
        Kernel("aten::mm", 5.0, none, none, 0, 0, 0, 0, "operator", ("aten::mm", "aten::linear")),
    )
