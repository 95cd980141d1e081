"""Tables of a profile's kernels, copies and waits."""

from __future__ import annotations

import re

import msgspec
import pytest
from records import CPU, MLP, kernel, mlp, profile

from pytest_kernelprof.report.kernel_tables import copy_table, kernel_table, wait_table
from pytest_kernelprof.schema.run import Copy, Place, Profile, Wait

COPY = Copy("Memcpy DtoH (Device -> Pageable)", "d2h", 4_194_304, 80.0, ("aten::copy_", "aten::to"))
WAIT = Wait("cudaStreamSynchronize", ("aten::_local_scalar_dense", "aten::item"), "a/b.py:2")


def words(line: str) -> str:
    return " ".join(line.split())


def test_a_kernel_is_told_with_caller_line_and_time() -> None:
    one = kernel("void ns::gelu<4>(int)", "aten::gelu", us=12.5, source="src/mlp.py:31")
    assert [words(line) for line in kernel_table(profile([one]))] == [
        "# kernel launched by line cuda time",
        "1 gelu aten::gelu mlp.py:31 12.5us",
    ]


def test_a_chain_is_told_by_its_innermost_and_its_outermost_operator() -> None:
    assert "aten::mm < aten::linear" in kernel_table(mlp())[1]


def test_the_autograd_engine_called_nothing() -> None:
    one = kernel("k", "aten::mm", "autograd::engine::evaluate_function: MmBackward0")
    assert words(kernel_table(profile([one]))[1]) == "1 k aten::mm line unknown 10.0us"


def test_where_the_line_is_unknown_that_of_the_call_stands_in_parentheses() -> None:
    known, unknown = kernel("a", source="src/mlp.py:31"), kernel("b")
    copy = Copy("Memcpy DtoH", "d2h", 4, 1.0, ())
    called = profile(
        [known, unknown], copies=(copy,), waits=(Wait("cudaStreamSynchronize", ()),),
        place=Place("tests/test_mlp.py", 12),
    )  # fmt: skip
    tables = [*kernel_table(called)[1:], copy_table(called)[1], wait_table(called)[1]]
    assert [re.findall(r"\S*\.py\S*", line) for line in tables] == [
        ["mlp.py:31"],
        *[["(test_mlp.py:12)"]] * 3,
    ]


def test_what_no_operator_launched_says_so() -> None:
    assert words(kernel_table(profile([kernel("k")]))[1]) == "1 k - line unknown 10.0us"


def test_on_the_cpu_operators_are_told_with_what_called_them() -> None:
    one = kernel("aten::mm", "aten::mm", "aten::linear")
    assert [words(line) for line in kernel_table(profile([one], environment=CPU))] == [
        "# operator called by line cpu time",
        "1 aten::mm aten::linear line unknown 10.0us",
    ]


def test_two_kernels_of_one_short_name_are_told_apart() -> None:
    kinds = [kernel(f"void at::native::reduce_kernel<{kind}>(int)") for kind in ("int", "long")]
    names = [words(line).split(" - ")[0] for line in kernel_table(profile([*kinds, kinds[0]]))[1:]]
    assert names == ["1 reduce int", "2 reduce long", "3 reduce int"]


def test_a_long_table_keeps_its_ends() -> None:
    lines = kernel_table(profile([kernel(f"k{i}") for i in range(100)]), 100, most=20)
    assert len(lines) == 1 + 20 + 1
    assert [line.split()[1] for line in lines[1:16]] == [f"k{i}" for i in range(15)]
    assert "... 80 more ..." in lines[16]
    assert [line.split()[1] for line in lines[17:]] == [f"k{i}" for i in range(95, 100)]


def test_a_copy_is_told_with_its_size() -> None:
    assert [words(line) for line in copy_table(profile(copies=(COPY,)))] == [
        "# copy size called by line gpu time",
        "1 Memcpy DtoH (Device -> Pageable) 4.19 MB aten::copy_ < aten::to line unknown 80.0us",
    ]


def test_a_wait_is_told_with_its_call() -> None:
    assert [words(line) for line in wait_table(profile(waits=(WAIT,)))] == [
        "# waits in called by line",
        "1 cudaStreamSynchronize aten::_local_scalar_dense < aten::item b.py:2",
    ]


LONG = msgspec.structs.replace(MLP[1], operators=("o" * 200, "p" * 200), source="s" * 200)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("table", [kernel_table, copy_table, wait_table])
def test_tables_fit_the_width(table: object, width: int) -> None:
    of: Profile = profile(
        [LONG, *MLP],
        copies=(msgspec.structs.replace(COPY, operators=LONG.operators, source=LONG.source),),
        waits=(msgspec.structs.replace(WAIT, operators=LONG.operators, source=LONG.source),),
    )
    assert callable(table)
    assert max(map(len, table(of, width))) <= width
