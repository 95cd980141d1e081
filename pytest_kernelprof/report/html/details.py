"""One profile in detail: limits, ranks, what changed, kernels, metrics, what to do, how it was
measured. Timelines and plots are drawn by the script."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_kernelprof.names.short_names import short_name
from pytest_kernelprof.report.html.markup import (
    Column,
    Html,
    cut,
    element,
    joined,
    mark,
    table,
    text,
)
from pytest_kernelprof.report.html.script_data import ScriptData
from pytest_kernelprof.schema.comparison import CAME_OR_WENT
from pytest_kernelprof.summary.advice import advice_on
from pytest_kernelprof.summary.kernels import positions_in
from pytest_kernelprof.summary.ranks import ranks_told
from pytest_kernelprof.summary.verdicts import footing, verdict_line
from pytest_kernelprof.summary.words import (
    chain_words,
    count_words,
    doubt_words,
    lines_words,
    measured_words,
    title,
    value_of,
    value_words,
)
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_kernelprof.schema.comparison import KernelChange, KernelDiff, KernelSide
    from pytest_kernelprof.schema.run import Kernel, Metric, Profile, ProfileComparison, Source
    from pytest_kernelprof.summary.records import Row

_MOST_LINES, _MOST_CHANGES = 50, 200
_LONGEST, _LONGEST_NAME = 1_000, 2_000


WHOLE, COMPACT = (200, 100), (4, 8)
"""Of more kernels than that, those that are alike are one row; and so many rows there are."""


class FullNames:
    """Gathers the full names of kernels: each stands once on the page."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def told(self, name: str) -> Html:
        """The short name of a kernel, with a link to the full one where that is another."""
        short = short_name(name)
        if short == name:
            return text(short)
        place = self._places.setdefault(name, len(self._places) + 1)
        return Html(f'<a class="full" href="#n{place}">{text(short)}</a>')

    def all(self) -> list[tuple[int, str]]:
        """Each with its number, the middle of very long ones cut out."""
        return [(number, cut(name, _LONGEST_NAME)) for name, number in self._places.items()]


@dataclass(frozen=True, slots=True)
class Detailer:
    """What the details of one page share: full names, what the script draws, what each kind of
    baseline is called."""

    names: FullNames
    data: ScriptData
    baselines: Mapping[Source, str]

    def whole(self, row: Row, place: str) -> tuple[Html, int]:
        """All of a profile; and about so many bytes are kept for the script.

        Args:
            place: of the detail on the page.
        """
        profile = row.profile
        new = _new_kernels_of(profile)
        before = [_limits(profile), _ranks(profile), *map(self._diff, _comparisons(profile))]
        rest = (_copies, _waits, _advice, _measured)
        parts = [
            *before,
            Html('<div class="timeline-of js"></div>'),
            self._kernels(profile, new),
            _metrics(profile),
            Html('<div class="plots-of js"></div>'),
            *(tell(profile) for tell in rest),
        ]
        return joined(parts), self.data.add(place, profile, new)

    def compact(self, row: Row) -> Html:
        """Limits, metrics, and kernels by what is alike: of a page with many details."""
        profile = row.profile
        limits = [verdict_line(one) for one in profile.verdicts if one.of_limit]
        metrics = (
            f"{_name_of(one, profile)} {value_words(one.unit, one.value)}"
            for one in profile.metrics.values()
            if one.value
        )
        facts = [*limits, ", ".join(metrics)]
        if profile.timeline is not None and profile.timeline.kind:
            facts.append("No timeline: the page would be too large. The run document has it.")
        rows, _, left = kernel_rows(profile, COMPACT, frozenset())
        columns = [
            Column("calls", [text(f"{one.number:,}") for one in rows], "n"),
            Column(_what(profile), list(map(self._named, rows)), "c"),
            Column("by", [text(one.chain) for one in rows], "c"),
            Column("line", [text(one.line) for one in rows], "c"),
            Column(f"{_device(profile)} us", [text(f"{one.us:,.1f}") for one in rows], "n"),
        ]
        facts += _left_words(left)
        return joined([_facts(facts), table(columns) if rows else Html("")])

    def _kernels(self, profile: Profile, new: Collection[int]) -> Html:
        rows, is_grouped, left = kernel_rows(profile, WHOLE, new)
        number = sum(one.number for one in (*rows, *left))
        us = sum(one.us for one in (*rows, *left))
        first = [f"{one.number:,}" if is_grouped else str(at) for at, one in enumerate(rows, 1)]
        names, times = list(map(self._named, rows)), [text(f"{one.us:,.1f}") for one in rows]
        what = _what(profile)
        by = "called by" if what == "operator" else "launched by"
        columns = [
            Column("calls" if is_grouped else "#", list(map(text, first)), "n"),
            Column(what, names, "c", text(count_words(number, what))),
            Column(by, [text(one.chain) for one in rows], "c"),
            Column("line", [text(one.line) for one in rows], "c"),
            Column("grid · block", [text(one.size) for one in rows], "n"),
            Column("registers", [text(one.registers) for one in rows], "n"),
            Column(f"{_device(profile)} us", times, "n", text(f"{us:,.1f}")),
            Column("share", [text(f"{one.us / us:.0%}" if us else "") for one in rows], "n"),
        ]
        facts = [*_left_words(left), _sum_words(profile, us)]
        order = "grouped by name, operator and line" if is_grouped else "in launch order"
        named = "CPU operators" if what == "operator" else "Kernels"
        body = joined([table(columns, "kernels"), _facts(facts)])
        return _part(named, body, order) if rows else Html("")

    def _named(self, row: KernelRow) -> Html:
        named = self.names.told(row.name) if row.name else text("(name not kept)")
        if not row.is_new:
            return named
        return Html(f'<ins><b aria-hidden="true">+</b><span class="sr">new: </span> {named}</ins>')

    def _diff(self, found: ProfileComparison) -> Html:
        """The kernels that a baseline alone has, and those that this run alone has, in order."""
        diff = found.kernels
        is_other = found.source == "snapshot" and found.change != "same"
        if diff is None or not (diff.came_or_went or is_other):
            return Html("")
        baseline = self.baselines.get(found.source, "the baseline")
        device = "CPU" if diff.what == "operators" else "GPU"
        lines = list(_diff_lines(diff))
        left = max(0, len(lines) - _MOST_CHANGES) + diff.left_out
        lines = lines[:_MOST_CHANGES]
        columns = [
            Column("kernel" if diff.what == "kernels" else "operator", [a for a, *_ in lines], "c"),
            Column("launched by", [text(one) for _, one, *_ in lines], "c"),
            Column("line", [text(one) for _, _, one, _ in lines], "c"),
            Column(f"{device} us", [text(one) for *_, one in lines], "n"),
        ]
        numbers = (
            f"{count_words(diff.baseline_kernels, diff.what[:-1])} in {baseline}, "
            f"{diff.current_kernels:,} in this run"
        )
        facts = [numbers, *_diff_facts(found, diff)]
        facts += [f"{count_words(left, 'more line')} not shown"] if left else []
        named = f"{diff.what.capitalize()} against {baseline}"
        return _part(named, joined([table(columns), _facts(facts)]))


