"""Watches calls of compiled code of which a CPU trace does not tell: packages and TorchScript;
and libraries that give kernels to operators."""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.capture.compiled_code import TURN_ON, CompiledCode
from pytest_kernelprof.device.inventory import load_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    Look = Callable[[Any], None]

_PACKAGE = b"AOTInductorModelContainerRun"
_RECORDS = b"RecordFunction"
_KERNEL = re.compile(rb"\0(graph_\d+_\w+|aoti_torch_\w+)(?=\0)")
_BATCHED = re.compile(r"graph_\d+_.*gemm")

_HIDDEN = "AOTInductor's {} ran kernels that leave no event in the trace: " + TURN_ON
_NOT_FOUND = (
    "a package of AOTInductor ran whose library cannot be found, so it is unknown whether its "
    "kernels leave an event in the trace"
)


@dataclass(slots=True)
class Packages:
    """The libraries of AOTInductor that were there when one was called.

    Attributes:
        called: whether any was called at all.
    """

    called: bool = False
    _looked_at: dict[str, CompiledCode] = field(default_factory=dict)

    def look(self, runner: object) -> None:
        """Look at the libraries that are there when one is called; which is its, nobody says."""
        del runner
        self.called = True
        for path in _mapped_libraries():
            if path not in self._looked_at:
                self._looked_at[path] = _code_of_library(path, os.stat(path).st_mtime_ns)

    def code(self) -> CompiledCode:
        """What may have run."""
        found = CompiledCode()
        for code in self._looked_at.values():
            found |= code
        if self.called and not found.kernels and not found.unseen:
            return CompiledCode(unseen=(_NOT_FOUND,))
        return found


def runners() -> list[type]:
    """The classes that run a package."""
    module = getattr(load_torch()._C, "_aoti", None)
    return [kind for kind in vars(module).values() if isinstance(kind, type)] if module else []


def _mapped_libraries() -> list[str]:
    """Shared libraries of this process that are on disk, torch's own left out.

    A package that was closed has removed its library, which may stay mapped.
    """
    torch_folder = os.path.dirname(str(load_torch().__file__)) + os.sep
    try:
        with open("/proc/self/maps", errors="surrogateescape") as maps:
            paths = {line.rstrip("\n").split(maxsplit=5)[-1] for line in maps if ".so" in line}
    except OSError:
        return []
    return sorted(p for p in paths if not p.startswith(torch_folder) and os.path.isfile(p))


@functools.cache
def _code_of_library(path: str, modified_ns: int) -> CompiledCode:
    """Of a library that is none of AOTInductor's, nothing."""
    del modified_ns  # part of the cache's key: a library may be compiled again
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data.find(_PACKAGE) < 0:
            return CompiledCode()
        if data.find(_RECORDS) < 0:
            return CompiledCode(unseen=(_HIDDEN.format(os.path.basename(path)),))
        names = frozenset(name.decode() for name in _KERNEL.findall(data))
        return CompiledCode(names, frozenset(filter(_BATCHED.match, names)))


# torch.jit.optimize_for_inference calls MKL-DNN past the dispatcher.
_PAST_THE_DISPATCHER = ("prim::mkldnn", "prim::MKLDNN")

_PARTITION = (
    "a oneDNN partition of a TorchScript graph ran as one event; without "
    "torch.jit.enable_onednn_fusion(True) its operators are in the trace"
)
_FUSED = (
    "TorchScript's fuser (NNC) ran a group of operators as one event; without "
    "torch._C._jit_override_can_fuse_on_cpu(True) its operators are in the trace"
)
_PAST = (
    "a TorchScript module ran operators that leave no event in the trace ({}): "
    "torch.jit.optimize_for_inference put them there; profile the module without it"
)


@dataclass(slots=True)
class Scripts:
    """The TorchScript methods that were called."""

    _past: set[str] = field(default_factory=set)

    def look(self, method: Any) -> None:
        """Look at the graph of a method that is called."""
        kinds = set(_kinds(method.graph))
        self._past.update(kind for kind in kinds if kind.startswith(_PAST_THE_DISPATCHER))

    def code(self, operators: Collection[str]) -> CompiledCode:
        """What ran unseen, by the names of operators in the rounds as well."""
        partitions = any(name.startswith("LlgaPartition_") for name in operators)
        unseen = (_PARTITION,) if partitions and load_torch()._C._jit_llga_enabled() else ()
        groups = any(name.startswith("fused_") for name in operators)
        fused = (_FUSED,) if groups and load_torch()._C._jit_can_fuse_on_cpu() else ()
        past = (_PAST.format(", ".join(sorted(self._past))),) if self._past else ()
        return CompiledCode(unseen=(*unseen, *fused, *past))


def _kinds(block: Any) -> Iterator[str]:
    """The kinds of all nodes, without the text of the graph: to print constants runs operators."""
    for node in block.nodes():
        yield node.kind()
        for inner in node.blocks():
            yield from _kinds(inner)


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
