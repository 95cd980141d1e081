"""Builds the columns of a trace, chunk by chunk of its events."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_kernelprof.trace.arrays import NO_ID
from pytest_kernelprof.trace.inputs import NO_INPUTS, Inputs, presence
from pytest_kernelprof.trace.model import Flows
from pytest_kernelprof.trace.names import Coded, Names, Numbering
from pytest_kernelprof.trace.vocabulary import ACTIVITY_KINDS, ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import msgspec

    from pytest_kernelprof.trace.arrays import Ints
    from pytest_kernelprof.trace.events import Chunk, Event
    from pytest_kernelprof.trace.model import Sizes

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
    "activity": (
        *("correlation", "external_id", "device", "context", "stream"),
        *("bytes", "registers", "shared_memory", "grid", "block"),
    ),
    "wait": ("correlation",),
    "overhead": (),
    "frame": (),
}
_IDS = ("external_id", "correlation")
_SIZES = frozenset(("grid", "block"))
# What stands for the rows of a chunk that lacks a column.
_ABSENT = {"has_inputs": np.bool_(False), "inputs": np.int32(NO_INPUTS)}
_NARROW = (*_SIZES, "device", "registers")
# Comprehensions that name the field are what Python reads fields fastest with.
_FIELD: dict[str, Callable[[Sequence[Any]], list[Any]]] = {
    "external_id": lambda args: [one.external_id for one in args],
    "correlation": lambda args: [one.correlation for one in args],
    "device": lambda args: [one.device for one in args],
    "context": lambda args: [one.context for one in args],
    "stream": lambda args: [one.stream for one in args],
    "bytes": lambda args: [one.bytes for one in args],
    "registers": lambda args: [one.registers for one in args],
    "shared_memory": lambda args: [one.shared_memory for one in args],
    "grid": lambda args: [one.grid for one in args],
    "block": lambda args: [one.block for one in args],
}
# Kineto writes 0 where it knows no id.
_NO_IDS_BELOW = 1


class DoesNotFitError(ValueError):
    """A value that is read is none of its kind; the message ends with the field."""


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
        self._threads, self._places = _Threads(), _Threads()
        self._names = {table: Numbering() for table in _ARGUMENTS}
        self._inputs = Inputs()
        self._sizes = {name: _Sizes(name) for name in _SIZES}
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
                self._parts[table].append(self._chunk(table, events))

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
        for name in _SIZES.intersection(columns):
            columns[name] = self._sizes[name].column(columns[name])
        return columns

    def _chunk(self, table: str, events: Sequence[Event]) -> dict[str, Any]:
        start = nanoseconds([event.ts for event in events])
        columns: dict[str, Any] = {
            "name": _numbered(self._names[table], [event.name for event in events]),
            "start": start,
            "end": _ends(start, [event.dur for event in events]),
        }
        for column in _OF_EVENTS[table]:
            columns[column] = self._column_of_events(column, events)
        args = [event.args for event in events]
        for column in _ARGUMENTS[table]:
            columns[column] = self._column_of_arguments(column, _FIELD[column](args))
        if table == "operator":
            columns["has_inputs"] = presence(args)
            columns["inputs"] = self._inputs.codes(args)
        return columns

    def _column_of_events(self, column: str, events: Sequence[Event]) -> Any:
        if column == "thread":
            return _numbered(self._threads, [(event.pid, event.tid) for event in events])
        if column == "process":
            return _numbered(self._places, [(event.pid, 0) for event in events])
        if column == "annotation":
            return np.array([event.cat == ANNOTATION for event in events], np.bool_)
        return np.array([ACTIVITY_KINDS[event.cat] for event in events], np.int8)

    def _column_of_arguments(self, name: str, values: Sequence[Any]) -> Any:
        return self._sizes[name].codes(values) if name in _SIZES else _column(name, values)

    def _arrows_of(self, events: Sequence[Event]) -> dict[str, Any]:
        return {
            "forward": np.array([event.ph == "s" for event in events], np.bool_),
            "id": [event.id for event in events],
            "thread": _numbered(self._threads, [(event.pid, event.tid) for event in events]),
            "at": nanoseconds([event.ts for event in events]),
        }


def _numbered(numbers: dict[Any, int], values: Iterable[Any]) -> Ints:
    """The number of each value; the dictionary gives new ones theirs."""
    found: Ints = np.array(list(map(numbers.__getitem__, values)), np.int32)
    return found


def _column(name: str, values: Sequence[Any]) -> Any:
    try:
        found = np.fromiter(values, np.int64, len(values))
    except (ValueError, TypeError):
        numbers = [_whole_number(name, value) for value in values]
        found = np.fromiter(numbers, np.int64, len(values))
    if name in _IDS:
        return np.where(found < _NO_IDS_BELOW, NO_ID, found)
    return _narrowed(name, found)


def _narrowed(name: str, found: Ints) -> Any:
    """The same in half the memory where the field allows it."""
    if name not in _NARROW:
        return found
    narrow = found.astype(np.int32)
    if not np.array_equal(narrow, found):
        raise DoesNotFitError(f"Expected a number of 32 bits - at args.{name}")
    return narrow


def _whole_number(name: str, value: Any) -> int:
    """A number, or the text of one: ROCm writes "2560" and "0x0"."""
    try:
        return int(value, 0) if isinstance(value, str) else int(value)
    except (ValueError, TypeError):
        raise DoesNotFitError(f"Expected a number, got {value!r:.60} - at args.{name}") from None


class _Sizes(dict[Any, int]):
    """Numbers the different grids or blocks of a trace, three numbers each."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sizes: list[tuple[int, int, int]] = []

    def __missing__(self, size: Any) -> int:
        if not _is_size(size):
            raise DoesNotFitError(
                f"Expected three numbers, got {size!r:.60} - at args.{self._name}"
            )
        x, y, z = _narrowed(self._name, np.fromiter(size, np.int64, 3)).tolist()
        self._sizes.append((x, y, z))
        number = self[size] = len(self)
        return number

    def codes(self, values: Sequence[Any]) -> Ints:
        """The number of each size; chunks that are decoded leniently have lists."""
        try:
            return _numbered(self, values)
        except TypeError:
            return _numbered(self, map(_as_key, values))

    def column(self, codes: Ints) -> Sizes:
        """The sizes of these numbers."""
        return Coded(codes, self._sizes)


def _is_size(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 3 and all(map(_is_number, value))


def _as_key(value: Any) -> Any:
    numbers = isinstance(value, list) and all(map(_is_number, value))
    return tuple(value) if numbers else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _ends(start: Ints, durations: Sequence[float]) -> Ints:
    length = np.rint(np.array(durations, np.float64) * 1e3)
    if len(length) and (not np.isfinite(length).all() or np.abs(length).max() >= 2.0**62):
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
        us = np.array(times, np.float64)
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
    return Builder()._chunk(table, [])


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


class _Threads(dict[tuple[int | str, int | str], int]):
    """Gives each pair of process and thread a small number, in order of appearance.

    Old files write their numbers as text in some places: "24572" is 24572.
    """

    def __init__(self) -> None:
        self._plain: dict[tuple[int | str, int | str], int] = {}

    def __missing__(self, pair: tuple[int | str, int | str]) -> int:
        plain = (_plain_number(pair[0]), _plain_number(pair[1]))
        number = self[pair] = self._plain.setdefault(plain, len(self._plain))
        return number

    def different(self) -> tuple[tuple[int | str, int | str], ...]:
        """The pairs by their numbers."""
        return tuple(self._plain)


def _plain_number(value: int | str) -> int | str:
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value
