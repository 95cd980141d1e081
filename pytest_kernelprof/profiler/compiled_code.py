"""Compiled code: how often torch.compile compiled, and which kernels leave no event.

``torch._dynamo.reset()`` clears dynamo's own count of attempts and the callbacks that users
register, and anybody may clear ``counters``. So the count of attempts is replaced by one that tells
us of each, and what decides on the limit and what announces a compilation are listened to.

On the CPU, Inductor's C++ kernels show in a trace only if ``config.cpp.enable_kernel_profile`` was
on when they were compiled. The trace names each graph that ran by its key, and the graph, as long
as it lives, has its source. Packages of AOTInductor and TorchScript are not in a trace: their calls
are watched.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import mmap
import os
import re
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, NamedTuple

from pytest_kernelprof.gpu.inventory import load_torch
from pytest_kernelprof.gpu.procfs import mapped_files

Look = Callable[[Any], None]


@dataclass(slots=True)
class Compilations:
    """What torch.compile did so far in this process, or between two looks.

    Attributes:
        recompiles: frames that were compiled, refused attempts among them, and backward graphs that
            were compiled when they first ran. None where this torch cannot be asked.
        refused: attempts beyond ``recompile_limit``: the code runs without the compiler from then
            on, and nothing is counted any more.
        may_refuse: whether any attempt was refused, or may have been before the first look.
    """

    recompiles: int | None = 0
    refused: int = 0
    may_refuse: bool = False

    def since(self, before: Compilations) -> Compilations:
        """What was done since an earlier look."""
        known = self.recompiles is not None and before.recompiles is not None
        compiled = (self.recompiles or 0) - (before.recompiles or 0) if known else None
        return replace(self, recompiles=compiled, refused=self.refused - before.refused)


def compilations() -> Compilations:
    """What torch.compile did in this process; compare two looks.

    The compiler is watched from the first look at which it is loaded; what it did before that is
    known as far as nobody reset it.
    """
    convert_frame = sys.modules.get("torch._dynamo.convert_frame")
    if convert_frame is None:
        return Compilations()
    _watch(convert_frame)
    return replace(_seen)


# Attempts are made under the compiler's own lock, so plain numbers do.
_seen = Compilations()


class _Telling(collections.Counter[int]):
    """Dynamo's count of attempts by frame, which tells of each, whoever clears it."""

    def __setitem__(self, frame: int, attempts: int) -> None:
        _count_one()
        super().__setitem__(frame, attempts)


def _count_one() -> None:
    if _seen.recompiles is not None:
        _seen.recompiles += 1


def _watch(convert_frame: ModuleType) -> None:
    attempts = getattr(convert_frame, "FRAME_COMPILE_COUNTER", None)
    if isinstance(attempts, _Telling):
        return
    if isinstance(attempts, collections.Counter):
        _seen.recompiles = (_seen.recompiles or 0) + sum(attempts.values())
        # A frame that was tried more than once may have reached the limit before we looked.
        _seen.may_refuse |= any(times > 1 for times in attempts.values())
        convert_frame.FRAME_COMPILE_COUNTER = _Telling(attempts)  # type: ignore[attr-defined]
    else:
        _seen.recompiles = None
    exceeds = getattr(convert_frame, "exceeds_recompile_limit", None)
    if exceeds is None:
        _seen.may_refuse = True
    else:
        convert_frame.exceeds_recompile_limit = _telling_of_refusals(exceeds)  # type: ignore[attr-defined]
    callbacks = sys.modules.get("torch._dynamo.callback")
    handler: Any = getattr(callbacks, "CompilationCallbackHandler", None)
    if hasattr(handler, "install_callbacks"):
        handler.install_callbacks = _telling_of_backward(handler.install_callbacks)


def _telling_of_refusals(exceeds: Callable[..., Any]) -> Callable[..., Any]:
    """What decides whether the limit is reached, with each yes noted."""

    @functools.wraps(exceeds)
    def decide(*args: Any, **kwargs: Any) -> Any:
        answer = exceeds(*args, **kwargs)
        if answer[0]:
            _seen.refused += 1
            _seen.may_refuse = True
        return answer

    return decide


