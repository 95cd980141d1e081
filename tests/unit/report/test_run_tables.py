"""A run against earlier ones as a table, on terminals of any width."""

from __future__ import annotations

import pytest
from records import around, calls_of

from pytest_kernelprof.baseline.allowance import allowances
from pytest_kernelprof.baseline.runs import compare_runs
from pytest_kernelprof.report.runs import table
from pytest_kernelprof.schema.run import Profile, Run, Test

NAME = "tests/gpu/test_mlp.py::test_fused_story[float16-large]"


def lines(width: int) -> list[tuple[str, str]]:
    def run(profile: Profile) -> Run:
        return Run((Test(NAME, (profile,)),))

    old, new = (
        run(calls_of(4, around("cuda_time", 100))),
        run(calls_of(5, around("cuda_time", 200))),
    )
    return table(compare_runs([old, old], new, allowances(())), width)


@pytest.mark.parametrize("width", [30, 40, 60, 70, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line) for _, line in lines(width)) <= width
    assert [verdict for verdict, line in lines(width) if "kernels" in line] == ["WORSE"]
    assert any("float16-large]" in line for _, line in lines(width))


def test_where_a_table_is_too_wide_the_test_has_a_line_of_its_own() -> None:
    assert [line for _, line in lines(40)] == [
        "…" + NAME[-39:],
        "  WORSE kernels +1  4 4 -> 5",
        "  WORSE launches +1  4 4 -> 5",
        "  worse cuda_time +94.8 %",
        "    105.5us 105.5us -> 205.5us",
    ]
