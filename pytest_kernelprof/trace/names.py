"""A column of names: each different text once, and for each row the number of its text.

Traces repeat a few long names very often. What is asked of a name is asked once for each text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_kernelprof.trace.model import Bools, Ints


class Names:
    """The names of a table's rows; indexed as an array is.

    Attributes:
        codes: of each row the index of its text.
        texts: the different names; parts of a table share them, so some may have no row.
    """

    __slots__ = ("codes", "texts")

    def __init__(self, codes: Ints, texts: Sequence[str]) -> None:
        self.codes = codes
        self.texts = texts

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    @overload
    def __getitem__(self, rows: int | np.integer) -> str: ...

    @overload
    def __getitem__(self, rows: Ints | Bools | slice | list[int]) -> Names: ...

    def __getitem__(self, rows: int | np.integer | Ints | Bools | slice | list[int]) -> str | Names:
        if isinstance(rows, int | np.integer):
            name: str = self.texts[self.codes[rows]]
            return name
        return Names(self.codes[rows], self.texts)

    def tolist(self) -> list[str]:
        """The name of each row."""
        return list(map(self.texts.__getitem__, self.codes.tolist()))

    def distinct(self) -> set[str]:
        """The different names of these rows."""
        return {self.texts[code] for code in self._present()}

    def that(self, holds: Callable[[str], object]) -> Bools:
        """Of which rows something holds of the name: asked once for each text."""
        verdict = np.zeros(len(self.texts), np.bool_)
        for code in self._present():
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


class Numbering(dict[str, int]):
    """Gives each new text the next number."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number
