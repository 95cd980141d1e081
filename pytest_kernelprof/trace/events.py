"""The events of a trace file as they are decoded: the fields that are read, and no others.

Nearly all files decode with the fastest of the forms below. Which fields a program wrote oddly
matters only where they are read, so a chunk that does not decode is decoded again leniently.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Sequence
from operator import or_
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytest_kernelprof.trace import vocabulary
from pytest_kernelprof.trace.columns import (
    NO_ID,
    Announced,
    Bools,
    Different,
    Input,
    Ints,
    array,
    numbered,
)

NOT_THERE, _ZERO, _NO_TIME = map(msgspec.Raw, (b"", b"0", b"null"))
TABLES = ("operator", "call", "activity", "wait", "overhead", "frame")
KINDS = 4  # so many kinds of events have a number in their table, at most
_NO_DIMENSIONS = (0, 0, 0)
Number = int | str  # ROCm writes some numbers as text, "2560" or "0x0"


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that we read. Absent ids and sizes in bytes are ``NO_ID``, other figures zero,
    which no launch has."""

    # In the order of the file, in which msgspec finds them fastest.
    external_id: Number = msgspec.field(name="External id", default=NO_ID)
    device: Number = 0
    context: Number = NO_ID
    stream: Number = NO_ID
    correlation: Number = NO_ID
    bytes: Number = NO_ID
    registers: Number = msgspec.field(name="registers per thread", default=0)
    shared_memory: float | str = msgspec.field(name="shared memory", default=NO_ID)
    grid: tuple[int, int, int] | str = _NO_DIMENSIONS
    block: tuple[int, int, int] | str = _NO_DIMENSIONS


class _Dims(msgspec.Struct, gc=False, frozen=True, array_like=True):
    """A list, whatever is in it."""


class ArgsWithDims(Args, gc=False, frozen=True):
    """With ``record_shapes``, where it is asked only which operators have inputs."""

    dims: _Dims | msgspec.UnsetType = msgspec.field(name="Input Dims", default=msgspec.UNSET)


class ArgsWithInputs(Args, gc=False, frozen=True):
    """The inputs themselves. Left as text: a call that is repeated has the same text."""

    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NOT_THERE)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=NOT_THERE)
    dtypes: msgspec.Raw = msgspec.field(name="Input type", default=NOT_THERE)
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=NOT_THERE)


class _AnyArgs(ArgsWithInputs, gc=False, frozen=True):
    """All of them, under all the names that they have had, whatever their values are."""

    external_id: Any = msgspec.field(name="External id", default=None)
    old_external_id: Any = msgspec.field(name="external id", default=None)
    correlation: Any = NO_ID
    device: Any = 0
    context: Any = NO_ID
    stream: Any = None
    hsa_queue: Any = None
    sycl_queue: Any = msgspec.field(name="sycl queue", default=None)
    bytes: Any = NO_ID
    registers: Any = msgspec.field(name="registers per thread", default=0)
    shared_memory: Any = msgspec.field(name="shared memory", default=NO_ID)
    grid: Any = _NO_DIMENSIONS
    block: Any = _NO_DIMENSIONS


class Event(msgspec.Struct, gc=False):
    """An event of which nothing is read. Base of those below."""

    has_duration: ClassVar[bool] = False


class Span(Event, gc=False, tag_field="ph", tag="X"):
    """An event with a duration. ``ts`` stays text where a float may not be exact."""

    # In the order of the file, as the arguments.
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: msgspec.Raw | float = 0.0
    dur: float = 0.0
    args: Args = Args()
    has_duration: ClassVar[bool] = True


class Arrow(Event, gc=False, tag_field="ph", tag="s"):
    """The beginning of an arrow from event to event."""

    id: int | str | None = None
    pid: int | str = 0
    tid: int | str = 0
    ts: msgspec.Raw | float = 0.0
    cat: str = ""


class ArrowEnd(Arrow, gc=False, tag="f"):
    """The end of an arrow."""


# Up to here, 101 days, floats lie closer than nanoseconds; Kineto counts from the last quarter.
_Microseconds = Annotated[float, msgspec.Meta(gt=-(2.0**43), lt=2.0**43)]


def _other(phase: str, *fields: Any) -> type[msgspec.Struct]:
    """Events of a phase of which nothing is read."""
    return msgspec.defstruct("Other", fields, bases=(Event,), gc=False, tag_field="ph", tag=phase)


_OTHERS = tuple(map(_other, "CIMit"))
_TO_ACTIVITIES = tuple(_other(phase, ("cat", Literal["ac2g"], "ac2g")) for phase in "sf")


def _decoder_of(
    args: type[msgspec.Struct], ts: Any, absent: Any, *, links: bool = True
) -> msgspec.json.Decoder[list[Any]]:
    """Decodes a list of events with arguments of a kind and times of a kind; where no ``links`` of
    autograd are expected, arrows have to be of those to activities."""
    of_span = [("ts", ts, absent), ("dur", float, 0.0), ("args", args, args())]
    arrows = [
        msgspec.defstruct("Arrow", [("ts", ts, absent)], bases=(base,), gc=False)
        for base in (Arrow, ArrowEnd)
    ]
    span = msgspec.defstruct("Span", of_span, bases=(Span,), gc=False)
    every: Any = functools.reduce(or_, (*_OTHERS, *(arrows if links else _TO_ACTIVITIES)), span)
    return msgspec.json.Decoder(list[every])


