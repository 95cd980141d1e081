"""The text of a trace file: opened, unpacked up to a limit, and written again with our notes."""

from __future__ import annotations

import contextlib
import gzip
import mmap
import os
import re
import stat
import zlib
from collections.abc import Iterator
from io import FileIO

import msgspec

from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.recording import NOTHING_NOTED, Recording
from pytest_kernelprof.system import Real
from pytest_kernelprof.units import format_bytes

MOST_BYTES = 8 * 10**9
"""So much text is read where nothing else is said; 3,000,000 events are some 1.5 GB."""

_PIECE, _MOST_UNQUOTED = 1 << 18, 1 << 24
_TEXT = re.compile(rb"[^ \t\r\n]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Without it a FIFO that nobody writes to would hold the reader up for ever.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Text:
    """What a file holds, unpacked, piece by piece; raises ``TraceError`` where it is too much."""

    def __init__(self, file: FileIO, source: str, most: int) -> None:
        self._text = gzip.GzipFile(fileobj=file) if _is_gzip(file) else file
        self._source = source
        self._most = most
        self._read = 0

    def readinto(self, buffer: memoryview) -> int:
        """As that of a file."""
        read = self._text.readinto(buffer) or 0
        self._read += read
        if self._read > self._most:
            raise TraceError(_too_much(self._source, f"more than {format_bytes(self._most)}"))
        return read


@contextlib.contextmanager
def opened(source: str, most: int) -> Iterator[Text]:
    """The text of a file, piece by piece.

    Raises:
        TraceError: there is no such file, or it is not a regular one, or a damaged gzip file, or
            holds more than ``most`` bytes.
    """
    with _regular(source, most) as file:
        yield Text(file, source, most)


def whole(source: str, most: int, expected: str = "a Chrome trace (JSON)") -> bytes | mmap.mmap:
    """All of the text at once: the mapped file, or what a gzip file holds.

    Raises:
        TraceError: as ``opened``, or the file is empty.
    """
    with _regular(source, most) as file:
        if _is_gzip(file):
            data: bytes | mmap.mmap = _unpacked(Text(file, source, most), source)
        elif os.fstat(file.fileno()).st_size:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        else:
            data = b""
    if _TEXT.search(data) is None:
        raise TraceError(f"{source}: the file is empty; expected {expected}")
    return data[len(_BYTE_ORDER_MARK) :] if data[:3] == _BYTE_ORDER_MARK else data


def _unpacked(text: Text, source: str) -> bytes:
    """All that a gzip file holds. What would be no JSON of a trace in any case ends it early."""
    pieces, unquoted = [], 0
    buffer = memoryview(bytearray(_PIECE))
    while read := text.readinto(buffer):
        piece = bytes(buffer[:read])
        pieces.append(piece)
        unquoted = 0 if b'"' in piece else unquoted + read
        if unquoted >= _MOST_UNQUOTED:
            raise TraceError(
                f"{source}: not JSON, or cut off: {format_bytes(unquoted)} in a row hold no text "
                "in quotes, which every event has"
            )
    return b"".join(pieces)


@contextlib.contextmanager
def _regular(source: str, most: int) -> Iterator[FileIO]:
    """Open a regular file, and name what goes wrong with it meanwhile."""
    try:
        with Real.file(
            source, opener=lambda path, flags: Real.open_handle(path, flags | _AT_ONCE)
        ) as file:
            found = Real.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise TraceError(
                    f"{source}: cannot be read: not a regular file; write what it holds to a file "
                    "first"
                )
            if found.st_size > most:
                raise TraceError(_too_much(source, format_bytes(found.st_size)))
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{source}: truncated or damaged gzip file: {error}") from error
    except OSError as error:
        raise TraceError(f"{source}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        if "null" not in str(error):
            raise
        raise TraceError(f"{source!r}: cannot be read: {error}") from error


def _too_much(source: str, size: str) -> str:
    return (
        f"{source}: cannot be read: it holds {size}; if this is intended, allow more (kernelprof "
        "show --max-size, Profile.from_trace(max_bytes=))"
    )


def _is_gzip(file: FileIO) -> bool:
    magic = file.read(2)
    file.seek(0)
    return magic == b"\x1f\x8b"


_KEY = b'"kernelprof"'
_FRONT = b"{" + _KEY + b":"


def write_trace(
    source: str | os.PathLike[str],
    recording: Recording,
    path: str | os.PathLike[str],
    *,
    max_bytes: int = MOST_BYTES,
) -> None:
    """Write the Chrome trace of ``source`` to ``path``, gzip if that ends in ``.gz``, the recording
    in front of its events, so that reading it gives the same profile.

    Args:
        max_bytes: of the source no more than that is unpacked.

    Raises:
        TraceError: the source cannot be read, holds more than that, or is a damaged gzip file.
        OSError: the path cannot be written; nothing is left half-written.
    """
    data = bytes(whole(os.fspath(source), max_bytes))
    if recording != NOTHING_NOTED:
        data = _without_notes(data)
        data = _FRONT + codec.encode(recording) + b"," + data[data.index(b"{") + 1 :]
    if os.fspath(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    codec.write_atomically(path, data)


def _without_notes(data: bytes) -> bytes:
    """The text of a trace without what ``write_trace`` put in front of its events.

    Another program may have laid the file out anew since: then only its parts stay as they are.
    """
    if _KEY not in data:
        return data
    parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    noted = parts.pop("kernelprof", None)
    if noted is None:
        return data
    front = _FRONT + bytes(noted) + b","
    return b"{" + data[len(front) :] if data.startswith(front) else msgspec.json.encode(parts)
