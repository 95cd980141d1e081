"""Which operators launch what, as a tree; those that launch nothing in one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.report.html.full_names import cut
from pytest_kernelprof.report.html.nesting import is_wrapper, nesting_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_kernelprof.report.html.nesting import Nesting
    from pytest_kernelprof.schema.run import Timeline

_DEEPEST = 3
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class TreeLine:
    """Operators of one name in one place, with those inside of them that launch just the same.

    Attributes:
        depth: how many stand around them. kernels: how many they launch.
        gpu_us: what these take. host_us: what they took themselves, under the profiler.
        quiet: how many operators it stands for that launch nothing; else 0.
        times: how many operators there are of the name.
    """

    depth: int
    name: str
    kernels: int
    gpu_us: float
    host_us: float
    quiet: int
    times: int


@dataclass(frozen=True, slots=True)
class Tree:
    """The lines in their order; ``left`` is how many more there are."""

    lines: tuple[TreeLine, ...]
    left: int


def tree_of(timeline: Timeline | None, most: int = 60) -> Tree | None:
    """None without a timeline that has all events, and where nothing is launched.

    Args:
        most: so many lines.
    """
    if timeline is None or timeline.left_out:
        return None
    walk = _Walk(timeline, nesting_of(timeline))
    lines = list(walk.lines())
    if not any(line.kernels for line in lines):
        return None
    return Tree(tuple(lines[:most]), max(0, len(lines) - most))


class _Walk:
    """Goes through the operators of a round."""

    def __init__(self, timeline: Timeline, nesting: Nesting) -> None:
        self._timeline = timeline
        self._nesting = nesting
        self._below: dict[int, list[int]] = {}
        for i in nesting.order:
            if timeline.kind[i] in ("operator", "annotation") and not is_wrapper(timeline.name[i]):
                self._below.setdefault(nesting.parent[i], []).append(i)
        self._gpu = self._gpu_times()

    def lines(self) -> Iterator[TreeLine]:
        """From the outermost operators inwards, a few levels."""
        top = self._below.get(-1, [])
        yield from self._level(top, 0)
        quiet = [i for i in top if not self._nesting.launches[i]]
        if quiet:
            host = sum(self._timeline.duration_us[i] for i in quiet)
            yield TreeLine(0, "", 0, 0.0, host, len(quiet), 0)

    def _level(self, events: Iterable[int], depth: int) -> Iterator[TreeLine]:
        """Those of one name together, in the order of the first of each."""
        alike: dict[str, list[tuple[int, int]]] = {}
        for i in events:
            if self._nesting.launches[i]:
                names, last = self._chain(i)
                alike.setdefault(" > ".join(names), []).append((i, last))
        for name, found in alike.items():
            yield TreeLine(
                depth,
                cut(name, _LONGEST),
                sum(self._nesting.launches[i] for i, _ in found),
                sum(self._gpu[i] for i, _ in found),
                sum(self._timeline.duration_us[i] for i, _ in found),
                0,
                len(found),
            )
            if depth < _DEEPEST:
                inside = (one for _, last in found for one in self._below.get(last, []))
                yield from self._level(inside, depth + 1)

    def _chain(self, event: int) -> tuple[list[str], int]:
        """An operator with the one that does all its launching, and so on; and the last of them."""
        launches, names = self._nesting.launches, [self._timeline.name[event]]
        while True:
            below = [i for i in self._below.get(event, []) if launches[i]]
            if len(below) != 1 or launches[below[0]] != launches[event]:
                return names, event
            event = below[0]
            if self._timeline.name[event] != names[-1] and len(names) < 4:
                names.append(self._timeline.name[event])

    def _gpu_times(self) -> list[float]:
        """Of each operator what the kernels take that are launched inside of it."""
        found = [0.0] * len(self._timeline.kind)
        for i, kind in enumerate(self._timeline.kind):
            if kind == "kernel":
                for above in self._nesting.above(i):
                    found[above] += self._timeline.duration_us[i]
        return found
