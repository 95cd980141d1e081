"""The events of a trace file as they are decoded: the fields that are read, and no others.

Nearly all files decode with the fastest of the forms below. Which fields a program wrote oddly
matters only where they are read, so a chunk that does not decode is decoded again leniently.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np

from pytest_kernelprof.trace.columns import NO_ID, Announced, Input, numbered
from pytest_kernelprof.trace.vocabulary import FLOWS, OLD_CATEGORIES, communicates, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_kernelprof.trace.columns import Bools, Ints


NOT_THERE, _ZERO = msgspec.Raw(b""), msgspec.Raw(b"0")
_NO_DIMENSIONS = (0, 0, 0)
Number = int | str  # ROCm writes some numbers as text, "2560" or "0x0"


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that we read. Absent ids are ``NO_ID``, absent figures zero."""

    # In the order of the file, in which msgspec finds them fastest.
    external_id: Number = msgspec.field(name="External id", default=NO_ID)
    device: Number = 0
    context: Number = NO_ID
    stream: Number = NO_ID
    correlation: Number = NO_ID
    bytes: Number = 0
    registers: Number = msgspec.field(name="registers per thread", default=0)
    shared_memory: float | str = msgspec.field(name="shared memory", default=0)
    grid: tuple[int, int, int] | str = _NO_DIMENSIONS
    block: tuple[int, int, int] | str = _NO_DIMENSIONS


class ArgsWithDims(Args, gc=False, frozen=True):
    """With ``record_shapes``, where it is asked only which operators have inputs."""

    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NOT_THERE)


class ArgsWithInputs(ArgsWithDims, gc=False, frozen=True):
    """The inputs themselves. Left as text: a call that is repeated has the same text."""

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
    """One event. ``ts`` stays text: as a float it may not be exact to the nanosecond."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: msgspec.Raw = _ZERO
    dur: float = 0.0
    id: int | str | None = None
    args: Args = Args()


# Up to here, 101 days, floats lie closer than nanoseconds; Kineto counts from the last quarter.
_Microseconds = Annotated[float, msgspec.Meta(gt=-(2.0**43), lt=2.0**43)]


def _decoder_of(args: type[msgspec.Struct], ts: Any, absent: Any) -> msgspec.json.Decoder[Any]:
    """Decodes a list of events with arguments of a kind and times of a kind."""
    fields = [("args", args, args()), ("ts", ts, absent)]
    event: Any = msgspec.defstruct("Event", fields, bases=(Event,), gc=False)
    return msgspec.json.Decoder(list[event])


class _AnyEvent(msgspec.Struct, gc=False):
    """An event whose fields are not checked: it only has to be an object."""

    ph: Any = ""
    cat: Any = ""
    name: msgspec.Raw = msgspec.Raw(b'""')
    pid: msgspec.Raw = _ZERO
    tid: msgspec.Raw = _ZERO
    ts: msgspec.Raw = _ZERO
    dur: msgspec.Raw = _ZERO
    id: msgspec.Raw = msgspec.Raw(b"null")
    args: msgspec.Raw = msgspec.Raw(b"{}")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Events of a part of a file.

    Attributes:
        events: all of them. tables: those of each table, in the file's order.
        arrows: those of autograd. categories: all that there are.
        announced: what process groups announce of communication kernels, by the identity of their
            events.
    """

    events: Sequence[Event]
    tables: Mapping[str, list[Event]]
    arrows: list[Event]
    categories: frozenset[str]
    announced: Mapping[int, Announced] = dataclasses.field(default_factory=dict)


def sort_out(events: Sequence[Event]) -> Chunk:
    """The events of each table. What we do not read (arrows to activities, metadata) is in none."""
    sinks = _Sinks()
    for event in events:
        sinks[event.cat](event)
    tables = {
        table: [event for event in found if event.ph == "X"]
        for table, found in sinks.tables.items()
        if table
    }
    arrows = [event for event in sinks.arrows if event.ph != "X"]
    return Chunk(events, tables, arrows, frozenset(sinks))


