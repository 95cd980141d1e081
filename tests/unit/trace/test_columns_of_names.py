"""A column of names, each different text once."""

from __future__ import annotations

import numpy as np

from pytest_kernelprof.trace.columns import Different, Names

NAMES = Names(np.array([1, 0, 1, 2], np.int32), ("mm", "add", "mul", "of no row"))


def test_a_column_of_names_is_indexed_as_an_array_is() -> None:
    assert NAMES.tolist() == list(NAMES) == ["add", "mm", "add", "mul"]
    assert (len(NAMES), NAMES[1], NAMES[np.int64(-1)]) == (4, "mm", "mul")
    assert NAMES[np.array([3, 0])].tolist() == NAMES[[3, 0]].tolist() == ["mul", "add"]
    assert NAMES[NAMES.are("add")].tolist() == ["add", "add"]
    assert NAMES[1:3].tolist() == ["mm", "add"]


def test_each_text_is_asked_once_and_those_without_a_row_are_not() -> None:
    asked: list[str] = []
    found = NAMES.that(lambda name: asked.append(name) or name.startswith("m"))
    assert found.tolist() == [False, True, False, True]
    assert sorted(asked) == ["add", "mm", "mul"]
    assert NAMES[:2].distinct() == {"add", "mm"}


def test_a_numbering_gives_new_texts_the_next_number() -> None:
    numbers = Different[str]()
    assert [numbers[name] for name in ("b", "a", "b", "c")] == [0, 1, 0, 2]
    assert list(numbers) == ["b", "a", "c"]