def _part(named: str, body: Html, note: str = "") -> Html:
    small = joined([Html(" "), element("small", text(note))]) if note else Html("")
    head = element("h3", joined([text(named), small]))
    return element("section", joined([head, body]), "part")


def _facts(lines: Iterable[str]) -> Html:
    return joined(element("p", text(one, _LONGEST), "fact") for one in lines if one)


def _what(profile: Profile) -> str:
    return "operator" if profile.environment.kind == "cpu" else "kernel"


def _device(profile: Profile) -> str:
    return "CPU" if profile.environment.kind == "cpu" else "GPU"


def _left_words(left: Sequence[KernelRow]) -> list[str]:
    return [f"{count_words(len(left), 'more kind')} not shown"] if left else []


def _comparisons(profile: Profile) -> list[ProfileComparison]:
    return [one.comparison for one in profile.verdicts if one.comparison is not None]


def _new_kernels_of(profile: Profile) -> frozenset[int]:
    """The kernels that a baseline has not, by the first that says so: their positions from 0."""
    diffs = (
        one.kernels
        for one in _comparisons(profile)
        if one.changes and one.rank in (None, profile.rank)
    )
    diff = next(filter(None, diffs), None)
    return (positions_in(diff) if diff is not None else None) or frozenset()


def _limits(profile: Profile) -> Html:
    limits = [one for one in profile.verdicts if one.of_limit]
    doubt = doubt_words(profile.conditions)
    lines = [verdict_line(one, doubt).removeprefix(f"{title(one)}: ") for one in limits]
    marks = [
        joined([mark(one.outcome), text(line, _LONGEST)], " ")
        for one, line in zip(limits, lines, strict=True)
    ]
    columns = [
        Column("limit", [text(title(one)) for one in limits], "c"),
        Column("measured", [text(measured_words(one)[0]) for one in limits], "n"),
        Column("allowed", [text(measured_words(one)[1]) for one in limits], "n"),
        Column("verdict", marks),
    ]
    return _part("Limits", table(columns)) if limits else Html("")


