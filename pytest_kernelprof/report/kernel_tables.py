"""The tables of a profile, made once for all formats: kernels, copies, waits, ranks, what changed
against a baseline; and of compared callables."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from pytest_kernelprof.kernel_names.short_names import tell_apart
from pytest_kernelprof.records import comparison as compared
from pytest_kernelprof.records.comparison import KernelChange, KernelDiff, ProfileComparison
from pytest_kernelprof.records.document import ComparedCallable, Comparison, Test
from pytest_kernelprof.records.metrics import METRICS, OF_WORST_KERNEL
from pytest_kernelprof.records.profile import Copy, Kernel, Profile, Wait
from pytest_kernelprof.report.tables import Column, Line, Style, Table
from pytest_kernelprof.summary import verdicts, wording
from pytest_kernelprof.summary.comparisons import differs
from pytest_kernelprof.summary.kernels import NewKernels, times_words
from pytest_kernelprof.summary.ranks import Rank, odd_ones, ranks_of, waiting_words
from pytest_kernelprof.units import TimeUnit, format_bytes, format_time, printable, time_unit


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
MOST_ROWS = 40
_STYLE = Style()
_TITLES = ("registers", -1), ("shared memory", -2), ("spills", 0)  # as in OF_WORST_KERNEL
_LAUNCH = (Column("grid, block", (), 0, kind="name"), *(Column(t, (), by) for t, by in _TITLES))
"""How kernels are launched, and what they need; a column only where one has it."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A kernel, copy or wait; or several that are alike.

    Attributes:
        name: in short. full: the full name of a kernel.
        chain: the operators that launched it. line: where.
        sign: before the row: ``+`` new, ``-`` gone, ``~`` changed, ``>`` fails a limit.
        us: what it takes; None if unknown. before_us: what it took in the baseline.
        at: its position from 1; 0 for kernels that are gone, or kept by name alone.
        number: how many there are. positions: where, in words.
        bytes: what a copy moves. launch: the cells of ``_LAUNCH``.
    """

    name: str
    chain: str = ""
    line: str = ""
    sign: str = ""
    full: str = ""
    us: float | None = None
    before_us: float | None = None
    at: int = 0
    number: int = 1
    positions: str = ""
    bytes: int = 0
    launch: tuple[str, ...] = ("", "", "", "")

    @property
    def kind(self) -> tuple[str, ...]:
        """What it has in common with others that are alike."""
        return self.sign, self.name, self.line, self.chain


def table_of_rows(numbers: Iterable[Column], nouns: Nouns, rows: Sequence[TableRow]) -> Table:
    """Make a table. Where space is short, the chain of operators wraps, then it stands below each
    row; names and lines are cut only where even that does not suffice.

    Args:
        numbers: the columns before the name. nouns: have the titles of name and operators.
    """
    names, full = tuple(row.name for row in rows), tuple(row.full for row in rows)
    name = Column(nouns.kernel, names, 1, least=12, kind="name", full=full)
    line = Column("line", tuple(row.line for row in rows), 2, least=12, kind="name")
    caller = Column(nouns.caller, tuple(row.chain for row in rows), kind="name")
    launch = Table.of(_LAUNCH, [row.launch for row in rows]).columns
    return Table((*numbers, name, line, caller), tuple(row.sign for row in rows), launch)


def time_column(title: str, times: Sequence[float | None], unit: TimeUnit) -> Column:
    """Return a column of times, empty where one is unknown."""
    return Column(title, tuple("" if us is None else unit.words(us) for us in times))


def row_of(kernel: Kernel | compared.KernelSide, name: str) -> TableRow:
    """Return the row of a kernel, with what is known of it wherever it is from."""
    chain, line = wording.chain(kernel.operators, kernel.name), os.path.basename(kernel.source)
    return TableRow(name, chain, line, full=kernel.name, us=kernel.duration_us)


# Kernels, copies and waits.


def _folded(found: Sequence[TableRow], most: int) -> list[TableRow]:
    """Equal neighbours as one. Of more than so many, those that are alike are one wherever they
    run; of more kinds, those with a sign and the costliest are left, and one row for the others."""
    groups = [list(run) for _, run in groupby(found, lambda one: one.kind)]
    if len(groups) > most:
        groups = list(wording.grouped(found, lambda one: one.kind).values())
    rows = list(map(_together, groups))
    order = sorted(range(len(rows)), key=lambda at: (not rows[at].sign, -(rows[at].us or 0.0)))
    told = [rows[at] for at in sorted(order[:most])]
    if rest := [rows[at] for at in order[most:]]:
        number = sum(one.number for one in rest)
        words = f"... {number:,} more of {wording.count(len(rest), 'kind')} ..."
        size = sum(one.bytes for one in rest)
        told.append(TableRow(words, us=_sum_of(rest), bytes=size, number=number))
    return told


def _together(group: Sequence[TableRow]) -> TableRow:
    """The row of those that are alike, which may still differ in their sizes."""
    first, last, number = group[0], group[-1], sum(one.number for one in group)
    positions = "..".join(dict.fromkeys(str(one.at) for one in (first, last) if one.at))
    return replace(
        first,
        name=times_words(first.name, number),
        us=_sum_of(group),
        number=number,
        positions=positions if last.at - first.at < len(group) else f"{first.at}, ...",
        bytes=sum(one.bytes for one in group),
        launch=tuple(map(_one_of, zip(*(one.launch for one in group), strict=True))),
    )


def _one_of(cells: Sequence[str]) -> str:
    return cells[0] if len({*cells}) == 1 else "several"


def _sum_of(rows: Sequence[TableRow]) -> float | None:
    known = [one.us for one in rows if one.us is not None]
    return sum(known) if known else None


def kernel_table(
    profile: Profile,
    *,
    most: int = MOST_ROWS,
    new: NewKernels | None = None,
    guilty: Collection[int] = (),
    slower: Collection[int] = (),
) -> Table:
    """Make a table of the kernels in launch order, equal neighbours as one row.

    Args:
        most: how many rows there are.
        new: what is new since a baseline, which ``+``, ``?`` and ``-`` mark.
        guilty: the kernels that a limit fails by, from 0, which ``>`` marks.
        slower: those that take longer than in a baseline, which ``~`` marks.
    """
    rows = _folded(list(launches(profile, new, guilty, slower)), most)
    return launch_table(NOUNS[profile.environment.kind], rows)


def launch_table(nouns: Nouns, rows: Sequence[TableRow]) -> Table:
    """Make a table of kernels, copies or waits with their positions, times and sizes."""
    unit = time_unit(one.us or 0.0 for one in rows)
    positions = Column("#", tuple(one.positions for one in rows))
    times = time_column(unit.name, [one.us for one in rows], unit)
    sizes = Column("size", tuple(format_bytes(one.bytes) if one.bytes else "" for one in rows))
    return table_of_rows((positions, times, sizes), nouns, rows)


def launches(
    profile: Profile,
    new: NewKernels | None = None,
    guilty: Collection[int] = (),
    slower: Collection[int] = (),
) -> Iterator[TableRow]:
    """Yield the kernels in launch order, those that are gone where they were, and at the end those
    that a document keeps by name alone."""
    marks, gone = (new.marks, new.gone) if new else ({}, ())
    full = [one.name for one in profile.kernels] + [one.name for one in profile.more_kernels]
    names = tell_apart(full + [one.baseline.name for one in gone if one.baseline])
    for at, kernel in enumerate(profile.kernels):
        yield from (_gone(one, names) for one in gone if one.at == at + 1)
        yield replace(
            row_of(kernel, names[kernel.name]),
            us=None if profile.compiled else kernel.duration_us,
            line=_line(profile, kernel),
            sign=marks.get(at) or (">" if at in guilty else "~" if at in slower else ""),
            at=at + 1,
            positions=str(at + 1),
            launch=(_sizes(kernel.grid, kernel.block), *_needs(kernel, profile)),
        )
    yield from (_gone(one, names) for one in gone if not one.at)
    for group in profile.more_kernels:
        name, us = names[group.name] if group.name else "(name not kept)", group.duration_us
        yield TableRow(name, "(operator not kept)", full=group.name, us=us, number=group.count)


def _gone(one: KernelChange, names: dict[str, str]) -> TableRow:
    side = one.baseline
    assert side is not None  # it is gone
    return replace(row_of(side, names[side.name]), line="", sign="-", number=one.times)


def _sizes(grid: Sequence[int], block: Sequence[int]) -> str:
    """Grid and block without the ones at their ends: ``2x66, 384``; empty if unknown."""
    told = ("x".join(map(str, size)) for size in (grid, block) if any(grid))
    return ", ".join(one.removesuffix("x1").removesuffix("x1") for one in told)


def _needs(kernel: Kernel, profile: Profile) -> Iterator[str]:
    """The registers, shared memory and spills of a kernel; empty where it has none."""
    for name in OF_WORST_KERNEL:
        in_registers = name == "spills" and "hip" in profile.environment.versions
        unit = "registers" if in_registers else METRICS[name].unit
        yield wording.amount(unit, needed) if (needed := kernel.need(name)) else ""


def _line(profile: Profile, one: Kernel | Copy | Wait) -> str:
    """The line that launched it; ``in`` that of the call, region or test where more is not known
    (code of a library alone, one-shot profiles)."""
    call = f"in {wording.line_of(profile.place)}" if profile.place else ""
    return (os.path.basename(one.source) or call) + " (allowed)" * bool(one.allowed)


def copy_table(profile: Profile, *, most: int = MOST_ROWS, guilty: Collection[int] = ()) -> Table:
    """Make a table of the memory copies. ``guilty``: those that a limit fails by, from 0."""
    called = ((one, _call_row(profile, one, one.name)) for one in profile.copies)
    rows = [replace(row, us=one.duration_us, bytes=one.bytes or 0) for one, row in called]
    return launch_table(Nouns("copy", "called by", "GPU"), _folded(_marked(rows, guilty), most))


def wait_table(profile: Profile, *, most: int = MOST_ROWS, guilty: Collection[int] = ()) -> Table:
    """Make a table of the host's waits for the device; on the CPU of those on a GPU. ``guilty``:
    those that a limit fails by, from 0."""
    rows = [_call_row(profile, one, one.call) for one in profile.waits]
    what = "would wait in" if profile.on_cpu else "waits in"
    return launch_table(Nouns(what, "called by", ""), _folded(_marked(rows, guilty), most))


def _call_row(profile: Profile, one: Copy | Wait, name: str) -> TableRow:
    return TableRow(name, wording.chain(one.operators, name), _line(profile, one))


def _marked(rows: Sequence[TableRow], guilty: Collection[int]) -> list[TableRow]:
    """With their positions, and a sign at those that a limit fails by."""
    return [replace(row, at=i + 1, sign=">" * (i in guilty)) for i, row in enumerate(rows)]


# Metrics and ranks.


def metric_table(profile: Profile) -> Table:
    """Make a table of all metrics that are not zero."""
    rows = []
    for one in profile.metrics.values():
        named = "operators" if profile.on_cpu and one.name == "kernels" else one.name
        ends = () if one.kind == "exact" else (one.low, one.high)
        interval = " to ".join(wording.amount(one.unit, us) for us in ends if us is not None)
        if one.value:
            rows.append((named, wording.amount(one.unit, one.value), interval, one.why))
    name, note = Column("metric", kind="name"), Column("note", kind="words")
    return Table.of((name, "value", "99 % interval", note), rows)


_OF_RANKS = {
    "kernels": "kernels",
    "GPU": "cuda_time",
    "comm": "comm_time",
    "exposed": "exposed_comm_time",
    "comm wait": "comm_wait",
    "idle": "gpu_idle",
    "waits": "syncs",
    "copies": "memcpys",
}
"""The metric of each column."""


def rank_table(ranks: Sequence[Rank], what: str = "rank") -> Table:
    """Make a table: a row for each rank that differs, and for neighbours that are alike; last the
    sums. What is zero or unknown in all has no column.

    Args:
        what: what they are; of traces that are no ranks there is no sum.
    """
    apart = {one.rank.name for one in odd_ones(ranks)}
    alike = groupby(ranks, lambda one: (one.name in apart and one.name, one.counts))
    groups = [list(group) for _, group in alike]
    names = tuple(wording.ends(one[0].name, one[-1].name) for one in groups)
    differs = tuple("differs" if one[0].name in apart else "" for one in groups)
    columns = (
        Column(what, (*names, "all"), kind="name"),
        *_columns_of_ranks(groups, ranks),
        Column("", (*differs, ""), kind="words"),
    )
    number = len(groups) + (what == "rank" and len(ranks) > 1)
    return Table(tuple(replace(one, cells=one.cells[:number]) for one in columns))


def _columns_of_ranks(groups: Sequence[Sequence[Rank]], ranks: Sequence[Rank]) -> Iterator[Column]:
    """Yield the columns of numbers: a cell for each group, and one for all ranks."""
    on_cpu = all(one.profile.on_cpu for one in ranks)
    for at, (title, metric) in enumerate(_OF_RANKS.items()):
        values = {one.name: wording.value_of(one.profile, metric) for one in ranks}
        if metric == "kernels":
            values = {one.name: float(one.profile.kernel_count) for one in ranks}
        known = [one for one in values.values() if one is not None]
        if any(known):
            unit = time_unit(known) if METRICS[metric].unit == "us" else TimeUnit("", 1.0, 0)
            cells = []
            for group in groups:
                ours = [one for one in (values[rank.name] for rank in group) if one is not None]
                ends = unit.words(min(ours, default=0.0)), unit.words(max(ours, default=0.0))
                cells.append(wording.ends(*ends) if ours else "")
            named = "operators" if on_cpu and metric == "kernels" else title
            total = unit.words(sum(known)) if len(known) == len(ranks) else ""
            yield Column(f"{named} {unit.name}".rstrip(), (*cells, total), -at if at > 1 else None)


def lines_of_ranks(profile: Profile, style: Style) -> Iterator[Line]:
    """Yield the table of the ranks of a call, and what is said of them; nothing of one rank."""
    if ranks := ranks_of(profile):
        yield from rank_table(ranks).coloured(style)
        yield from (line for one in waiting_words(ranks) for line in style.sentence(one))


# What changed against a baseline.


def change_table(
    changes: Sequence[KernelChange], nouns: Nouns = NOUNS["cuda"], most: int = MOST_ROWS
) -> Table:
    """Make a table with a row for each change: ``-`` removed, ``+`` added, ``~`` another time or
    launch. Repeats are one row, with ``x48`` and the time of one.

    Args:
        most: how many rows there are.
    """
    sides = [side for one in changes for side in (one.baseline, one.current) if side is not None]
    names = tell_apart(side.name for side in sides)
    together = wording.grouped(
        changes,
        lambda one: one.hunk if one.kind in compared.ADDED_OR_REMOVED else f"alone {id(one)}",
    )
    rows = [row for several in together.values() for row in _changed_rows(several, names)]
    if len(rows) > most:
        rows = [*rows[:most], TableRow(f"... and {len(rows) - most} more lines")]
    pairs = [[us for us in (one.before_us, one.us) if us is not None] for one in rows]
    times = Column("time", tuple(" -> ".join(map(format_time, one)) for one in pairs))
    return table_of_rows((times,), nouns, rows)


def _changed_rows(changes: Sequence[KernelChange], names: dict[str, str]) -> list[TableRow]:
    """The rows of changes that stand together; how often on the first."""
    first = changes[0]
    if first.kind in compared.RETIMED:
        return [_retimed_row(first, names)]
    left = (one for one in changes if one.kind != "moved")
    both = (pair for one in left for pair in (("-", one.baseline, one), ("+", one.current, one)))
    sides = [(sign, side, change) for sign, side, change in both if side is not None]
    below = f" (with {len(sides) - 1} below)" if first.times > 1 and len(sides) > 1 else ""
    return [
        replace(
            row := row_of(side, names[side.name]),
            name=row.name if at else times_words(row.name, first.times) + below,
            line=wording.either_line(row.line, change.lines if sign == "+" else ()),
            sign=sign,
            us=None if row.us is None else change.us(side),
        )
        for at, (sign, side, change) in enumerate(sides)
    ]


def _retimed_row(change: KernelChange, names: dict[str, str]) -> TableRow:
    before, now = change.baseline, change.side
    row = row_of(now, times_words(names[now.name], change.times))
    if change.kind == "reconfigured" and before is not None:
        told = f"reconfigured: {wording.configuration(before, now)}"
        row = replace(row, chain="; ".join(filter(None, (row.chain, told))))
    times = (None, None) if row.us is None else (change.us(now), change.us(before))
    return replace(row, sign="~", us=times[0], before_us=times[1])


def diff_lines(found: ProfileComparison, style: Style = _STYLE) -> list[str]:
    """Return what a verdict does not say of a comparison: what was not compared, a line for each
    change of the kernels, and the metrics that differ; of a snapshot, which has no times, the
    changes alone."""
    if (diff := found.kernels) is None:
        return []
    table = change_table(diff.changes, nouns_of(diff))
    lines = table.lines(style) if table.signs else []
    lines += [f"... and {diff.left_out} more changes"] if diff.left_out else []
    if found.source == "snapshot":
        return lines
    timed = found.paired is not None and found.paired.pairs
    told = {"kernels", *(one.name for one in found.worse), *(["cuda_time"] if timed else [])}
    lines = [*note_lines(found), *(lines or [f"{_counted(diff)}."])]
    return [*lines, *metric_lines(found, told)]


def metric_lines(found: ProfileComparison, told: Collection[str]) -> list[str]:
    """Return a line for each metric that differs and that both sides have.

    Args:
        told: the metrics that something else tells.
    """
    both = (one for one in found.metrics if one.baseline is not None and one.current is not None)
    return [verdicts.delta_line(one) for one in both if one.name not in told and differs(one)]


def diff_words(diff: KernelDiff) -> str:
    """``4 kernels -> 5, GPU time 200.7us -> 231.4us (+15.3 %).``"""
    words, before, now = _counted(diff), diff.baseline_us or 0.0, diff.current_us or 0.0
    if before or now:
        share = f" ({wording.percent(now / before - 1)})" if before else ""
        times = f"{format_time(before)} -> {format_time(now)}{share}"
        words += f", {nouns_of(diff).device} time {times}"
    return f"{words}."


def _counted(diff: KernelDiff) -> str:
    before = wording.count(diff.baseline_kernels, diff.what[:-1])
    if diff.baseline_kernels != diff.current_kernels:
        return f"{before} -> {diff.current_kernels}"
    return f"{before}, {'some changed' if diff.added_or_removed else 'unchanged'}"


def nouns_of(diff: KernelDiff) -> Nouns:
    """Return the nouns for what was compared."""
    return NOUNS["cpu" if diff.what == "operators" else "cuda"]


def note_lines(found: ProfileComparison) -> list[str]:
    """Return what was not compared, and why."""
    diff, told = found.kernels, []
    if found.incomplete:
        words = "INCOMPLETE: kernels that one side lacks may be lost, not removed: "
        told.append(words + "; ".join(found.incomplete))
    if found.lost:
        told.append(f"not available now: {', '.join(found.lost)}")
    if found.differences:
        what = "differs from the snapshot" if found.source == "snapshot" else "times not compared"
        told.append(f"{what}: {', '.join(found.differences)}")
    if diff is not None:
        if diff.of("moved"):
            told.append("some kernels run in another order")
        steps = (diff.baseline_steps or 1, diff.current_steps or 1)
        if max(steps) > 1:
            told.append("one step of each trace is compared, of {} and {}".format(*steps))
        if not diff.ordered:
            told.append("compared without order, since rounds differ in the order of kernels")
    return [printable(line) for line in told]


# Compared callables.


def comparison_table(comparison: Comparison) -> Table:
    """Make a table of the callables: kernels, value with its spread, speedup with its interval."""
    heads = ("kernels", verdicts.compared_metric(comparison), "speedup", "99 % CI")
    rows = []
    for one in comparison.callables:
        speedup = f"{one.paired.speedup:.3f}" if one.paired is not None else "reference"
        interval = one.paired.speedup_interval if one.paired is not None else None
        sure = "{:.3f}..{:.3f}".format(*interval) if interval is not None else ""
        rows.append((str(one.kernels), _value(comparison, one), speedup, sure, one.name))
    return Table.of((*heads, Column("callable", kind="name")), rows)


def comparison_notes(comparison: Comparison) -> list[str]:
    """Return how the results of each candidate compare with those of the reference, and which
    callables are unstable."""
    told = (f"{one.name}: {'; '.join(one.checks)}" for one in comparison.callables if one.checks)
    return [*map(printable, told), *verdicts.unstable_words(comparison)]


def callable_lines(comparison: Comparison, style: Style = _STYLE) -> list[str]:
    """Return the table of the callables, and the notes on them."""
    return [*comparison_table(comparison).lines(style), *comparison_notes(comparison)]


def comparison_lines(tests: Sequence[Test], style: Style) -> list[str]:
    """Return the tables of comparisons, each under its test."""
    lines = []
    for test in sorted(tests, key=lambda test: test.id):
        ended = "" if test.outcome == "passed" else f" ({test.outcome})"
        for comparison in test.comparisons:
            told = callable_lines(comparison, style.within(2))
            lines += [wording.shortened(test.id) + ended, *(f"  {line}" for line in told)]
    return [style.say(line) for line in lines]


def _value(comparison: Comparison, one: ComparedCallable) -> str:
    if comparison.metric == "peak_memory":
        return format_bytes(one.value)
    if one.low is None or one.high is None or not one.value:
        return format_time(one.value)
    return f"{format_time(one.value)} ±{(one.high - one.low) / 2 / one.value * 100:.1f}%"
