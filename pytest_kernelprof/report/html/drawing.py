"""A round as what stands on its picture, lanes of boxes and arrows between them; as paths, and as
the one block of JSON, which no browser runs, that the page's script reads."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup

from pytest_kernelprof.units import format_time, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


LaneKind = Literal["thread", "calls", "stream", "idle"]


@dataclass(frozen=True, slots=True)
class Box:
    """Something that took time.

    Attributes:
        kind: what it is, the class that it is drawn by.
        level: the row of its lane.
        start, end: in microseconds.
        name: what it is called. label: what is written on it, if there is room.
        marked: whether it is new since what the run is compared with.
    """

    kind: str
    level: int
    start: float
    end: float
    name: str
    label: str = ""
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the picture, or several: boxes of one thread, one stream, one cause."""

    kind: LaneKind
    name: str
    boxes: tuple[Box, ...]

    @property
    def levels(self) -> int:
        """How many rows it has."""
        return 1 + max((box.level for box in self.boxes), default=0)


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a call to the kernel that it launched: lanes as numbers, times in microseconds."""

    lane: int
    start: float
    to_lane: int
    to: float
    marked: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """A round.

    Attributes:
        lanes: from the top: threads each followed by its calls, streams, the idle time.
        arrows: by the time of their call.
        length: of all of it, in microseconds.
        kernels: how many there are. streams: on how many streams.
        idle: microseconds by cause.
        notes: what is not drawn, and why.
    """

    lanes: tuple[Lane, ...]
    arrows: tuple[Arrow, ...]
    length: float
    kernels: int
    streams: int
    idle: dict[str, float]
    notes: tuple[str, ...]


WIDTH = 1144
GUTTER = 132
"""To the left of all boxes, for the names of lanes."""
_RIGHT = WIDTH - 4
_TOP = 26
MOST_ARROWS = 150
"""Arrows that can be told apart; of more none are drawn until the reader zooms in."""
_MOST_LABELS = 400
_NARROWEST, _NARROW = 0.8, 1.5
_TOGETHER = 0.4
"""Boxes of one kind that are nearer to each other than so many pixels become one."""
_LETTER = 5.9
_TICKS = 9

# Of each kind of lane: the height of a box, of a row, and what lies below the last row.
_HEIGHTS: dict[LaneKind, tuple[int, int, int]] = {
    "thread": (13, 15, 3),
    "calls": (11, 11, 9),
    "stream": (20, 20, 6),
    "idle": (8, 8, 18),
}
_ROOM_FOR_ARROWS = 28
_TONES = {"k-gemm": "on-dark", "k-fused": "on-dark", "k-other": "on-dark"}
"""What is written on light colours is dark."""


@dataclass(frozen=True, slots=True)
class Path:
    """All boxes of one kind in lanes of one kind, as the path of an SVG.

    Attributes:
        kind: its classes. d: its commands. boxes: what it draws, with the middle of its row.
    """

    kind: str
    d: str
    boxes: tuple[tuple[float, Box], ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Words at a point; ``tone`` is the class of those on a colour, empty on none."""

    x: float
    y: float
    words: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of a round.

    Attributes:
        height: in pixels; the width is ``WIDTH``. lanes: their names. paths: what is in them.
        rings: around boxes that are marked. labels, gaps: words on boxes, and below gaps.
        arrows, marked_arrows: the commands of paths. lines: for the script, the ends of each.
        ticks: of the axis, by their place and words.
        too_many: whether there are more arrows than are drawn.
    """

    height: int
    lanes: tuple[Text, ...]
    paths: tuple[Path, ...]
    rings: str
    labels: tuple[Text, ...]
    gaps: tuple[Text, ...]
    arrows: str
    marked_arrows: str
    lines: tuple[tuple[Arrow, float, float], ...]
    ticks: tuple[Text, ...]
    too_many: bool


def drawn(scene: Scene) -> Drawing:
    """The whole round on ``WIDTH`` pixels."""
    tops, height = _tops(scene.lanes)
    x = _Axis(scene.length)
    by_kind: dict[str, list[tuple[float, Box]]] = defaultdict(list)
    for lane, top in zip(scene.lanes, tops, strict=True):
        box_height, row, _ = _HEIGHTS[lane.kind]
        for box in lane.boxes:
            middle = top + box.level * row + box_height / 2
            by_kind[f"{lane.kind} {box.kind}"].append((middle, box))
    paths = _paths(by_kind, x)
    lines = tuple(_lines(scene, tops))
    too_many = len(lines) > MOST_ARROWS
    plain = () if too_many else tuple(one for one in lines if not one[0].marked)
    return Drawing(
        height,
        tuple(_names(scene.lanes, tops)),
        paths,
        _rings(paths, x),
        tuple(_labels(paths, x))[:_MOST_LABELS],
        tuple(_gap_labels(paths, x))[:_MOST_LABELS],
        _curves(plain, x),
        _curves([one for one in lines if one[0].marked][:MOST_ARROWS], x),
        lines,
        tuple(_ticks(scene.length, x)),
        too_many,
    )


class _Axis:
    """Microseconds to pixels."""

    def __init__(self, length: float) -> None:
        self._scale = (_RIGHT - GUTTER) / length

    def __call__(self, us: float) -> float:
        return GUTTER + us * self._scale

    def widths(self, box: Box) -> tuple[float, float]:
        """Where a box begins, and how wide it is: never too narrow to be seen."""
        width = (box.end - box.start) * self._scale
        return self(box.start), max(width - 0.6 if width > 2 else width, _NARROWEST)


def _tops(lanes: Sequence[Lane]) -> tuple[list[float], int]:
    """Where each lane begins, and where all end; above the first stream there is room for
    arrows."""
    tops, y = [], float(_TOP)
    for before, lane in zip((None, *lanes), lanes, strict=False):
        if before is not None and lane.kind == "stream" != before.kind:
            y += _ROOM_FOR_ARROWS
        tops.append(y)
        _, row, below = _HEIGHTS[lane.kind]
        y += lane.levels * row + below
    return tops, math.ceil(y) + 4


def _paths(by_kind: Mapping[str, Sequence[tuple[float, Box]]], x: _Axis) -> tuple[Path, ...]:
    """A line as thick as the row is high for each box. Of those that share a pixel, what takes
    most of its time has it."""
    spans: dict[tuple[str, float], list[tuple[float, float]]] = defaultdict(list)
    pixels: dict[tuple[float, int], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for kind, boxes in by_kind.items():
        for middle, box in boxes:
            left, width = x.widths(box)
            if width >= _NARROW:
                spans[kind, middle].append((left, width))
            else:
                pixels[middle, int(left)][kind] += box.end - box.start
    for (middle, pixel), times in pixels.items():
        spans[max(times, key=times.__getitem__), middle].append((pixel, 1.0))
    drawn: dict[str, str] = dict.fromkeys(by_kind, "")
    for (kind, middle), found in spans.items():
        drawn[kind] += _row(middle, merged(sorted(found)))
    return tuple(Path(kind, drawn[kind], tuple(boxes)) for kind, boxes in by_kind.items())


def _row(middle: float, spans: Iterable[tuple[float, float]]) -> str:
    """On whole pixels, each from where the one before ends."""
    drawn, at = "", 0
    for left, width in spans:
        start = round(left)
        long = max(round(left + width) - start, 1)
        drawn += f"m{start - at} 0h{long}" if at else f"M{start} {middle:g}h{long}"
        at = start + long
    return drawn


def merged(spans: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Places and widths by place, those that cannot be told apart as one."""
    left = right = -math.inf
    for start, width in spans:
        if start <= right + _TOGETHER and width < 2:
            right = max(right, start + width)
            continue
        if right > left:
            yield left, right - left
        left, right = start, start + width
    if right > left:
        yield left, right - left


