"""Kernels, copies and waits one by one: their order, their resources and their operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from built import annotation, launched, operator, profile_of, reading_of_events, round_of
from corpus import recorded

from pytest_kernelprof.analysis.round_events import chains, different_rounds
from pytest_kernelprof.trace.columns import NO_ID


def test_kernels_come_in_launch_order_with_their_operators() -> None:
    profile = recorded("mlp")
    assert [kernel.operators[0] for kernel in profile.kernels] == [
        "aten::mm", "aten::gelu", "aten::mm", "aten::mul", "aten::mm",
    ]  # fmt: skip
    assert profile.kernels[0].operators == ("aten::mm", "aten::matmul", "aten::linear")


def test_a_kernel_carries_its_launch_and_its_resources() -> None:
    gemm = recorded("linear").kernels[0]
    assert gemm.launch == "cuLaunchKernelEx"
    assert gemm.short_name.startswith("nvjet 256x128x64")
    assert min(*gemm.grid, *gemm.block, gemm.registers, gemm.shared_memory) > 0


def test_backward_kernels_belong_to_their_own_operators() -> None:
    chains = [kernel.operators for kernel in recorded("backward").kernels]
    assert sum("MmBackward0" in chain for chain in chains) >= 5
    assert any(chain[0] == "aten::gelu_backward" for chain in chains)


def test_copies_are_told_apart_by_direction_size_and_memory() -> None:
    profile = recorded("copies")
    assert [copy.direction for copy in profile.copies] == ["h2d", "h2d", "d2h", "d2d", "d2h", "d2d"]
    assert profile.memcpy_bytes == sum(copy.bytes for copy in profile.copies) == 20_975_616
    assert profile.memcpys_d2h == 2
    assert profile.memcpys_pageable == 2


def test_each_wait_is_told_with_its_operator() -> None:
    profile = recorded("syncs")
    operators = [wait.operators[0] if wait.operators else "" for wait in profile.waits]
    assert operators == [
        "aten::_local_scalar_dense", "", "", "", "aten::nonzero", "aten::copy_",
        "aten::_local_scalar_dense",
    ]  # fmt: skip


def test_kernels_of_two_streams_come_in_the_order_of_their_launches(tmp_path: Path) -> None:
    late, early = launched("launched_first", 10, 1), launched("launched_second", 20, 2)
    late[1]["ts"] = 90.0
    profile = profile_of(tmp_path, round_of(0, 0, 99), late, early)
    assert [kernel.name for kernel in profile.kernels] == ["launched_first", "launched_second"]


def test_our_own_annotations_are_in_no_chain() -> None:
    chains = {name for kernel in recorded("mlp").kernels for name in kernel.operators}
    assert not any(name.startswith("kernelprof::") for name in chains)


def test_rounds_differ_where_the_names_or_the_chains_of_their_kernels_do(tmp_path: Path) -> None:
    found = reading_of_events(
        tmp_path,
        operator("outer", 0, 50),
        operator("inner", 10, 10),
        [round_of(0, 100, 90), operator("outer", 110, 50)],
        [annotation("kernelprof::line#a.py:1", 115, 40), operator("inner", 120, 10)],
        operator("inner", 200, 10),
    )
    rows = [*range(len(found.trace.operators)), NO_ID]
    of_row = dict(zip(rows, chains(found, rows), strict=True))
    assert set(of_row.values()) == {("outer",), ("inner", "outer"), ("inner",), ()}
    one_name = np.zeros(1, np.int64)
    for one in rows:
        for other in rows:
            alike = of_row[one] == of_row[other]
            lists = [[one], [other]]
            assert different_rounds(found, 0, [one_name] * 2, lists) == [1] * (not alike)
            assert different_rounds(found, 1, [one_name] * 2, lists) == [0] * (not alike)
            lists = [[rows[0], one], [rows[0], other]]
            names = [np.zeros(2, np.int64)] * 2
            assert different_rounds(found, 0, names, lists) == [1] * (not alike)
    same = rows[:1]
    assert different_rounds(found, 0, [one_name, one_name + 1], [same, same]) == [1]
    assert different_rounds(found, 0, [one_name, np.zeros(2, np.int64)], [same, same * 2]) == [1]
    assert different_rounds(found, 0, [one_name[:0], one_name[:0]], [[], []]) == []
    names = [one_name + code for code in (5, 7, 5, 7, 9)]
    assert different_rounds(found, 2, names, [same] * 5) == [1, 4]
