"""The values of a field as an array, or which of them does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_kernelprof.trace.arrays import NO_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.trace.arrays import Ints

SIZES = ("grid", "block")
_IDS = ("external_id", "correlation")
_NARROW = (*SIZES, "device", "registers")
# Kineto writes 0 where it knows no id.
_NO_IDS_BELOW = 1


class DoesNotFitError(ValueError):
    """A value that is read is none of its kind; the message ends with the field."""


def array(values: Sequence[Any], kind: type[np.generic]) -> Any:
    """Scalars of Python as an array: so it takes three quarters of the time of ``np.array``."""
    return np.fromiter(values, kind, len(values))


def numbered(numbers: dict[Any, int], values: Sequence[Any]) -> Ints:
    """The number of each value; the dictionary gives new ones theirs."""
    found: Ints = np.fromiter(map(numbers.__getitem__, values), np.int32, len(values))
    return found


def column_of(name: str, values: Sequence[Any]) -> Any:
    """Whole numbers, or texts of them, of a field.

    Raises:
        DoesNotFitError: one is none, or does not fit 32 bits where the field has no more.
    """
    try:
        found = array(values, np.int64)
    except (ValueError, TypeError):
        found = array([_whole_number(name, value) for value in values], np.int64)
    if name in _IDS:
        return np.where(found < _NO_IDS_BELOW, NO_ID, found)
    return _narrowed(name, found)


def _narrowed(name: str, found: Ints) -> Any:
    """The same in half the memory where the field allows it."""
    if name not in _NARROW:
        return found
    narrow = found.astype(np.int32)
    if not np.array_equal(narrow, found):
        raise DoesNotFitError(f"Expected a number of 32 bits - at args.{name}")
    return narrow


def _whole_number(name: str, value: Any) -> int:
    """A number, or the text of one: ROCm writes "2560" and "0x0"."""
    try:
        return int(value, 0) if isinstance(value, str) else int(value)
    except (ValueError, TypeError):
        raise DoesNotFitError(f"Expected a number, got {value!r:.60} - at args.{name}") from None


def size_of(name: str, size: Any) -> tuple[int, int, int]:
    """A grid or a block.

    Raises:
        DoesNotFitError: it is not three numbers of 32 bits.
    """
    if not _is_size(size):
        raise DoesNotFitError(f"Expected three numbers, got {size!r:.60} - at args.{name}")
    x, y, z = _narrowed(name, np.fromiter(size, np.int64, 3)).tolist()
    return x, y, z


def _is_size(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 3 and all(map(is_number, value))


def is_number(value: Any) -> bool:
    """Whether it is a number of JSON."""
    return isinstance(value, (int, float))
