"""Text tables of a profile, its kernels, copies, waits and ranks; and of compared callables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from pytest_kernelprof.names.short_names import tell_apart
from pytest_kernelprof.report.tables import Column, Style, lay_out, left, right
from pytest_kernelprof.summary.kernels import times_words
from pytest_kernelprof.summary.ranks import ranks_told
from pytest_kernelprof.summary.verdicts import compared_metric, comparison_line, unstable_words
from pytest_kernelprof.summary.words import chain_words, line_words, shortened
from pytest_kernelprof.units import format_bytes, format_time, printable, time_unit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pytest_kernelprof.report.tables import Laid, Line
    from pytest_kernelprof.schema.comparison import KernelChange
    from pytest_kernelprof.schema.run import Comparison, Contestant, Kernel, Profile, Test
    from pytest_kernelprof.summary.kernels import NewKernels
    from pytest_kernelprof.summary.ranks import RankTable


class Nouns(NamedTuple):
    """What is counted on a device, what is above its callers, and whose time it is."""

    kernel: str
    caller: str
    device: str


NOUNS = {
    "cuda": Nouns("kernel", "launched by", "GPU"),
    "cpu": Nouns("operator", "called by", "CPU"),
}
"""By the kind of the environment."""
_STYLE = Style()
_LAST = 5
"""So many rows are left at the end of a table whose middle is cut out."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table of kernels, copies or waits: the cells before the name, the name, where it
    is launched, the sizes of grid and block, and the sign before the row."""

    numbers: tuple[str, ...]
    name: str
    chain: str = ""
    line: str = ""
    sizes: str = ""
    sign: str = ""


def lay_out_rows(
    numbers: Sequence[str], what: str, caller: str, rows: Sequence[TableRow], style: Style
) -> Laid:
    """Lay out kernels, copies or waits. Where space is short grid and block go, then names and
    lines are cut.

    Args:
        numbers, what, caller: the titles of the numbers, of the name and of the operators.
    """
    return lay_out(
        [
            *(
                Column(one, tuple(row.numbers[at] for row in rows))
                for at, one in enumerate(numbers)
            ),
            Column(what, tuple(row.name for row in rows), 1, least=12, align=left),
            Column("grid, block", tuple(row.sizes for row in rows), 0, align=left),
            Column("line", tuple(row.line for row in rows), 2, least=12, align=left),
            Column(caller, tuple(row.chain for row in rows), least=16, align=left),
        ],
        style,
    )


def kernel_table(
    profile: Profile,
    style: Style = _STYLE,
    *,
    most: int = 40,
    new: NewKernels | None = None,
    guilty: Collection[int] = (),
) -> list[str]:
    """Return a table of the kernels in launch order, equal neighbours as one.

    Args:
        most: how many rows there are; of more kernels those that are marked, the costliest and
            both ends.
        new: what is new since a baseline, which ``+`` and ``-`` mark.
        guilty: the kernels that a limit on names fails by, from 0, which ``>`` marks.
    """
    runs = [
        list(run)
        for _, run in groupby(
            _launches(profile, new, guilty), lambda one: (one.sign, one.name, one.line, one.chain)
        )
    ]
    totals = [sum(one.us or 0.0 for one in run) for run in runs]
    kept = _kept([run[0].sign for run in runs], totals, most)
    nouns, unit = NOUNS[profile.environment.kind], time_unit(totals)
    skipped, rows = 0, []
    for at, (run, us) in enumerate(zip(runs, totals, strict=True)):
        number, first = sum(one.number for one in run), run[0]
        if at not in kept:
            skipped += number
            continue
        if skipped:
            rows.append(TableRow(("", ""), f"... {skipped} more ..."))
            skipped = 0
        ends = dict.fromkeys(str(one.at) for one in (first, run[-1]) if one.at)
        numbers = ("..".join(ends), "" if first.us is None else unit.words(us))
        name = times_words(first.name, number)
        rows.append(TableRow(numbers, name, first.chain, first.line, sign=first.sign))
    titles = ("#", f"{nouns.device} {unit.name}")
    signs = [row.sign for row in rows]
    if not any(signs):
        return lay_out_rows(titles, nouns.kernel, nouns.caller, rows, style).texts
    laid = lay_out_rows(titles, nouns.kernel, nouns.caller, rows, style.within(2))
    return laid.marked(signs)


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel at its position; or kernels of one kind that are gone, at 0."""

    sign: str
    at: int
    name: str
    line: str
    chain: str
    us: float | None
    number: int = 1


def _launches(
    profile: Profile, new: NewKernels | None, guilty: Collection[int]
) -> Iterator[_Launch]:
    names = tell_apart(kernel.name for kernel in profile.kernels)
    positions, gone = (new.positions, new.gone) if new else (frozenset[int](), ())
    for at, kernel in enumerate(profile.kernels):
        yield from (_gone(one) for one in gone if one.at == at + 1)
        sign = "+" if at in positions else ">" if at in guilty else ""
        line, chain = _line_words(profile, kernel.source), chain_of(kernel)
        yield _Launch(sign, at + 1, names[kernel.name], line, chain, kernel.duration_us)
    yield from (_gone(one) for one in gone if not one.at)


def _gone(one: KernelChange) -> _Launch:
    side = one.baseline
    assert side is not None  # it is gone
    chain = chain_words(side.operators, side.name)
    return _Launch("-", 0, side.short_name, "", chain, side.duration_us, one.times)


