"""Which operators launch what, as a tree; those that launch nothing in one line; and what lies in
what on a timeline: operators in operators, calls in them, what they launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.report.html.kernel_names import cut
from pytest_kernelprof.schema.kernels import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_kernelprof.schema.run import Timeline


_OF_HOST = ("operator", "annotation")
_OF_DEVICE = ("kernel", "memcpy", "memset")
_WRAPPER = "autograd::engine::evaluate_function"
"""Around each node of a backward pass; the node has the same name, and is there."""


MOST_EVENTS = 20_000
"""Events of a timeline that are drawn; of more the longest."""


def longest_of(timeline: Timeline) -> Timeline:
    """The timeline, with at most ``MOST_EVENTS`` events."""
    left = len(timeline.kind) - MOST_EVENTS
    if left <= 0:
        return timeline
    by_length = sorted(range(len(timeline.kind)), key=lambda i: -timeline.duration_us[i])
    kept = sorted(by_length[:MOST_EVENTS])
    return Timeline(
        tuple(timeline.kind[i] for i in kept),
        tuple(timeline.name[i] for i in kept),
        tuple(timeline.lane[i] for i in kept),
        tuple(timeline.start_us[i] for i in kept),
        tuple(timeline.duration_us[i] for i in kept),
        tuple(timeline.correlation[i] for i in kept),
        timeline.left_out + left,
    )


@dataclass(frozen=True, slots=True)
class Nesting:
    """Of each event of a timeline its place among the others, as indices; -1 where there is none.

    Attributes:
        order: all events by start, of those that start together the longest first.
        parent: the operator or annotation that an event of the host lies in.
        level: how many of those there are around it.
        call: of what the device did, the call that caused it.
        launches: of each operator how many kernels lie below it.
        moves: how many copies and sets.
    """

    order: tuple[int, ...]
    parent: tuple[int, ...]
    level: tuple[int, ...]
    call: tuple[int, ...]
    launches: tuple[int, ...]
    moves: tuple[int, ...]

    def above(self, event: int) -> list[int]:
        """The operators around what the host or the device did, from the inside out."""
        at = self.call[event] if self.call[event] >= 0 else event
        found, at = [], self.parent[at]
        while at >= 0:
            found.append(at)
            at = self.parent[at]
        return found


def nesting_of(timeline: Timeline) -> Nesting:
    """By the times of each thread's events, in one sweep."""
    count = len(timeline.kind)
    start, duration = timeline.start_us, timeline.duration_us
    order = sorted(range(count), key=lambda i: (start[i], -duration[i]))
    parent, level = [-1] * count, [0] * count
    open_: dict[str, list[int]] = {}
    calls: dict[int, int] = {}
    for i in order:
        if timeline.kind[i] in _OF_DEVICE:
            continue
        around = open_.setdefault(timeline.lane[i], [])
        while around and start[around[-1]] + duration[around[-1]] <= start[i]:
            around.pop()
        parent[i], level[i] = (around[-1] if around else -1), len(around)
        if timeline.kind[i] in _OF_HOST:
            if not timeline.name[i].startswith(_WRAPPER):
                around.append(i)
        elif timeline.correlation[i]:
            calls.setdefault(timeline.correlation[i], i)
    call = [
        calls.get(timeline.correlation[i], -1) if timeline.kind[i] in _OF_DEVICE else -1
        for i in range(count)
    ]
    launches = _below(timeline, call, parent, ("kernel",))
    moves = _below(timeline, call, parent, ("memcpy", "memset"))
    return Nesting(tuple(order), tuple(parent), tuple(level), tuple(call), launches, moves)


def is_wrapper(name: str) -> bool:
    """Whether an operator only says again what lies in it."""
    return name.startswith(_WRAPPER)


def launch_order(timeline: Timeline, nesting: Nesting) -> list[int]:
    """The kernels as events, in the order in which they were launched."""
    kernels = [i for i in nesting.order if timeline.kind[i] == "kernel"]
    start = timeline.start_us
    return sorted(
        kernels,
        key=lambda i: (start[nesting.call[i]] if nesting.call[i] >= 0 else start[i], start[i]),
    )


def _below(
    timeline: Timeline, call: Sequence[int], parent: Sequence[int], kinds: tuple[str, ...]
) -> tuple[int, ...]:
    """Of each host event, how much of these kinds was launched inside of it."""
    found = [0] * len(call)
    for i, of in enumerate(call):
        if of < 0 or timeline.kind[i] not in kinds:
            continue
        at = of
        while at >= 0:
            found[at] += 1
            at = parent[at]
    return tuple(found)


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
