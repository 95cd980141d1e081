"""A row a rank and a total, as words: what the terminal, Markdown and the page lay out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.cells import value_of
from pytest_kernelprof.digest.ranks import alike_neighbours, odd_ones, ranks_of, spread_of
from pytest_kernelprof.digest.stragglers import straggler_of
from pytest_kernelprof.report.cells import time_unit
from pytest_kernelprof.report.widths import left, right, width_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_kernelprof.digest.ranks import Odd, Rank
    from pytest_kernelprof.schema.run import Profile

    Value = Callable[[Rank], float | None]

_APART = 1.05
_GAP = "  "
_UNMATCHED = "not to be had: "


@dataclass(frozen=True, slots=True)
class RankRow:
    """The cells of ranks that stand together and are alike, or of all of them.

    Attributes:
        differs: whether this one is not as most are.
    """

    cells: tuple[str, ...]
    differs: bool = False


@dataclass(frozen=True, slots=True)
class RankTable:
    """Titles and rows, of ranks the total last; a column that says nothing of any is not there."""

    titles: tuple[str, ...]
    rows: tuple[RankRow, ...]


def rank_table(ranks: Sequence[Rank], odd: Sequence[Odd], what: str = "rank") -> RankTable:
    """The table.

    Args:
        odd: those that are not as most are, which have rows of their own. what: what they are.
    """
    groups = alike_neighbours(ranks, odd)
    columns = [(what, [*map(_names, groups), "all"])]
    on_cpu = all(one.profile.environment.kind == "cpu" for one in ranks)
    for title, value, timed in _VALUES:
        cells = _cells(groups, ranks, value, timed=timed)
        if cells is not None:
            unit, told = cells
            named = "operators" if on_cpu and title == "kernels" else title
            columns.append((f"{named} {unit}".rstrip(), told))
    apart = {one.rank.name for one in odd}
    rows = zip(*(cells for _, cells in columns), strict=True)
    differs = [*(group[0].name in apart for group in groups), False]
    made = [RankRow(cells, is_odd) for cells, is_odd in zip(rows, differs, strict=True)]
    adds_up = what == "rank" and len(ranks) > 1
    return RankTable(tuple(title for title, _ in columns), tuple(made if adds_up else made[:-1]))


def texts_of(table: RankTable) -> list[str]:
    """The table as text, its titles first: as wide as its cells, numbers to the right."""
    columns = list(zip(table.titles, *(row.cells for row in table.rows), strict=True))
    widths = [max(map(width_of, cells)) for cells in columns]
    aligned = [left, *([right] * (len(columns) - 1))]
    return [
        _GAP.join(to(cell, wide) for to, cell, wide in zip(aligned, cells, widths, strict=True))
        for cells in (table.titles, *(row.cells for row in table.rows))
    ]


def ranks_told(profile: Profile) -> tuple[RankTable, tuple[str, ...]] | None:
    """The table of a profile's ranks, and what is said of them; None of one rank."""
    ranks = ranks_of(profile)
    if not ranks:
        return None
    odd = odd_ones(ranks)
    return rank_table(ranks, odd), tuple(waiting_words(ranks, odd))


def waiting_words(ranks: Sequence[Rank], odd: Sequence[Odd]) -> Iterator[str]:
    """Whom the others wait for and how far the ranks are apart, a sentence each; why it is not
    known who waits, where they communicate.

    Args:
        odd: those of which it is said elsewhere how much longer they take.
    """
    straggler = straggler_of([one.profile for one in ranks])
    if straggler is not None:
        yield straggler.words
    spread = spread_of(ranks, "cuda_time")
    said = {one.rank.name for one in odd if one.slower}
    if spread is not None and spread.times >= _APART and spread.slowest.name not in said:
        yield (
            f"The slowest is rank {spread.slowest.name}: its own kernels take {spread.times:.2f} "
            "times as long as those of the median rank."
        )
    reasons = (one.profile.metrics.get("comm_wait") for one in ranks)
    unmatched = [one.why for one in reasons if one is not None and one.why.startswith(_UNMATCHED)]
    if unmatched:
        yield f"Who waits for whom is {unmatched[0]}."


def _names(group: Sequence[Rank]) -> str:
    return group[0].name if len(group) == 1 else f"{group[0].name}..{group[-1].name}"


_VALUES: tuple[tuple[str, Value, bool], ...] = (
    ("kernels", lambda one: float(one.profile.kernel_count), False),
    ("GPU", lambda one: one.own_us, True),
    ("comm", lambda one: value_of(one.profile, "comm_time"), True),
    ("exposed", lambda one: value_of(one.profile, "exposed_comm_time"), True),
    ("comm wait", lambda one: value_of(one.profile, "comm_wait"), True),
    ("idle", lambda one: value_of(one.profile, "gpu_idle"), True),
    ("waits", lambda one: value_of(one.profile, "syncs"), False),
    ("copies", lambda one: value_of(one.profile, "memcpys"), False),
)


def _cells(
    groups: Sequence[Sequence[Rank]], ranks: Sequence[Rank], value: Value, *, timed: bool
) -> tuple[str, list[str]] | None:
    """The unit, a cell for each group, and one for all; None where every rank has none, or zero."""
    values = [value(one) for one in ranks]
    if not any(values):
        return None
    there = [one for one in values if one is not None]
    unit = time_unit(there)

    def words(number: float) -> str:
        return unit.words(number) if timed else f"{number:.0f}"

    told = []
    for group in groups:
        ours = [one for one in map(value, group) if one is not None]
        ends = [words(min(ours)), words(max(ours))] if ours else [""]
        told.append("..".join(dict.fromkeys(ends)))
    told.append(words(sum(there)) if len(there) == len(values) else "")
    return (unit.name if timed else ""), told
