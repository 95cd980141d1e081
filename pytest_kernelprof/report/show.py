"""What a recorded trace holds, as ``kernelprof show`` tells it: the verdict, kernels; idle time,
copies, waits, what was checked."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.names.apart import tell_apart
from pytest_kernelprof.report.style import Span
from pytest_kernelprof.report.tables import (
    Numbers,
    Unit,
    Words,
    lay_out,
    right,
    text_table,
    time_unit,
    wrapped,
)
from pytest_kernelprof.report.terminal import labelled
from pytest_kernelprof.summary.kernel_groups import by_name, times_words, with_chain
from pytest_kernelprof.summary.repeats import stretches, whole_repeats
from pytest_kernelprof.summary.verdicts import completeness_words, integrity_words, would_wait_words
from pytest_kernelprof.summary.words import chain_words, count_words, place_words, value_of
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_kernelprof.report.style import Line, Style
    from pytest_kernelprof.schema.run import Kernel, Origin, Profile
    from pytest_kernelprof.summary.kernel_groups import Named, Order
    from pytest_kernelprof.summary.repeats import Stretch


FEW = 50
"""So many kernels are told one by one, in launch order, where nothing else is asked for."""
_MOST_CALLS = 3
_LABEL = 11
_SHORT_US = 10.0
_SHORT_SHARE = 0.3
_OPTIONS = "--all --operators --sort=name|calls|each|total|order --top=N --json"


def about_lines(profile: Profile, kernels: Sequence[Kernel], style: Style) -> Iterator[Line]:
    """What is not zero, each in a line or two."""
    yield from labelled("devices", _devices(profile), style, _LABEL)
    yield from labelled("idle", _idle(profile), style, _LABEL)
    yield from labelled("comm", _communication(profile), style, _LABEL)
    yield from labelled("short", _short(profile, kernels), style, _LABEL)
    yield from labelled("also", ", ".join(_also(profile)), style, _LABEL)
    yield from labelled("host", _host(profile), style, _LABEL)
    if profile.bound.verdict != "unknown":
        yield from labelled(
            "bound", f"{profile.bound.verdict}: {profile.bound.reason}", style, _LABEL
        )
    if len(kernels) > FEW or profile.environment.kind == "cpu":
        yield from labelled("more", _OPTIONS, style, _LABEL)
    if profile.integrity.complete:
        yield from labelled("checked", _checked(profile), style, _LABEL)


def _checked(profile: Profile) -> str:
    """What is known of its completeness, that it is apart."""
    words = integrity_words(profile).removeprefix("complete: ")
    return words.removeprefix("CPU operators counted, not GPU kernels").removeprefix(", ")


def _devices(profile: Profile) -> str:
    """What each of several did."""
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
    return (
        f"{format_time(idle)} of {format_time(span)} between the first activity and the last{ours}"
    )


def _communication(profile: Profile) -> str:
    """What of it nothing hides, how much is exchanged, and by what."""
    took, exposed = value_of(profile, "comm_time"), value_of(profile, "exposed_comm_time")
    if not took or exposed is None:
        return ""
    size = value_of(profile, "comm_bytes")
    of = f", {format_bytes(size)}" if size else ""
    operations = Counter(one.operation or "other" for one in profile.collectives)
    named = ", ".join(times_words(name, number) for name, number in operations.most_common(3))
    return f"{format_time(exposed)} of {format_time(took)} hidden by no computation{of} ({named})"


def _short(profile: Profile, kernels: Sequence[Kernel]) -> str:
    if profile.environment.kind == "cpu" or len(kernels) <= FEW:
        return ""
    short = [one.duration_us for one in kernels if one.duration_us < _SHORT_US]
    total = sum(one.duration_us for one in kernels)
    if not total or len(short) < _SHORT_SHARE * len(kernels):
        return ""
    return (
        f"{len(short):,} of {len(kernels):,} kernels are shorter than {_SHORT_US:.0f}us; they take "
        f"{sum(short) / total * 100:.0f} % of the time"
    )


def _also(profile: Profile) -> Iterator[str]:
    """Counts that are not zero, with what they are of."""
    for metric, word in (("memsets", "memset"), ("allocations", "allocation")):
        number = int(value_of(profile, metric) or 0)
        if number:
            yield count_words(number, word)
    if value_of(profile, "peak_memory"):
        yield f"peak memory {format_bytes(value_of(profile, 'peak_memory') or 0)}"
    copies = int(value_of(profile, "memcpys") or 0)
    if copies:
        size = format_bytes(value_of(profile, "memcpy_bytes") or 0)
        named = _kinds(
            (one.name.removeprefix("Memcpy "), chain_words(one.operators)) for one in profile.copies
        )
        yield f"{count_words(copies, 'copy', 'copies')} of {size}{named}"
    waits = int(value_of(profile, "syncs") or 0)
    if waits:
        named = _kinds((one.call, chain_words(one.operators)) for one in profile.waits)
        yield f"{count_words(waits, 'wait')}{named}"
    yield from filter(None, [would_wait_words(profile)])
    recompiles = int(value_of(profile, "recompiles") or 0)
    if recompiles:
        yield count_words(recompiles, "compilation")


def _kinds(found: Iterable[tuple[str, str]]) -> str:
    counted = Counter(with_chain(name, chain) for name, chain in found).most_common()
    told = [times_words(words, number) for words, number in counted[:_MOST_CALLS]]
    left = len(counted) - len(told)
    return f" ({'; '.join([*told, *([f'{left} more'] if left else [])])})" if told else ""


def _host(profile: Profile) -> str:
    named = {"latency": "latency", "dispatch_time": "dispatch", "launch_overhead": "overhead"}
    values = ((words, value_of(profile, metric)) for metric, words in named.items())
    return ", ".join(f"{words} {format_time(us)}" for words, us in values if us)


_MOST_STRETCHES = 8
_MOST_LINES = 2
_MOST_KINDS = 3
_CHAIN, _NAME = 16, 24


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for.

    Attributes:
        order: in which order; None for launch order of few kernels, and by name of many.
        top: how many rows; None for as many as say enough.
        everything: each row, and nothing folded.
    """

    order: Order | None = None
    top: int | None = None
    everything: bool = False


