"""What ``kernelprof show`` and ``diff`` print: the kernels of a trace, its tree of operators, its
ranks, two traces side by side; and what a run or ``kernelprof update`` says of snapshots."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from pytest_kernelprof.comparison.kernel_diff import Pair
from pytest_kernelprof.comparison.kernel_pairing import folded, one_repeat, without_frame
from pytest_kernelprof.kernel_names.short_names import tell_apart
from pytest_kernelprof.records import comparison
from pytest_kernelprof.records.comparison import KernelDiff, SnapshotReport, TestState, fusions_of
from pytest_kernelprof.records.profile import Kernel, OperatorNode, Profile
from pytest_kernelprof.records.recording import Origin
from pytest_kernelprof.report import kernel_tables
from pytest_kernelprof.report.tables import Column, Line, Span, Style, Table
from pytest_kernelprof.summary import wording
from pytest_kernelprof.summary.advice import update_command
from pytest_kernelprof.summary.kernels import Named, Order, by_name, times_words
from pytest_kernelprof.summary.ranks import Odd, Rank, odd_ones, waiting_words
from pytest_kernelprof.summary.verdicts import completeness_words, count_change, footing
from pytest_kernelprof.units import format_time, printable, time_unit

_FEW = 50
"""So many kernels are listed one by one, in launch order."""
_MOST_CALLS, _MOST_CALLERS, _MOST_PARTS, _MOST_OF_PART, _MOST_NAMED = 8, 3, 8, 12, 20
_OPTIONS = "more: --all --operators --sort=name|calls|each|total|order --top=N --json"


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for.

    Attributes:
        order: the order of the rows; None is launch order of few kernels, and by name of many.
        top: how many rows; None is as many as say enough.
        everything: whether each row is listed, and nothing is folded.
    """

    order: Order | Literal["order"] | None = None
    top: int | None = None
    everything: bool = False


def trace_lines(
    profile: Profile, origin: Origin | None, wanted: Wanted, style: Style
) -> list[Line]:
    """Return the verdict, the device, the kernels, and what is not zero.

    Args:
        origin: where the trace is from, if known.
    """
    kernels, repeats = without_frame(profile.kernels), 1
    if not wanted.everything:
        kernels, repeats = one_repeat(kernels)
    place = _place(profile, origin, repeats, len(kernels))
    lines = [*verdict_lines(profile, style), *style.sentence(place, "light")]
    if kernels:
        lines += [(), *_kernels(replace(profile, kernels=kernels), wanted, style)]
    copies = kernel_tables.copy_table(profile, most=_MOST_CALLS)
    waits = kernel_tables.wait_table(profile, most=_MOST_CALLS)
    for table in (kernel_tables.metric_table(profile), copies, waits):
        if any(table.columns[0].cells):
            lines += [(), *table.coloured(style)]
    foot = footing(profile) if profile.integrity.complete else ""
    options = _OPTIONS if profile.on_cpu or len(kernels) > _FEW else ""
    about = (_devices(profile), foot, options)
    told = [line for words in about if words for line in style.sentence(words)]
    return [*lines, *([(), *told] if told else [])]


def verdict_lines(profile: Profile, style: Style) -> list[Line]:
    """Return how many kernels there are, their time, and whether that is all; what is missing
    comes first."""
    if not (problems := profile.integrity.problems):
        state = completeness_words([profile.integrity])
        return style.sentence(f"{_counted(profile)}; {state}.", "bold")
    missing = [f"INCOMPLETE: {problems[0]}", *problems[1:]]
    told = [line for one in missing for line in style.sentence(one, "red")]
    return [*told, *style.sentence(f"What is there: {_counted(profile)}.", "bold")]


def _counted(profile: Profile) -> str:
    nouns = kernel_tables.NOUNS[profile.environment.kind]
    took = sum(one.duration_us for one in profile.kernels)
    us = took if profile.on_cpu else wording.value_of(profile, "cuda_time")
    launches = wording.value_of(profile, "launches")
    comm_us = wording.value_of(profile, "comm_time")
    words = wording.count(profile.kernel_count, nouns.kernel)
    if launches is not None:
        words += f" in {wording.count(int(launches), 'launch', 'launches')}"
    words += f", {format_time(us)} on the {nouns.device}" if us else ""
    return words + (f", {format_time(comm_us)} communicating" if comm_us else "")


