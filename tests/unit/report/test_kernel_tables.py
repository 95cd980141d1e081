"""Tables of a profile's kernels, copies and waits."""

from __future__ import annotations

import re

import msgspec
import pytest
from records import CPU, H200, MLP, MUL, kernel, mlp, profile

from pytest_kernelprof.records.comparison import KernelChange, KernelSide
from pytest_kernelprof.records.profile import Copy, Place, Profile, Wait
from pytest_kernelprof.report.kernel_tables import copy_table, kernel_table, wait_table
from pytest_kernelprof.report.tables import Style
from pytest_kernelprof.summary.kernels import NewKernels

COPY = Copy("Memcpy DtoH (Device -> Pageable)", "d2h", 4_194_304, 80.0, ("aten::copy_", "aten::to"))
WAIT = Wait("cudaStreamSynchronize", ("aten::_local_scalar_dense", "aten::item"), "a/b.py:2")


def words(line: str) -> str:
    return " ".join(line.split())


def test_a_kernel_is_told_with_caller_line_and_time() -> None:
    one = kernel("void ns::gelu<4>(int)", "aten::gelu", us=12.5, source="src/mlp.py:31")
    assert [words(line) for line in kernel_table(profile([one])).lines()] == [
        "# us kernel line launched by",
        "1 12.5 gelu mlp.py:31 aten::gelu",
    ]


def test_a_chain_is_told_by_its_innermost_and_its_outermost_operator() -> None:
    assert "aten::mm in aten::linear" in kernel_table(mlp()).lines()[1]


def test_the_autograd_engine_called_nothing() -> None:
    one = kernel("k", "aten::mm", "autograd::engine::evaluate_function: MmBackward0")
    assert words(kernel_table(profile([one])).lines()[1]) == "1 10.0 k aten::mm"


def test_where_the_line_is_unknown_that_of_the_call_stands_there() -> None:
    known, unknown = kernel("a", source="src/mlp.py:31"), kernel("b")
    copy = Copy("Memcpy DtoH", "d2h", 4, 1.0, ())
    called = profile(
        [known, unknown], copies=(copy,), waits=(Wait("cudaStreamSynchronize", ()),),
        place=Place("tests/test_mlp.py", 12),
    )  # fmt: skip
    found = (kernel_table(called), copy_table(called), wait_table(called))
    tables = [line for one in found for line in one.lines()[1:]]
    assert [re.findall(r"(?:in )?\S*\.py\S*", line) for line in tables] == [
        ["mlp.py:31"],
        *[["in test_mlp.py:12"]] * 3,
    ]


def test_what_no_operator_launched_says_so() -> None:
    assert words(kernel_table(profile([kernel("k")])).lines()[1]) == "1 10.0 k"


def test_on_the_cpu_operators_are_told_with_what_called_them() -> None:
    one = kernel("aten::mm", "aten::mm", "aten::linear")
    assert [words(line) for line in kernel_table(profile([one], environment=CPU)).lines()] == [
        "# us operator called by",
        "1 10.0 aten::mm aten::linear",
    ]


def test_two_kernels_of_one_short_name_are_told_apart() -> None:
    kinds = [kernel(f"void at::native::reduce_kernel<{kind}>(int)") for kind in ("int", "long")]
    rows = [words(line) for line in kernel_table(profile([*kinds, kinds[0]])).lines()[1:]]
    assert rows == [f"{i} 10.0 reduce {k}" for i, k in enumerate(["int", "long", "int"], 1)]


def test_equal_neighbours_are_one_row() -> None:
    again = [kernel(MUL, "aten::mul", us=36.0)] * 2
    rows = [words(line) for line in kernel_table(profile([*MLP[:2], *again])).lines()[1:]]
    assert rows[1:] == [
        "2 10.0 vectorized_elementwise [gelu] aten::gelu",
        "3..4 72.0 vectorized_elementwise [mul] x2 aten::mul",
    ]


def test_in_a_long_table_kernels_that_are_alike_are_one_row() -> None:
    kernels = [kernel(f"k{i % 3}", us=2.0 - i % 3 / 2) for i in range(60)]
    assert [words(line) for line in kernel_table(profile(kernels)).lines()[1:]] == [
        "1, ... 40.0 k0 x20",
        "2, ... 30.0 k1 x20",
        "3, ... 20.0 k2 x20",
    ]


