"""Kernels, copies and waits of one round of a device trace, with the operators above them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from pytest_kernelprof.analysis.device_metrics import directions
from pytest_kernelprof.schema.recording import OwnNames
from pytest_kernelprof.schema.run import Copy, Kernel, Wait
from pytest_kernelprof.trace.model import KERNEL, MEMCPY, NO_ID
from pytest_kernelprof.trace.names import Names

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
            _names_of_calls(reading, reading.links.call_of_activity[rows]),
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
            directions(acts.name[rows]).tolist(),
            acts.bytes[rows].tolist(),
            ((acts.end[rows] - acts.start[rows]) / 1e3).tolist(),
            chains(reading, operators_of_activities(reading, rows)),
        )
    )


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
    names, above = reading.trace.operators.name, _users(reading)
    codes, texts = names.codes.tolist(), names.texts
    # As lists: NumPy takes five times as long to hand out one at a time.
    first, then = above.tolist(), above[np.append(reading.links.parent, NO_ID)].tolist()
    known: dict[tuple[str, ...], tuple[str, ...]] = {}  # one tuple for all equal chains
    of_operator = {}
    for operator in set(operators):
        around = []
        at = first[operator]
        while at != NO_ID:
            around.append(texts[codes[at]])
            at = then[at]
        chain = tuple(around)
        of_operator[operator] = known.setdefault(chain, chain)
    return list(map(of_operator.__getitem__, operators))


def _users(reading: Reading) -> Ints:
    """For each operator itself or, of an annotation of ours, the next one around it that is none;
    at the end that of ``NO_ID``."""
    ops, parent = reading.trace.operators, reading.links.parent
    prefix = OwnNames(reading.trace.recording.nonce).prefix
    ours = ops.annotation & ops.name.that(lambda name: name.startswith(prefix))
    found: Ints = np.append(np.where(ours, parent, np.arange(len(parent))), NO_ID)
    while not np.array_equal(further := found[found], found):
        found = further
    return found


class Sequences:
    """Tells whether rounds launch the same kernels under the same operators, column by column."""

    def __init__(self, reading: Reading) -> None:
        # NO_ID points to the last.
        self._users = _users(reading)
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