class _AnyEvent(msgspec.Struct, gc=False):
    """An event whose fields are not checked: it only has to be an object."""

    ph: Any = ""
    cat: Any = ""
    name: msgspec.Raw = msgspec.Raw(b'""')
    pid: msgspec.Raw = _ZERO
    tid: msgspec.Raw = _ZERO
    ts: msgspec.Raw = _NO_TIME
    dur: msgspec.Raw = _ZERO
    id: msgspec.Raw = msgspec.Raw(b"null")
    args: msgspec.Raw = msgspec.Raw(b"{}")


class Chunk(NamedTuple):
    """Events of a part of a file.

    Attributes:
        events: all of them. spans: those that are read, in the file's order.
        categories: the category of each span, as ``Categories`` numbers it.
        activities: the spans that are kernels, memcpys and memsets.
        announced: what process groups announce of each of these; empty where none communicates.
        arrows: those of autograd.
    """

    events: Sequence[Event]
    spans: Sequence[Span]
    categories: NDArray[np.int8]
    activities: Sequence[Span]
    arrows: Sequence[Arrow]
    announced: Sequence[Announced | None] = ()


class Categories(dict[str, int]):
    """Numbers categories by the table of their events, and what they are in it; what is not read is
    ``NO_ID``."""

    def __missing__(self, category: str) -> int:
        table = vocabulary.table_of(category)
        kind = vocabulary.ACTIVITY_KINDS.get(category, category == vocabulary.ANNOTATION)
        number = self[category] = (TABLES.index(table) * KINDS + kind) if table else NO_ID
        return number