def _ranks(profile: Profile) -> Html:
    told = ranks_told(profile)
    if told is None:
        return Html("")
    found, sentences = told
    differs = Html(' <b class="x-bad">differs</b>')
    columns = [
        Column(named, [text(row.cells[at]) for row in found.rows], "n" if at else "")
        for at, named in enumerate(found.titles)
    ]
    columns.insert(1, Column("", [differs if row.differs else Html("") for row in found.rows]))
    return _part("Ranks", joined([table(columns, "ranks"), _facts(sentences)]))


# Kernels.


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel, or several that are alike.

    Attributes:
        name: the full one. chain: what launched it. line: of the user's code.
        number: how many there are. us: what they take.
        size: grid and block. registers: of each thread.
        is_new: whether its baseline has not got it.
    """

    name: str
    chain: str
    line: str
    number: int
    us: float
    size: str = ""
    registers: str = ""
    is_new: bool = False


def kernel_rows(
    profile: Profile, most: tuple[int, int], new: Collection[int]
) -> tuple[list[KernelRow], bool, list[KernelRow]]:
    """The kernels of one call in launch order; of very many those that are alike as one row, by
    their time.

    Args:
        most: of more kernels than the first, groups; of these as many as the second.
        new: the new ones, by their place in launch order, from 0.

    Returns:
        The rows; whether they are groups; the groups that are left out.
    """
    if not profile.more_kernels and len(profile.kernels) <= most[0]:
        return [_one(kernel, at in new) for at, kernel in enumerate(profile.kernels)], False, []
    rows = sorted(_grouped(profile), key=lambda one: (-one.us, one.name))
    return rows[: most[1]], True, rows[most[1] :]


def _one(kernel: Kernel, is_new: bool) -> KernelRow:
    return KernelRow(
        name=kernel.name,
        chain=chain_words(kernel.operators, kernel.name),
        line=os.path.basename(kernel.source),
        number=1,
        us=kernel.duration_us,
        size=f"{_size(kernel.grid)} · {_size(kernel.block)}" if any(kernel.grid) else "",
        registers=str(kernel.registers or ""),
        is_new=is_new,
    )


def _size(size: tuple[int, int, int]) -> str:
    return "x".join(str(one) for one in size if one != 1) or "1"


def _grouped(profile: Profile) -> Iterator[KernelRow]:
    """Kernels of one name, launched by one operator at one line, together. Of those that were kept
    by name alone nobody knows who launched them: they belong to the group of their name, or stand
    by themselves where there are several."""
    groups: dict[tuple[str, str, str], KernelRow] = {}
    of_name: defaultdict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for kernel in profile.kernels:
        key = (kernel.name, chain_words(kernel.operators, kernel.name), kernel.source)
        row = groups.get(key) or KernelRow(*key[:2], os.path.basename(key[2]), 0, 0.0)
        groups[key] = replace(row, number=row.number + 1, us=row.us + kernel.duration_us)
        of_name[kernel.name].add(key)
    for more in profile.more_kernels:
        known = of_name[more.name]
        key = next(iter(known)) if len(known) == 1 else (more.name, "", "")
        words = f"{count_words(more.count, 'more call')}, operator not kept" if known else ""
        row = groups.get(key) or KernelRow(more.name, words, "", 0, 0.0)
        groups[key] = replace(row, number=row.number + more.count, us=row.us + more.duration_us)
    return iter(groups.values())


def _sum_words(profile: Profile, us: float) -> str:
    """Why the sum of the kernels is not the GPU time of the table of tests; empty if it is."""
    metric = profile.metrics.get("cuda_time")
    if metric is None or metric.value is None or format_time(metric.value) == format_time(us):
        return ""
    rounds = count_words(len(metric.rounds), "round")
    comm = value_of(profile, "comm_time")
    beside = f" beside {format_time(comm)} communicating" if comm else ""
    return (
        f"The table shows one round, of {format_time(us)}; the GPU time of "
        f"{format_time(metric.value)}{beside} is the median of {rounds}."
    )


def _diff_lines(diff: KernelDiff) -> Iterator[tuple[Html, str, str, str]]:
    """Changes, and between them how many kernels are the same where their places are known: name,
    operators, line, time."""
    what = diff.what[:-1]
    changes = diff.of(*CAME_OR_WENT, "operator")
    come = sum(one.times for one in changes if one.current is not None)
    placed = diff.ordered and all(one.times == 1 and one.at for one in changes)
    next_row, hunk = 1, -1
    for one in changes:
        if placed and one.hunk != hunk and one.at > next_row:
            yield _same(one.at - next_row, what)
            next_row = one.at
        hunk = one.hunk
        if one.baseline is not None:
            yield _changed(one, one.baseline, "del")
        if one.current is not None:
            yield _changed(one, one.current, "ins")
        next_row += one.current is not None
    left = diff.current_kernels - (next_row - 1 if placed else come)
    if left > 0 and not diff.left_out:  # else some of them are changes that are not named
        yield _same(left, what)


def _same(number: int, what: str) -> tuple[Html, str, str, str]:
    return element("i", text(f"{count_words(number, what)} unchanged")), "", "", ""


def _changed(one: KernelChange, side: KernelSide, tag: str) -> tuple[Html, str, str, str]:
    sign, word = ("+", "new") if tag == "ins" else ("\u2212", "gone")
    times = f" x{one.times}" if one.times > 1 else ""
    named = text(f"{side.short_name}{times}")
    sign_of = f'<b aria-hidden="true">{sign}</b><span class="sr">{word}: </span> '
    line = os.path.basename(side.source) + lines_words(one.lines)
    us = "" if side.duration_us is None else f"{one.us(side) * one.times:,.1f}"
    chain = chain_words(side.operators, side.name)
    return element(tag, Html(sign_of + named)), chain, line, us


def _diff_facts(found: ProfileComparison, diff: KernelDiff) -> Iterator[str]:
    if found.incomplete:
        yield f"one side is incomplete: {'; '.join(found.incomplete)}"
    if diff.of("moved"):
        yield "some kernels are launched in another order"
    if found.lost:
        yield f"could not be compared: {', '.join(found.lost)}"
    if found.differences:
        yield f"differs from the baseline: {', '.join(found.differences)}"
    if not diff.ordered:
        yield "compared without an order, since the order differs from round to round"


# The rest.


def _metrics(profile: Profile) -> Html:
    """All metrics that are not zero."""
    found = [one for one in profile.metrics.values() if one.value]
    intervals = (
        f"{format_time(one.low)} to {format_time(one.high)}"
        if one.unit == "us" and one.low is not None and one.high is not None
        else ""
        for one in found
    )
    columns = [
        Column("metric", [text(_name_of(one, profile)) for one in found], "c"),
        Column("value", [text(value_words(one.unit, one.value or 0.0)) for one in found], "n"),
        Column("99 % interval", list(map(text, intervals)), "n"),
        Column("note", [text(one.why) for one in found]),
    ]
    return _part("Metrics", table(columns), "of one call") if found else Html("")


def _name_of(metric: Metric, profile: Profile) -> str:
    on_cpu = profile.environment.kind == "cpu"
    return "operators" if on_cpu and metric.name == "kernels" else metric.name


def _copies(profile: Profile) -> Html:
    found = profile.copies[:_MOST_LINES]
    columns = [
        Column("copy", [text(one.name) for one in found], "c"),
        Column("size", [text(format_bytes(one.bytes)) for one in found], "n"),
        Column("called by", [text(chain_words(one.operators)) for one in found], "c"),
        Column("line", [text(os.path.basename(one.source)) for one in found], "c"),
        Column("GPU time", [text(format_time(one.duration_us)) for one in found], "n"),
    ]
    return _bounded("Memory copies", columns, len(profile.copies))


def _waits(profile: Profile) -> Html:
    found = profile.waits[:_MOST_LINES]
    on_cpu = profile.environment.kind == "cpu"
    columns = [
        Column("would wait in" if on_cpu else "waits in", [text(one.call) for one in found], "c"),
        Column("called by", [text(chain_words(one.operators, one.call)) for one in found], "c"),
        Column("line", [text(os.path.basename(one.source)) for one in found], "c"),
    ]
    named = "Would wait for a GPU" if on_cpu else "Waits for the GPU"
    return _bounded(named, columns, len(profile.waits))


def _bounded(named: str, columns: Sequence[Column], number: int) -> Html:
    left = number - _MOST_LINES
    facts = _facts([f"{left:,} more not shown"] if left > 0 else [])
    return _part(named, joined([table(columns), facts])) if number else Html("")


def _advice(profile: Profile) -> Html:
    diffs = (one.kernels for one in _comparisons(profile) if one.changes)
    found = advice_on(profile, next(filter(None, diffs), None))
    items = (
        element("li", joined([element("b", text(one.what)), Html(" "), text(one.why, _LONGEST)]))
        for one in found
    )
    return _part("What to do", element("ol", joined(items))) if found else Html("")


def _measured(profile: Profile) -> Html:
    """Where it ran, how complete it is, what is not available."""
    facts = [footing(profile)]
    if profile.rounds:
        one_shot = ", as it stood: not warmed up, once" if profile.one_shot else ""
        facts.append(f"{count_words(profile.rounds, 'profiled round')}{one_shot}")
    if profile.variants:
        kinds = count_words(len(profile.variants) + 1, "different sequence")
        facts.append(f"UNSTABLE: rounds launch {kinds} of kernels; shown is the longest")
    if not profile.kernels_kept:
        facts.append("its kernels were not kept: the test has very many profiles")
    if profile.trace:
        facts.append(f"trace: {cut(profile.trace)}")
    return _part("How it was measured", _facts(facts))
