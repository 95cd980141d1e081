"""The operators of one round as a tree."""

from __future__ import annotations

from pathlib import Path

from built import call, kernel, operator, reading_of_events, round_of
from corpus import FOLDER

from pytest_kernelprof.analysis.round_events import operator_tree
from pytest_kernelprof.records.profile import OperatorNode
from pytest_kernelprof.trace.correlation import reading_of
from pytest_kernelprof.trace.reader import read_trace


def told(node: OperatorNode) -> tuple[object, ...]:
    return (node.name, node.calls, node.kernels, node.us, *map(told, node.below))


def test_what_is_below_counts_and_the_same_names_are_one(tmp_path: Path) -> None:
    reading = reading_of_events(
        tmp_path,
        *(round_of(0, 0, 100), operator("aten::linear", 1, 20), operator("aten::t", 2, 2)),
        *(operator("aten::mm", 5, 5), call("cudaLaunchKernel", 6, 1), kernel("gemm", 50, 1)),
        *(operator("aten::linear", 30, 10), operator("aten::mm", 31, 5)),
        *(call("cudaLaunchKernel", 32, 2), kernel("gemm", 60, 2, dur=5)),
        *(call("cudaLaunchKernel", 45, 3), kernel("mine", 70, 3, dur=1)),
    )
    assert told(operator_tree(reading, 0)) == (
        *("", 1, 3, 16.0),
        ("aten::linear", 2, 2, 15.0, ("aten::t", 1, 0, 0.0), ("aten::mm", 2, 2, 15.0)),
    )


def test_the_tree_of_a_round_has_that_rounds_kernels() -> None:
    reading = reading_of(read_trace(FOLDER / "backward.json.gz"))
    for number in range(reading.rounds):
        root = operator_tree(reading, number)
        assert (root.kernels, sum(one.kernels for one in root.below)) == (16, 16)
        assert not any(one.name.startswith("kernelprof") for one in root.below)


def test_operators_that_are_nested_very_deep_are_no_recursion_error(tmp_path: Path) -> None:
    deep = [operator(f"f{i}", i, 5000 - 2 * i) for i in range(2000)]
    launch = (call("cudaLaunchKernel", 2001, 1), kernel("k", 2500, 1))
    node = operator_tree(reading_of_events(tmp_path, *deep, *launch), 0)
    assert node.kernels == 1