def sort_out(events: Sequence[Event], known: Categories) -> Chunk:
    """The events that are read. Others are arrows to activities, metadata, ..."""
    spans: Any = [event for event in events if event.has_duration]
    categories = array([known[one.cat] for one in spans], np.int8)
    if (categories == NO_ID).any():
        rows = (categories != NO_ID).nonzero()[0]
        spans, categories = [spans[row] for row in rows.tolist()], categories[rows]
    activities = (categories // KINDS == TABLES.index("activity")).nonzero()[0].tolist()
    arrows: list[Any] = []
    if any(issubclass(kind, Arrow) for kind in set(map(type, events))):
        arrows = [one for one in events if isinstance(one, Arrow) and one.cat in vocabulary.FLOWS]
    return Chunk(events, spans, categories, [spans[row] for row in activities], arrows)


InputsRead = Literal["none", "presence", "all"]
"""How much is read of the inputs of operators, which cost time with every event."""

_ARGS: dict[InputsRead, type[Args]] = {
    "none": Args,
    "presence": ArgsWithDims,
    "all": ArgsWithInputs,
}


@functools.cache
def _forms(inputs: InputsRead) -> tuple[msgspec.json.Decoder[list[Any]], ...]:
    """From the quickest to the one that decodes links of autograd, and times that a float does not
    hold."""
    args = _ARGS[inputs]
    return (
        _decoder_of(args, _Microseconds, float("nan"), links=False),
        _decoder_of(args, _Microseconds, float("nan")),
        _decoder_of(args, msgspec.Raw, _NO_TIME),
    )


_with_any_args = _decoder_of(_AnyArgs, msgspec.Raw, _NO_TIME)
_any = msgspec.json.Decoder(list[_AnyEvent])
_any_args = msgspec.json.Decoder(_AnyArgs)
_FIELDS = (("name", str), ("pid", int | str), ("tid", int | str), ("dur", float))
_ARROW_FIELDS = (("pid", int | str), ("tid", int | str), ("id", int | str | None))
_ARROWS = {"s": Arrow, "f": ArrowEnd}


class Decoder:
    """Decodes chunks of events, in the form that the file has turned out to need."""

    def __init__(self, inputs: InputsRead) -> None:
        self._inputs = inputs
        self._forms = _forms(inputs)
        self._has_other_names = False
        self.categories = Categories()

    def decode(self, text: bytes | bytearray | memoryview) -> Chunk:
        """The events of a chunk: a JSON list. Their times are all text or all floats.

        Raises:
            msgspec.DecodeError: it is none, or a value that is read does not fit.
        """
        chunk = self._decoded(text)
        names = {one.name for one in chunk.activities}
        if any(map(vocabulary.communicates, names)):  # in few traces
            chunk = chunk._replace(announced=announced(text, chunk.activities))
        return chunk

    def _decoded(self, text: bytes | bytearray | memoryview) -> Chunk:
        try:
            if not self._has_other_names:
                chunk = sort_out(self._in_first_form_that_fits(text), self.categories)
                # A file that needs the other names once will go on doing so.
                self._has_other_names = _need_other_names(chunk, self.categories)
                if not self._has_other_names:
                    return chunk
            events = _with_any_args.decode(text)
            for event in events:
                if event.has_duration:
                    event.args = self._usual(event.args)
        except msgspec.ValidationError:
            events = [self._leniently(i, event) for i, event in enumerate(_any.decode(text))]
        return sort_out(events, self.categories)

    def _in_first_form_that_fits(self, text: bytes | bytearray | memoryview) -> list[Any]:
        """Raises msgspec.ValidationError: none does."""
        for i, form in enumerate(self._forms[:-1]):
            with contextlib.suppress(msgspec.ValidationError):
                events = form.decode(text)
                self._forms = self._forms[i:]  # the rest of the file needs the same
                return events
        return self._forms[-1].decode(text)

    def _usual(self, args: Any) -> Args:
        """The arguments under their usual names. ``args``: as ``_AnyArgs`` has them."""
        return _ARGS[self._inputs](
            _first_known(args.external_id, args.old_external_id),
            args.device,
            args.context,
            _first_known(args.stream, args.hsa_queue, args.sycl_queue),
            *(args.correlation, args.bytes, args.registers, args.shared_memory),
            *(args.grid, args.block, *self._inputs_of(args)),
        )

    def _inputs_of(self, args: Any) -> tuple[Any, ...]:
        if self._inputs == "none":
            return ()
        if args.dims is not NOT_THERE and bytes(args.dims)[:1] != b"[":
            raise msgspec.ValidationError("Expected `array` in 'Input Dims'")
        if self._inputs == "presence":
            return (msgspec.UNSET if args.dims is NOT_THERE else _Dims(),)
        return args.dims, args.strides, args.dtypes, args.values

    def _leniently(self, i: int, event: _AnyEvent) -> Event:
        """The event if it is one that is read; one of no category otherwise.

        Raises:
            msgspec.ValidationError: one that is read has a field that does not fit.
        """
        if event.ph == "X" and isinstance(event.cat, str) and vocabulary.table_of(event.cat):
            is_object = bytes(event.args)[:1] == b"{"
            args = self._usual(_any_args.decode(event.args if is_object else b"{}"))
            return Span(event.cat, **_fitting(i, event, _FIELDS), ts=event.ts, args=args)
        if event.ph in ("s", "f") and event.cat in vocabulary.FLOWS:
            kind, values = _ARROWS[event.ph], _fitting(i, event, _ARROW_FIELDS)
            return kind(**values, ts=event.ts, cat=event.cat)
        return Event()


def _first_known(*found: Any) -> Any:
    known = [one for one in found if one is not None]
    return known[0] if known else NO_ID


def _need_other_names(chunk: Chunk, categories: Categories) -> bool:
    """Whether what we read of some event stands under another name in its arguments."""
    is_old = not vocabulary.OLD_CATEGORIES.isdisjoint(categories)
    return is_old or NO_ID in [event.args.stream for event in chunk.activities]


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


_args = msgspec.json.Decoder(_Args)


def announced(
    text: bytes | bytearray | memoryview, activities: Sequence[Span]
) -> list[Announced | None]:
    """Read what the process group announces of the activities of a chunk: None of those that do not
    communicate.

    Args:
        text: a JSON list of events.
    """
    args = [
        event.args
        for event in _any.decode(text)
        if event.ph == "X" and isinstance(event.cat, str) and event.cat in vocabulary.ACTIVITY_KINDS
    ]
    return [
        _announced(bytes(said)) if vocabulary.communicates(one.name) else None
        for said, one in zip(args, activities, strict=True)
    ]


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
    size = 1 if dtype.startswith("Float8_") else _SIZES.get(dtype)
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


class Inputs(Different["tuple[bytes, bytes, bytes, bytes] | None"]):
    """Numbers the different inputs of operators; 0 is of an operator without any."""

    def __init__(self) -> None:
        super().__init__({None: 0})
        self.known: list[tuple[Input, ...] | None] = [None]

    def __missing__(self, key: tuple[bytes, bytes, bytes, bytes] | None) -> int:
        self.known += [key and _inputs(*key)]  # while it is known which event has them
        return super().__missing__(key)

    def columns(self, spans: Sequence[Any]) -> dict[str, Ints | Bools]:
        """Which operators of a chunk have inputs, and the numbers of these, read while its text is
        there; nothing where they are not recorded, or not read."""
        kind = type(spans[0].args) if spans else Args
        if kind is ArgsWithDims:
            there = [one.args.dims is not msgspec.UNSET for one in spans]
            return {"has_inputs": array(there, np.bool_)}
        if kind is not ArgsWithInputs:
            return {}
        keys = [
            (bytes(args.dims), bytes(args.strides), bytes(args.dtypes), bytes(args.values))
            if args.dims is not NOT_THERE
            else None
            for args in [one.args for one in spans]
        ]
        codes = numbered(self, keys)
        return {"has_inputs": codes != 0, "inputs": codes}


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