def _place(profile: Profile, origin: Origin | None, repeats: int, number: int) -> str:
    kind = profile.environment.kind
    told = []
    if repeats > 1:
        kernels = wording.count(number, kernel_tables.NOUNS[kind].kernel)
        told.append(f"{repeats} equal repeats of {kernels}, below is one with mean times")
    if profile.rounds > 1:
        of = "the fullest, as they differ" if profile.variants else "one of them"
        below = f", below is {of}" if repeats == 1 or profile.variants else ""
        told.append(f"median of {profile.rounds} rounds{below}")
    told.append(wording.machine(profile.environment))
    if kind == "cpu":
        told.append("no device in this trace, so no kernels")
    if origin is not None and (origin.form or origin.dialect not in ("CUDA", "CPU")):
        told.append(f"{origin.dialect} trace {origin.form}".rstrip())
    return "; ".join(told)


# The kernels.


def _kernels(profile: Profile, wanted: Wanted, style: Style) -> Iterator[Line]:
    nouns, kernels = kernel_tables.NOUNS[profile.environment.kind], profile.kernels
    few = len(kernels) <= _FEW and not profile.on_cpu and wanted.top is None
    if wanted.order == "order" or (wanted.order is None and few):
        yield from _in_order(profile, wanted, style)
        return
    yield from _by_name(kernels, nouns, wanted).coloured(style)
    if wanted.order is None and not profile.on_cpu:
        yield ()
        every = wanted.everything
        yield from _in_order(profile, wanted, style) if every else _folded_order(kernels, style)


def _in_order(profile: Profile, wanted: Wanted, style: Style) -> Iterator[Line]:
    """A row for each kernel."""
    rows = list(kernel_tables.launches(profile))
    nouns = kernel_tables.NOUNS[profile.environment.kind]
    shown = rows if wanted.everything else rows[: wanted.top or _FEW]
    yield from kernel_tables.launch_table(nouns, shown).whole.coloured(style)
    if more := len(rows) - len(shown):
        yield (Span(f"{more:,} more {nouns.kernel}s: --all"),)


def _by_name(kernels: Sequence[Kernel], nouns: kernel_tables.Nouns, wanted: Wanted) -> Table:
    """A row for each name; one for all others."""
    order = wanted.order
    ranked = by_name(kernels, "total" if order is None or order == "order" else order)
    most = len(ranked) if wanted.everything else wanted.top or _MOST_NAMED
    rows, rest = ranked[:most], ranked[most:]
    if rest:
        name = wording.count(len(rest), f"other {nouns.kernel}")
        rows.append(Named(name, sum(one.calls for one in rest), sum(one.us for one in rest)))
    total, unit = sum(one.us for one in rows), time_unit(one.us for one in rows)
    heads = ("calls", f"{nouns.device} {unit.name}", "share", Column("each us", gives_way=0))
    kernel = Column(nouns.kernel, gives_way=1, least=24, kind="name")
    names = (kernel, Column(nouns.caller, kind="name"))
    cells = (
        (
            str(one.calls),
            unit.words(one.us),
            f"{one.us / total * 100:.0f} %" if total else "",
            f"{one.us / one.calls:.1f}",
            one.name,
            ", ".join(by or "-" for by in one.callers[:_MOST_CALLERS]),
        )
        for one in rows
    )
    made = Table.of((*heads, *names), cells)
    return made if nouns.device == "CPU" else Table(made.columns[:-1])


def _folded_order(kernels: Sequence[Kernel], style: Style) -> Iterator[Line]:
    """The sequence with its repeats folded."""
    names = tell_apart(one.name for one in kernels)
    found = folded([names[one.name] for one in kernels])
    rows = []
    for part, times in found[:_MOST_PARTS]:
        runs = [times_words(name, len(list(same))) for name, same in itertools.groupby(part)]
        told = ", ".join(wording.first_of(runs, _MOST_OF_PART, "{} more (--all)"))
        rows.append((str(len(part)), f"x{times}" if times > 1 else "", told))
    last = Column("in launch order, repeats folded", kind="name")
    yield from Table.of(("", "", last), rows).coloured(style)
    if more := sum(len(part) * times for part, times in found[_MOST_PARTS:]):
        yield (Span(f"{more:,} more kernels: --all"),)


