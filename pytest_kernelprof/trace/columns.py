"""Builds the columns of a trace, chunk by chunk of its events."""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_kernelprof.trace.inputs import Inputs
from pytest_kernelprof.trace.model import NO_ID, Flows
from pytest_kernelprof.trace.vocabulary import ACTIVITY_KINDS, ANNOTATION, FLOWS, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import msgspec

    from pytest_kernelprof.trace.events import Event
    from pytest_kernelprof.trace.model import Ints, Strings

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
_NARROW = ("grid", "block", "device", "registers")
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
        self._threads, self._places = _Codes(), _Codes()
        self._names, self._inputs = _Interned(), Inputs()
        self._parts: dict[str, list[dict[str, Any]]] = {table: [] for table in _ARGUMENTS}
        self._arrows: list[dict[str, Any]] = []
        self._categories: set[str] = set()

    def add(self, events: Sequence[Event]) -> None:
        """Read a chunk; its events are needed no more afterwards.

        Raises:
            ValueError, ArithmeticError: a value does not fit; ``DoesNotFitError`` names it.
        """
        tables, arrows, categories = _sort_out(events)
        self._categories |= categories
        if arrows:
            self._arrows.append(self._arrows_of(arrows))
        for table, chosen in tables.items():
            if chosen:
                self._parts[table].append(self._chunk(table, chosen))

    def finish(self) -> Tables:
        """The columns of all chunks, each table sorted by start."""
        return Tables(
            {table: _joined(parts) or _empty(table) for table, parts in self._parts.items()},
            _flows(self._arrows),
            self._threads.values(),
            tuple(one for one, _ in self._places.values()),
            frozenset(self._categories),
        )

    def _chunk(self, table: str, events: Sequence[Event]) -> dict[str, Any]:
        start = nanoseconds([event.ts for event in events])
        columns: dict[str, Any] = {
            "name": self._names.column([event.name for event in events]),
            "start": start,
            "end": _ends(start, [event.dur for event in events]),
        }
        for column in _OF_EVENTS[table]:
            columns[column] = self._column_of_events(column, events)
        columns |= _argument_columns(table, events)
        if table == "operator":
            columns["inputs"] = self._inputs.column(events)
        return columns

    def _column_of_events(self, column: str, events: Sequence[Event]) -> Any:
        if column == "thread":
            return self._threads.column((event.pid, event.tid) for event in events)
        if column == "process":
            return self._places.column((event.pid, 0) for event in events)
        if column == "annotation":
            return np.array([event.cat == ANNOTATION for event in events], np.bool_)
        return np.array([ACTIVITY_KINDS[event.cat] for event in events], np.int8)

    def _arrows_of(self, events: Sequence[Event]) -> dict[str, Any]:
        return {
            "forward": np.array([event.ph == "s" for event in events], np.bool_),
            "id": [event.id for event in events],
            "thread": self._threads.column((event.pid, event.tid) for event in events),
            "at": nanoseconds([event.ts for event in events]),
        }


def _sort_out(
    events: Sequence[Event],
) -> tuple[dict[str, list[Event]], list[Event], set[str]]:
    """The events of each table, the arrows of autograd, and the categories that there are. What we
    do not read (arrows to activities, metadata) is dropped."""
    tables: dict[str, list[Event]] = {table: [] for table in _ARGUMENTS}
    arrows: list[Event] = []
    categories = {event.cat for event in events}
    add: dict[str, Callable[[Event], None]] = {
        one: tables[table_of(one)].append for one in categories if table_of(one)
    }
    flows = categories.intersection(FLOWS)
    for event in events:
        if event.ph == "X":
            if event.cat in add:
                add[event.cat](event)
        elif flows and event.cat in flows:
            arrows.append(event)
    return tables, arrows, categories


def _argument_columns(table: str, events: Sequence[Event]) -> dict[str, Any]:
    names = _ARGUMENTS[table]
    if not names:
        return {}
    get = operator.attrgetter(*names)
    rows = [get(event.args) for event in events]
    values = list(zip(*rows, strict=True)) if len(names) > 1 else [rows]
    columns = values or [()] * len(names)
    return {name: _column(name, of_name) for name, of_name in zip(names, columns, strict=True)}


def _column(name: str, values: Sequence[Any]) -> Any:
    if name in ("grid", "block"):
        return _narrowed(name, _dimensions(name, values))
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


def _dimensions(name: str, values: Sequence[Any]) -> Ints:
    if set(map(type, values)) <= {tuple, list} and set(map(len, values)) <= {3}:
        flat = itertools.chain.from_iterable(values)
        with contextlib.suppress(ValueError, TypeError):
            return np.fromiter(flat, np.int64, 3 * len(values)).reshape(len(values), 3)
    wrong = next((one for one in values if not _is_dimensions(one)), None)
    raise DoesNotFitError(f"Expected three numbers, got {wrong!r:.60} - at args.{name}")


def _is_dimensions(value: Any) -> bool:
    is_row = isinstance(value, (list, tuple)) and len(value) == 3
    return is_row and all(isinstance(one, int) for one in value)


def _ends(start: Ints, durations: Sequence[float]) -> Ints:
    length = np.rint(np.array(durations, np.float64) * 1e3)
    if len(length) and (not np.isfinite(length).all() or np.abs(length).max() >= 2.0**62):
        raise DoesNotFitError("a 'dur' is not a number of microseconds that fits 64 bits - at dur")
    end: Ints = start + length.astype(np.int64)
    if (end < start).any() and (length >= 0).all():
        raise ValueError("the end of an event lies beyond them")
    return end


def nanoseconds(texts: Sequence[msgspec.Raw]) -> Ints:
    """Exact int64 nanoseconds from decimal microseconds."""
    if not texts:
        return np.empty(0, np.int64)
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
    if name == "inputs":
        if all(column is None for column in columns):
            return None
        columns = [
            np.full(len(part["start"]), None, np.object_) if column is None else column
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


class _Codes:
    """Gives each pair of process and thread a small number, in order of appearance.

    Old files write their numbers as text in some places: "24572" is 24572.
    """

    def __init__(self) -> None:
        self._codes: dict[tuple[int | str, int | str], int] = {}
        self._plain: dict[tuple[int | str, int | str], int] = {}

    def column(self, keys: Iterable[tuple[int | str, int | str]]) -> Ints:
        pairs = list(keys)
        codes = self._codes
        for pair in set(pairs).difference(codes):
            plain = (_plain_number(pair[0]), _plain_number(pair[1]))
            codes[pair] = self._plain.setdefault(plain, len(self._plain))
        return np.fromiter(map(codes.__getitem__, pairs), np.int32, len(pairs))

    def values(self) -> tuple[tuple[int | str, int | str], ...]:
        return tuple(self._plain)


def _plain_number(value: int | str) -> int | str:
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value


class _Interned:
    """Keeps one copy of each name: traces repeat a few long ones very often."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def column(self, names: Sequence[str]) -> Strings:
        known = self._names
        column = np.empty(len(names), np.object_)
        column[:] = [known.setdefault(name, name) for name in names]
        return column
