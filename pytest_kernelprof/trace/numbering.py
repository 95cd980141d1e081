"""Numbers what repeats in events: each different thread, and each way of launching, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_kernelprof.trace.names import Coded
from pytest_kernelprof.trace.values import SIZES, array, column_of, is_number, numbered, size_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.trace.arrays import Ints
    from pytest_kernelprof.trace.events import Args, Event

# How an activity is launched.
_WAY = ("device", "context", "stream", "registers", "shared_memory", "grid", "block")


class Threads(dict[int | str, "_ThreadsOfProcess"]):
    """Gives each pair of process and thread a small number, in order of appearance.

    Of each process a dictionary of its own: pairs as keys would take a new object an event.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[int | str, int | str], int] = {}

    def __missing__(self, process: int | str) -> _ThreadsOfProcess:
        found = self[process] = _ThreadsOfProcess(_plain_number(process), self._numbers)
        return found

    def of(self, events: Sequence[Event]) -> Ints:
        """The number of each event's thread."""
        numbers: Ints = array([self[event.pid][event.tid] for event in events], np.int32)
        return numbers

    def different(self) -> tuple[tuple[int | str, int | str], ...]:
        """The pairs by their numbers."""
        return tuple(self._numbers)


class _ThreadsOfProcess(dict[int | str, int]):
    def __init__(self, process: int | str, numbers: dict[tuple[int | str, int | str], int]) -> None:
        self._process = process
        self._numbers = numbers

    def __missing__(self, thread: int | str) -> int:
        pair = (self._process, _plain_number(thread))
        number = self[thread] = self._numbers.setdefault(pair, len(self._numbers))
        return number


def _plain_number(value: int | str) -> int | str:
    """Old files write numbers as text in some places: "24572" is 24572."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value


class Ways(dict[Any, int]):
    """Numbers the different ways in which activities are launched, as ``_WAY`` lists them.

    Most kernels are launched again and again; so they cost one look-up and not one a field.
    """

    def __init__(self) -> None:
        self._known: list[tuple[Any, ...]] = []

    def __missing__(self, way: tuple[Any, ...]) -> int:
        fields = [
            size_of(name, value) if name in SIZES else column_of(name, [value])[0]
            for name, value in zip(_WAY, way, strict=True)
        ]
        self._known.append(tuple(fields))
        number = self[way] = len(self)
        return number

    def codes(self, args: Sequence[Args]) -> Ints:
        """The number of each activity's way."""
        ways = _ways_of(args)
        try:
            return numbered(self, ways)
        except TypeError:  # chunks that are decoded leniently have lists
            return numbered(self, [tuple(map(_as_key, way)) for way in ways])

    def columns(self, codes: Ints) -> dict[str, Any]:
        """The columns of ``_WAY`` for the activities of these numbers."""
        found: dict[str, Any] = {}
        for i, name in enumerate(_WAY):
            values = [way[i] for way in self._known]
            found[name] = Coded(codes, values) if name in SIZES else column_of(name, values)[codes]
        return found


def _as_key(value: Any) -> Any:
    if isinstance(value, list) and all(map(is_number, value)):
        return tuple(value)
    return str(value) if isinstance(value, list | dict) else value


def _ways_of(args: Sequence[Args]) -> list[tuple[Any, ...]]:
    return [
        (a.device, a.context, a.stream, a.registers, a.shared_memory, a.grid, a.block) for a in args
    ]
