"""The inputs of operators, where they were recorded; each different text is decoded once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pytest_kernelprof.trace.events import NOT_THERE, ArgsWithInputs
from pytest_kernelprof.trace.model import Input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.trace.events import Event
    from pytest_kernelprof.trace.model import Strings


class Inputs:
    """Of each chunk of operators a column of tuples of ``Input``."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], tuple[Input, ...]] = {}

    def column(self, events: Sequence[Event]) -> Strings | None:
        """The inputs of a chunk of operators, read while its text is there; None where none
        are recorded."""
        if not events or not isinstance(events[0].args, ArgsWithInputs):
            return None
        column = np.full(len(events), None, np.object_)
        for i, event in enumerate(events):
            if isinstance(event.args, ArgsWithInputs) and event.args.dims is not NOT_THERE:
                column[i] = self._decoded(event.args)
        return column

    def _decoded(self, args: ArgsWithInputs) -> tuple[Input, ...]:
        key = (bytes(args.dims), bytes(args.strides), bytes(args.dtypes), bytes(args.values))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _inputs(*key)
        return found


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