def _devices(profile: Profile) -> str:
    """What each of several devices did."""
    devices = wording.grouped(profile.kernels, lambda kernel: kernel.device)
    told = (
        f"{device}: {wording.count(len(several), 'kernel')}, "
        f"{format_time(sum(one.duration_us for one in several))}"
        for device, several in sorted(devices.items())
    )
    return f"on device {'; '.join(told)}" if len(devices) > 1 else ""


# The operators as a tree.

_MOST_LINES, _DEEPEST, _MOST_NAMES = 60, 20, 6
_WRAPPER = "autograd::engine::evaluate_function: "
"""What stands around each node of autograd, and is named like it."""


def tree_lines(root: OperatorNode, profile: Profile, wanted: Wanted, style: Style) -> list[Line]:
    """Return a line for each operator, below its caller. Operators that launch nothing share a
    line with their neighbours, and what they call is left out."""
    if not (rows := list(_rows(root.below, 0, everything=wanted.everything))):
        return [(Span("No operator in this trace: kernels alone."),)]
    most = len(rows) if wanted.everything else wanted.top or _MOST_LINES
    # What is above a row takes no less time than the row, and comes before it.
    costliest = sorted(range(len(rows)), key=lambda at: (-rows[at][1].us, at))
    shown = [rows[at] for at in sorted(costliest[:most])]
    nouns, unit = kernel_tables.NOUNS[profile.environment.kind], time_unit([root.us])
    launched = "computing" if profile.on_cpu else "kernels"
    heads = ("calls", launched, f"{nouns.device} {unit.name}", Column("operator", kind="name"))
    cells = (
        (
            str(node.calls),
            str(node.kernels or ""),
            unit.words(node.us) if node.kernels else "",
            "  " * min(depth, _DEEPEST) + name,
        )
        for depth, node, name in shown
    )
    lines = list(Table.of(heads, cells).coloured(style))
    if len(rows) > len(shown):
        lines.append((Span(f"{len(rows) - len(shown):,} more lines with shorter kernels: --all"),))
    if own := root.kernels - sum(one.kernels for one in root.below):
        words = wording.count(own, nouns.kernel)
        lines.append((Span(f"launched by no operator that is recorded: {words}"),))
    return lines


def _rows(
    nodes: Sequence[OperatorNode], depth: int, *, everything: bool
) -> Iterator[tuple[int, OperatorNode, str]]:
    """Yield depth, node and name."""
    silent: list[OperatorNode] = []
    inside = ((one.name.startswith(_WRAPPER) and one.below) or (one,) for one in nodes)
    for node in itertools.chain.from_iterable(inside):
        if everything or node.kernels:
            yield depth, node, node.name
            yield from _rows(node.below, depth + 1, everything=everything)
        else:
            silent.append(node)
    if silent:
        names = wording.first_of([times_words(one.name, one.calls) for one in silent], _MOST_NAMES)
        together = type(silent[0])("", sum(one.calls for one in silent), 0, 0.0)
        yield depth, together, f"nothing from {', '.join(names)}"


# Several ranks.

_MOST_ODD, _MOST_CHANGES = 3, 6


def rank_lines(
    ranks: Sequence[Rank], unread: Mapping[str, str], diffs: Mapping[str, KernelDiff], style: Style
) -> list[Line]:
    """Return which rank differs, a row for each, and how its kernels differ.

    Args:
        unread: by the name of a file why it is no trace.
        diffs: by the name of a rank that differs, how its kernels differ from those of most.
    """
    # Files that no number of a rank is found in the names of are traces.
    numbered = all(one.name.partition(".")[0].isdigit() for one in ranks)
    what: Literal["rank", "trace"] = "rank" if numbered else "trace"
    odd = odd_ones(ranks)
    places = dict.fromkeys(wording.machine(one.profile.environment) for one in ranks)
    lines = [*_rank_verdict(ranks, unread, odd, what, style)]
    lines += style.sentence("; ".join(places), "light")
    lines += [line for one in waiting_words(ranks) for line in style.sentence(one)]
    lines += [(), *kernel_tables.rank_table(ranks, what).coloured(style)]
    for one in odd:
        diff = diffs.get(one.rank.name)
        changes = kernel_tables.change_table(diff.changes if diff else (), most=_MOST_CHANGES)
        if changes.signs:
            lines += [(), (Span(f"{what} {one.rank.name}, compared with {one.like.name}:"),)]
            lines += changes.coloured(style)
    if odd and odd[0].like.file != odd[0].rank.file:
        command = f"kernelprof diff {odd[0].like.file} {odd[0].rank.file}"
        lines += [(), (Span(style.say(command), "light"),)]
    return lines


