"""One round as lanes of boxes: host threads, their calls, streams, and why the device was idle."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_kernelprof.names.short import short_name
from pytest_kernelprof.report.html.drawing import Arrow, Box, Lane, Scene
from pytest_kernelprof.report.html.kernel_names import family_of
from pytest_kernelprof.report.html.operator_tree import (
    Nesting,
    is_wrapper,
    launch_order,
    nesting_of,
)
from pytest_kernelprof.schema.profile import QUEUED_US

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pytest_kernelprof.schema.run import Profile, Timeline

MOST_LEVELS = 4
"""Operators inside of so many others are not drawn: by then they are implementation."""
MOST_LANES = 12
"""Threads, and streams, that are drawn; of more the busiest."""

_STREAM = re.compile(r"device (\d+) stream (\d+)")
_OPERATOR = re.compile(r"^(aten::|torch::autograd::|autograd::)")


def scene_of(profile: Profile, fresh: Collection[int] = ()) -> Scene | None:
    """What the profile's round looked like; None where no timeline of it was kept.

    Args:
        fresh: kernels to be marked, by their place in launch order, from 0.
    """
    timeline = profile.timeline
    if timeline is None or not timeline.kind:
        return None
    nesting = nesting_of(timeline)
    marked = _marked(profile, timeline, nesting, fresh)
    counted = _counted_on_cpu(profile, timeline, nesting)
    threads, streams, notes = _chosen(timeline)
    lanes: list[Lane] = []
    of_lane: dict[tuple[str, bool], int] = {}
    for thread in threads:
        for calls in (False, True):
            boxes = _host_boxes(timeline, nesting, thread, calls, counted)
            if boxes:
                of_lane[thread, calls] = len(lanes)
                name = _thread_name(timeline, thread, first=thread == threads[0])
                lanes.append(_host_lane(name, boxes, calls, several=len(threads) > 1))
    several_devices = len({stream.split(" stream ")[0] for stream in streams}) > 1
    for stream in streams:
        of_lane[stream, True] = len(lanes)
        boxes = _device_boxes(timeline, nesting, stream, marked)
        lanes.append(Lane("stream", _stream_name(stream, several_devices), boxes))
    gaps, why = _gaps(profile, timeline, nesting)
    if gaps:
        lanes.append(Lane("idle", "GPU idle", gaps))
    if _deepest(timeline, nesting) >= MOST_LEVELS:
        notes.append(f"operators inside of {MOST_LEVELS} others are not drawn")
    ends = map(sum, zip(timeline.start_us, timeline.duration_us, strict=True))
    return Scene(
        tuple(lanes),
        tuple(_arrows(timeline, nesting, of_lane, marked)),
        max(max(ends), 0.001),
        timeline.kind.count("kernel"),
        len(_streams_with_kernels(timeline)),
        _totals(gaps),
        (*notes, *filter(None, [why])),
    )


def _streams_with_kernels(timeline: Timeline) -> set[str]:
    pairs = zip(timeline.lane, timeline.kind, strict=True)
    return {lane for lane, kind in pairs if kind == "kernel"}


def _chosen(timeline: Timeline) -> tuple[list[str], list[str], list[str]]:
    """The threads and streams that are drawn, in their order, and what is said of the others."""
    busy: dict[str, float] = defaultdict(float)
    for lane, duration in zip(timeline.lane, timeline.duration_us, strict=True):
        busy[lane] += duration
    streams = {lane for lane in busy if _STREAM.fullmatch(lane)}
    threads = [lane for lane in busy if lane not in streams]  # by their first event
    notes = []
    for what, lanes in (("threads", threads), ("streams", list(streams))):
        left = len(lanes) - MOST_LANES
        if left > 0:
            notes.append(f"{left} more {what} are not drawn, which were less busy")
    keep = set(_busiest(threads, busy)) | set(_busiest(streams, busy))
    return (
        [one for one in threads if one in keep],
        sorted((one for one in streams if one in keep), key=_stream_number),
        notes,
    )


def _busiest(lanes: Iterable[str], busy: dict[str, float]) -> list[str]:
    return sorted(lanes, key=lambda one: -busy[one])[:MOST_LANES]


def _stream_number(lane: str) -> tuple[int, int]:
    found = _STREAM.fullmatch(lane)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _stream_name(lane: str, several_devices: bool) -> str:
    device, stream = _stream_number(lane)
    return f"GPU {device}, stream {stream}" if several_devices else f"stream {stream}"


def _thread_name(timeline: Timeline, thread: str, first: bool) -> str:
    """Autograd's where nodes of a backward pass ran, unless all began there."""
    if first:
        return thread
    names = (n for n, lane in zip(timeline.name, timeline.lane, strict=True) if lane == thread)
    if any(is_wrapper(name) for name in names):
        return thread.replace("thread", "autograd", 1)
    return thread


def _host_lane(name: str, boxes: tuple[Box, ...], calls: bool, several: bool) -> Lane:
    if not calls:
        return Lane("thread", name, boxes)
    return Lane("calls", f"its calls, {name.rpartition(' ')[2]}" if several else "calls", boxes)


