"""What ``kernelprof show`` tells beside the kernels: idle time, copies, waits, what was checked."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.cells import value_of
from pytest_kernelprof.digest.kernel_groups import times_words, with_chain
from pytest_kernelprof.digest.words import chain_words, count_words
from pytest_kernelprof.report.totals import labelled
from pytest_kernelprof.report.words import integrity_words, would_wait_words
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_kernelprof.report.spans import Line
    from pytest_kernelprof.report.style import Style
    from pytest_kernelprof.schema.run import Kernel, Profile

FEW = 50
"""So many kernels are told one by one, in launch order, where nothing else is asked for."""
_MOST_KINDS = 3
_SHORT_US = 10.0
_SHORT_SHARE = 0.3
_OPTIONS = "--all --operators --sort=name|calls|each|total|order --top=N --json"


def about_lines(profile: Profile, kernels: Sequence[Kernel], style: Style) -> Iterator[Line]:
    """What is not zero, each in a line or two."""
    yield from labelled("devices", _devices(profile), style)
    yield from labelled("idle", _idle(profile), style)
    yield from labelled("comm", _communication(profile), style)
    yield from labelled("short", _short(profile, kernels), style)
    yield from labelled("also", ", ".join(_also(profile)), style)
    yield from labelled("host", _host(profile), style)
    if profile.bound.verdict != "unknown":
        yield from labelled("bound", f"{profile.bound.verdict}: {profile.bound.reason}", style)
    if len(kernels) > FEW or profile.environment.kind == "cpu":
        yield from labelled("more", _OPTIONS, style)
    if profile.integrity.complete:
        yield from labelled("checked", _checked(profile), style)


def _checked(profile: Profile) -> str:
    """What is known of its completeness, that it is apart."""
    words = integrity_words(profile).removeprefix("complete: ")
    return words.removeprefix("compute operators of the CPU, no kernels").removeprefix(", ")


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
    told = [times_words(words, number) for words, number in counted[:_MOST_KINDS]]
    left = len(counted) - len(told)
    return f" ({'; '.join([*told, *([f'{left} more'] if left else [])])})" if told else ""


def _host(profile: Profile) -> str:
    named = {"latency": "latency", "dispatch_time": "dispatch", "launch_overhead": "overhead"}
    values = ((words, value_of(profile, metric)) for metric, words in named.items())
    return ", ".join(f"{words} {format_time(us)}" for words, us in values if us)
