"""Tensors in arguments, results and callables: describe, copy, compare, notice changes.

PyTorch raises a tensor's version with each operation in place. Kernels that write by themselves (a
custom Triton kernel) do not; tensors made in inference mode have none.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import operator
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_kernelprof.gpu.inventory import bound, load_torch, without_modes
from pytest_kernelprof.units import first_of

_DEEPEST = 4
_MOST_LINES = 100
_LONGEST = 80


def describe(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> tuple[str, ...]:
    """The arguments and the result, a line for each tensor: where it stands, type, shape, strides
    and device; at most 100 lines of either.

    Of numbers and text of the arguments what they are; those of the result may differ in the last
    digit. Of other things the kind: what they hold may be an address, which no two processes share.
    """
    torch = load_torch()
    named = [*((f"argument {i}", one) for i, one in enumerate(args, 1)), *kwargs.items()]
    given = (leaf for name, one in named for leaf in leaves(name, one, _DEEPEST))
    made = leaves("the result", result, _DEEPEST)
    lines = [
        f"{path}: {_words(torch, leaf)}" for path, leaf in itertools.islice(given, _MOST_LINES)
    ]
    for path, leaf in itertools.islice(made, _MOST_LINES):
        is_tensor = isinstance(leaf, torch.Tensor)
        lines.append(f"{path}: {_words(torch, leaf) if is_tensor else type(leaf).__qualname__}")
    return tuple(lines)


def leaves(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """What stands in lists, tuples, dicts and dataclasses, each with its place."""
    if isinstance(value, (list, tuple)) and depth:
        for i, one in enumerate(value):
            yield from leaves(f"{path}[{i}]", one, depth - 1)
    elif isinstance(value, dict) and depth:
        for key, one in value.items():
            yield from leaves(f"{path}[{str(key)[:_LONGEST]!r}]", one, depth - 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type) and depth:
        for field in dataclasses.fields(value):
            yield from leaves(f"{path}.{field.name}", getattr(value, field.name, None), depth - 1)
    else:
        yield path, value


def _words(torch: Any, value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return repr(value)[:_LONGEST]
    if not isinstance(value, torch.Tensor):
        return type(value).__qualname__
    shape = "x".join(map(str, value.shape)) or "()"
    layout = str(value.layout).removeprefix("torch.")
    if value.layout == torch.strided:
        layout = f"strides {tuple(value.stride())}"
    return f"{_kind(torch, value)} {shape}, {layout}, {value.device}"


def _kind(torch: Any, value: Any) -> str:
    """The type of a tensor's elements, or of another value."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.")
    return type(value).__name__


# Rounding alone: a product of 16 bit that sums in another order, one of 32 bit by TF32. Of 64 bit
# there is nothing like TF32: 1e-6 is more than arithmetic of 32 bit inside is apart, and less than
# TF32 is.
_TOLERANCES = {
    **dict.fromkeys(("float16", "bfloat16", "complex32"), 1e-2),
    **dict.fromkeys(("float32", "complex64"), 1e-3),
    **dict.fromkeys(("float64", "complex128"), 1e-6),
}
_MOST_LEAVES = 1_000
_CHUNK = 1 << 20
"""Numbers that are compared at once: the comparison needs little memory beside the results."""


class Likeness(NamedTuple):
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
            dict(itertools.islice(leaves("the result", of, _DEEPEST), _MOST_LEAVES))
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
    with without_modes():
        return _mapped(load_torch(), lambda tensor: tensor.detach().clone(), result, _DEEPEST)


_form = operator.attrgetter("shape", "dtype", "device", "requires_grad")


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
        if number < len(self._own) and _form(self._own[number]) == _form(given):
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


_WATCHED_DEPTH = 5
_MOST_WATCHED = 10_000
"""Values that are looked at."""
_MOST_NAMED = 8
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, type, types.ModuleType))
_HOLDS = (list, tuple, dict)
_ITSELF, _CLOSURE, _GLOBAL = "{}", "closure variable `{}`", "global variable `{}`"
_DEFAULT, _BOUND = "default of `{}`", "bound argument `{}`"

_Found = tuple[str, str, Any]  # the form of its name, its path, and what is there


class Watched(NamedTuple):
    """Tensors as they were: of each the form of its name, its path, itself and its version."""

    tensors: tuple[tuple[str, str, weakref.ref[Any], int], ...] = ()

    def changed(self) -> tuple[str, ...]:
        """Where those stand that were changed in place since; of very many the first."""
        if not self.tensors:
            return ()
        with bound().module._C.DisableTorchFunction():
            version = _version_of()
            found = [
                form.format(path)
                for form, path, tensor, before in self.tensors
                if (now := tensor()) is not None and version(now) != before
            ]
        return tuple(first_of(found, _MOST_NAMED))


