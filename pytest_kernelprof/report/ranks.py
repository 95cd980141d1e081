"""Several ranks side by side: the odd one first, then a row each and a total, as words that the
terminal, Markdown and the page lay out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.report.style import Span
from pytest_kernelprof.report.tables import left, right, time_unit, width_of, wrapped
from pytest_kernelprof.summary.causes import causes_of_diff
from pytest_kernelprof.summary.ranks import (
    alike_neighbours,
    odd_ones,
    ranks_of,
    spread_of,
    straggler_words,
)
from pytest_kernelprof.summary.verdicts import completeness_words
from pytest_kernelprof.summary.words import count_words, line_words, place_words, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_kernelprof.report.style import Line, Style
    from pytest_kernelprof.schema.comparison import KernelDiff
    from pytest_kernelprof.schema.run import Profile
    from pytest_kernelprof.summary.ranks import Odd, Rank

    Value = Callable[[Rank], float | None]


_APART = 1.05
_GAP = "  "
_UNMATCHED = "not available: "


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
    yield from filter(None, [straggler_words([one.profile for one in ranks])])
    slowest, times = spread_of(ranks, "cuda_time") or (None, 0.0)
    said = {one.rank.name for one in odd if one.slower}
    if slowest is not None and times >= _APART and slowest.name not in said:
        yield (
            f"The slowest is rank {slowest.name}: its own kernels take {times:.2f} times as long "
            "as those of the median rank."
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


_MOST_ODD = 3
_MOST_CAUSES = 6
_WORDS = {
    "kernels": ("kernel", "kernels"),
    "memcpys": ("copy", "copies"),
    "syncs": ("wait", "waits"),
}


def rank_lines(
    ranks: Sequence[Rank], unread: Mapping[str, str], diffs: Mapping[str, KernelDiff], style: Style
) -> list[Line]:
    """What they come to and which one is the odd one, a row each, and what that one does.

    Args:
        unread: why a file is no trace, by its name.
        diffs: of ranks that are not as most are, by name, how they differ from one that is.
    """
    odd = odd_ones(ranks)
    lines = [*_verdict(ranks, unread, odd, style), *_places(ranks, style)]
    lines += [line for one in waiting_words(ranks, odd) for line in style.sentence(one)]
    lines += [(), *_table_lines(rank_table(ranks, odd, _what(ranks)), style)]
    for one in odd:
        lines += _why(one, diffs, _what(ranks), style)
    for one in odd[:1]:
        if one.like.file != one.rank.file:
            words = f"kernelprof diff {one.like.file} {one.rank.file}"
            lines += [(), (Span(style.say(words), "dim"),)]
    return lines


def _what(ranks: Sequence[Rank]) -> str:
    """Files that no number of a rank is found in the names of are traces."""
    return "rank" if all(one.name.partition(".")[0].isdigit() for one in ranks) else "trace"


def _verdict(
    ranks: Sequence[Rank], unread: Mapping[str, str], odd: Sequence[Odd], style: Style
) -> Iterator[Line]:
    lost = [one for one in ranks if not one.profile.integrity.complete]
    what = _what(ranks)
    told = [f"{what} {one.name}: {one.profile.integrity.problems[0]}" for one in lost]
    told += [f"{name} is not read: {why}" for name, why in unread.items()]
    if told:
        yield from style.sentence(f"INCOMPLETE: {told[0]}", "red")
        for one in told[1:]:
            yield from style.sentence(one, "red")
    kernels = sum(one.profile.kernel_count for one in ranks)
    on_cpu = all(one.profile.environment.kind == "cpu" for one in ranks)
    counted = count_words(kernels, "operator" if on_cpu else "kernel")
    state = "" if told else f"; {completeness_words([one.profile.integrity for one in ranks])}"
    words = f"{count_words(len(ranks), what)}, {counted}{state}."
    yield from style.sentence(
        " ".join([words, *(_odd_words(one, what) for one in odd[:_MOST_ODD])]), "bold"
    )


def _odd_words(odd: Odd, what: str) -> str:
    """For example ``Rank 3 differs: 2 kernels and 2 waits more, 16 % more GPU time.``"""
    told = []
    for sign, word in ((1, "more"), (-1, "fewer")):
        several = [
            count_words(abs(int(by)), *_WORDS[name])
            for name, by in odd.counts.items()
            if by * sign > 0
        ]
        if several:
            told.append(f"{' and '.join(several)} {word}")
    if odd.slower:
        told.append(
            f"{abs(odd.slower) * 100:.0f} % {'more' if odd.slower > 0 else 'less'} GPU time"
        )
    return f"{what.capitalize()} {odd.rank.name} differs: {', '.join(told)}."


def _places(ranks: Sequence[Rank], style: Style) -> Iterator[Line]:
    places = dict.fromkeys(place_words(one.profile.environment) for one in ranks)
    yield from style.sentence("; ".join(places), "dim")


def lines_of_ranks(profile: Profile, style: Style, indent: int) -> Iterator[Line]:
    """A row a rank and a total, and what is said of them; nothing of one rank."""
    told = ranks_told(profile)
    if told is None:
        return
    table, sentences = told
    pad = Span(" " * indent)
    yield from ((pad, *line) for line in _table_lines(table, style))
    for sentence in sentences:
        lines = wrapped(style.say(sentence), max(style.width - indent, 20))
        yield from ((pad, Span(line)) for line in lines)


def _table_lines(table: RankTable, style: Style) -> Iterator[Line]:
    title, *rows = texts_of(table)
    yield (Span(style.say(title), "dim"),)
    for text, row in zip(rows, table.rows, strict=True):
        told = Span(style.say(text), "yellow" if row.differs else "")
        yield (told, Span("  <- differs")) if row.differs else (told,)


def _why(odd: Odd, diffs: Mapping[str, KernelDiff], what: str, style: Style) -> Iterator[Line]:
    """What it launches that the others do not."""
    found = causes_of_diff(diffs[odd.rank.name]) if odd.rank.name in diffs else ()
    if not found:
        return
    yield ()
    head = f"{what} {odd.rank.name} "
    for at, cause in enumerate(found[:_MOST_CAUSES]):
        where = f"  {line_words(cause.place)}" if cause.place else ""
        words = style.say(f"{cause.sign or '~'} {cause.text}{where}")
        yield (Span(left(head if not at else "", len(head)) + words),)
    if len(found) > _MOST_CAUSES:
        yield (Span(" " * len(head) + f"{len(found) - _MOST_CAUSES} more changes"),)