def trace_lines(
    profile: Profile, origin: Origin | None, wanted: Wanted, style: Style
) -> list[Line]:
    """The verdict, where it was, the kernels, what else there is to know, and what more there is.

    Args:
        origin: what the file is one of, where that is known.
    """
    kernels = profile.kernels
    repeats = 1 if wanted.everything else whole_repeats(_identities(kernels))
    profile = _without_frames(profile)
    kernels = profile.kernels
    one = _one_of(kernels, repeats) if repeats > 1 else kernels
    lines = [*verdict_lines(profile, style), *_place(profile, origin, repeats, len(one), style)]
    if one:
        lines += [(), *_body(profile, one, wanted, style)]
    about = list(about_lines(profile, one, style))
    if about:
        lines += [(), *about]
    return lines


def verdict_lines(profile: Profile, style: Style) -> list[Line]:
    """How many, how long, and whether that is all; what is missing comes first."""
    words = style.say(_counted(profile))
    problems = profile.integrity.problems
    if not problems:
        words += f"; {completeness_words([profile.integrity])}."
        return [(Span(line, "bold"),) for line in wrapped(words, style.width)]
    missing = [f"INCOMPLETE: {problems[0]}", *problems[1:]]
    told = [line for one in missing for line in wrapped(style.say(one), style.width)]
    there = f"What is there: {words}."
    return [*((Span(line, "red"),) for line in told), (Span(there, "bold"),)]


def _counted(profile: Profile) -> str:
    if profile.environment.kind == "cpu":
        told = f"{count_words(profile.kernel_count, 'operator')} on the CPU"
        together = sum(one.duration_us for one in profile.kernels)
        return f"{told}, {format_time(together)}" if profile.kernel_count else told
    kernels = count_words(profile.kernel_count, "kernel")
    launches, us = value_of(profile, "launches"), value_of(profile, "cuda_time")
    if launches is not None:
        kernels += f" in {count_words(int(launches), 'launch', 'launches')}"
    comm_us = value_of(profile, "comm_time")
    kernels += f", {format_time(us)} on the GPU" if us else ""
    return kernels + (f", {format_time(comm_us)} communicating" if comm_us else "")


