"""Words and tables of profiles of a real GPU."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from corpus import record
from records import failure_of

from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_limit
from pytest_kernelprof.report.kernel_tables import copy_table, kernel_table, wait_table
from pytest_kernelprof.report.tables import Style
from pytest_kernelprof.summary import wording
from pytest_kernelprof.summary.verdicts import integrity_words, verdict_line


@pytest.mark.parametrize(
    ("trace", "name", "args", "kwargs", "line"),
    [
        ("mlp", "max_kernels", (1,), {}, "max_kernels: 5 > limit 1"),
        ("graph_twice_a_round", "max_launches", (1,), {}, "max_launches: 2 > limit 1"),
        ("syncs", "max_syncs", (0,), {}, "max_syncs: 7 > limit 0"),
        ("copies", "max_memcpys", (0,), {"direction": "d2h"}, "max_memcpys(d2h): 2 > limit 0"),
        ("copies", "max_memcpy_bytes", ("1 MB",), {}, "max_memcpy_bytes: 21 MB > limit 1 MB"),
        ("mlp", "max_kernels", (2,), {"match": "nvjet"}, "max_kernels(match='nvjet'): 3 > limit 2"),
    ],
)
def test_the_words_of_a_violation(
    trace: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], line: str
) -> None:
    (verdict,) = evaluate(record(trace), [parse_limit(name, args, kwargs)])
    assert verdict_line(verdict) == line


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ("linear", "complete: 2/2 launches matched in 2 rounds"),
        ("stack", "complete: 5/5 launches matched"),
        ("graph", "graph replay unproven"),
        ("cold_add", "COLD (Lazy Function Loading)"),
    ],
)
def test_completeness_is_told_in_words(trace: str, words: str) -> None:
    assert words in integrity_words(record(trace))


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ("mlp", "NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0"),
        ("memory", "NVIDIA H200"),
    ],
    ids=["ours", "from elsewhere"],
)
def test_the_place_is_told_in_words(trace: str, words: str) -> None:
    assert wording.machine(record(trace).environment) == words


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("trace", ["backward", "syncs", "compiled"])
def test_tables_fit_the_width(trace: str, width: int) -> None:
    profile = record(trace)
    for table in (kernel_table, copy_table, wait_table):
        assert max(map(len, table(profile).lines(Style(width)))) <= width


@pytest.mark.parametrize("trace", ["mlp", "backward", "copies", "syncs", "compiled"])
def test_messages_fit_a_hundred_columns(trace: str) -> None:
    profile = record(trace)
    limits = [parse_limit(name, (0,), {}) for name in ("max_kernels", "max_memcpys", "max_syncs")]
    judged = msgspec.structs.replace(profile, verdicts=evaluate(profile, limits))
    lines = failure_of(judged).splitlines()
    assert max(len(line) for line in lines[:-1]) <= 100


def test_waits_are_told_with_their_operators() -> None:
    assert any("aten::_local_scalar_dense" in line for line in wait_table(record("syncs")).lines())


def test_a_recorded_copy_is_told_with_its_size() -> None:
    assert "4.19 MB" in copy_table(record("copies")).lines()[1]
