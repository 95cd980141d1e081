"""What a process group announces of its communication kernels: Kineto writes it beside each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class Announced(NamedTuple):
    """Of one kernel; what was not said, or makes no sense, is empty or None.

    Attributes:
        operation: as the process group calls it: "allreduce", "_allgather_base", "send".
        group: the process group's name. size: how many ranks it has; 0 where unknown.
        ranks: its ranks; of a send or a receive the other one.
        number: how many the group has had before; the same on all of its ranks.
        bytes: the larger of what this rank gives and what it gets.
    """

    operation: str = ""
    group: str = ""
    size: int = 0
    ranks: tuple[int, ...] = ()
    number: int | None = None
    bytes: int | None = None


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
    """What is said of some events of a chunk.

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
