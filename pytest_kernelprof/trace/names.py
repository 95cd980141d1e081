"""Columns of what repeats, names above all: each different value once, and of each row its number.

Traces repeat a few long names very often. What is asked of a name is asked once for each text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Self

    from pytest_kernelprof.trace.arrays import Bools, Ints

Value = TypeVar("Value")

# To ask something of a name takes as long as to look through so many rows for it.
_ROWS_OF_A_QUESTION = 100


class Coded(Generic[Value]):
    """The values of a table's rows; indexed as an array is.

    Attributes:
        codes: of each row the index of its value.
        values: the different ones; parts of a table share them, so some may have no row.
    """

    __slots__ = ("codes", "values")

    def __init__(self, codes: Ints, values: Sequence[Value]) -> None:
        self.codes = codes
        self.values = values

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.tolist())

    @overload
    def __getitem__(self, rows: int | np.integer) -> Value: ...

    @overload
    def __getitem__(self, rows: Ints | Bools | slice | list[int]) -> Self: ...

    def __getitem__(self, rows: Any) -> Value | Self:
        if isinstance(rows, int | np.integer):
            value: Value = self.values[self.codes[rows]]
            return value
        return type(self)(self.codes[rows], self.values)

    def tolist(self) -> list[Value]:
        """The value of each row; rows that are equal have the same object."""
        if len(self.values) > len(self):  # as of a part of a table
            return list(map(self.values.__getitem__, self.codes.tolist()))
        found: list[Value] = np.fromiter(self.values, object, len(self.values))[self.codes].tolist()
        return found


class Names(Coded[str]):
    """The names of a table's rows."""

    __slots__ = ()

    @property
    def texts(self) -> Sequence[str]:
        """The different names."""
        return self.values

    def distinct(self) -> set[str]:
        """The different names of these rows."""
        return {self.texts[code] for code in self._present()}

    def that(self, holds: Callable[[str], object]) -> Bools:
        """Of which rows something holds of the name: asked once for each text."""
        verdict = np.zeros(len(self.texts), np.bool_)
        few = len(self.texts) * _ROWS_OF_A_QUESTION < len(self)
        for code in range(len(self.texts)) if few else self._present():
            verdict[code] = bool(holds(self.texts[code]))
        found: Bools = verdict[self.codes]
        return found

    def are(self, name: str) -> Bools:
        """Which rows have that name."""
        return self.that(name.__eq__)

    def _present(self) -> list[int]:
        used = np.zeros(len(self.texts), np.bool_)
        used[self.codes] = True
        present: list[int] = np.flatnonzero(used).tolist()
        return present


class Different(dict[Value, int]):
    """Gives each new value the next number."""

    def __missing__(self, value: Value) -> int:
        number = self[value] = len(self)
        return number


Numbering = Different[str]
