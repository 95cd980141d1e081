"""Builds the columns of a trace, chunk by chunk of its events."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_kernelprof.trace.inputs import NO_INPUTS, Inputs, presence
from pytest_kernelprof.trace.model import Flows
from pytest_kernelprof.trace.names import Coded, Different, Names, Numbering
from pytest_kernelprof.trace.values import (
    SIZES,
    DoesNotFitError,
    array,
    column_of,
    is_number,
    numbered,
    size_of,
)
from pytest_kernelprof.trace.vocabulary import ACTIVITY_KINDS, ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import msgspec

    from pytest_kernelprof.trace.announced import Announced
    from pytest_kernelprof.trace.arrays import Ints
    from pytest_kernelprof.trace.events import Args, Chunk, Event

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


_DECIMALS_US = re.compile(rb"-?\d{1,15}\.\d{3}(?: -?\d{1,15}\.\d{3})*")
_WHOLE_US = re.compile(rb"-?\d{1,15}(?: -?\d{1,15})*")
_NUMBER = re.compile(rb"-?\d{1,40}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,3})?")

# What each table holds beside name, start and end: what is no argument of the event itself first.
_OF_EVENTS: dict[str, tuple[str, ...]] = {
    "operator": ("thread", "annotation"),
    "call": ("thread",),
    "activity": ("kind", "process"),
    "wait": (),
    "overhead": (),
    "frame": ("thread",),
}
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "operator": ("external_id",),
    "call": ("external_id", "correlation"),
    "activity": ("correlation", "external_id", "bytes"),
    "wait": ("correlation",),
    "overhead": (),
    "frame": (),
}
# What stands for the rows of a chunk that lacks a column.
_ABSENT = {
    "has_inputs": np.bool_(False),
    "inputs": np.int32(NO_INPUTS),
    "announced": np.int32(0),
}
# Comprehensions that name the field are what Python reads fields fastest with.
_FIELD: dict[str, Callable[[Sequence[Any]], list[Any]]] = {
    "external_id": lambda args: [one.external_id for one in args],
    "correlation": lambda args: [one.correlation for one in args],
    "bytes": lambda args: [one.bytes for one in args],
}


@dataclass(frozen=True)
class Tables:
    """The finished columns of each table by name, and what they share."""

    columns: dict[str, dict[str, Any]]
    flows: Flows
    threads: tuple[tuple[int | str, int | str], ...]
    places: tuple[int | str, ...]
    categories: frozenset[str]


class Builder:
    """Takes events and turns them into columns."""

    def __init__(self) -> None:
        self._threads, self._places = Threads(), Threads()
        self._names = {table: Numbering() for table in _ARGUMENTS}
        self._inputs = Inputs()
        self._ways = Ways()
        self._announced: Different[Announced | None] = Different()
        self._announced[None]  # of an activity of which nothing is said: 0
        self._parts: dict[str, list[dict[str, Any]]] = {table: [] for table in _ARGUMENTS}
        self._arrows: list[dict[str, Any]] = []
        self._categories: set[str] = set()

    def add(self, chunk: Chunk) -> None:
        """Read a chunk; its events are needed no more afterwards.

        Raises:
            ValueError, ArithmeticError: a value does not fit; ``DoesNotFitError`` names it.
        """
        self._categories |= chunk.categories
        if chunk.arrows:
            self._arrows.append(self._arrows_of(chunk.arrows))
        for table, events in chunk.tables.items():
            if events:
                self._parts[table].append(self._chunk(table, events, chunk.announced))

    def finish(self) -> Tables:
        """The columns of all chunks, each table sorted by start."""
        return Tables(
            {table: self._finished(table, parts) for table, parts in self._parts.items()},
            _flows(self._arrows),
            self._threads.different(),
            tuple(one for one, _ in self._places.different()),
            frozenset(self._categories),
        )

    def _finished(self, table: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
        columns = _joined(parts) or dict(_empty(table))
        columns["name"] = Names(columns["name"], tuple(self._names[table]))
        if table == "operator":
            columns["inputs"] = self._inputs.column(columns["inputs"])
        if table == "activity":
            columns |= self._ways.columns(columns.pop("way"))
            codes = columns["announced"]
            known = None if codes is None else Coded(codes, tuple(self._announced))
            columns["announced"] = known
        return columns

    def _chunk(
        self, table: str, events: Sequence[Event], said: Mapping[int, Announced]
    ) -> dict[str, Any]:
        start = nanoseconds([event.ts for event in events])
        columns: dict[str, Any] = {
            "name": numbered(self._names[table], [event.name for event in events]),
            "start": start,
            "end": _ends(start, [event.dur for event in events]),
        }
        for column in _OF_EVENTS[table]:
            columns[column] = self._column_of_events(column, events)
        args = [event.args for event in events]
        for column in _ARGUMENTS[table]:
            columns[column] = column_of(column, _FIELD[column](args))
        if table == "activity":
            columns["way"] = self._ways.codes(args)
            columns["announced"] = self._codes_of_announced(events, said)
        if table == "operator":
            columns["has_inputs"] = presence(args)
            columns["inputs"] = self._inputs.codes(args)
        return columns

    def _codes_of_announced(
        self, events: Sequence[Event], said: Mapping[int, Announced]
    ) -> Ints | None:
        """Of each activity the number of what is said of it; None where nothing is of any."""
        return numbered(self._announced, [said.get(id(one)) for one in events]) if said else None

    def _column_of_events(self, column: str, events: Sequence[Event]) -> Any:
        if column == "thread":
            return self._threads.of(events)
        if column == "process":
            places = self._places
            return array([places[event.pid][0] for event in events], np.int32)
        if column == "annotation":
            return array([event.cat == ANNOTATION for event in events], np.bool_)
        return array([ACTIVITY_KINDS[event.cat] for event in events], np.int8)

    def _arrows_of(self, events: Sequence[Event]) -> dict[str, Any]:
        return {
            "forward": array([event.ph == "s" for event in events], np.bool_),
            "id": [event.id for event in events],
            "thread": self._threads.of(events),
            "at": nanoseconds([event.ts for event in events]),
        }


def _ends(start: Ints, durations: Sequence[float]) -> Ints:
    length = np.rint(array(durations, np.float64) * 1e3)
    if not np.abs(length).max(initial=0.0) < 2.0**62:  # nor is what is no number
        raise DoesNotFitError("a 'dur' is not a number of microseconds that fits 64 bits - at dur")
    end: Ints = start + length.astype(np.int64)
    if (end < start).any() and (length >= 0).all():
        raise ValueError("the end of an event lies beyond them")
    return end


def nanoseconds(times: Sequence[msgspec.Raw | float]) -> Ints:
    """Exact int64 nanoseconds from decimal microseconds: text, or floats that lie close enough."""
    if not times:
        return np.empty(0, np.int64)
    if isinstance(times[0], float):
        us = array(times, np.float64)
        whole = np.floor(us)
        found: Ints = whole.astype(np.int64) * 1000
        found += np.rint((us - whole) * 1e3).astype(np.int64)
        return found
    return _nanoseconds_of_texts(times)  # type: ignore[arg-type]


def _nanoseconds_of_texts(texts: Sequence[msgspec.Raw]) -> Ints:
    joined = b" ".join(texts)
    if _DECIMALS_US.fullmatch(joined):  # what Kineto writes: three decimals, always
        return np.fromstring(joined.replace(b".", b""), np.int64, sep=" ")
    if _WHOLE_US.fullmatch(joined):  # what it wrote before 2024
        return np.fromstring(joined, np.int64, sep=" ") * 1000
    from decimal import Decimal

    for text in texts:  # of 1e900000 the digits alone would take a minute
        if not _NUMBER.fullmatch(text):
            raise DoesNotFitError(
                "a 'ts' is not a number of microseconds that fits 64 bits - at ts"
            )
    values = [Decimal(bytes(text).decode()) for text in texts]
    return np.array([int((value * 1000).to_integral_value()) for value in values], np.int64)


@functools.cache
def _empty(table: str) -> dict[str, Any]:
    """The columns of a table without rows, shared by all traces that have none."""
    return Builder()._chunk(table, [], {})


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The chunks of a table as one, sorted by start; nothing where there are none.

    Column by column, so that memory holds one of them twice and not all.
    """
    if not parts:
        return {}
    starts = np.concatenate([part["start"] for part in parts])
    sorted_already = bool((starts[1:] >= starts[:-1]).all())
    order = slice(None) if sorted_already else np.argsort(starts, kind="stable")
    return {name: _joined_column(name, parts, order) for name in list(parts[0])}


