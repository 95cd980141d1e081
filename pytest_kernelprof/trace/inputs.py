"""The inputs of operators, where they were recorded; each different text is decoded once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pytest_kernelprof.trace.events import NOT_THERE, ArgsWithDims, ArgsWithInputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.events import Args

NO_INPUTS = -1


@dataclass(frozen=True, slots=True)
class Input:
    """One argument of an operator.

    Attributes:
        shape, strides: of a tensor, in elements; empty for what is no tensor, and for scalars.
        dtype: as the profiler writes it ("float", "c10::BFloat16", "Scalar"); empty for None.
        value: of what is no tensor, as text: "1.0", "True", "[1, 1]".
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    value: str = ""


class InputColumn:
    """Of each operator a tuple of ``Input``, or None; indexed by row."""

    def __init__(self, codes: Ints, known: Sequence[tuple[Input, ...]]) -> None:
        self._codes = codes
        self._known = known

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, row: int) -> tuple[Input, ...] | None:
        code = int(self._codes[row])
        return None if code == NO_INPUTS else self._known[code]

    def __iter__(self) -> Iterator[tuple[Input, ...] | None]:
        return (None if code == NO_INPUTS else self._known[code] for code in self._codes.tolist())


class Inputs:
    """Numbers the different inputs of operators, chunk by chunk."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[bytes, ...], int] = {}
        self._known: list[tuple[Input, ...]] = []

    def codes(self, arguments: Sequence[Args]) -> Ints | None:
        """The numbers of a chunk of operators, read while its text is there; None where inputs are
        not read."""
        if not arguments or not isinstance(arguments[0], ArgsWithInputs):
            return None
        found = [
            self._number(args)
            if isinstance(args, ArgsWithInputs) and args.dims is not NOT_THERE
            else NO_INPUTS
            for args in arguments
        ]
        return np.fromiter(found, np.int32, len(found))

    def column(self, codes: Ints | None) -> InputColumn | None:
        """The inputs of all operators."""
        return None if codes is None else InputColumn(codes, self._known)

    def _number(self, args: ArgsWithInputs) -> int:
        key = (bytes(args.dims), bytes(args.strides), bytes(args.dtypes), bytes(args.values))
        found = self._numbers.get(key)
        if found is None:
            self._known.append(_inputs(*key))
            found = self._numbers[key] = len(self._numbers)
        return found


def presence(arguments: Sequence[Args]) -> Bools | None:
    """Which of a chunk of operators have inputs; None where they are not recorded.

    Raises:
        msgspec.ValidationError: what stands in their place is no list.
    """
    if not arguments or not isinstance(arguments[0], ArgsWithDims):
        return None
    dims = [getattr(args, "dims", NOT_THERE) for args in arguments]
    if not all(_is_list(one) for one in dims if one is not NOT_THERE):
        raise msgspec.ValidationError("Expected `array` in 'Input Dims'")
    return np.fromiter((one is not NOT_THERE for one in dims), np.bool_, len(dims))


def _is_list(text: msgspec.Raw) -> bool:
    return bytes(text).startswith(b"[")


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