def _rings(paths: Iterable[Path], x: _Axis) -> str:
    found = []
    for path in paths:
        half = _HEIGHTS["stream"][0] / 2
        for middle, box in path.boxes:
            if box.marked:
                left, width = x.widths(box)
                wide = f"{width:.1f}"
                found.append(f"M{left:.1f} {middle - half:g}h{wide}v{2 * half:g}h-{wide}z")
    return "".join(found[:_MOST_LABELS])


def _labels(paths: Iterable[Path], x: _Axis) -> Iterator[Text]:
    for path in paths:
        for middle, box in path.boxes:
            left, width = x.widths(box)
            if box.label and width > letters(box.label) + 6:
                tone = _TONES.get(box.kind, "on-light" if box.kind.startswith("k-") else "")
                yield Text(round(left + 3), middle + 3.5, box.label, tone)


def _gap_labels(paths: Iterable[Path], x: _Axis) -> Iterator[Text]:
    for path in paths:
        if path.kind.startswith("idle"):
            for middle, box in path.boxes:
                left, width = x.widths(box)
                if width > 46:
                    words = format_time(box.end - box.start)
                    yield Text(round(left + 2), middle + 15, words)


def letters(words: str) -> float:
    """About so many pixels wide."""
    return sum(_LETTER if one.isascii() else 2 * _LETTER for one in words)


