"""Records between two processes: their JSON behind its length, over two pipes."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pytest_kernelprof.clock import now_s
from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from typing import Any

    R = TypeVar("R")

_SIZE = struct.Struct("!Q")
_LARGEST = 1 << 30
_CHUNK = 1 << 20
_CLOSED = "it has closed its end"


class Lost(Exception):  # noqa: N818 (a state)
    """The other side is gone, or what came is nothing that it would say; with the reason."""


class TooLong(Lost):
    """Nothing came, or could be sent, in the time that there was."""


class Wire:
    """This process's two ends. It sends and receives one record at a time.

    Args:
        incoming, outgoing: open descriptors, which this closes.
        kind: the records that are expected, a union.
    """

    def __init__(self, incoming: int, outgoing: int, kind: Any) -> None:
        self._in, self._out = incoming, outgoing
        self._decoder = msgspec.json.Decoder(kind)
        os.set_blocking(outgoing, False)

    def send(self, record: msgspec.Struct, timeout_s: float | None = None) -> None:
        """Send a record.

        Raises:
            Lost: nobody takes it; ``TooLong`` if that is for the time alone.
        """
        body = msgspec.json.encode(record)
        left = memoryview(_SIZE.pack(len(body)) + body)
        late = _later(timeout_s)
        while left:
            self._wait([], [self._out], late)
            try:
                left = left[Real.write(self._out, left[:_CHUNK]) :]
            except BlockingIOError:  # there was less room than for one write
                continue
            except OSError:
                raise Lost(_CLOSED) from None

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next record.

        Raises:
            Lost: as ``send``, or it is no record of the kind.
        """
        late = _later(timeout_s)
        (size,) = _SIZE.unpack(self._read(_SIZE.size, late))
        if size > _LARGEST:
            raise Lost(f"it announces {size} bytes")
        body = self._read(size, late)
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Lost(f"it sends what is no record ({error})") from None

    def close(self) -> None:
        """Close both ends."""
        for end in (self._in, self._out):
            Real.close(end)

    def _read(self, size: int, late: float | None) -> bytes:
        parts, left = [], size
        while left:
            self._wait([self._in], [], late)
            try:
                part = Real.read(self._in, min(left, _CHUNK))
            except OSError as error:
                raise Lost(str(error)) from None
            if not part:
                raise Lost(_CLOSED)
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _wait(self, incoming: list[int], outgoing: list[int], late: float | None) -> None:
        left = None if late is None else max(0.0, late - now_s())
        if not any(Real.select(incoming, outgoing, [], left)):
            raise TooLong("it says nothing")


def _later(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else now_s() + timeout_s
