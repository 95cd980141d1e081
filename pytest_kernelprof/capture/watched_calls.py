"""Watches calls of compiled code of which a CPU trace does not tell: packages and TorchScript;
and libraries that give kernels to operators."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.capture.packages import Packages, runners
from pytest_kernelprof.capture.torchscript import Scripts
from pytest_kernelprof.device.inventory import load_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from pytest_kernelprof.capture.compiled_code import CompiledCode

    Look = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class WatchedCalls:
    """What was called, and the kernels that libraries gave to operators (those of each library, as
    torch names them)."""

    packages: Packages = field(default_factory=Packages)
    scripts: Scripts = field(default_factory=Scripts)
    given: list[set[str]] = field(default_factory=list)

    def code(self, operators: Collection[str]) -> CompiledCode:
        """The code behind it, by the names of operators in the rounds as well."""
        return self.packages.code() | self.scripts.code(operators)


@contextlib.contextmanager
def watch_calls() -> Iterator[WatchedCalls]:
    """Watch from any thread. A call costs a look into its graph or library."""
    watched = WatchedCalls()
    methods: list[tuple[Any, str, Look]] = [
        (kind, name, watched.packages.look)
        for kind in runners()
        for name in ("run", "boxed_run")
        if name in vars(kind)
    ]
    methods.append((load_torch()._C.ScriptMethod, "__call__", watched.scripts.look))
    library = load_torch().library.Library
    methods.append((library, "impl", lambda one: watched.given.append(one._op_impls)))
    before = [vars(kind)[name] for kind, name, _ in methods]
    for (kind, name, look), call in zip(methods, before, strict=True):
        setattr(kind, name, _looked_at(call, look))
    try:
        yield watched
    finally:
        for (kind, name, _), call in zip(methods, before, strict=True):
            setattr(kind, name, call)


def _looked_at(call: Callable[..., Any], look: Look) -> Callable[..., Any]:
    @functools.wraps(call)
    def look_and_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        look(self)
        return call(self, *args, **kwargs)

    return look_and_call
