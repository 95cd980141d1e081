"""What the page's script needs of the pictures, as one block of JSON that no browser runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from pytest_kernelprof.report.html.drawing import GUTTER, WIDTH
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_kernelprof.report.html.drawing import Drawing, Path
    from pytest_kernelprof.report.html.scene import Arrow, Box, Scene

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