def _rank_verdict(
    ranks: Sequence[Rank], unread: Mapping[str, str], odd: Sequence[Odd], what: str, style: Style
) -> Iterator[Line]:
    lost = [one for one in ranks if not one.profile.integrity.complete]
    missing = [f"{what} {one.name}: {one.profile.integrity.problems[0]}" for one in lost]
    missing += [f"{name} is not read: {why}" for name, why in unread.items()]
    for at, words in enumerate(missing):
        yield from style.sentence(words if at else f"INCOMPLETE: {words}", "red")
    kernels = sum(one.profile.kernel_count for one in ranks)
    on_cpu = all(one.profile.on_cpu for one in ranks)
    counted = wording.count(kernels, kernel_tables.NOUNS["cpu" if on_cpu else "cuda"].kernel)
    state = completeness_words([one.profile.integrity for one in ranks])
    words = f"{wording.count(len(ranks), what)}, {counted}{'' if missing else f'; {state}'}."
    differ = [f"{what.capitalize()} {one.rank.name} differs: {one.words}." for one in odd]
    yield from style.sentence(" ".join([words, *differ[:_MOST_ODD]]), "bold")


# Two traces.

_LEAST_FOLDED = 4


def processes_words(found: comparison.TracesComparison) -> str:
    """Return that one side has other processes; empty if both have the same."""
    before, now, both = found.baseline_processes, found.current_processes, len(found.processes)
    words = f"{before} -> {now} processes: the {both} that both have are compared"
    return "" if before == now == both else words


def side_by_side_lines(
    found: comparison.ProfileComparison, kernels: Sequence[Pair], style: Style, *, most: int
) -> list[Line]:
    """Return the verdict, both sides in launch order, which kernels do the work of others, and the
    metrics that differ.

    Args:
        most: how many rows there are; of more, only the changes are told.
    """
    diff = found.kernels
    assert diff is not None  # of two traces there always is one
    lines = style.sentence(kernel_tables.diff_words(diff), "bold")
    for note in kernel_tables.note_lines(found):
        lines += style.sentence(note, "yellow")
    rows = list(_folded(kernels))
    fits = len(rows) <= most
    differs = bool(diff.added_or_removed or diff.retimed)
    shown = diff.retimed if fits else diff.changes
    changes = kernel_tables.change_table(shown, kernel_tables.nouns_of(diff), most)
    if differs and fits:
        lines += [(), *_sides(rows, diff).coloured(style)]
    if differs and (changes.signs or diff.left_out):
        lines += [(), *changes.coloured(style)]
        lines += [(Span(f"... and {diff.left_out} more changes"),)] if diff.left_out else []
    about = [f"{one.words}: {' -> '.join(map(format_time, one.us))}" for one in fusions_of(diff)]
    about += kernel_tables.metric_lines(found, ("kernels", "cuda_time"))
    about += ["one trace of each cannot separate change from noise"] if differs else []
    return [*lines, *([()] if about else []), *(s for one in about for s in style.sentence(one))]


def _folded(kernels: Sequence[Pair]) -> Iterator[Pair | int]:
    """The rows; of more than three in a row that both sides have, the first, how many, the last."""
    alike = itertools.groupby(kernels, lambda one: one[0] is not None and one[1] is not None)
    for same, found in alike:
        run = list(found)
        folds = same and len(run) >= _LEAST_FOLDED
        yield from (run[0], len(run) - 2, run[-1]) if folds else run