def _host_boxes(
    timeline: Timeline, nesting: Nesting, thread: str, calls: bool, counted: Collection[int]
) -> tuple[Box, ...]:
    kinds = ("call",) if calls else ("operator", "annotation")
    found = []
    for i in nesting.order:
        name = timeline.name[i]
        if timeline.lane[i] != thread or timeline.kind[i] not in kinds or is_wrapper(name):
            continue
        if not calls and nesting.level[i] >= MOST_LEVELS:
            continue
        start = timeline.start_us[i]
        end = start + timeline.duration_us[i]
        label = "" if calls else _OPERATOR.sub("", name)
        level = 0 if calls else nesting.level[i]
        found.append(Box(_host_kind(timeline, nesting, i, counted), level, start, end, name, label))
    return tuple(found)


def _host_kind(timeline: Timeline, nesting: Nesting, i: int, counted: Collection[int]) -> str:
    kind = timeline.kind[i]
    if kind == "call":
        return "launch" if nesting.launches[i] else "moves" if nesting.moves[i] else "call"
    if i in counted:
        return f"k-{family_of(timeline.name[i])}"
    if kind == "annotation":
        return "note"
    return "op" if nesting.launches[i] or nesting.moves[i] else "quiet"


def _counted_on_cpu(profile: Profile, timeline: Timeline, nesting: Nesting) -> frozenset[int]:
    """The operators that are the CPU's kernels; none where the timeline does not have just them."""
    if profile.environment.kind != "cpu" or profile.more_kernels:
        return frozenset()
    names = {kernel.name for kernel in profile.kernels}
    found: set[int] = set()
    for i in nesting.order:
        if timeline.kind[i] != "operator" or timeline.name[i] not in names:
            continue
        if found.isdisjoint(nesting.above(i)):
            found.add(i)
    counted = sorted(timeline.name[i] for i in found)
    if counted != sorted(kernel.name for kernel in profile.kernels):
        return frozenset()
    return frozenset(found)


def _device_boxes(
    timeline: Timeline, nesting: Nesting, stream: str, marked: Collection[int]
) -> tuple[Box, ...]:
    found = []
    for i in nesting.order:
        if timeline.lane[i] != stream:
            continue
        is_kernel = timeline.kind[i] == "kernel"
        above = nesting.above(i) if is_kernel else []
        name = short_name(timeline.name[i]) if is_kernel else timeline.name[i]
        label = _OPERATOR.sub("", timeline.name[above[0]]).rstrip("_") if above else name
        start = timeline.start_us[i]
        found.append(
            Box(
                f"k-{family_of(timeline.name[i])}" if is_kernel else "memory",
                0,
                start,
                start + timeline.duration_us[i],
                name,
                label if is_kernel else "",
                i in marked,
            )
        )
    return tuple(found)


def _arrows(
    timeline: Timeline,
    nesting: Nesting,
    of_lane: dict[tuple[str, bool], int],
    marked: Collection[int],
) -> list[Arrow]:
    found = []
    for i in nesting.order:
        call = nesting.call[i]
        if timeline.kind[i] != "kernel" or call < 0:
            continue
        ends = (of_lane.get((timeline.lane[call], True)), of_lane.get((timeline.lane[i], True)))
        if ends[0] is None or ends[1] is None:
            continue
        start, to = timeline.start_us[call], timeline.start_us[i]
        found.append(Arrow(ends[0], start, ends[1], to, i in marked))
    return sorted(found, key=lambda arrow: arrow.start)


def _gaps(profile: Profile, timeline: Timeline, nesting: Nesting) -> tuple[tuple[Box, ...], str]:
    """The idle stretches over all streams, by the same rule as the profile's own sums; none, and
    why, where that cannot be told."""
    device = [i for i in nesting.order if _STREAM.fullmatch(timeline.lane[i])]
    if len(device) < 2:
        return (), ""
    if profile.gaps.why:
        return (), f"idle time is not told: {profile.gaps.why}"
    if profile.integrity.clock_skew:
        return (), "idle time is not told: the clocks of host and device do not agree"
    if timeline.left_out:
        return (), "idle time is not told: with events left out, it would be too much"
    found = []
    reached = timeline.start_us[device[0]] + timeline.duration_us[device[0]]
    for i in device[1:]:
        start = timeline.start_us[i]
        if start > reached:
            cause, words = _cause(timeline, nesting.call[i], reached, start - reached)
            found.append(Box(f"gap-{cause}", 0, reached, start, words))
        reached = max(reached, start + timeline.duration_us[i])
    return tuple(found), ""


def _cause(timeline: Timeline, call: int, reached: float, gap: float) -> tuple[str, str]:
    if call >= 0 and timeline.start_us[call] + timeline.duration_us[call] > reached:
        return "host", "idle: the host had not launched the next"
    if call >= 0 and gap <= QUEUED_US:
        return "kernel", "idle: the next was queued"
    return "other", "idle: launched before, begun late"


def _totals(gaps: Sequence[Box]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for gap in gaps:
        found[gap.kind.removeprefix("gap-")] += gap.end - gap.start
    return dict(found)


def _deepest(timeline: Timeline, nesting: Nesting) -> int:
    kinds = ("operator", "annotation")
    levels = (
        level for level, kind in zip(nesting.level, timeline.kind, strict=True) if kind in kinds
    )
    return max(levels, default=0)


def _marked(
    profile: Profile, timeline: Timeline, nesting: Nesting, fresh: Collection[int]
) -> frozenset[int]:
    """The events of those kernels; none where the timeline does not have just the profile's."""
    if not fresh or profile.more_kernels:
        return frozenset()
    events = launch_order(timeline, nesting)
    names = [timeline.name[i] for i in events]
    if names != [kernel.name for kernel in profile.kernels]:
        return frozenset()
    return frozenset(event for at, event in enumerate(events) if at in fresh)