def _kept(signs: Sequence[str], totals: Sequence[float], most: int) -> set[int]:
    """Choose the rows that are shown: those with a sign and their neighbours, the costliest, and
    both ends."""
    everything = range(len(signs))
    if len(signs) <= most:
        return set(everything)
    signed = [at for at in everything if signs[at]][: most // 2]
    kept = {near for at in signed for near in (at - 1, at, at + 1)} & set(everything)
    kept |= set(sorted(everything, key=lambda at: -totals[at])[: most // 4])
    kept |= set(everything[-_LAST:])
    return kept | set([at for at in everything if at not in kept][: max(0, most - len(kept))])


def copy_table(profile: Profile, style: Style = _STYLE) -> list[str]:
    """Return a table of the memory copies."""
    rows = [
        TableRow(
            (str(at), format_time(copy.duration_us), format_bytes(copy.bytes)),
            copy.name,
            chain_words(copy.operators),
            _line_words(profile, copy.source),
        )
        for at, copy in enumerate(profile.copies, 1)
    ]
    return lay_out_rows(("#", "GPU time", "size"), "copy", "called by", rows, style).texts


def wait_table(profile: Profile, style: Style = _STYLE) -> list[str]:
    """Return a table of the host's waits for the device; on the CPU of those on a GPU."""
    rows = [
        TableRow(
            (str(at),), w.call, chain_words(w.operators, w.call), _line_words(profile, w.source)
        )
        for at, w in enumerate(profile.waits, 1)
    ]
    what = "would wait in" if profile.environment.kind == "cpu" else "waits in"
    return lay_out_rows(("#",), what, "called by", rows, style).texts


def chain_of(kernel: Kernel) -> str:
    """Return the operators that launched a kernel, in words."""
    return chain_words(kernel.operators, kernel.name)


def _line_words(profile: Profile, source: str) -> str:
    """The line that launched it; in parentheses that of the call, region or test that it was
    launched in, where more is not known (code of a library alone, one-shot profiles)."""
    if source:
        return os.path.basename(source)
    return f"({line_words(profile.place)})" if profile.place else ""


def rank_table_lines(table: RankTable, style: Style) -> Iterator[Line]:
    """Yield a row for each rank and the total, and below what is said of them."""
    columns = list(zip(table.titles, *(row.cells for row in table.rows), strict=True))
    told = [
        Column(title, tuple(cells), -at if at > 2 else None, align=right if at else left)
        for at, (title, *cells) in enumerate(columns)
    ]
    differs = tuple("<- differs" if row.differs else "" for row in table.rows)
    laid = lay_out([*told, Column("", differs, align=left)], style)
    yield from laid.coloured(["yellow" if one else "" for one in differs])


def lines_of_ranks(profile: Profile, style: Style) -> Iterator[Line]:
    """Yield the table of the ranks of a call, and what is said of them; nothing of one rank."""
    told = ranks_told(profile)
    if told is not None:
        yield from rank_table_lines(told[0], style)
        yield from (line for one in told[1] for line in style.sentence(one))


# Compared callables.


def comparison_table(comparison: Comparison, style: Style = _STYLE) -> list[str]:
    """Return a table of the callables: kernels, value with its spread, speedup with its interval;
    then what is known of their results."""
    titles = ("kernels", compared_metric(comparison), "speedup", "99 % CI")
    rows = [cells_of(comparison, one) for one in comparison.contestants]
    columns = [Column(one, tuple(row[at] for row in rows)) for at, one in enumerate(titles)]
    names = tuple(one.name for one in comparison.contestants)
    table = lay_out([*columns, Column("callable", names, align=left)], style).texts
    return [*table, *check_lines(comparison), *unstable_words(comparison)]


def comparison_lines(tests: Sequence[Test], style: Style) -> list[str]:
    """Return the tables of comparisons, each under its test, and how each assertion fared."""
    lines = []
    for test in sorted(tests, key=lambda test: test.id):
        ended = "" if test.outcome == "passed" else f" ({test.outcome})"
        for comparison in test.comparisons:
            told = comparison_table(comparison, style.within(2))
            told += [
                f"{style.sign(one.outcome)[0]} {one.outcome}: {comparison_line(comparison, one)}"
                for one in comparison.verdicts
            ]
            lines += [shortened(test.id) + ended, *(f"  {line}" for line in told)]
    return [style.say(line) for line in lines]


def check_lines(comparison: Comparison) -> list[str]:
    """Return how the results of each candidate compare with those of the reference."""
    told = (f"{one.name}: {'; '.join(one.checks)}" for one in comparison.contestants if one.checks)
    return list(map(printable, told))


def cells_of(comparison: Comparison, one: Contestant) -> tuple[str, ...]:
    """Return the kernels of a callable, its value with its spread, its speedup and the interval."""
    paired = one.paired
    interval = paired.speedup_interval if paired is not None else None
    return (
        str(one.kernels),
        _value(comparison, one),
        f"{paired.speedup:.3f}" if paired is not None else "reference",
        "{:.3f}..{:.3f}".format(*interval) if interval is not None else "",
    )


def _value(comparison: Comparison, one: Contestant) -> str:
    if comparison.metric == "peak_memory":
        return format_bytes(one.value)
    if one.low is None or one.high is None or not one.value:
        return format_time(one.value)
    return f"{format_time(one.value)} ±{(one.high - one.low) / 2 / one.value * 100:.1f}%"