def _sides(pairs: Sequence[Pair | int], diff: KernelDiff) -> Table:
    kernels = [k for pair in pairs if not isinstance(pair, int) for k in pair[:2] if k]
    names = tell_apart(kernel.name for kernel in kernels)
    unit = time_unit(kernel.duration_us or 0.0 for kernel in kernels)
    rows = []
    for pair in pairs:
        if isinstance(pair, int):
            rows.append(kernel_tables.TableRow(f"({pair} unchanged)"))
            continue
        before, now, lines = pair
        kernel = now or before
        assert kernel is not None  # one side has it
        row = kernel_tables.row_of(kernel, names[kernel.name])
        old_us, us = ((one.duration_us or 0.0) if one else None for one in (before, now))
        sign = "" if before and now else "+" if now else "-"
        line = wording.either_line(row.line, lines)
        rows.append(dataclasses.replace(row, line=line, sign=sign, us=us, before_us=old_us))
    total = f"{unit.name} in all"
    rows.append(kernel_tables.TableRow(total, us=diff.current_us, before_us=diff.baseline_us))
    old = kernel_tables.time_column("old", [one.before_us for one in rows], unit)
    new = kernel_tables.time_column("new", [one.us for one in rows], unit)
    return kernel_tables.table_of_rows((old, new), kernel_tables.nouns_of(diff), rows)


# Snapshots.

_FEW_LINES = 12
_SHOWN: tuple[TestState, ...] = ("same", "changed", "worse", "not compared", "missing")


def snapshot_lines(
    told: Sequence[tuple[str, SnapshotReport]], unused: int, *, verbose: bool, reported: bool
) -> list[str]:
    """Return how the tests of a run compare with their snapshots, and those that differ with their
    kernels; nothing if all are as agreed, or there are none.

    Args:
        told: the tests, by their ids. unused: how many entries no test has.
        verbose: all tests that differ; else those whose kernels do, in a few lines.
        reported: whether a report tells what differs: then only what it leaves out.
    """
    taken = [one for _, one in told]
    counts = Counter(one.state for one in taken)
    if not unused and set(counts) <= {None, "same"}:
        return []
    whys = dict.fromkeys(one.why for one in taken if one.state == "not compared" and one.why)
    bare = {one.device: ", ".join(one.elsewhere) for one in taken if one.elsewhere}
    more = {
        "changed": "not failing",
        "not compared": "; ".join(list(whys)[:2]),
        "missing": ", ".join(f"none for {d}, some for {others}" for d, others in bare.items()),
    }
    reasons = {state: f" ({words})" for state, words in more.items() if words}
    states = (one for one in _SHOWN if counts[one] and (one == "not compared" or not reported))
    parts = [f"{counts[one]} {comparison.TEST_STATES[one]}{reasons.get(one, '')}" for one in states]
    parts += [f"{unused} unused"] if unused else []
    if not parts:
        return []
    lines = []
    for test, one in told:
        if one.changes or one.state == "changed" or (verbose and one.state not in (None, "same")):
            why = f" ({one.why})" if one.why else ""
            lines.append(f"  {comparison.TEST_STATES[one.state or 'same']}: {test}{why}")
            if one.changes:
                table = kernel_tables.change_table(one.changes)
                lines += [f"    {line}" for line in table.lines()[1:]]
    most = len(lines) if verbose else _FEW_LINES
    shown = wording.first_of(lines, most, "  ... and {} more lines with -v")
    outdated = [test for test, one in told if one.state not in (None, "same")]
    command = update_command([] if unused else outdated, taken[0].device)
    head = f"snapshots: {', '.join(parts)}"
    heads = [f"{head}; to update:", f"  {command}"]
    heads = heads if unused or (outdated and not reported) else [head]
    return list(map(printable, [*heads, *([] if reported else shown)]))


def update_lines(
    edited: Sequence[tuple[str, comparison.Edited]], refused: Sequence[tuple[str, str]]
) -> list[str]:
    """Return what an update has done: how many entries, each that now allows more, and what is not
    kept.

    Args:
        edited: by test file. refused: tests of which nothing is kept, and why.
    """
    counts = {
        "written": sum(one.written for _, one in edited),
        "unchanged": sum(one.same for _, one in edited),
        "removed": sum(one.removed for _, one in edited),
        "not kept": len(refused),
    }
    told = [f"{count} {what}" for what, count in counts.items() if count]
    loosened = ((file, *each) for file, one in edited for each in one.looser)
    named = ((wording.with_label(f"{file}::{key}", label), of) for file, key, label, of in loosened)
    looser = [f"looser: {name}: {', '.join(map(count_change, of))}" for name, of in named]
    not_kept = [f"not kept: {test}: {why}" for test, why in refused]
    more = "... and {} more that are not kept"
    shown = wording.first_of(not_kept, kernel_tables.MOST_ROWS, more)
    head = [f"snapshots: {', '.join(told)}"] if told else []
    return list(map(printable, (*head, *looser, *shown)))