class _Sinks(dict[str, "Callable[[Event], None]"]):
    """Where the events of each category go."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Event]] = {}
        self.arrows: list[Event] = []

    def __missing__(self, category: str) -> Callable[[Event], None]:
        rows = self.arrows if category in FLOWS else self.tables.setdefault(table_of(category), [])
        sink = self[category] = rows.append
        return sink


InputsRead = Literal["none", "presence", "all"]
"""How much is read of the inputs of operators, which cost time with every event."""

_ARGS: dict[InputsRead, type[Args]] = {
    "none": Args,
    "presence": ArgsWithDims,
    "all": ArgsWithInputs,
}
# How many fields of the inputs that is.
_INPUTS_READ: dict[InputsRead, int] = {"none": 0, "presence": 1, "all": 4}
# Of each the quick form, then the one for times that a float does not hold.
_FORMS = {
    inputs: (_decoder_of(args, _Microseconds, 0.0), _decoder_of(args, msgspec.Raw, _ZERO))
    for inputs, args in _ARGS.items()
}
_with_any_args = _decoder_of(_AnyArgs, msgspec.Raw, _ZERO)
_any = msgspec.json.Decoder(list[_AnyEvent])
_any_args = msgspec.json.Decoder(_AnyArgs)
_FIELDS = (("name", str), ("pid", int | str), ("tid", int | str), ("dur", float))
_FLOW_FIELDS = (*_FIELDS, ("id", int | str | None))


class Decoder:
    """Decodes chunks of events, in the form that the file has turned out to need."""

    def __init__(self, inputs: InputsRead) -> None:
        self._inputs = inputs
        self._forms = list(_FORMS[inputs])
        self._has_other_names = False

    def decode(self, text: bytes | bytearray | memoryview) -> Chunk:
        """The events of a chunk: a JSON list. Their times are all text or all floats.

        Raises:
            msgspec.DecodeError: it is none, or a value that is read does not fit.
        """
        chunk = self._decoded(text)
        places = _places_of_communication(chunk)
        if not places:  # of most traces; the others are decoded once more
            return chunk
        said = zip(places, announced(text, places), strict=True)
        return replace(chunk, announced={id(chunk.events[at]): one for at, one in said})

    def _decoded(self, text: bytes | bytearray | memoryview) -> Chunk:
        try:
            if not self._has_other_names:
                chunk = sort_out(self._in_first_form_that_fits(text))
                # A file that needs the other names once will go on doing so.
                self._has_other_names = _need_other_names(chunk)
                if not self._has_other_names:
                    return chunk
            return sort_out(
                [self._with_usual_names(event) for event in _with_any_args.decode(text)]
            )
        except msgspec.ValidationError:
            events = enumerate(_any.decode(text))
            return sort_out([self._leniently(i, event) for i, event in events])

    def _in_first_form_that_fits(self, text: bytes | bytearray | memoryview) -> list[Event]:
        """Raises msgspec.ValidationError: none does."""
        events: list[Event]
        try:
            events = self._forms[0].decode(text)
        except msgspec.ValidationError:
            if len(self._forms) < 2:
                raise
            events = self._forms[1].decode(text)
            del self._forms[0]  # later times of the file are as large
        return events

    def _with_usual_names(self, event: Event) -> Event:
        if event.ph == "X":
            event.args = self._usual(event.args)
        return event

    def _usual(self, args: Any) -> Args:
        """The arguments under their usual names. ``args``: as ``_AnyArgs`` has them."""
        ids = (args.external_id, args.old_external_id)
        streams = (args.stream, args.hsa_queue, args.sycl_queue)
        external_id, stream = (
            next((one for one in found if one is not None), NO_ID) for found in (ids, streams)
        )
        inputs = (args.dims, args.strides, args.dtypes, args.values)
        return _ARGS[self._inputs](
            *(external_id, args.device, args.context, stream, args.correlation, args.bytes),
            *(args.registers, args.shared_memory, args.grid, args.block),
            *inputs[: _INPUTS_READ[self._inputs]],
        )

    def _leniently(self, i: int, event: _AnyEvent) -> Event:
        """The event if it is one that is read; one of no category otherwise.

        Raises:
            msgspec.ValidationError: one that is read has a field that does not fit.
        """
        if event.ph == "X" and isinstance(event.cat, str) and table_of(event.cat):
            is_object = bytes(event.args)[:1] == b"{"
            args = self._usual(_any_args.decode(event.args if is_object else b"{}"))
            values = _fitting(i, event, _FIELDS)
            return Event("X", event.cat, **values, ts=event.ts, args=args)
        if event.ph in ("s", "f") and event.cat in FLOWS:
            return Event(event.ph, event.cat, **_fitting(i, event, _FLOW_FIELDS), ts=event.ts)
        return Event()


def _places_of_communication(chunk: Chunk) -> list[int]:
    """Where the communication kernels of a chunk are among its events."""
    activities = chunk.tables.get("activity", ())
    if not any(map(communicates, {one.name for one in activities})):
        return []
    talking = {id(one) for one in activities if communicates(one.name)}
    return [at for at, one in enumerate(chunk.events) if id(one) in talking]


def _need_other_names(chunk: Chunk) -> bool:
    """Whether what we read of some event stands under another name in its arguments."""
    if not OLD_CATEGORIES.isdisjoint(chunk.categories):
        return True
    return NO_ID in [event.args.stream for event in chunk.tables.get("activity", ())]


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


_RANKS = re.compile(r"\[(\d{1,9}(?:, ?\d{1,9})*)\]")
_MOST = 2**62
# Bytes of an element, as torch names its types.
_SIZES = {
    **dict.fromkeys(("Bool", "Byte", "Char"), 1),
    **dict.fromkeys(("Short", "UInt16", "Half", "BFloat16"), 2),
    **dict.fromkeys(("Int", "UInt32", "Float", "ComplexHalf"), 4),
    **dict.fromkeys(("Long", "UInt64", "Double", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}
_OF_ONE_BYTE = "Float8_"


class _Args(msgspec.Struct, gc=False):
    operation: Any = msgspec.field(name="Collective name", default=None)
    given: Any = msgspec.field(name="In msg nelems", default=None)
    got: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None
    size: Any = msgspec.field(name="Group size", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    source: Any = msgspec.field(name="Src Rank", default=None)
    target: Any = msgspec.field(name="Dst Rank", default=None)
    number: Any = msgspec.field(name="Seq", default=None)


class _Event(msgspec.Struct, gc=False):
    args: msgspec.Raw = msgspec.Raw(b"{}")


_events = msgspec.json.Decoder(list[_Event])
_args = msgspec.json.Decoder(_Args)


def announced(text: bytes | bytearray | memoryview, places: Sequence[int]) -> tuple[Announced, ...]:
    """Read what the process group announces of some events of a chunk.

    Args:
        text: a JSON list of events. places: which of them, from 0.
    """
    events = _events.decode(text)
    return tuple(_announced(bytes(events[at].args)) for at in places)


def _announced(text: bytes) -> Announced:
    try:
        args = _args.decode(text)
    except msgspec.ValidationError:  # no object
        return Announced()
    peer = _whole(args.source if args.target is None else args.target)
    return Announced(
        _text(args.operation),
        _text(args.group),
        _whole(args.size) or 0,
        _ranks(args.ranks) if peer is None else (peer,),
        _whole(args.number),
        _bytes(args),
    )


def _bytes(args: _Args) -> int | None:
    given, got, dtype = _whole(args.given), _whole(args.got), _text(args.dtype)
    size = 1 if dtype.startswith(_OF_ONE_BYTE) else _SIZES.get(dtype)
    if given is None or got is None or size is None:
        return None
    return max(given, got) * size


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _MOST else None


def _ranks(value: Any) -> tuple[int, ...]:
    """Of a list as text; torch shortens one of more than 30 ranks, which then says nothing."""
    found = _RANKS.fullmatch(_text(value))
    return tuple(map(int, found[1].split(","))) if found else ()


class Inputs(dict["tuple[bytes, ...] | None", int]):
    """Numbers the different inputs of operators; 0 is of an operator without any."""

    def __init__(self) -> None:
        super().__init__({None: 0})
        self.known: list[tuple[Input, ...] | None] = [None]

    def __missing__(self, key: tuple[bytes, ...]) -> int:
        self.known.append(_inputs(*key))
        number = self[key] = len(self)
        return number

    def codes(self, arguments: Sequence[Any]) -> Ints | None:
        """The numbers of a chunk of operators, read while its text is there; None where inputs are
        not read."""
        if not arguments or not isinstance(arguments[0], ArgsWithInputs):
            return None
        keys = [
            (bytes(args.dims), bytes(args.strides), bytes(args.dtypes), bytes(args.values))
            if args.dims is not NOT_THERE
            else None
            for args in arguments
        ]
        return numbered(self, keys)


def presence(arguments: Sequence[Any]) -> Bools | None:
    """Which of a chunk of operators have inputs; None where they are not recorded.

    Raises:
        msgspec.ValidationError: what stands in their place is no list.
    """
    if not arguments or not isinstance(arguments[0], ArgsWithDims):
        return None
    dims = [args.dims for args in arguments]
    if not all(bytes(one).startswith(b"[") for one in dims if one is not NOT_THERE):
        raise msgspec.ValidationError("Expected `array` in 'Input Dims'")
    return np.fromiter((one is not NOT_THERE for one in dims), np.bool_, len(dims))


def _inputs(dims: bytes, strides: bytes, dtypes: bytes, values: bytes) -> tuple[Input, ...]:
    """The arguments of one operator; lists of tensors have no shape of their own."""
    shapes = msgspec.json.decode(dims, type=list[Any])
    count = len(shapes)
    columns = [
        (msgspec.json.decode(text, type=list[Any]) if text else []) + [""] * count
        for text in (strides, dtypes, values)
    ]
    return tuple(
        Input(_whole_numbers(shape), _whole_numbers(stride), str(dtype), str(value))
        for shape, stride, dtype, value in zip(shapes, *columns, strict=False)
    )


def _whole_numbers(values: Any) -> tuple[int, ...]:
    are = isinstance(values, list) and all(isinstance(value, int) for value in values)
    return tuple(values) if are else ()
