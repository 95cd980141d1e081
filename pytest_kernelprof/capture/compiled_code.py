"""Compiled code on the CPU: what its kernels are called in a trace, and what leaves no event.

Inductor's C++ kernels show in a trace only if ``config.cpp.enable_kernel_profile`` was on when
they were compiled. The trace names each graph that ran by its key, and the graph, as long as it
lives, has the source that was compiled: there it can be seen.
"""

from __future__ import annotations

import gc
import re
import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

_CALLED = re.compile(r"## Call CompiledFxGraph (\S+) ##")
_PYBINDING = re.compile(r"async_compile\.cpp\w*\(")
_RECORDED = re.compile(r'(?:RecordFunctionHandle \w+|RECORD_FUNCTION)\(\s*"([^"]+)"')
_CPP_WRAPPER = "cpp_wrapper_src"
_CPP_WORK = re.compile(r'extern "C"\s+void|CHECK\(aoti_torch_cpu_\w+\(')
_BATCHED = "_single_thread_mm("

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


@dataclass(frozen=True, slots=True)
class CompiledCode:
    """Compiled code that may have run.

    Attributes:
        kernels: what its kernels are called in a trace.
        batched: those of them that may leave several events each time they run.
        unseen: what leaves no event, in words.
    """

    kernels: frozenset[str] = frozenset()
    batched: frozenset[str] = frozenset()
    unseen: tuple[str, ...] = ()

    def __or__(self, other: CompiledCode) -> CompiledCode:
        """Both together."""
        return CompiledCode(
            self.kernels | other.kernels,
            self.batched | other.batched,
            tuple(dict.fromkeys(self.unseen + other.unseen)),
        )

    def all_unseen(self, repeated: Set[str]) -> tuple[str, ...]:
        """What the operators of the rounds do not tell of what ran in them, in words.

        Args:
            repeated: the names of those that some round has more than once.
        """
        unclear = sorted(self.batched & repeated)
        return (*self.unseen, *([_ONE_A_MATRIX.format(", ".join(unclear))] if unclear else []))


def code_of_graphs(operators: Iterable[str], annotations: Iterable[str]) -> CompiledCode:
    """The code of the graphs that ran, by the names of events in the rounds.

    torch marks a graph's call by an operator or by an annotation, depending on its version. So may
    a user: an annotation that names no graph is one of the user.
    """
    called = {match[1] for name in operators if (match := _CALLED.fullmatch(name))}
    claimed = {match[1] for name in annotations if (match := _CALLED.fullmatch(name))}
    found = CompiledCode()
    for key in sorted(called | claimed):
        codes = [code_of_source(graph.source_code) for graph in _graphs(key)]
        if not codes and key in called:
            found |= CompiledCode(unseen=(_GONE,))
        for code in codes:
            found |= code
    return found


def code_of_source(source: str) -> CompiledCode:
    """What the module that Inductor wrote for a graph says of its kernels."""
    blocks = _PYBINDING.split(source)[1:]
    if _CPP_WRAPPER in source and _CPP_WORK.search(source):
        blocks = [source]
    found = CompiledCode()
    for block in blocks:
        names = frozenset(_RECORDED.findall(block))
        batched = names if _BATCHED in block else frozenset()
        found |= CompiledCode(names, batched, () if names else (_HIDDEN,))
    return found


_graph_of_key: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def _graphs(key: str) -> list[Any]:
    """The living graphs that were compiled under a key; some have none, and are "None"."""
    if key not in _graph_of_key or key == "None":
        output_code = sys.modules.get("torch._inductor.output_code")
        kind = getattr(output_code, "CompiledFxGraph", None)
        graphs = [one for one in gc.get_objects() if type(one) is kind]
        if key == "None":
            return [graph for graph in graphs if graph._fx_graph_cache_key is None]
        _graph_of_key.update({str(graph._fx_graph_cache_key): graph for graph in graphs})
    return [_graph_of_key[key]] if key in _graph_of_key else []
