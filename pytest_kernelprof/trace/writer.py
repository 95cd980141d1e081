"""Writes a trace file again, with what we know of it beside the events."""

from __future__ import annotations

import gzip
import os

import msgspec

from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.recording import NOTHING_NOTED, Recording
from pytest_kernelprof.trace.source import MOST_BYTES, contents

_KEY = b'"kernelprof"'
_FRONT = b"{" + _KEY + b":"


class _Notes(msgspec.Struct):
    kernelprof: msgspec.Raw = msgspec.Raw()


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
        TraceError: the source is not regular, holds more than that, or is a damaged gzip file.
        OSError: the one cannot be read or the other not be written; nothing is left half-written.
    """
    data = contents(os.fspath(source), max_bytes)
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
    if data.startswith(_FRONT):
        noted = bytes(msgspec.json.decode(data, type=_Notes).kernelprof)
        end = len(_FRONT) + len(noted)
        if data[len(_FRONT) : end + 1] == noted + b",":
            return b"{" + data[end + 1 :]
    parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    if parts.pop("kernelprof", None) is None:
        return data
    return msgspec.json.encode(parts)
