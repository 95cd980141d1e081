"""A round as what stands on its picture: lanes of boxes, and arrows between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
