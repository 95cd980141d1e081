"""Whether calls change tensors that they find: their arguments, and what a callable holds itself.

PyTorch raises a tensor's version with each operation in place. Kernels that write by themselves (a
custom Triton kernel) do not; tensors made in inference mode have none.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.device.inventory import bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_DEEPEST = 5
_MOST = 10_000
"""Values that are looked at."""
_MOST_NAMED = 8
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, type, types.ModuleType))
_HOLDS = (list, tuple, dict)
_ITSELF, _CLOSURE, _GLOBAL = "{}", "closure variable `{}`", "global variable `{}`"
_DEFAULT, _BOUND = "default of `{}`", "bound argument `{}`"

_Found = tuple[str, str, Any]  # the form of its name, its path, and what is there


@dataclass(frozen=True, slots=True)
class Watched:
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
        more = len(found) - _MOST_NAMED
        return (*found[:_MOST_NAMED], *([f"{more} more"] if more > 0 else []))


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
    left.extend((_ITSELF, f"argument {i}", one, _DEEPEST) for i, one in enumerate(args, 1))
    left.extend((_ITSELF, name, one, _DEEPEST) for name, one in kwargs.items())
    left.extend((_ITSELF, "self", one, _DEEPEST + 1) for one in callables)
    known, room = set[int](), _MOST
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