def _place(
    profile: Profile, origin: Origin | None, repeats: int, number: int, style: Style
) -> list[Line]:
    on_cpu = profile.environment.kind == "cpu"
    told = []
    if repeats > 1:
        kernels = count_words(number, _what(on_cpu))
        told.append(f"{repeats} equal repeats of {kernels}, below is one on average")
    if profile.rounds > 1:
        of = "the fullest, as they differ" if profile.variants else "one of them"
        below = f", below is {of}" if repeats == 1 or profile.variants else ""
        told.append(f"median of {profile.rounds} rounds{below}")
    told.append(place_words(profile.environment))
    if on_cpu:
        told.append("no device in this trace, so no kernels")
    if origin is not None and (origin.form or origin.dialect not in ("CUDA", "CPU")):
        told.append(f"{origin.dialect} trace {origin.form}".rstrip())
    return [(Span(line, "dim"),) for line in wrapped(style.say("; ".join(told)), style.width)]


def _without_frames(profile: Profile) -> Profile:
    """The same without the annotation that all kernels stand in, which tells none of them apart."""
    outermost = {one.operators[-1] for one in profile.kernels if len(one.operators) > 1}
    frames = outermost if len(outermost) == 1 and len(profile.kernels) > 1 else set()
    frames = {one for one in frames if "::" not in one}

    def inside(operators: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(one for one in operators if one not in frames)

    return replace(
        profile,
        kernels=tuple(replace(k, operators=inside(k.operators)) for k in profile.kernels),
        copies=tuple(replace(c, operators=inside(c.operators)) for c in profile.copies),
        waits=tuple(replace(w, operators=inside(w.operators)) for w in profile.waits),
    )


def _identities(kernels: Sequence[Kernel]) -> list[str]:
    return [one.name for one in kernels]


def _one_of(kernels: Sequence[Kernel], repeats: int) -> tuple[Kernel, ...]:
    """One of the repeats, each kernel with its mean time over all of them."""
    number = len(kernels) // repeats
    return tuple(
        replace(one, duration_us=sum(k.duration_us for k in kernels[at::number]) / repeats)
        for at, one in enumerate(kernels[:number])
    )


def _body(
    profile: Profile, kernels: Sequence[Kernel], wanted: Wanted, style: Style
) -> Iterator[Line]:
    on_cpu = profile.environment.kind == "cpu"
    few = len(kernels) <= FEW and not on_cpu
    if wanted.order == "order" or (wanted.order is None and few and wanted.top is None):
        yield from _in_order(kernels, wanted, style, on_cpu=on_cpu)
        return
    yield from _by_name(kernels, wanted, style, on_cpu=on_cpu)
    if wanted.order is None and not on_cpu:
        yield ()
        yield from _folded_order(kernels, wanted, style)


def _in_order(
    kernels: Sequence[Kernel], wanted: Wanted, style: Style, *, on_cpu: bool
) -> Iterator[Line]:
    """One line each."""
    most = len(kernels) if wanted.everything else wanted.top or FEW
    told = kernels[:most]
    names = tell_apart(one.name for one in kernels)
    unit = time_unit([one.duration_us for one in told])
    chains = tuple(style.say(_chain(one)) for one in told)
    numbers = [
        Numbers("#", tuple(str(at) for at in range(1, len(told) + 1))),
        Numbers(f"{_device(on_cpu)} {unit.name}", tuple(unit.words(k.duration_us) for k in told)),
    ]
    words = [
        Words(_what(on_cpu), tuple(style.say(names[k.name]) for k in told), _NAME, 4),
        Words("grid, block", tuple(map(_sizes, told)), 0, 2, goes=True),
        Words("called by" if on_cpu else "launched by", chains, _CHAIN, 3),
        Words("line", tuple(style.say(os.path.basename(k.source)) for k in told), 0, 1, goes=True),
    ]
    yield from _table(text_table(numbers, words, style.width, style.cut))
    if len(kernels) > len(told):
        yield (Span(f"{len(kernels) - len(told):,} more {_what(on_cpu)}s: --all"),)


def _by_name(
    kernels: Sequence[Kernel], wanted: Wanted, style: Style, *, on_cpu: bool
) -> Iterator[Line]:
    """One line a name; all others in one."""
    most = len(kernels) if wanted.everything else wanted.top
    found = by_name(kernels, _chain, wanted.order or "total", most)
    unit = time_unit([one.us for one in (*found.shown, *found.rest)])
    rows = [_cells(one.calls, one.us, found.us, unit) for one in found.shown]
    names = [style.say(one.name) for one in found.shown]
    callers = [style.say(_callers(one)) for one in found.shown]
    if found.rest:
        rows.append(_cells(found.rest_calls, found.rest_us, found.us, unit))
        names.append(f"{count_words(len(found.rest), 'other ' + _what(on_cpu))}")
        callers.append("")
    titles = ("calls", f"{_device(on_cpu)} {unit.name}", "share", "each us")
    gives = (None, None, None, 0)
    numbers = [
        Numbers(title, tuple(row[at] for row in rows), way)
        for at, (title, way) in enumerate(zip(titles, gives, strict=True))
    ]
    if on_cpu:
        words = [
            Words("operator", tuple(names), _NAME, 2),
            Words("called by", tuple(callers), _CHAIN, 1),
        ]
        yield from _table(text_table(numbers, words, style.width, style.cut))
        return
    laid = lay_out(numbers, names, style.width + 2, name="kernel", cut=style.cut)
    yield (Span(laid.title[2:], "dim"),)
    for cells, name in laid.rows:
        yield (Span("  ".join([*cells, name[0]])),)
        yield from ((Span(" " * (laid.indent - 2) + more),) for more in name[1:])


def _cells(calls: int, us: float, all_us: float, unit: Unit) -> tuple[str, str, str, str]:
    share = f"{us / all_us * 100:.0f} %" if all_us else ""
    return str(calls), unit.words(us), share, f"{us / calls:.1f}"


def _folded_order(kernels: Sequence[Kernel], wanted: Wanted, style: Style) -> Iterator[Line]:
    """The sequence as short as it gets."""
    names = tell_apart(one.name for one in kernels)
    found = stretches([names[one.name] for one in kernels])
    most = len(found) if wanted.everything else _MOST_STRETCHES
    told = found[:most]
    number = max(len(str(len(one.unit))) for one in told)
    times = max((len(f"x{one.times}") for one in told if one.times > 1), default=0)
    yield (Span("in launch order, repeats folded:"),)
    indent = 2 + number + (1 + times if times else 0) + 2
    for one in told:
        head = right(str(len(one.unit)), 2 + number)
        head += f" {right(f'x{one.times}' if one.times > 1 else '', times)}" if times else ""
        lines = _sequence(one, style, style.width - indent, wanted)
        yield (Span(f"{head}  {lines[0]}"),)
        yield from ((Span(" " * indent + more),) for more in lines[1:])
    if len(found) > most:
        left = sum(len(one.unit) * one.times for one in found[most:])
        yield (Span(f"  {left:,} more kernels: --all"),)


def _sequence(stretch: Stretch, style: Style, width: int, wanted: Wanted) -> list[str]:
    """Its names in a few lines; of the last as many as there is room for."""
    names = [style.say(times_words(name, number)) for name, number in stretch.folded]
    lines = _joined(names, width)
    if wanted.everything or len(lines) <= _MOST_LINES:
        return lines
    more = f", {style.cut} (--all)"
    told = [f"{names[0]}{more}"]
    for number in range(2, len(names)):
        longer = _joined([*names[: number - 1], names[number - 1] + more], width)
        if len(longer) > _MOST_LINES:
            break
        told = longer
    return told


def _joined(names: Sequence[str], width: int) -> list[str]:
    """Names with commas, broken between them."""
    lines = [""]
    for at, name in enumerate(names):
        piece = name + ("," if at + 1 < len(names) else "")
        if not lines[-1]:
            lines[-1] = piece
        elif len(lines[-1]) + 1 + len(piece) <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    return lines


def _table(lines: Sequence[str]) -> Iterator[Line]:
    yield (Span(lines[0], "dim"),)
    yield from ((Span(line),) for line in lines[1:])


def _device(on_cpu: bool) -> str:
    return "CPU" if on_cpu else "GPU"


def _what(on_cpu: bool) -> str:
    return "operator" if on_cpu else "kernel"


def _chain(kernel: Kernel) -> str:
    return chain_words(kernel.operators, kernel.name)


def _callers(one: Named) -> str:
    return (
        ", ".join(caller or "-" for caller in one.callers[:_MOST_KINDS]) if any(one.callers) else ""
    )


def _sizes(kernel: Kernel) -> str:
    """Grid and block without the ones at their ends: ``2x66, 384``; empty where unknown."""
    if not any(kernel.grid):
        return ""
    return f"{_size(kernel.grid)}, {_size(kernel.block)}"


def _size(size: tuple[int, int, int]) -> str:
    told = list(size)
    while len(told) > 1 and told[-1] == 1:
        told.pop()
    return "x".join(map(str, told))
