"""Run documents as files: read, or refused in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.errors import RunFileError, TraceError

if TYPE_CHECKING:
    import mmap

    from pytest_kernelprof.schema.document import Outline, Run

_EXPECTED = "a run document, as pytest --kernelprof-json=PATH writes it"
_MOST_BYTES = 2 * 10**9


def read_run(path: str) -> Run:
    """The run of which a file tells, plain or gzip, but for its timelines.

    Raises:
        RunFileError: it cannot be read, or is no run document.
    """
    from pytest_kernelprof.schema.document import Outline

    return _read(path, Outline)


def read_whole_run(path: str) -> Run:
    """The same with timelines, which take several times the memory of all else.

    Raises:
        RunFileError: as ``read_run``.
    """
    from pytest_kernelprof.schema.document import Document

    return _read(path, Document)


def _read(path: str, kind: type[Outline]) -> Run:
    from pytest_kernelprof.schema.document import unpack
    from pytest_kernelprof.trace.trace_text import whole

    try:
        with whole(path, _MOST_BYTES, _EXPECTED) as data:
            return unpack(_decoded(data, kind))
    except TraceError as error:
        raise RunFileError(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise RunFileError(f"{path}: {error}; expected {_EXPECTED}") from None


def _decoded(data: bytes | mmap.mmap, kind: type[Outline]) -> Outline:
    """Raises ValueError: it is none."""
    import msgspec

    from pytest_kernelprof.schema.codec import decode

    if b'"traceEvents"' in data[:10_000] or b'"schemaVersion"' in data[:200]:
        raise ValueError("it looks like a Chrome trace, which kernelprof diff compares")
    try:
        return decode(data, kind)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
