"""Whether a call changes the tensors that it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_kernelprof.device.inventory import load_torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_DEEPEST = 3


def versions(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, int]:
    """The version counter of each tensor in the arguments, by where it stands.

    PyTorch raises it with each operation in place. Kernels that write by themselves (a custom
    Triton kernel) do not; tensors made in inference mode have none.
    """
    torch = load_torch()
    found: dict[str, int] = {}
    named = [*((f"argument {i}", one) for i, one in enumerate(args, 1)), *kwargs.items()]
    for name, value in named:
        for path, tensor in _tensors(torch, name, value, _DEEPEST):
            if not tensor.is_inference():
                found[path] = int(tensor._version)
    return found


def changed(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Where the tensors stand that were changed in place."""
    return [name for name, version in before.items() if after.get(name, version) != version]


def _tensors(torch: Any, name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth and isinstance(value, (list, tuple)):
        for i, one in enumerate(value):
            yield from _tensors(torch, f"{name}[{i}]", one, depth - 1)
    elif depth and isinstance(value, dict):
        for key, one in value.items():
            yield from _tensors(torch, f"{name}[{key!r}]", one, depth - 1)
