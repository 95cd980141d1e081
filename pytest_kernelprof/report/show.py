"""What ``kernelprof show`` prints: the kernels of a trace, its tree of operators, or its ranks."""

from __future__ import annotations

import itertools
import os
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from pytest_kernelprof.names.short_names import tell_apart
from pytest_kernelprof.report.kernel_tables import (
    NOUNS,
    TableRow,
    chain_of,
    lay_out_rows,
    rank_table_lines,
)
from pytest_kernelprof.report.tables import Column, Span, labelled, lay_out, left
from pytest_kernelprof.summary.causes import causes_of_diff
from pytest_kernelprof.summary.kernels import (
    by_name,
    enough,
    stretches,
    times_words,
    whole_repeats,
    with_chain,
)
from pytest_kernelprof.summary.ranks import odd_ones, rank_table, waiting_words
from pytest_kernelprof.summary.verdicts import completeness_words, integrity_words, would_wait_words
from pytest_kernelprof.summary.words import (
    chain_words,
    count_words,
    first_of,
    line_words,
    place_words,
    value_of,
)
from pytest_kernelprof.units import format_bytes, format_time, time_unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_kernelprof.report.tables import Line, Style
    from pytest_kernelprof.schema.comparison import KernelDiff
    from pytest_kernelprof.schema.kernels import OperatorNode
    from pytest_kernelprof.schema.run import Kernel, Origin, Profile
    from pytest_kernelprof.summary.kernels import Order
    from pytest_kernelprof.summary.ranks import Odd, Rank


_FEW = 50
"""So many kernels are listed one by one, in launch order."""
_MOST_CALLS, _MOST_CALLERS, _MOST_STRETCHES, _MOST_OF_STRETCH = 3, 3, 8, 12
_OPTIONS = "--all --operators --sort=name|calls|each|total|order --top=N --json"


@dataclass(frozen=True, slots=True)
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
    names = [one.name for one in profile.kernels]
    repeats = 1 if wanted.everything else whole_repeats(names)
    kernels = _mean_of(_without_frame(profile.kernels), repeats)
    place = _place(profile, origin, repeats, len(kernels))
    lines = [*verdict_lines(profile, style), *style.sentence(place, "dim")]
    if kernels:
        lines += [(), *_body(profile, kernels, wanted, style)]
    about = [
        line
        for label, text in _about(profile, kernels).items()
        for line in labelled(label, text, style)
    ]
    return [*lines, *([(), *about] if about else [])]


def verdict_lines(profile: Profile, style: Style) -> list[Line]:
    """Return how many kernels there are, their time, and whether that is all; what is missing
    comes first."""
    problems = profile.integrity.problems
    if not problems:
        state = completeness_words([profile.integrity])
        return style.sentence(f"{_counted(profile)}; {state}.", "bold")
    missing = [f"INCOMPLETE: {problems[0]}", *problems[1:]]
    told = [line for one in missing for line in style.sentence(one, "red")]
    return [*told, *style.sentence(f"What is there: {_counted(profile)}.", "bold")]


def _counted(profile: Profile) -> str:
    nouns = NOUNS[profile.environment.kind]
    us = value_of(profile, "cuda_time")
    if profile.environment.kind == "cpu":
        us = sum(one.duration_us for one in profile.kernels)
    launches, comm_us = value_of(profile, "launches"), value_of(profile, "comm_time")
    words = count_words(profile.kernel_count, nouns.kernel)
    if launches is not None:
        words += f" in {count_words(int(launches), 'launch', 'launches')}"
    words += f", {format_time(us)} on the {nouns.device}" if us else ""
    return words + (f", {format_time(comm_us)} communicating" if comm_us else "")


def _place(profile: Profile, origin: Origin | None, repeats: int, number: int) -> str:
    kind = profile.environment.kind
    told = []
    if repeats > 1:
        kernels = count_words(number, NOUNS[kind].kernel)
        told.append(f"{repeats} equal repeats of {kernels}, below is one with mean times")
    if profile.rounds > 1:
        of = "the fullest, as they differ" if profile.variants else "one of them"
        below = f", below is {of}" if repeats == 1 or profile.variants else ""
        told.append(f"median of {profile.rounds} rounds{below}")
    told.append(place_words(profile.environment))
    if kind == "cpu":
        told.append("no device in this trace, so no kernels")
    if origin is not None and (origin.form or origin.dialect not in ("CUDA", "CPU")):
        told.append(f"{origin.dialect} trace {origin.form}".rstrip())
    return "; ".join(told)