def _joined_column(name: str, parts: list[dict[str, Any]], order: Any) -> Any:
    columns = [part.pop(name) if name != "start" else part[name] for part in parts]
    if name in _ABSENT:
        if all(column is None for column in columns):
            return None
        columns = [
            np.full(len(part["start"]), _ABSENT[name]) if column is None else column
            for part, column in zip(parts, columns, strict=True)
        ]
    return (np.concatenate(columns) if len(columns) > 1 else columns[0])[order]


def _flows(chunks: list[dict[str, Any]]) -> Flows:
    """Each arrow's end with the beginning of the same id."""
    nothing = np.empty(0, np.int64)
    ids = [one for chunk in chunks for one in chunk["id"]]
    thread = np.concatenate([nothing, *(chunk["thread"] for chunk in chunks)])
    at = np.concatenate([nothing, *(chunk["at"] for chunk in chunks)])
    forward = np.concatenate([np.empty(0, np.bool_), *(chunk["forward"] for chunk in chunks)])
    begins = {ids[i]: i for i in np.flatnonzero(forward).tolist()}
    ends = [i for i in np.flatnonzero(~forward).tolist() if ids[i] in begins]
    begun = np.array([begins[ids[i]] for i in ends], np.int64)
    ended = np.array(ends, np.int64)
    return Flows(thread[begun], at[begun], thread[ended], at[ended])
