"""Kernels, copies and waits of one round of a device trace, with the operators above them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

import numpy as np

from pytest_kernelprof.schema.recording import OwnNames
from pytest_kernelprof.schema.run import Copy, Kernel, Wait
from pytest_kernelprof.trace.arrays import KERNEL, MEMCPY, NO_ID
from pytest_kernelprof.trace.correlation import nearest
from pytest_kernelprof.trace.names import Coded, Names
from pytest_kernelprof.trace.vocabulary import DIRECTION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.reading import Reading

What = Literal["kernel", "copy", "wait"]


def kernel_rows(reading: Reading) -> list[Ints]:
    """Of each round its kernels, as rows of the activities in launch order."""
    return _activity_rows(reading, KERNEL)


def copy_rows(reading: Reading) -> list[Ints]:
    """Of each round its memory copies, as rows of the activities in order."""
    return _activity_rows(reading, MEMCPY)


def _activity_rows(reading: Reading, kind: int) -> list[Ints]:
    acts, of_round = reading.trace.activities, reading.round_of_activity
    rows = np.flatnonzero((acts.kind == kind) & (of_round != NO_ID))
    calls = reading.links.call_of_activity[rows]
    launched = acts.start[rows]
    launched[calls != NO_ID] = reading.trace.calls.start[calls[calls != NO_ID]]
    rows = rows[np.lexsort((acts.start[rows], launched, of_round[rows]))]
    bounds = np.searchsorted(of_round[rows], np.arange(reading.rounds + 1)).tolist()
    return [rows[begin:end] for begin, end in itertools.pairwise(bounds)]


def operators_of_activities(reading: Reading, rows: Ints) -> list[int]:
    """The innermost operator around the launch of each activity, or ``NO_ID``."""
    return operators_of_calls(reading, reading.links.call_of_activity[rows])


def operators_of_calls(reading: Reading, calls: Ints) -> list[int]:
    """The innermost operator around each call, or ``NO_ID``."""
    operators = np.append(reading.links.operator_of_call, NO_ID)  # NO_ID points to the last
    found: list[int] = operators[calls].tolist()
    return found


def kernels_of(reading: Reading, rows: Ints) -> tuple[Kernel, ...]:
    """The kernels of these rows of the activities."""
    acts = reading.trace.activities
    return tuple(
        map(
            Kernel,
            acts.name[rows].tolist(),
            ((acts.end[rows] - acts.start[rows]) / 1e3).tolist(),
            acts.grid[rows].tolist(),
            acts.block[rows].tolist(),
            acts.registers[rows].tolist(),
            acts.shared_memory[rows].tolist(),
            acts.device[rows].tolist(),
            acts.stream[rows].tolist(),
            _names_of_calls(reading, reading.links.call_of_activity[rows]),
            chains(reading, operators_of_activities(reading, rows)),
        )
    )


def copies_of(reading: Reading, rows: Ints) -> tuple[Copy, ...]:
    """The memory copies of these rows of the activities."""
    if not len(rows):
        return ()
    acts = reading.trace.activities
    return tuple(
        map(
            Copy,
            acts.name[rows].tolist(),
            directions(acts.name[rows]).tolist(),
            acts.bytes[rows].tolist(),
            ((acts.end[rows] - acts.start[rows]) / 1e3).tolist(),
            chains(reading, operators_of_activities(reading, rows)),
        )
    )


def directions(copies: Names) -> Names:
    """The direction of each memcpy: "h2d", "d2h", "d2d", "p2p", or "?"."""
    return Names(copies.codes, [_direction(text) for text in copies.texts])


def _direction(name: str) -> str:
    match = DIRECTION.search(name)
    return f"{match[1]}2{match[2]}".lower() if match else "?"


def waits_of(reading: Reading, rows: Ints) -> tuple[Wait, ...]:
    """The waits of these rows of the calls; ``NO_ID`` where the call is not recorded."""
    chained = chains(reading, operators_of_calls(reading, rows))
    return tuple(map(Wait, _names_of_calls(reading, rows), chained))


def _names_of_calls(reading: Reading, rows: Ints) -> list[str]:
    names = reading.trace.calls.name
    codes = np.append(names.codes, len(names.texts))  # NO_ID points to the last
    return Names(codes[rows], (*names.texts, "unknown")).tolist()


def chains(reading: Reading, operators: Sequence[int]) -> list[tuple[str, ...]]:
    """For each operator its name and those around it; our own annotations are left out."""
    names, users = reading.trace.operators.name, users_of(reading)
    above = users[np.append(reading.links.parent, NO_ID)]
    at = users[np.array(operators, np.int64)]
    # The chains so far as a tree: of each its last name, and which one it goes on from.
    node, last, before = np.zeros(len(at), np.int64), [0], [0]
    rows = np.flatnonzero(at != NO_ID)
    while len(rows):
        keys = node[rows] * len(names.texts) + names.codes[at[rows]]
        distinct, numbers = np.unique(keys, return_inverse=True)
        node[rows] = numbers + len(last)
        last += (distinct % len(names.texts)).tolist()
        before += (distinct // len(names.texts)).tolist()
        at[rows] = above[at[rows]]
        rows = rows[at[rows] != NO_ID]
    used = np.zeros(len(last), np.bool_)
    used[node] = True
    known = [
        _chain(one, last, before, names.texts) if is_used else ()
        for one, is_used in enumerate(used.tolist())
    ]
    return Coded(node, known).tolist()


def _chain(
    node: int, last: Sequence[int], before: Sequence[int], texts: Sequence[str]
) -> tuple[str, ...]:
    """The names from the root of the tree to a node of it."""
    found = []
    while node:
        found.append(texts[last[node]])
        node = before[node]
    return tuple(reversed(found))


def users_of(reading: Reading) -> Ints:
    """For each operator itself or, of an annotation of ours, the next one around it that is none;
    at the end that of ``NO_ID``."""
    ops = reading.trace.operators
    prefix = OwnNames(reading.trace.recording.nonce).prefix
    ours = ops.annotation & ops.name.that(lambda name: name.startswith(prefix))
    return nearest(reading.links.parent, ~ours)


class Sequences:
    """Tells whether rounds launch the same kernels under the same operators, column by column."""

    def __init__(self, reading: Reading) -> None:
        # NO_ID points to the last.
        self._users = users_of(reading)
        self._above = self._users[np.append(reading.links.parent, NO_ID)]
        self._code = np.append(reading.trace.operators.name.codes, NO_ID)

    def same(self, one: Sequence[int], other: Sequence[int]) -> bool:
        """Whether two lists of innermost operators have the same ``chains``."""
        a, b = np.array(one, np.int64), np.array(other, np.int64)
        if len(a) != len(b):
            return False
        a, b = self._users[a], self._users[b]
        while (a != NO_ID).any() or (b != NO_ID).any():
            if not np.array_equal(self._code[a], self._code[b]):
                return False
            a, b = self._above[a], self._above[b]
        return True

    def like_the_first(self, lists: Ints) -> Bools:
        """Which lists of innermost operators, all of one length, have the ``chains`` of the first.

        Args:
            lists: one a row.
        """
        at = self._users[lists]
        found = np.ones(len(lists), np.bool_)
        while (at != NO_ID).any():
            code = self._code[at]
            found &= (code == code[0]).all(axis=1)
            at = self._above[at]
        return found
