"""Facts in a few words."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_kernelprof.records.profile import Cause, Place, Verdict
from pytest_kernelprof.summary import wording

ENGINE, GRAPH = "autograd::engine::evaluate_function: Mm", "## Call CompiledFxGraph f1 ##"


@pytest.mark.parametrize(
    ("operators", "own", "told"),
    [
        ((), "", ()),
        (("aten::mm",), "", ("aten::mm",)),
        (("aten::mm", "aten::matmul", "aten::linear"), "", ("aten::mm", "aten::linear")),
        (("aten::mm", "aten::linear"), "aten::mm", ("aten::linear",)),
        (("aten::mm",), "aten::mm", ()),
        (("aten::mm", "MmBackward0", ENGINE), "", ("aten::mm", "MmBackward0")),
        ((GRAPH, "aten::mm", GRAPH), "", ("aten::mm",)),
        (("f in g", "h"), "", ("f in g", "h")),
    ],
)
def test_of_a_chain_the_innermost_and_the_outermost_caller_are_told(
    operators: tuple[str, ...], own: str, told: tuple[str, ...]
) -> None:
    assert wording.chain(operators, own) == " in ".join(told)


@pytest.mark.parametrize(
    ("causes", "told"),
    [
        ([Cause("a", None)], ""),
        ([Cause("a", Place("src/m.py", 3))], "m.py:3"),
        ([Cause("a", Place("src/m.py", 3)), Cause("b", Place("n.py", 4))], "m.py:3, n.py:4"),
        ([Cause("a", Place("m.py", 3)), Cause("b", Place("m.py", 3))], "m.py:3"),
        ([Cause("a", None, "+", ("src/m.py:6", "src/m.py:7"))], "m.py:6 or 7"),
        ([Cause("a", None, "", ("m.py:6", "m.py:7"))], "m.py:6, 7"),
    ],
)
def test_lines_of_one_file_name_it_once(causes: list[Cause], told: str) -> None:
    assert wording.cause_lines(*causes) == told


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("a/b.py:12", Place("a/b.py", 12)),
        ("C:\\b.py:12", Place("C:\\b.py", 12)),
        (":12", None),
        ("b.py:", None),
        ("b.py:x", None),
        ("b.py:\u0662", None),
        ("b.py", None),
        ("", None),
    ],
)
def test_a_line_is_a_file_and_a_number(source: str, place: Place | None) -> None:
    assert wording.source_place(source) == place


@pytest.mark.parametrize(
    ("outcome", "ranks", "why", "told"),
    [
        ("failed", (3, 1), "", " on ranks 3, 1"),
        ("undecided", (2,), "", " on rank 2"),
        ("incomplete", (1,), "a kernel is missing", " on rank 1"),
        ("incomplete", (1,), "rank 1 did not come", ""),
        ("failed", (), "", ""),
        ("passed", (1,), "", ""),
        ("not judged", (1,), "", ""),
    ],
)
def test_ranks_are_named_where_a_limit_is_not_kept(
    outcome: Any, ranks: tuple[int, ...], why: str, told: str
) -> None:
    verdict = Verdict(limit="max_kernels", outcome=outcome, ranks=ranks, why=why)
    assert wording.on_ranks(verdict) == told


def test_numbers_in_names_are_sorted_as_numbers() -> None:
    names = ["b[10]", "a", "b[2]", "b0", "b", "b[2-9]", "10", "9", "b[2-10]"]
    assert sorted(names, key=wording.natural) == [
        *("9", "10", "a", "b", "b0", "b[2-9]", "b[2-10]", "b[2]", "b[10]"),
    ]
    assert wording.natural("9" * 5_000)  # longer than Python turns into a number at once


def test_limits_options_calls_and_lines_of_code_are_code() -> None:
    told = "allow max_kernels(3) at t.py:3, or call kernel_profile(f, 3) with --kernelprof-rounds=9"
    assert wording.in_code(told)[1::2] == [
        *("max_kernels(3)", "t.py:3", "kernel_profile(f, 3)", "--kernelprof-rounds=9"),
    ]
    assert "".join(wording.in_code(told)) == told


def test_a_slash_in_a_parameter_is_no_folder() -> None:
    assert wording.shortened("a/b/test_it.py::test_x[c/d]") == "test_it.py::test_x[c/d]"
    assert wording.parts_of("a/test_it.py::TestX::test_x[1::2]") == (
        "a/test_it.py",
        "TestX::test_x[1::2]",
    )
    assert wording.parts_of("no file") == ("", "no file")


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("copy at m.py:4", "copy"),
        ("copy x2 at m.py:4, launched most often", "copy x2, launched most often"),
        ("copy at m.py:42", None),
        ("copy at m.py:4, 5", None),
        ("copy at m.py:4 or 5", None),
        ("copy at m.py:4, 5, 6, 7, ...", None),
    ],
)
def test_a_line_that_is_said_beside_words_is_left_out_of_them_and_no_other(
    words: str, left: str | None
) -> None:
    assert wording.without_lines(words, "m.py:4") == (words if left is None else left)
    assert wording.without_lines(words, "") == words
