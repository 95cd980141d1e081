"""The innermost span around each row, found level by level as by a stack."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pytest_kernelprof.trace.columns import NO_ID
from pytest_kernelprof.trace.correlation import enclosing


def by_a_stack(thread: list[int], start: list[int], end: list[int], point: list[bool]) -> list[int]:
    """As it is defined: one sweep over each thread in order of time."""
    found = [NO_ID] * len(start)
    order = sorted(range(len(start)), key=lambda i: (thread[i], start[i], point[i], -end[i], i))
    stack: list[int] = []
    for i in order:
        if stack and thread[stack[0]] != thread[i]:
            stack = []
        while stack and end[stack[-1]] <= start[i] - point[i]:
            stack.pop()
        found[i] = stack[-1] if stack else NO_ID
        if not point[i]:
            stack.append(i)
    return found


def enclosed(rows: list[tuple[int, int, int, bool]]) -> tuple[list[int], list[int]]:
    thread, start, end, point = (list(column) for column in zip(*rows, strict=True))
    columns = (np.array(one, np.int64) for one in (thread, start, end))
    found = enclosing(*columns, np.array(point, np.bool_))
    return found.tolist(), by_a_stack(thread, start, end, point)


@pytest.mark.parametrize("seed", range(40))
def test_spans_of_any_kind_are_found_as_by_a_stack(seed: int) -> None:
    draw = random.Random(seed)
    rows = []
    for _ in range(draw.randrange(1, 300)):
        start, point = draw.randrange(60), draw.random() < 0.3
        length = 0 if point else draw.choice([0, 1, 3, 10, 60])
        rows.append((draw.randrange(3), start, start + length, point))
    found, expected = enclosed(rows)
    assert found == expected


@pytest.mark.parametrize("depth", [1, 39, 40, 41, 2_000])
def test_spans_may_be_nested_as_deeply_as_they_like(depth: int) -> None:
    rows = [(0, i, 10_000 - i, False) for i in range(depth)]
    rows += [(0, depth, depth, True), (1, depth, depth, True), (0, 10_000, 10_001, False)]
    found, expected = enclosed(rows)
    assert found == expected == [*range(-1, depth - 1), depth - 1, NO_ID, NO_ID]


def test_nothing_lies_in_nothing() -> None:
    none = np.empty(0, np.int64)
    assert enclosing(none, none, none, np.empty(0, np.bool_)).tolist() == []
