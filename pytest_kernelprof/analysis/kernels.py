"""Kernels, copies and waits of one round of a device trace, with the operators above them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from pytest_kernelprof.analysis.device_metrics import directions
from pytest_kernelprof.schema.recording import OwnNames
from pytest_kernelprof.schema.run import Copy, Kernel, Wait
from pytest_kernelprof.trace.model import KERNEL, MEMCPY, NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.trace.model import Ints
    from pytest_kernelprof.trace.reading import Reading

What = Literal["kernel", "copy", "wait"]


def kernel_rows(reading: Reading, number: int) -> Ints:
    """The kernels of a round, as rows of the activities in launch order."""
    return _activity_rows(reading, KERNEL, number)


def copy_rows(reading: Reading, number: int) -> Ints:
    """The memory copies of a round, as rows of the activities in order."""
    return _activity_rows(reading, MEMCPY, number)


def _activity_rows(reading: Reading, kind: int, number: int) -> Ints:
    acts = reading.trace.activities
    rows = np.flatnonzero((acts.kind == kind) & (reading.round_of_activity == number))
    calls = reading.links.call_of_activity[rows]
    launched = acts.start[rows].copy()
    launched[calls != NO_ID] = reading.trace.calls.start[calls[calls != NO_ID]]
    order: Ints = rows[np.lexsort((acts.start[rows], launched))]
    return order


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
    launches = np.append(reading.trace.calls.name, "unknown")  # NO_ID points to the last
    return tuple(
        map(
            Kernel,
            acts.name[rows].tolist(),
            ((acts.end[rows] - acts.start[rows]) / 1e3).tolist(),
            _dimensions(acts.grid[rows]),
            _dimensions(acts.block[rows]),
            acts.registers[rows].tolist(),
            acts.shared_memory[rows].tolist(),
            acts.device[rows].tolist(),
            acts.stream[rows].tolist(),
            launches[reading.links.call_of_activity[rows]].tolist(),
            chains(reading, operators_of_activities(reading, rows)),
        )
    )


def _dimensions(rows: Ints) -> Iterator[tuple[int, int, int]]:
    """Each row as a tuple, one for all rows that are equal."""
    known: dict[tuple[int, int, int], tuple[int, int, int]] = {}
    return (known.setdefault(one, one) for one in zip(*rows.T.tolist(), strict=True))


def copies_of(reading: Reading, rows: Ints) -> tuple[Copy, ...]:
    """The memory copies of these rows of the activities."""
    if not len(rows):
        return ()
    acts = reading.trace.activities
    return tuple(
        map(
            Copy,
            acts.name[rows].tolist(),
            directions(reading.trace)[rows].tolist(),
            acts.bytes[rows].tolist(),
            ((acts.end[rows] - acts.start[rows]) / 1e3).tolist(),
            chains(reading, operators_of_activities(reading, rows)),
        )
    )


def waits_of(reading: Reading, rows: Ints) -> tuple[Wait, ...]:
    """The waits of these rows of the calls; ``NO_ID`` where the call is not recorded."""
    names = np.append(reading.trace.calls.name, "unknown")
    return tuple(
        map(Wait, names[rows].tolist(), chains(reading, operators_of_calls(reading, rows)))
    )


def chains(reading: Reading, operators: Sequence[int]) -> list[tuple[str, ...]]:
    """For each operator its name and those around it; our own annotations are left out."""
    # As lists: NumPy takes five times as long to hand out one at a time.
    names, parents = reading.trace.operators.name.tolist(), reading.links.parent.tolist()
    ours = _own_annotations(reading)
    known: dict[tuple[str, ...], tuple[str, ...]] = {}  # one tuple for all equal chains
    found = []
    for operator in operators:
        around = []
        while operator != NO_ID:
            if not ours[operator]:
                around.append(names[operator])
            operator = parents[operator]
        chain = tuple(around)
        found.append(known.setdefault(chain, chain))
    return found


def _own_annotations(reading: Reading) -> list[bool]:
    """Which rows of the operators are annotations of ours."""
    ops = reading.trace.operators
    prefix = OwnNames(reading.trace.recording.nonce).prefix
    ours: list[bool] = ops.annotation.tolist()
    for i in np.flatnonzero(ops.annotation).tolist():
        ours[i] = ops.name[i].startswith(prefix)
    return ours


class Sequences:
    """Tells whether rounds launch the same kernels under the same operators, column by column."""

    def __init__(self, reading: Reading) -> None:
        names = reading.trace.operators.name.tolist()
        self._parent = np.append(reading.links.parent, NO_ID)  # NO_ID points to the last
        self._ours = np.array([*_own_annotations(reading), False], np.bool_)
        codes: dict[str, int] = {}
        coded = [codes.setdefault(name, len(codes)) for name in names]
        self._code = np.array([*coded, NO_ID], np.int64)

    def same(self, one: Sequence[int], other: Sequence[int]) -> bool:
        """Whether two lists of innermost operators have the same ``chains``."""
        a, b = np.array(one, np.int64), np.array(other, np.int64)
        if len(a) != len(b):
            return False
        a, b = self._users(a), self._users(b)
        while (a != NO_ID).any() or (b != NO_ID).any():
            if not np.array_equal(self._code[a], self._code[b]):
                return False
            a, b = self._users(self._parent[a]), self._users(self._parent[b])
        return True

    def _users(self, operators: Ints) -> Ints:
        """Each operator, or the next one around it that is no annotation of ours."""
        while self._ours[operators].any():
            operators = np.where(self._ours[operators], self._parent[operators], operators)
        return operators
