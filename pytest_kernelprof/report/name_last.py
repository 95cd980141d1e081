"""Tables whose numbers stand left and whose name comes last, whole, wrapped under itself.

The columns never move, whatever the names are. Where little is left for the name, columns give way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.report.widths import right, width_of, wrapped_name

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = "  "
_MARK = 2
_LEAST_NAME = 40


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column.

    Attributes:
        title: with the unit that all its cells are in.
        cells: one a row, empty where a value could not be had.
        gives_way: where space is short, the least first; None where it never does.
        key: what it is of, for who has to tell it elsewhere where it gave way.
    """

    title: str
    cells: tuple[str, ...]
    gives_way: int | None = None
    key: str = ""

    @property
    def width(self) -> int:
        """Of its widest cell."""
        return max(map(width_of, (self.title, *self.cells)))


@dataclass(frozen=True, slots=True)
class Laid:
    """A table as lines.

    Attributes:
        title: the line of titles.
        rows: of each row what stands before the name, cell by cell, and the lines of its name.
        indent: where names begin, for their further lines.
        gone: the keys of the columns that gave way.
    """

    title: str
    rows: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    indent: int
    gone: frozenset[str]


def lay_out(
    columns: Sequence[Numbers], names: Sequence[str], width: int, *, name: str, cut: str = "…"
) -> Laid:
    """The table in so many columns of the terminal; before each row there are two for a mark.

    Args:
        names: one a row, in the order of the cells.
        name: the title of the names. cut: what marks the place where a name is cut.
    """
    shown = _shown(columns, names, width)
    indent = _indent(shown)
    room = max(width - indent, _LEAST_NAME // 2)
    title = _GAP.join([*(right(one.title, one.width) for one in shown), name])
    cells = [[right(one.cells[at], one.width) for one in shown] for at in range(len(names))]
    told = (tuple(wrapped_name(one, room, cut)) for one in names)
    return Laid(
        " " * _MARK + title,
        tuple((tuple(row), lines) for row, lines in zip(cells, told, strict=True)),
        indent,
        frozenset(one.key for one in columns) - {one.key for one in shown},
    )


def _indent(columns: Sequence[Numbers]) -> int:
    return _MARK + sum(one.width + len(_GAP) for one in columns)


def _shown(columns: Sequence[Numbers], names: Sequence[str], width: int) -> list[Numbers]:
    """Those that are left once names have room enough: 40 columns, or what the longest takes."""
    shown = list(columns)
    needed = min(_LEAST_NAME, max(map(width_of, names), default=0))
    while width - _indent(shown) < needed:
        candidates = [one for one in shown if one.gives_way is not None]
        if not candidates:
            return shown
        shown.remove(min(candidates, key=lambda one: one.gives_way or 0))
    return shown
