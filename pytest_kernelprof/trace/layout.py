"""Cuts a file as torch lays it out into chunks of events, without parsing it first.

Memory then never holds the file, nor takes fresh pages for each chunk: all are decoded in one
buffer that is used again and again.

The profiler writes some names without escaping the quotes in them, which makes its file no JSON.
Kineto replaces newlines and backslashes in a name, quotes not: in an annotation ``say "hi"``, a
folder, file or class of that name. The name ends its line, or (torch 2.11) the numbers of the
process and the thread do. torch 2.15 replaces them in names, but not in the file that a recorded
frame was called from, which numbers follow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from pytest_kernelprof.trace.events import Decoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_kernelprof.trace.events import Chunk, InputsRead
    from pytest_kernelprof.trace.source import Text

_NAME = re.compile(
    rb'^([^"\n]*(?:"ph": "X", "cat": "[^"\n]*", )?"(?:name|traceName|CallFrom)": ")(.*)$',
    re.MULTILINE,
)
_END = re.compile(rb'"(?:, "pid": [^"]*, "tid": [^"]*,|(?:, "[^"]*": -?\d+)+|,| *})?$')
_BARE_QUOTE = re.compile(rb'(?<!\\)"')


def escape_quotes(text: bytes) -> bytes:
    """The text of a trace, with the bare quotes in its names escaped: in time that grows with its
    length alone, whatever it holds."""
    return _NAME.sub(_escaped, text)


def _escaped(line: re.Match[bytes]) -> bytes:
    end = _END.search(line[2])
    if end is None:
        return line[0]
    name = line[2][: end.start()]
    return line[1] + _BARE_QUOTE.sub(rb'\\"', name) + end[0]


# With chunks eight times as large, which leave the processor's cache, reading takes twice as long.
_CHUNK_BYTES = 1 << 19
_LONGEST_EVENT = 1 << 26

# How torch lays out the file, to the newline. No JSON string holds a bare newline.
HAS_INPUTS = b'"record_shapes"'
_EVENTS = b'"traceEvents"'
_BEFORE_EVENTS, _AFTER_EVENTS = _EVENTS + b": [", b"\n  ],"
_END_OF_EVENT, _BEGIN_OF_EVENT = b"\n  }", b",\n  {\n"


class LaidOutByTorch:
    """Chunks of events, then the text that was around them.

    A chunk's raw parts lie in the buffer: they are gone with the next chunk. Each has to be a whole
    list of events in itself, so a wrong cut does not decode.
    """

    def __init__(self, text: Text, inputs: InputsRead) -> None:
        """``inputs``: what is read of them, where the file has any."""
        self._text = text
        self._inputs = inputs
        self._buffer = bytearray(_CHUNK_BYTES)
        self._filled = 1  # the first byte is kept for the bracket that opens a list
        self._decoder = Decoder("none")
        self.around = b""
        """What is around the events, once they have been read: a document without any."""

    def __iter__(self) -> Iterator[Chunk]:
        """Raises msgspec.DecodeError: the layout is another, or the file is faulty."""
        self._fill()
        first = self._buffer.find(_BEFORE_EVENTS, 0, self._filled)
        if first < 0:
            raise msgspec.DecodeError("another layout")
        first += len(_BEFORE_EVENTS)
        head = bytes(self._buffer[1:first])
        self._decoder = Decoder(self._inputs if HAS_INPUTS in head else "none")
        self._drop(first)
        more = True
        while more:
            more = self._fill()
            cut = self._buffer.rfind(_END_OF_EVENT + _BEGIN_OF_EVENT, 0, self._filled)
            if more and cut >= 0:
                yield self._decode(cut + len(_END_OF_EVENT))
                self._drop(cut + len(_END_OF_EVENT) + 1)  # the comma as well
        last = self._buffer.rfind(_AFTER_EVENTS, 0, self._filled)
        around = head + self._buffer[last : self._filled]
        if last < 0 or around.count(_EVENTS) > 1:
            raise msgspec.DecodeError("another layout")
        self.around = escape_quotes(around)
        yield self._decode(last)

    def _decode(self, end: int) -> Chunk:
        held = self._buffer[end]
        self._buffer[0], self._buffer[end] = b"[]"
        try:
            with memoryview(self._buffer) as view:
                return self._decoder.decode(view[: end + 1])
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return self._decoder.decode(escape_quotes(bytes(self._buffer[: end + 1])))
        finally:
            self._buffer[end] = held

    def _drop(self, end: int) -> None:
        """Move what lies after ``end`` to the front."""
        rest = self._filled - end
        self._buffer[1 : 1 + rest] = self._buffer[end : self._filled]
        self._filled = 1 + rest

    def _fill(self) -> bool:
        """Fill the buffer, or make it larger; False at the end of the file."""
        if self._filled == len(self._buffer):
            if self._filled >= _LONGEST_EVENT:
                raise msgspec.DecodeError("another layout")
            self._buffer = self._buffer + bytearray(len(self._buffer))
        with memoryview(self._buffer) as view:
            while self._filled < len(view):
                read = self._text.readinto(view[self._filled :])
                if not read:
                    return False
                self._filled += read
        return True
