"""Whether two callables return the same: copies of results, what tells them apart, and arguments in
memory of our own, which other inputs can be written to."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_kernelprof.capture.fingerprint import leaves
from pytest_kernelprof.device.bindings import without_modes
from pytest_kernelprof.device.inventory import load_torch

# Rounding alone: a product of 16 bit that sums in another order, one of 32 bit by TF32. Of 64 bit
# there is nothing like TF32: 1e-6 is more than arithmetic of 32 bit inside is apart, and less than
# TF32 is.
_TOLERANCES = {
    **dict.fromkeys(("float16", "bfloat16", "complex32"), 1e-2),
    **dict.fromkeys(("float32", "complex64"), 1e-3),
    **dict.fromkeys(("float64", "complex128"), 1e-6),
}
_DEEPEST = 4
_MOST = 1_000
_CHUNK = 1 << 20
"""Numbers that are compared at once: the comparison needs little memory beside the results."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """How near a result is to another one.

    Attributes:
        norm: the largest relative norm of a difference; None where no tensors could be compared.
        apart: the tensors that are too far apart, each in words. left_out: what was not compared.
    """

    norm: float | None = None
    apart: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether something was compared, and nothing is too far apart."""
        return self.norm is not None and not self.apart


def likeness(result: Any, reference: Any) -> Likeness:
    """Hold a result against another one: the floating tensors in both, by their relative norm. What
    cannot be read, for lack of memory for example, is left out."""
    try:
        return _likeness(load_torch(), result, reference)
    except Exception as error:
        return Likeness(left_out=(type(error).__name__,))


def _likeness(torch: Any, result: Any, reference: Any) -> Likeness:
    with without_modes():
        one, other = (
            dict(itertools.islice(leaves(torch, "the result", of, _DEEPEST), _MOST))
            for of in (result, reference)
        )
        if one.keys().isdisjoint(other):
            return Likeness(left_out=(_both(type(result).__name__, type(reference).__name__),))
        norms, apart, left_out = [], [], []
        for path in dict.fromkeys((*one, *other)):
            if not (_is_floating(torch, one.get(path)) and _is_floating(torch, other.get(path))):
                kinds = (_kind(torch, of[path]) if path in of else "nothing" for of in (one, other))
                words = _both(*kinds)
                left_out.append(words if len(one) == 1 else f"{path} ({words})")
                continue
            norm, words = _distance(torch, one[path], other[path])
            norms.append(norm)
            apart += [f"{path}: {words}"] if words else []
    return Likeness(max(norms, default=None), tuple(apart), tuple(left_out))


def kept(result: Any) -> Any:
    """A result as it is now, its tensors copied without the graph that they come from."""
    torch = load_torch()
    with without_modes():
        return _mapped(torch, lambda tensor: tensor.detach().clone(), result, _DEEPEST)


class OwnMemory:
    """Arguments whose tensors are copies in memory of our own, the same for whatever they are
    copied from. Copied are plain tensors, also in lists, tuples, dicts and dataclasses.

    Attributes:
        moved: whether any of the last ones has no place of earlier ones.
    """

    def __init__(self) -> None:
        self.moved = False
        self._own: list[Any] = []

    def holding(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """These arguments with their tensors copied. Where type and shape are those of the last
        ones, the copies are too, with other values."""
        torch = load_torch()
        copies: dict[int, Any] = {}
        self.moved = False

        def own(given: Any) -> Any:
            if type(given) is not torch.Tensor or (given.requires_grad and not given.is_leaf):
                return given  # of a module, or of a graph through which the call may go back
            if id(given) not in copies:
                copies[id(given)] = self._copy(torch, len(copies), given)
            return copies[id(given)]

        with without_modes():
            held = _mapped(torch, own, (tuple(args), dict(kwargs)), _DEEPEST)
        return held  # type: ignore[no-any-return]

    def _copy(self, torch: Any, number: int, given: Any) -> Any:
        if number < len(self._own) and _alike(self._own[number], given):
            own = self._own[number]
            own.copy_(given)
            own.grad = None
            return own
        self.moved = True
        try:
            own = torch.empty_strided(
                given.shape, given.stride(), dtype=given.dtype, device=given.device
            ).copy_(given)
        except RuntimeError:  # several of its elements are one place in memory
            own = given.detach().clone()
        self._own[number : number + 1] = [own.requires_grad_(given.requires_grad)]
        return own


def _alike(one: Any, other: Any) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("shape", "dtype", "device", "requires_grad")
    )


def _mapped(torch: Any, change: Callable[[Any], Any], value: Any, depth: int) -> Any:
    """The same with each plain tensor changed that stands in it."""
    if _is_plain(torch, value):
        return change(value)
    if not depth:
        return value
    if isinstance(value, (list, tuple)):
        parts = [_mapped(torch, change, one, depth - 1) for one in value]
        with contextlib.suppress(TypeError):  # of a class that is made otherwise
            return getattr(value, "_make", type(value))(parts)
    if isinstance(value, dict):
        changed: Any = copy.copy(value)
        for key, one in value.items():
            changed[key] = _mapped(torch, change, one, depth - 1)
        return changed
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = copy.copy(value)
        for field in dataclasses.fields(value):
            one = _mapped(torch, change, getattr(value, field.name, None), depth - 1)
            object.__setattr__(changed, field.name, one)
        return changed
    return value


def _is_plain(torch: Any, value: Any) -> bool:
    """Whether it is a tensor whose numbers can be read as they stand: no fake, distributed or
    sparse one."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.layout == torch.strided
        and value.device.type in ("cpu", "cuda")
        and not value.is_nested
    )


def _is_floating(torch: Any, value: Any) -> bool:
    return _is_plain(torch, value) and _kind(torch, value) in _TOLERANCES


def _kind(torch: Any, value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.")
    return type(value).__name__


def _both(one: str, other: str) -> str:
    return one if one == other else f"{one}, not {other}"


def _distance(torch: Any, one: Any, other: Any) -> tuple[float, str]:
    """The norm of the difference over that of the other; words where it is too large."""
    kinds = [_kind(torch, of) for of in (one, other)]
    if one.shape != other.shape:
        return math.inf, f"shape {tuple(one.shape)}, not {tuple(other.shape)}"
    wide = torch.complex128 if any("complex" in kind for kind in kinds) else torch.float64
    difference = norm = 0.0
    parts = (of.detach().reshape(-1).split(_CHUNK) for of in (one, other))
    for part, its_other in zip(*parts, strict=True):
        a, b = part.to(wide), its_other.to(part.device, wide)
        same = (a == b) | (a.isnan() & b.isnan())
        difference = difference + (a - b).masked_fill(same, 0).abs().square().sum()
        norm = norm + b.masked_fill(~b.isfinite(), 0).abs().square().sum()
    apart, of = math.sqrt(difference), math.sqrt(norm)
    found = 0.0 if apart == 0 else apart / of if of else math.inf
    found = math.inf if math.isnan(found) else found
    allowed = max(_TOLERANCES[kind] for kind in kinds)
    words = f"relative norm of the difference {found:.2g} > {allowed:g} ({_both(*kinds)})"
    return found, words if found > allowed else ""
