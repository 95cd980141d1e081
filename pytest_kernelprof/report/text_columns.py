"""Tables with several columns of text: numbers left, and what matters least gives way first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.report.widths import cut_end, left, right, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.report.name_last import Numbers

_GAP = "  "


@dataclass(frozen=True, slots=True)
class Words:
    """A column of text.

    Attributes:
        title: what stands above it.
        cells: one a row.
        least: so narrow may it become.
        gives_way: in which order columns become narrow, the least first.
        goes: whether it goes altogether where it would have to be narrower than it is.
    """

    title: str
    cells: tuple[str, ...]
    least: int
    gives_way: int
    goes: bool = False

    @property
    def width(self) -> int:
        """Of its widest cell."""
        return max(map(width_of, (self.title, *self.cells)))


def text_table(
    numbers: Sequence[Numbers], words: Sequence[Words], width: int, cut: str
) -> list[str]:
    """The lines, titles first. A column of text without any cell is none."""
    told = [one for one in words if any(one.cells)]
    room = width - sum(one.width + len(_GAP) for one in numbers)
    widths = _fitted(told, room)
    told = [one for one in told if one.title in widths]
    titles = [right(one.title, one.width) for one in numbers]
    titles += [left(one.title, widths[one.title]) for one in told]
    lines = [titles]
    for at in range(len(told[0].cells) if told else 0):
        cells = [right(one.cells[at], one.width) for one in numbers]
        for one in told:
            wide = widths[one.title]
            cells.append(left(_fit(one.cells[at], wide, cut), wide))
        lines.append(cells)
    return [_GAP.join(cells).rstrip() for cells in lines]


def _fitted(words: Sequence[Words], room: int) -> dict[str, int]:
    """How wide each column is; of those that are left out, none."""
    widths = {one.title: one.width for one in words}
    for one in sorted(words, key=lambda one: one.gives_way):
        excess = sum(widths.values()) + len(_GAP) * (len(widths) - 1) - room
        if excess <= 0:
            break
        if one.goes:
            del widths[one.title]
        else:
            widths[one.title] = max(min(one.least, one.width), one.width - excess)
    return widths


def _fit(text: str, width: int, cut: str) -> str:
    """Text that fits; what stands in brackets at its end stays whole where it can."""
    if width_of(text) <= width:
        return text
    stem, bracket, what = text.partition(" [")
    kept = width - width_of(bracket + what)
    if bracket and kept > len(cut) + 4:
        return cut_end(stem, kept, cut) + bracket + what
    return cut_end(text, width, cut)