def watch(
    callables: Sequence[Callable[..., Any]], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Watched:
    """Note the versions of the tensors in the arguments, and of those that callables hold: closure
    and global variables, defaults, bound arguments, the object of a method, modules.

    No code of a test runs for it: properties are not asked, nor anything that a class defines.
    """
    torch = bound().module
    tensor, module, noted = torch.Tensor, torch.nn.Module, []
    left = deque[tuple[str, str, Any, int]]()
    left.extend((_ITSELF, f"argument {i}", one, _WATCHED_DEPTH) for i, one in enumerate(args, 1))
    left.extend((_ITSELF, name, one, _WATCHED_DEPTH) for name, one in kwargs.items())
    left.extend((_ITSELF, "self", one, _WATCHED_DEPTH + 1) for one in callables)
    known, room = set[int](), _MOST_WATCHED
    with torch._C.DisableTorchFunction():
        version = _version_of()
        while left:
            form, path, value, depth = left.popleft()
            if id(value) in known:
                continue
            known.add(id(value))
            kind, cost = type(value), 0
            inside: Iterable[_Found] = ()
            try:
                if issubclass(kind, tensor):
                    noted.append((form, path, weakref.ref(value), version(value)))
                elif issubclass(kind, module):
                    inside = _of_module(form, path, value)
                elif depth > 0:
                    inside, cost = _inside(form, path, value, (tensor, module, *_HOLDS))
                for one in itertools.islice(inside, room):
                    room -= 1
                    if type(one[2]) not in _PLAIN:
                        left.append((*one, depth - cost))
            except Exception:  # of an object that lets nobody look
                continue
    return Watched(tuple(noted))


def _version_of() -> Any:
    """What reads a version: PyTorch's own, whatever a subclass or a test makes of it."""
    return bound().module._C.TensorBase._version.__get__


def _inside(
    form: str, path: str, value: Any, kinds: tuple[Any, ...]
) -> tuple[Iterable[_Found], int]:
    """What something holds, and how much deeper that lies."""
    kind = type(value)
    if issubclass(kind, (list, tuple)):
        items = (list if issubclass(kind, list) else tuple).__iter__(value)
        return ((form, f"{path}[{i}]", one) for i, one in enumerate(items)), 1
    if issubclass(kind, dict):
        return ((form, f"{path}[{_key(key)}]", one) for key, one in dict.items(value)), 1
    if kind is types.FunctionType:
        return _of_function(value, kinds), 1
    if kind in (types.MethodType, types.BuiltinMethodType):
        own = (_ITSELF, "self", value.__self__)
        return [own, (form, path, getattr(value, "__func__", None))], 0
    if kind is functools.partial:
        given = [*enumerate(value.args, 1), *value.keywords.items()]
        bound_ones = ((_BOUND, str(name), one) for name, one in given)
        return [*bound_ones, (form, path, value.func)], 0
    attributes = object.__getattribute__(value, "__dict__")
    return ((form, f"{path}.{name}", one) for name, one in dict.items(attributes)), 2


def _of_function(function: types.FunctionType, kinds: tuple[Any, ...]) -> Iterator[_Found]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # it is empty
            yield _CLOSURE, name, cell.cell_contents
    defaults = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    for name, one in (*zip(names, defaults, strict=True), *(function.__kwdefaults__ or {}).items()):
        yield _DEFAULT, name, one
    for name in code.co_names:
        one = function.__globals__.get(name)
        if issubclass(type(one), kinds):
            yield _GLOBAL, name, one
    if "__wrapped__" in function.__dict__:
        yield _ITSELF, "self", function.__dict__["__wrapped__"]


def _of_module(form: str, path: str, module: Any) -> Iterator[_Found]:
    attributes = object.__getattribute__(module, "__dict__")
    for holder in ("_parameters", "_buffers", "_modules"):
        for name, one in dict.items(attributes[holder]):
            yield form, f"{path}.{name}", one
    if not _of_any_module().issuperset(attributes):
        for name in [name for name in attributes if name not in _of_any_module()]:
            yield form, f"{path}.{name}", attributes[name]


@functools.cache
def _of_any_module() -> frozenset[str]:
    return frozenset(vars(bound().module.nn.Module()))


def _key(key: Any) -> str:
    return repr(key) if type(key) in (str, int) else "..."