def _without_frame(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Drop the annotation that all kernels stand in, which tells none of them apart."""
    outermost = {one.operators[-1] for one in kernels if len(one.operators) > 1}
    frame = outermost.pop() if len(outermost) == 1 and len(kernels) > 1 else "::"
    if "::" in frame:
        return tuple(kernels)
    return tuple(
        replace(one, operators=tuple(name for name in one.operators if name != frame))
        for one in kernels
    )


def _mean_of(kernels: Sequence[Kernel], repeats: int) -> tuple[Kernel, ...]:
    """One of the repeats, each kernel with its mean time over all of them."""
    number = len(kernels) // repeats
    return tuple(
        replace(one, duration_us=sum(k.duration_us for k in kernels[at::number]) / repeats)
        for at, one in enumerate(kernels[:number])
    )


# The kernels.


def _body(
    profile: Profile, kernels: Sequence[Kernel], wanted: Wanted, style: Style
) -> Iterator[Line]:
    on_cpu = profile.environment.kind == "cpu"
    few = len(kernels) <= _FEW and not on_cpu and wanted.top is None
    if wanted.order == "order" or (wanted.order is None and few):
        yield from _in_order(profile, kernels, wanted, style)
        return
    yield from _by_name(profile, kernels, wanted, style)
    if wanted.order is None and not on_cpu:
        yield ()
        if wanted.everything:
            yield from _in_order(profile, kernels, wanted, style)
        else:
            yield from _folded_order(kernels, style)


def _in_order(
    profile: Profile, kernels: Sequence[Kernel], wanted: Wanted, style: Style
) -> Iterator[Line]:
    """A row for each kernel."""
    nouns = NOUNS[profile.environment.kind]
    shown = kernels if wanted.everything else kernels[: wanted.top or _FEW]
    names = tell_apart(one.name for one in kernels)
    unit = time_unit(one.duration_us for one in shown)
    rows = [
        TableRow(
            (str(at), unit.words(one.duration_us)),
            names[one.name],
            chain_of(one),
            os.path.basename(one.source),
            _sizes(one),
        )
        for at, one in enumerate(shown, 1)
    ]
    titles = ("#", f"{nouns.device} {unit.name}")
    yield from lay_out_rows(titles, nouns.kernel, nouns.caller, rows, style).coloured()
    if len(kernels) > len(shown):
        yield (Span(f"{len(kernels) - len(shown):,} more {nouns.kernel}s: --all"),)


def _sizes(kernel: Kernel) -> str:
    """Grid and block without the ones at their ends: ``2x66, 384``; empty if unknown."""
    if not any(kernel.grid):
        return ""
    told = ("x".join(map(str, size)) for size in (kernel.grid, kernel.block))
    return ", ".join(one.removesuffix("x1").removesuffix("x1") for one in told)


def _by_name(
    profile: Profile, kernels: Sequence[Kernel], wanted: Wanted, style: Style
) -> Iterator[Line]:
    """A row for each name; one for all others."""
    nouns, order = NOUNS[profile.environment.kind], wanted.order
    ranked = by_name(kernels, "total" if order is None or order == "order" else order)
    most = len(ranked) if wanted.everything else wanted.top or enough(ranked)
    rest = ranked[most:]
    rows = [
        (one.name, one.calls, one.us, ", ".join(by or "-" for by in one.callers[:_MOST_CALLERS]))
        for one in ranked[:most]
    ]
    if rest:
        name = count_words(len(rest), f"other {nouns.kernel}")
        rows.append((name, sum(one.calls for one in rest), sum(one.us for one in rest), ""))
    total, unit = sum(us for _, _, us, _ in rows), time_unit(us for _, _, us, _ in rows)
    on_cpu = profile.environment.kind == "cpu"
    columns = [
        Column("calls", tuple(str(calls) for _, calls, _, _ in rows)),
        Column(f"{nouns.device} {unit.name}", tuple(unit.words(us) for _, _, us, _ in rows)),
        Column("share", tuple(f"{us / total * 100:.0f} %" if total else "" for *_, us, _ in rows)),
        Column("each us", tuple(f"{us / calls:.1f}" for _, calls, us, _ in rows), 0),
        Column(nouns.kernel, tuple(name for name, *_ in rows), 1, least=24, align=left),
    ]
    if on_cpu:
        callers = tuple(by for *_, by in rows)
        columns.append(Column(nouns.caller, callers, least=16, align=left))
    yield from lay_out(columns, style).coloured()


def _folded_order(kernels: Sequence[Kernel], style: Style) -> Iterator[Line]:
    """The sequence with its repeats folded."""
    names = tell_apart(one.name for one in kernels)
    found = stretches([names[one.name] for one in kernels])
    shown = found[:_MOST_STRETCHES]
    folded = (
        [times_words(name, len(list(equal))) for name, equal in itertools.groupby(stretch.unit)]
        for stretch in shown
    )
    columns = [
        Column("", tuple(str(len(one.unit)) for one in shown)),
        Column("", tuple(f"x{one.times}" if one.times > 1 else "" for one in shown)),
        Column(
            "",
            tuple(", ".join(first_of(one, _MOST_OF_STRETCH, "{} more (--all)")) for one in folded),
            align=left,
        ),
    ]
    yield (Span("in launch order, repeats folded:"),)
    for block in lay_out(columns, style.within(2)).blocks:
        yield from ((Span(f"  {line}"),) for line in block)
    more = sum(len(one.unit) * one.times for one in found[_MOST_STRETCHES:])
    if more:
        yield (Span(f"  {more:,} more kernels: --all"),)


# What is not zero.


def _about(profile: Profile, kernels: Sequence[Kernel]) -> dict[str, str]:
    """Return sentences by their labels; empty ones where there is nothing to say."""
    on_cpu, bound = profile.environment.kind == "cpu", profile.bound
    checked = integrity_words(profile).removeprefix("complete: ")
    checked = checked.removeprefix("CPU operators counted, not GPU kernels").removeprefix(", ")
    return {
        "devices": _devices(profile),
        "idle": _idle(profile),
        "comm": _communication(profile),
        "also": ", ".join(_also(profile)),
        "host": _host(profile),
        "bound": "" if bound.verdict == "unknown" else f"{bound.verdict}: {bound.reason}",
        "more": _OPTIONS if on_cpu or len(kernels) > _FEW else "",
        "checked": checked if profile.integrity.complete else "",
    }


def _devices(profile: Profile) -> str:
    """What each of several devices did."""
    on: defaultdict[int, list[float]] = defaultdict(list)
    for kernel in profile.kernels:
        on[kernel.device].append(kernel.duration_us)
    told = (
        f"{device}: {count_words(len(us), 'kernel')}, {format_time(sum(us))}"
        for device, us in sorted(on.items())
    )
    return "; ".join(told) if len(on) > 1 else ""


def _idle(profile: Profile) -> str:
    idle, span = value_of(profile, "gpu_idle"), value_of(profile, "gpu_span")
    if not idle or not span:
        return ""
    ours = ", under the profiler" if idle > 0.1 * span else ""
    return f"{format_time(idle)} of {format_time(span)} between first and last activity{ours}"


def _communication(profile: Profile) -> str:
    """How much of it is exposed, how many bytes are exchanged, and by which operations."""
    took, exposed = value_of(profile, "comm_time"), value_of(profile, "exposed_comm_time")
    if not took or exposed is None:
        return ""
    size = value_of(profile, "comm_bytes")
    of = f", {format_bytes(size)}" if size else ""
    operations = Counter(one.operation or "other" for one in profile.collectives)
    named = ", ".join(times_words(*one) for one in operations.most_common(3))
    return f"{format_time(exposed)} of {format_time(took)} hidden by no computation{of} ({named})"


def _also(profile: Profile) -> Iterator[str]:
    """Yield counts that are not zero, with what they are of."""
    counts = {
        "memsets": ("memset", "memsets", ""),
        "allocations": ("allocation", "allocations", ""),
        "memcpys": (
            "copy",
            f"copies of {format_bytes(value_of(profile, 'memcpy_bytes') or 0)}",
            _kinds((one.name.removeprefix("Memcpy "), one.operators) for one in profile.copies),
        ),
        "syncs": ("wait", "waits", _kinds((one.call, one.operators) for one in profile.waits)),
        "recompiles": ("compilation", "compilations", ""),
    }
    for metric, (one, several, kinds) in counts.items():
        number = int(value_of(profile, metric) or 0)
        if number:
            yield count_words(number, one, several) + kinds
    if memory := value_of(profile, "peak_memory"):
        yield f"peak memory {format_bytes(memory)}"
    yield from filter(None, [would_wait_words(profile)])


def _kinds(found: Iterable[tuple[str, tuple[str, ...]]]) -> str:
    counted = Counter(with_chain(name, chain_words(operators)) for name, operators in found)
    told = [times_words(*one) for one in counted.most_common()]
    return f" ({'; '.join(first_of(told, _MOST_CALLS))})" if told else ""


def _host(profile: Profile) -> str:
    named = {"latency": "latency", "dispatch_time": "dispatch", "launch_overhead": "overhead"}
    values = ((words, value_of(profile, metric)) for metric, words in named.items())
    return ", ".join(f"{words} {format_time(us)}" for words, us in values if us)


# The operators as a tree.

_MOST_LINES, _DEEPEST, _MOST_NAMES = 60, 20, 6
_WRAPPER = "autograd::engine::evaluate_function: "
"""What stands around each node of autograd, and is named like it."""


def tree_lines(root: OperatorNode, profile: Profile, wanted: Wanted, style: Style) -> list[Line]:
    """Return a line for each operator, below its caller. Operators that launch nothing share a
    line with their neighbours, and what they call is left out."""
    rows = list(_rows(root.below, 0, everything=wanted.everything))
    if not rows:
        return [(Span("No operator in this trace: kernels alone."),)]
    most = len(rows) if wanted.everything else wanted.top or _MOST_LINES
    # What is above a row takes no less time than the row, and comes before it.
    costliest = sorted(range(len(rows)), key=lambda at: (-rows[at][1].us, at))
    shown = [rows[at] for at in sorted(costliest[:most])]
    nouns, unit = NOUNS[profile.environment.kind], time_unit([root.us])
    launched = "computing" if profile.environment.kind == "cpu" else "kernels"
    launching = [node if node.kernels else None for _, node, _ in shown]
    columns = [
        Column("calls", tuple(str(node.calls) for _, node, _ in shown)),
        Column(launched, tuple(str(one.kernels) if one else "" for one in launching)),
        Column(
            f"{nouns.device} {unit.name}",
            tuple(unit.words(one.us) if one else "" for one in launching),
        ),
        Column(
            "operator",
            tuple("  " * min(depth, _DEEPEST) + name for depth, _, name in shown),
            align=left,
        ),
    ]
    lines = [*lay_out(columns, style).coloured(["" if one else "dim" for one in launching])]
    if len(rows) > len(shown):
        lines.append((Span(f"{len(rows) - len(shown):,} more lines with shorter kernels: --all"),))
    own = root.kernels - sum(one.kernels for one in root.below)
    if own:
        words = count_words(own, nouns.kernel)
        lines.append((Span(f"launched by no operator that is recorded: {words}"),))
    return lines


def _rows(
    nodes: Sequence[OperatorNode], depth: int, *, everything: bool
) -> Iterator[tuple[int, OperatorNode, str]]:
    """Yield depth, node and name."""
    silent: list[OperatorNode] = []
    for node in itertools.chain.from_iterable(map(_unwrapped, nodes)):
        if everything or node.kernels:
            yield depth, node, node.name
            yield from _rows(node.below, depth + 1, everything=everything)
        else:
            silent.append(node)
    if silent:
        names = first_of([times_words(one.name, one.calls) for one in silent], _MOST_NAMES)
        together = type(silent[0])("", sum(one.calls for one in silent), 0, 0.0)
        yield depth, together, f"nothing from {', '.join(names)}"


def _unwrapped(node: OperatorNode) -> tuple[OperatorNode, ...]:
    return node.below if node.name.startswith(_WRAPPER) and node.below else (node,)


# Several ranks.

_MOST_ODD, _MOST_CAUSES = 3, 6


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
    places = dict.fromkeys(place_words(one.profile.environment) for one in ranks)
    lines = [*_rank_verdict(ranks, unread, odd, what, style)]
    lines += style.sentence("; ".join(places), "dim")
    lines += [line for one in waiting_words(ranks) for line in style.sentence(one)]
    lines += [(), *rank_table_lines(rank_table(ranks, what), style)]
    for one in odd:
        causes = causes_of_diff(diffs[one.rank.name]) if one.rank.name in diffs else ()
        if causes:
            lines += [(), (Span(f"{what} {one.rank.name}, compared with {one.like.name}:"),)]
        words = [
            f"{cause.sign or '~'} {cause.text}{', ' * bool(cause.place)}{line_words(cause.place)}"
            for cause in causes
        ]
        for told in first_of(words, _MOST_CAUSES, "{} more changes"):
            lines += [(Span("  "), *line) for line in style.within(2).sentence(told)]
    if odd and odd[0].like.file != odd[0].rank.file:
        command = f"kernelprof diff {odd[0].like.file} {odd[0].rank.file}"
        lines += [(), (Span(style.say(command), "dim"),)]
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
    on_cpu = all(one.profile.environment.kind == "cpu" for one in ranks)
    counted = count_words(kernels, NOUNS["cpu" if on_cpu else "cuda"].kernel)
    state = completeness_words([one.profile.integrity for one in ranks])
    words = f"{count_words(len(ranks), what)}, {counted}{'' if missing else f'; {state}'}."
    differ = [f"{what.capitalize()} {one.rank.name} differs: {one.words}." for one in odd]
    yield from style.sentence(" ".join([words, *differ[:_MOST_ODD]]), "bold")
