"""The events of a trace file as they are decoded: the fields that are read, and no others.

Nearly all files decode with the fastest of the forms below. Which fields a program wrote oddly
matters only where they are read, so a chunk that does not decode is decoded again leniently.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pytest_kernelprof.trace.model import NO_ID
from pytest_kernelprof.trace.vocabulary import ACTIVITY_KINDS, FLOWS, OLD_CATEGORIES, table_of

NOT_THERE = msgspec.Raw(b"")
_NO_DIMENSIONS = (0, 0, 0)
Number = int | str  # ROCm writes some numbers as text, "2560" or "0x0"


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that we read. Absent ids are ``NO_ID``, absent figures zero."""

    external_id: Number = msgspec.field(name="External id", default=NO_ID)
    correlation: Number = NO_ID
    device: Number = 0
    context: Number = NO_ID
    stream: Number = NO_ID
    bytes: Number = 0
    registers: Number = msgspec.field(name="registers per thread", default=0)
    shared_memory: float | str = msgspec.field(name="shared memory", default=0)
    grid: tuple[int, int, int] | str = _NO_DIMENSIONS
    block: tuple[int, int, int] | str = _NO_DIMENSIONS


class ArgsWithInputs(Args, gc=False, frozen=True):
    """With ``record_shapes``. Left as text: a call that is repeated has the same text."""

    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NOT_THERE)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=NOT_THERE)
    dtypes: msgspec.Raw = msgspec.field(name="Input type", default=NOT_THERE)
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=NOT_THERE)


class _AnyArgs(msgspec.Struct, gc=False, frozen=True):
    """All of them, under all the names that they have had, whatever their values are."""

    external_id: Any = msgspec.field(name="External id", default=None)
    old_external_id: Any = msgspec.field(name="external id", default=None)
    correlation: Any = NO_ID
    device: Any = 0
    context: Any = NO_ID
    stream: Any = None
    hsa_queue: Any = None
    sycl_queue: Any = msgspec.field(name="sycl queue", default=None)
    bytes: Any = 0
    registers: Any = msgspec.field(name="registers per thread", default=0)
    shared_memory: Any = msgspec.field(name="shared memory", default=0)
    grid: Any = _NO_DIMENSIONS
    block: Any = _NO_DIMENSIONS
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NOT_THERE)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=NOT_THERE)
    dtypes: msgspec.Raw = msgspec.field(name="Input type", default=NOT_THERE)
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=NOT_THERE)


class Event(msgspec.Struct, gc=False):
    """One event. ``ts`` stays text: 4.3e12 us with three decimals does not fit a float to the
    nanosecond."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: msgspec.Raw = msgspec.Raw(b"0")
    dur: float = 0.0
    id: int | str | None = None
    args: Args = Args()


class _EventWithInputs(Event, gc=False):
    args: ArgsWithInputs = ArgsWithInputs()


class _EventWithAnyArgs(Event, gc=False):
    args: _AnyArgs = _AnyArgs()  # type: ignore[assignment]


class _AnyEvent(msgspec.Struct, gc=False):
    """An event of which nothing is asked but that it is an object."""

    ph: Any = ""
    cat: Any = ""
    name: msgspec.Raw = msgspec.Raw(b'""')
    pid: msgspec.Raw = msgspec.Raw(b"0")
    tid: msgspec.Raw = msgspec.Raw(b"0")
    ts: msgspec.Raw = msgspec.Raw(b"0")
    dur: msgspec.Raw = msgspec.Raw(b"0")
    id: msgspec.Raw = msgspec.Raw(b"null")
    args: msgspec.Raw = msgspec.Raw(b"{}")


_plain = msgspec.json.Decoder(list[Event])
_with_inputs = msgspec.json.Decoder(list[_EventWithInputs])
_with_any_args = msgspec.json.Decoder(list[_EventWithAnyArgs])
_any = msgspec.json.Decoder(list[_AnyEvent])
_any_args = msgspec.json.Decoder(_AnyArgs)
_FIELDS = (("name", str), ("pid", int | str), ("tid", int | str), ("dur", float))
_FLOW_FIELDS = (*_FIELDS, ("id", int | str | None))


class Decoder:
    """Decodes chunks of events, in the form that the file has turned out to need."""

    def __init__(self, with_inputs: bool) -> None:
        """More fields cost time with every event: inputs are read only where there are any."""
        self._with_inputs = with_inputs
        self._fast: msgspec.json.Decoder[Any] = _with_inputs if with_inputs else _plain
        self._has_other_names = False

    def decode(self, text: bytes | bytearray | memoryview) -> list[Event]:
        """The events of a chunk: a JSON list.

        Raises:
            msgspec.DecodeError: it is none, or a value that is read does not fit.
        """
        try:
            if not self._has_other_names:
                events: list[Event] = self._fast.decode(text)
                # A file that needs the other names once will go on doing so.
                self._has_other_names = _need_other_names(events)
                if not self._has_other_names:
                    return events
            return [self._with_usual_names(event) for event in _with_any_args.decode(text)]
        except msgspec.ValidationError:
            return [self._leniently(i, event) for i, event in enumerate(_any.decode(text))]

    def _with_usual_names(self, event: _EventWithAnyArgs) -> Event:
        if event.ph == "X":
            event.args = self._usual(event.args)  # type: ignore[assignment]
        return event

    def _usual(self, args: _AnyArgs) -> Args:
        streams = (args.stream, args.hsa_queue, args.sycl_queue)
        external_id = args.old_external_id if args.external_id is None else args.external_id
        values = (
            NO_ID if external_id is None else external_id,
            *(args.correlation, args.device, args.context),
            next((one for one in streams if one is not None), NO_ID),
            *(args.bytes, args.registers, args.shared_memory, args.grid, args.block),
        )
        if not self._with_inputs:
            return Args(*values)
        return ArgsWithInputs(*values, args.dims, args.strides, args.dtypes, args.values)

    def _leniently(self, i: int, event: _AnyEvent) -> Event:
        """The event if it is one that is read; one of no category otherwise.

        Raises:
            msgspec.ValidationError: one that is read has a field that does not fit.
        """
        if event.ph == "X" and isinstance(event.cat, str) and table_of(event.cat):
            is_object = bytes(event.args)[:1] == b"{"
            args = self._usual(_any_args.decode(event.args)) if is_object else Args()
            values = _fitting(i, event, _FIELDS)
            return Event("X", event.cat, **values, ts=event.ts, args=args)
        if event.ph in ("s", "f") and event.cat in FLOWS:
            return Event(event.ph, event.cat, **_fitting(i, event, _FLOW_FIELDS), ts=event.ts)
        return Event()


def _need_other_names(events: list[Event]) -> bool:
    """Whether what we read of some event stands under another name in its arguments."""
    categories = {event.cat for event in events}
    if not OLD_CATEGORIES.isdisjoint(categories):
        return True
    of_device = categories.intersection(ACTIVITY_KINDS)
    activities = [event.args for event in events if event.cat in of_device] if of_device else []
    return NO_ID in [args.stream for args in activities]


def _fitting(i: int, event: _AnyEvent, fields: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    values = {}
    for field, kind in fields:
        try:
            values[field] = msgspec.json.decode(getattr(event, field), type=kind)
        except msgspec.ValidationError as error:  # noqa: PERF203 (of events that decode no other way)
            raise msgspec.ValidationError(
                f"{str(error).partition(' - at ')[0]} - at `$[{i}].{field}`"
            ) from None
    return values