def test_of_very_many_kinds_the_costliest_and_those_with_a_sign_are_there() -> None:
    kernels = [kernel(f"k{i}", us=500.0 if i == 50 else 1.0) for i in range(100)]
    new = NewKernels("snapshot", {60: "+"}, ())
    lines = [words(line) for line in kernel_table(profile(kernels), most=20, new=new).lines()]
    assert lines[1].endswith("k0")
    assert lines[-3:] == ["51 500.0 k50", "+ 61 1.0 k60", "80.0 ... 80 more of 80 kinds ..."]
    assert len(lines) == 22


def test_what_is_new_and_what_is_gone_is_marked_at_its_line() -> None:
    was = KernelSide("gelu", ("aten::gelu",), duration_us=5.0)
    gone = KernelChange("replaced", was, KernelSide("mul"), at=4)
    lost = KernelChange("removed", KernelSide("silu"), times=2)
    new = NewKernels("snapshot", {3: "+"}, (gone, lost))
    rows = [words(line) for line in kernel_table(mlp(), new=new).lines()]
    assert rows[0] == "# us kernel launched by"
    assert rows[4:6] == [
        "- 5.0 gelu aten::gelu",
        "+ 4 10.0 vectorized_elementwise [mul] aten::mul",
    ]
    assert rows[-1] == "- silu x2"


def test_each_that_may_be_the_new_one_is_marked_as_such() -> None:
    new = NewKernels("snapshot", {1: "?", 2: "?", 4: "+"}, ())
    lines = kernel_table(mlp(), new=new, guilty={0, 1}).lines()
    assert [line.split()[0] for line in lines[1:]] == [">", "?", "?", "4", "+"]


def test_what_fails_a_limit_on_names_is_marked() -> None:
    rows = [words(line) for line in kernel_table(profile([*MLP, MLP[4]]), guilty={1, 5}).lines()]
    assert [row[0] for row in rows[1:]] == ["1", ">", "3", "4", "5", ">"]


def test_with_v_there_is_what_kernels_need_where_some_kernel_needs_it() -> None:
    plain, verbose = Style(100), Style(100, verbosity=1)
    launch = "grid, block registers"
    assert words(kernel_table(mlp()).lines(plain)[0]) == "# us kernel launched by"
    assert words(kernel_table(mlp()).lines(verbose)[0]) == f"# us kernel {launch} launched by"
    spilling = kernel("fused", "mine::op")
    spilling = msgspec.structs.replace(spilling, registers=255, shared_memory=4_096)
    spilling = msgspec.structs.replace(spilling, spills=7_872)
    title, first, second = kernel_table(profile([spilling, kernel("k")])).lines(verbose)
    assert words(title) == f"# us kernel {launch} shared memory spills launched by"
    assert words(first) == "1 10.0 fused 1, 128 255 4.1 KB 7.87 KB mine::op"
    assert words(second) == "2 10.0 k 1, 128 32"
    assert "launched by" in kernel_table(mlp()).lines(Style(60, verbosity=1))[0]


def test_on_amd_spills_are_registers() -> None:
    amd = msgspec.structs.replace(H200, versions={"hip": "6.4"})
    spilling = msgspec.structs.replace(kernel("fused", "mine::op"), spills=12)
    (_, row) = kernel_table(profile([spilling], environment=amd)).lines(Style(100, verbosity=1))
    assert words(row).endswith("32 12 registers mine::op")


def test_operators_wrap_and_what_the_kernel_works_on_stays() -> None:
    long = kernel(
        f"void at::native::{'k' * 60}<at::native::gelu_x>(int)",
        "aten::mm",
        "aten::an_operator",
        source="a.py:1",
    )
    _, *lines = kernel_table(profile([long])).lines(Style(100))
    assert "a.py:1" in lines[0]
    assert " ".join(words(line) for line in lines).endswith("aten::mm in aten::an_operator")


def test_a_copy_is_told_with_its_size() -> None:
    assert [words(line) for line in copy_table(profile(copies=(COPY,))).lines()] == [
        "# us size copy called by",
        "1 80.0 4.19 MB Memcpy DtoH (Device -> Pageable) aten::copy_ in aten::to",
    ]


def test_a_wait_is_told_with_its_call() -> None:
    assert [words(line) for line in wait_table(profile(waits=(WAIT,))).lines()] == [
        "# waits in line called by",
        "1 cudaStreamSynchronize b.py:2 aten::_local_scalar_dense in aten::item",
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
    assert max(map(len, table(of).lines(Style(width)))) <= width