def _telling_of_backward(announce: Callable[..., Any]) -> Callable[..., Any]:
    """What announces a compilation, with those of a backward graph at its first run noted: no
    frame is tried for them."""

    @functools.wraps(announce)
    def install_callbacks(handler: Any, trigger: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(trigger, "name", "") == "LAZY_BACKWARD":
            _count_one()
        return announce(handler, trigger, *args, **kwargs)

    return install_callbacks


_CALLED = re.compile(r"## Call CompiledFxGraph (\S+) ##")
_PYBINDING = re.compile(r"async_compile\.cpp\w*\(")
_RECORDED = re.compile(r'(?:RecordFunctionHandle \w+|RECORD_FUNCTION)\(\s*"([^"]+)"')
_CPP_WORK = re.compile(r'extern "C"\s+void|CHECK\(aoti_torch_cpu_\w+\(')

TURN_ON = (
    "Inductor's config.cpp.enable_kernel_profile was off when it was compiled; leave it on "
    "(TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1) before anything is compiled"
)
_HIDDEN = f"a compiled graph ran kernels that leave no event in the trace: {TURN_ON}"
_GONE = (
    "a compiled graph that ran no longer exists, so it is unknown which of its kernels leave an "
    "event in the trace; keep the compiled function until the measured code has ended"
)
_ONE_A_MATRIX = (
    "Inductor's C++ template of a batched matrix product leaves an event a matrix ({}), not one a "
    "kernel; take CPP out of config.max_autotune_gemm_backends to have it counted"
)


class CompiledCode(NamedTuple):
    """Compiled code that may have run.

    Attributes:
        kernels: what its kernels are called in a trace.
        batched: those of them that may leave several events each time they run.
        unseen: what leaves no event, in words.
    """

    kernels: frozenset[str] = frozenset()
    batched: frozenset[str] = frozenset()
    unseen: tuple[str, ...] = ()

    def all_unseen(self, repeated: Set[str]) -> tuple[str, ...]:
        """What the operators of the rounds do not tell of what ran in them, in words.

        Args:
            repeated: the names of those that some round has more than once.
        """
        unclear = sorted(self.batched & repeated)
        return (*self.unseen, *([_ONE_A_MATRIX.format(", ".join(unclear))] if unclear else []))


def together(codes: Iterable[CompiledCode]) -> CompiledCode:
    """All of these as one."""
    every = tuple(codes)
    return CompiledCode(
        frozenset(name for one in every for name in one.kernels),
        frozenset(name for one in every for name in one.batched),
        tuple(dict.fromkeys(words for one in every for words in one.unseen)),
    )


def code_of_graphs(operators: Iterable[str], annotations: Iterable[str]) -> CompiledCode:
    """The code of the graphs that ran, by the names of events in the rounds.

    torch marks a graph's call by an operator or by an annotation, depending on its version. So may
    a user: an annotation that names no graph is one of the user.
    """
    called = {match[1] for name in operators if (match := _CALLED.fullmatch(name))}
    claimed = {match[1] for name in annotations if (match := _CALLED.fullmatch(name))}
    found: list[CompiledCode] = []
    for key in sorted(called | claimed):
        codes = [code_of_source(graph.source_code) for graph in _graphs(key)]
        gone = not codes and key in called
        found += [CompiledCode(unseen=(_GONE,))] if gone else codes
    return together(found)


def code_of_source(source: str) -> CompiledCode:
    """What the module that Inductor wrote for a graph says of its kernels."""
    blocks = _PYBINDING.split(source)[1:]
    if "cpp_wrapper_src" in source and _CPP_WORK.search(source):
        blocks = [source]
    return together(map(_code_of_block, blocks))


def _code_of_block(block: str) -> CompiledCode:
    names = frozenset(_RECORDED.findall(block))
    batched = names if "_single_thread_mm(" in block else frozenset()
    return CompiledCode(names, batched, () if names else (_HIDDEN,))


_graph_of_key: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def _graphs(key: str) -> list[Any]:
    """The living graphs that were compiled under a key; some have none, and are "None"."""
    if key not in _graph_of_key or key == "None":
        kind = getattr(sys.modules.get("torch._inductor.output_code"), "CompiledFxGraph", None)
        graphs = [one for one in gc.get_objects() if type(one) is kind]
        if key == "None":
            return [graph for graph in graphs if graph._fx_graph_cache_key is None]
        _graph_of_key.update({str(graph._fx_graph_cache_key): graph for graph in graphs})
    return [_graph_of_key[key]] if key in _graph_of_key else []


_KERNEL = re.compile(rb"\0(graph_\d+_\w+|aoti_torch_\w+)(?=\0)")
_BATCHED_NAME = re.compile(r"graph_\d+_.*gemm")

_PACKAGE_HIDDEN = "AOTInductor's {} ran kernels that leave no event in the trace: " + TURN_ON
_NOT_FOUND = (
    "a package of AOTInductor ran whose library cannot be found, so it is unknown whether its "
    "kernels leave an event in the trace"
)


def _mapped_libraries() -> list[str]:
    """Shared libraries of this process that are on disk, torch's own left out.

    A package that was closed has removed its library, which may stay mapped.
    """
    torch_folder = os.path.dirname(str(load_torch().__file__)) + os.sep
    others = (one for one in mapped_files() if ".so" in one and not one.startswith(torch_folder))
    return sorted(filter(os.path.isfile, others))


@functools.cache
def _code_of_library(path: str, modified_ns: int) -> CompiledCode:
    """Of a library that is none of AOTInductor's, nothing.

    Args:
        modified_ns: part of the cache's key: a library may be compiled again.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data.find(b"AOTInductorModelContainerRun") < 0:
            return CompiledCode()
        if data.find(b"RecordFunction") < 0:
            return CompiledCode(unseen=(_PACKAGE_HIDDEN.format(os.path.basename(path)),))
        names = frozenset(name.decode() for name in _KERNEL.findall(data))
        return CompiledCode(names, frozenset(filter(_BATCHED_NAME.match, names)))


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


def _kinds(block: Any) -> Iterator[str]:
    """The kinds of all nodes, without the text of the graph: to print constants runs operators."""
    for node in block.nodes():
        yield node.kind()
        for inner in node.blocks():
            yield from _kinds(inner)


@dataclass(slots=True)
class WatchedCalls:
    """What was called.

    Attributes:
        package: whether any package of AOTInductor was.
        given: the kernels that libraries gave to operators (those of each library, as torch names
            them).
    """

    package: bool = False
    given: list[set[str]] = field(default_factory=list)
    _libraries: dict[str, CompiledCode] = field(default_factory=dict)
    _past: set[str] = field(default_factory=set)

    def look_at_package(self, _: object) -> None:
        """Look at the libraries that are there when one is called; which is its, nobody says."""
        self.package = True
        for path in _mapped_libraries():
            if path not in self._libraries:
                self._libraries[path] = _code_of_library(path, os.stat(path).st_mtime_ns)

    def look_at_script(self, method: Any) -> None:
        """Look at the graph of a method of TorchScript that is called."""
        kinds = set(_kinds(method.graph))
        self._past.update(kind for kind in kinds if kind.startswith(_PAST_THE_DISPATCHER))

    def look_at_giver(self, giver: Any) -> None:
        """Note the kernels that are given to operators from Python, now and later."""
        self.given.append(giver._op_impls)

    def code(self, operators: Collection[str]) -> CompiledCode:
        """The code that may have run, by the names of operators in the rounds as well."""
        found, torch = together(self._libraries.values()), load_torch()._C
        partitions = any(name.startswith("LlgaPartition_") for name in operators)
        groups = any(name.startswith("fused_") for name in operators)
        unseen = {
            _NOT_FOUND: self.package and not found.kernels and not found.unseen,
            _PARTITION: partitions and torch._jit_llga_enabled(),
            _FUSED: groups and torch._jit_can_fuse_on_cpu(),
            _PAST.format(", ".join(sorted(self._past))): self._past,
        }
        return together((found, CompiledCode(unseen=tuple(filter(unseen.get, unseen)))))


@contextlib.contextmanager
def watch_calls() -> Iterator[WatchedCalls]:
    """Watch from any thread. A call costs a look into its graph or library."""
    watched, torch = WatchedCalls(), load_torch()
    packages = getattr(torch._C, "_aoti", None)
    with contextlib.ExitStack() as undoing:
        for kind in vars(packages).values() if packages else ():
            for name in ("run", "boxed_run"):
                if isinstance(kind, type) and name in vars(kind):
                    look_first(undoing, kind, name, watched.look_at_package)
        look_first(undoing, torch._C.ScriptMethod, "__call__", watched.look_at_script)
        look_first(undoing, vars(torch)["library"].Library, "impl", watched.look_at_giver)
        yield watched


def look_first(undoing: contextlib.ExitStack, owner: Any, name: str, look: Look) -> None:
    """Look at what a function or method is called with first, before each call, until undone."""
    call = vars(owner)[name]

    @functools.wraps(call)
    def look_and_call(*args: Any, **kwargs: Any) -> Any:
        look(args[0] if args else None)
        return call(*args, **kwargs)

    undoing.callback(setattr, owner, name, call)
    setattr(owner, name, look_and_call)