def _names(lanes: Iterable[Lane], tops: Iterable[float]) -> Iterator[Text]:
    for lane, top in zip(lanes, tops, strict=True):
        yield Text(0, top + _HEIGHTS[lane.kind][0] / 2 + 4, lane.name)


def _lines(scene: Scene, tops: Sequence[float]) -> Iterator[tuple[Arrow, float, float]]:
    below = _HEIGHTS["calls"][0]
    for arrow in scene.arrows:
        yield arrow, tops[arrow.lane] + below, tops[arrow.to_lane]


def _curves(lines: Iterable[tuple[Arrow, float, float]], x: _Axis) -> str:
    """From a call down to its kernel; those that would lie on each other once."""
    found: dict[str, None] = {}
    for arrow, top, bottom in lines:
        start = round(x(arrow.start))
        right, down = round(x(arrow.to)) - start, bottom - top
        bend = min(17.0, down / 2)
        curve = f"M{start} {top:g}c0 {bend:g} {right} {down - bend:g} {right} {down:g}"
        found[curve] = None
    return "".join(found)


def _ticks(length: float, x: _Axis) -> Iterator[Text]:
    rough = length / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * one for one in (1, 2, 2.5, 5, 10) if power * one >= rough)
    scale, unit = (1e3, "ms") if length >= 2e4 else (1.0, "us")
    for i in range(int(length / step) + 1):
        at = x(i * step)
        told = f"{i * step / scale:.6g}{unit if i else ''}"
        yield Text(round(at), 12, told if at < WIDTH - 44 else "")


_LONGEST_NAME = 400
_SHORT_US = 200.0
"""A shorter round is told in hundredths of microseconds, others in tenths, as numbers are shown."""
_ESCAPED = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"}


class ScriptData:
    """Gathers the timelines of a page; each name stands in it once."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {"": 0}
        self._timelines: dict[str, Any] = {}

    def add(self, place: str, scene: Scene, drawing: Drawing) -> int:
        """The boxes of a timeline, path by path, row by row: times as whole parts of a microsecond,
        starts as the distance from the one before. Hands back about how long that is as text."""
        parts = 100 if scene.length < _SHORT_US else 10
        found = {
            "parts": parts,
            "length": round(scene.length * parts),
            "paths": [self._rows(path, parts) for path in drawing.paths],
            "arrows": _arrows(drawing, parts),
        }
        self._timelines[place] = found
        return len(json.dumps(found, separators=(",", ":")))

    def _rows(self, path: Path, parts: int) -> list[Any]:
        """Of each row its middle, its boxes (start, duration, name, of streams the label, too), and
        which are marked."""
        rows: dict[float, list[Box]] = {}
        for middle, box in path.boxes:
            rows.setdefault(middle, []).append(box)
        return [
            [
                middle,
                list(self._numbers(sorted(boxes, key=_start), path.kind, parts)),
                [i for i, box in enumerate(sorted(boxes, key=_start)) if box.marked],
            ]
            for middle, boxes in rows.items()
        ]

    def _numbers(self, boxes: Iterable[Box], kind: str, parts: int) -> Iterator[int]:
        before = 0
        for box in boxes:
            start = round(box.start * parts)
            yield start - before
            yield round((box.end - box.start) * parts)
            yield self._name(box.name)
            if kind.startswith("stream"):
                yield self._name(box.label)
            before = start

    def block(self) -> Markup:
        """As text between the tags of a script: nothing in it ends that, or begins another."""
        whole = {
            "width": WIDTH,
            "gutter": GUTTER,
            "names": list(self._names),
            "timelines": self._timelines,
        }
        text = json.dumps(whole, ensure_ascii=True, separators=(",", ":"))
        for character, escape in _ESCAPED.items():
            text = text.replace(character, escape)
        return Markup(text)

    def _name(self, name: str) -> int:
        told = printable(name[:_LONGEST_NAME])
        return self._names.setdefault(told, len(self._names))


def _start(box: Box) -> float:
    return box.start


def _arrows(drawing: Drawing, parts: int) -> list[Any]:
    """By the heights of their ends: the time of each call from the one before, how much later the
    kernel begins, and which are marked."""
    ends: dict[tuple[float, float], list[Arrow]] = {}
    for arrow, top, bottom in drawing.lines:
        ends.setdefault((top, bottom), []).append(arrow)
    return [
        [
            top,
            bottom,
            list(_times(arrows, parts)),
            [i for i, one in enumerate(arrows) if one.marked],
        ]
        for (top, bottom), arrows in ends.items()
    ]


def _times(arrows: Iterable[Arrow], parts: int) -> Iterator[int]:
    before = 0
    for arrow in arrows:
        start = round(arrow.start * parts)
        yield start - before
        yield round(arrow.to * parts) - start
        before = start
