"""Records to bytes and back: versions, canonical JSON, files that are whole or not there."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import reprlib
import stat
from typing import Any, TypeVar

import msgspec

from pytest_kernelprof.system import Real

R = TypeVar("R", bound=msgspec.Struct)

VERSION = 1
_SHOWN = 200


def encode(record: msgspec.Struct) -> bytes:
    """Canonical JSON: equal records are equal bytes.

    What is no text (a lone surrogate of an odd file name, in a user's pattern) becomes an escape.
    """
    plain = msgspec.to_builtins(record, enc_hook=str.__str__)  # of texts of a type of the user
    try:
        return _canonical(plain, type(record))
    except UnicodeEncodeError:
        return _canonical(_as_text(plain), type(record))


def _canonical(plain: Any, kind: type[msgspec.Struct]) -> bytes:
    # A count may hold 5 or, read back, 5.0, which are equal: the fields' types decide.
    return msgspec.json.encode(msgspec.convert(plain, kind), order="deterministic")


def _as_text(plain: Any) -> Any:
    if isinstance(plain, str):
        return text(plain)
    if isinstance(plain, dict):
        return {_as_text(key): _as_text(value) for key, value in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [_as_text(value) for value in plain]
    return plain


def decode(data: bytes | mmap.mmap | msgspec.Raw, kind: type[R]) -> R:
    """A record from its JSON.

    Raises:
        ValueError: no such record, or of a newer version than this one; the message says which.
    """
    if "schema" in kind.__struct_fields__:
        with contextlib.suppress(msgspec.ValidationError):  # no object, as decoding says
            _refuse_other_versions(msgspec.json.decode(data, type=_Versioned).schema)
    # At once: of plain builtins a large document would take several times as much memory.
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise ValueError(_shortened(str(error))) from None


class _Versioned(msgspec.Struct):
    schema: Any = None


def from_builtins(plain: object, kind: type[R]) -> R:
    """A record from what ``msgspec.to_builtins`` made of it.

    Raises:
        ValueError: as ``decode``.
    """
    if isinstance(plain, dict) and "schema" in kind.__struct_fields__:
        _refuse_other_versions(plain.get("schema"))
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_shortened(str(error))) from None


def _shortened(words: str) -> str:
    """Words that quote a file, whose values may be of any length: their two ends."""
    return words if len(words) <= 2 * _SHOWN else f"{words[:_SHOWN]} ... {words[-_SHOWN:]}"


def _refuse_other_versions(version: object) -> None:
    got = reprlib.repr(version)  # of a file, which may hold anything
    if type(version) is not int or version < 1:
        raise ValueError(f"schema: expected a version number from 1 to {VERSION}, got {got}")
    if version > VERSION:
        raise ValueError(
            f"schema: version {got} was written by a newer pytest-kernelprof "
            f"than this one, which reads up to {VERSION}: upgrade it"
        )


def text(words: str) -> str:
    """Words that any encoder takes: lone surrogates (from odd file names) become escapes."""
    return str(words).encode("utf-8", "backslashreplace").decode()


def why_unwritable(folder: str) -> str:
    """Return why nothing can be written to a folder, which is made if needed; empty if it can."""
    file = f"{folder}/.kernelprof-{Real.urandom(6).hex()}"
    try:
        os.makedirs(folder, exist_ok=True)
        write_atomically(file, b"x")
        with contextlib.suppress(OSError):
            Real.unlink(file)
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def why_no_file(path: str) -> str:
    """Return why nothing can be written to a path, as far as that is known before; empty if it can.
    Its folder is made if needed."""
    if not path:
        return "it is empty"
    if not os.path.basename(path):
        return "it names a folder"
    try:
        return why_unwritable(os.path.dirname(os.path.realpath(path))) or why_no_target(path)
    except ValueError as error:  # a NUL
        return str(error)


def why_no_target(path: str | os.PathLike[str]) -> str:
    """Why a file cannot be put there, as far as what is there tells; empty where it can."""
    where = os.path.realpath(path)
    try:
        mode = os.stat(where).st_mode
    except FileNotFoundError:
        return ""
    except OSError as error:  # too long a name, a file in the place of a folder
        return error.strerror or str(error)
    if stat.S_ISDIR(mode):
        return "it is a folder"
    return "" if stat.S_ISREG(mode) else "it is not a regular file"


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file beside its place and move it there: readers see the old one or the new one.

    A link is followed: what it names is written.

    Raises:
        OSError: it cannot be written, or is no regular file; nothing is left behind.
    """
    where = os.path.realpath(path)
    if why := why_no_target(where):
        raise OSError(errno.EINVAL, why, os.fspath(path))
    beside = f"{os.path.dirname(where) or os.curdir}/.kernelprof-{Real.urandom(6).hex()}"
    try:
        with Real.buffered(Real.file(beside, "xb")) as file:
            file.write(data)
        Real.replace(beside, where)
    except BaseException:
        with contextlib.suppress(OSError):
            Real.unlink(beside)
        raise
