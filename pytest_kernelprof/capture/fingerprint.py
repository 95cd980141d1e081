"""What a call works on, so that two processes can see whether they do the same work."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.device.inventory import load_torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_DEEPEST = 4
_MOST = 100
_LONGEST = 80


def describe(
    args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, most: int = _MOST
) -> tuple[str, ...]:
    """The arguments and the result, a line for each tensor: where it stands, type, shape, strides
    and device; ``most`` lines of either.

    Of numbers and text of the arguments what they are; those of the result may differ in the last
    digit. Of other things the kind: what they hold may be an address, which no two processes share.
    """
    torch = load_torch()
    named = [*((f"argument {i}", one) for i, one in enumerate(args, 1)), *kwargs.items()]
    given = (leaf for name, one in named for leaf in leaves(torch, name, one, _DEEPEST))
    made = leaves(torch, "the result", result, _DEEPEST)
    lines = [f"{path}: {_words(torch, leaf)}" for path, leaf in itertools.islice(given, most)]
    lines += [
        f"{path}: {_words(torch, leaf) if isinstance(leaf, torch.Tensor) else _kind(leaf)}"
        for path, leaf in itertools.islice(made, most)
    ]
    return tuple(lines)


def leaves(torch: Any, path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """What stands in lists, tuples, dicts and dataclasses, each with its place."""
    if isinstance(value, (list, tuple)) and depth:
        for i, one in enumerate(value):
            yield from leaves(torch, f"{path}[{i}]", one, depth - 1)
    elif isinstance(value, dict) and depth:
        for key, one in value.items():
            yield from leaves(torch, f"{path}[{str(key)[:_LONGEST]!r}]", one, depth - 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type) and depth:
        for field in dataclasses.fields(value):
            one = getattr(value, field.name, None)
            yield from leaves(torch, f"{path}.{field.name}", one, depth - 1)
    else:
        yield path, value


def _words(torch: Any, value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return repr(value)[:_LONGEST]
    if not isinstance(value, torch.Tensor):
        return _kind(value)
    shape = "x".join(map(str, value.shape)) or "()"
    layout = str(value.layout).removeprefix("torch.")
    if value.layout == torch.strided:
        layout = f"strides {tuple(value.stride())}"
    return f"{str(value.dtype).removeprefix('torch.')} {shape}, {layout}, {value.device}"


def _kind(value: Any) -> str:
    return type(value).__qualname__
