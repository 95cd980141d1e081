"""What lies in what on a timeline: operators in operators, calls in them, what they launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.schema.kernels import Timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

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
