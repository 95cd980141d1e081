"""Run documents as files: read, or refused in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.errors import RunFileError, TraceError

if TYPE_CHECKING:
    import mmap

    from pytest_kernelprof.schema.document import Document
    from pytest_kernelprof.schema.run import Run

_EXPECTED = "a run document, as pytest --kernelprof-json=PATH writes it"
_MOST_BYTES = 2 * 10**9


def read_run(path: str) -> Run:
    """The run of which a file tells, plain or gzip.

    Raises:
        RunFileError: it cannot be read, or is no run document.
    """
    from pytest_kernelprof.schema.packing import unpack
    from pytest_kernelprof.trace.source import whole

    try:
        with whole(path, _MOST_BYTES, _EXPECTED) as data:
            return unpack(_document(data))
    except TraceError as error:
        raise RunFileError(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise RunFileError(f"{path}: {error}; expected {_EXPECTED}") from None


def _document(data: bytes | mmap.mmap) -> Document:
    """Raises ValueError: it is none."""
    import msgspec

    from pytest_kernelprof.schema.codec import decode
    from pytest_kernelprof.schema.document import Document

    raw = bytes(data)
    if b'"traceEvents"' in raw[:10_000] or b'"schemaVersion"' in raw[:200]:
        raise ValueError("it looks like a Chrome trace, which kernelprof diff compares")
    try:
        return decode(raw, Document)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
