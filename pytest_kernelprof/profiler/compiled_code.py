"""Compiled code: how often torch.compile and Triton compiled, where torch.compile broke a graph,
and which kernels leave no event.

``torch._dynamo.reset()`` clears dynamo's own count of attempts and the callbacks that users
register, and anybody may clear ``counters``. So the count of attempts is replaced by one that tells
us of each, and what decides on the limit and what announces a compilation are listened to.

A call that is warm traces nothing. So the breaks of a frame are kept as it is compiled, by its
compile id, and the trace names the ids of the frames that ran ("Torch-Compiled Region: 0/0").

Triton's hooks are one slot each, which belongs to the user. So the method that compiles a new
specialisation, and calls them, is listened to.

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
import inspect
import mmap
import os
import re
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from types import ModuleType
from typing import Any, NamedTuple

from pytest_kernelprof.errors import first_line
from pytest_kernelprof.gpu.inventory import load_torch
from pytest_kernelprof.gpu.procfs import mapped_files
from pytest_kernelprof.profiler import autotuning
from pytest_kernelprof.profiler.autotuning import Method, listen
from pytest_kernelprof.profiler.triton_kernels import PLACES, watch_loading

Look = Callable[[Any], None]


@dataclass(slots=True)
class Compilations:
    """What the compilers did so far in this process, or between two looks.

    Attributes:
        recompiles: frames that torch.compile compiled, refused attempts among them, and backward
            graphs that were compiled when they first ran. None where this torch cannot be asked.
        refused: attempts beyond ``recompile_limit``: the code runs without the compiler from then
            on, and nothing is counted any more.
        may_refuse: whether any attempt was refused, or may have been before the first look.
        jit_compiled: new specialisations of Triton's functions, in words; None where unknown.
        autotunes: runs of autotuners, in words; None where unknown.
        reused: compile ids that torch.compile gave once more, for other code.
        unwatched: how often one of the others was loaded without us noticing.
        left: frames that a graph break left to run uncompiled, each with the break in words; None
            where this torch does not tell of breaks.
    """

    recompiles: int | None = 0
    refused: int = 0
    may_refuse: bool = False
    jit_compiled: tuple[str, ...] | None = ()
    autotunes: tuple[str, ...] | None = ()
    reused: int = 0
    unwatched: int = 0
    left: tuple[tuple[weakref.ref[Any], str], ...] | None = ()

    def since(self, before: Compilations) -> Compilations:
        """What was done since an earlier look."""
        names = [one.name for one in fields(self)]
        found = {name: _later(getattr(self, name), getattr(before, name)) for name in names}
        if found["unwatched"]:
            found |= {"jit_compiled": None, "autotunes": None}
        return Compilations(**found)

    def noted(self) -> dict[str, Any]:
        """What a recording keeps of them."""
        return {name: getattr(self, name) for name in _NOTED}


_NOTED = ("recompiles", "refused", "may_refuse", "jit_compiled", "autotunes", "reused")


def _later(now: Any, then: Any) -> Any:
    if now is None or then is None or isinstance(now, bool):
        return None if then is None else now
    return now[len(then) :] if isinstance(now, tuple) else now - then


def compilations() -> Compilations:
    """What the compilers did in this process; compare two looks.

    A compiler is watched from the first look on, or from when it is loaded after that; how often
    torch.compile compiled before is known as far as nobody reset it.
    """
    watch_compilers()
    if not getattr(_of_dynamo("convert_frame", "input_codes"), "seen", True):
        _breaks_of_id.clear()  # torch._dynamo.reset() was called: no code is left of those
    is_unknown = triton_interprets() or _seen.jit_compiled is None
    compiled = None if is_unknown else tuple(_specialised)
    return replace(_seen, autotunes=autotuning.runs(), jit_compiled=compiled)


def triton_interprets() -> bool:
    """Whether Triton interprets functions (TRITON_INTERPRET), which it never compiles then."""
    # Versions without knobs take "1" alone.
    runtime = getattr(sys.modules.get("triton.knobs"), "runtime", None)
    return bool(getattr(runtime, "interpret", os.environ.get("TRITON_INTERPRET") == "1"))


def watch_compilers() -> None:
    """Watch those compilers that are loaded, and others from when they are; load none."""
    if _importing not in sys.meta_path:
        sys.meta_path.insert(0, _importing)
    for module in autotuning.loaded(_WATCHED):
        # One that another thread imports is told at its end.
        if not getattr(module.__spec__, "_initializing", False):
            _seen.unwatched += _WATCHED[module.__name__](module)


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


def _watch_dynamo(convert_frame: ModuleType) -> bool:
    attempts = getattr(convert_frame, "FRAME_COMPILE_COUNTER", None)
    if isinstance(attempts, _Telling):
        return False
    if isinstance(attempts, collections.Counter):
        _seen.recompiles = (_seen.recompiles or 0) + sum(attempts.values())
        # A frame that was tried more than once may have reached the limit before we looked.
        _seen.may_refuse |= any(times > 1 for times in attempts.values())
        convert_frame.FRAME_COMPILE_COUNTER = _Telling(attempts)  # type: ignore[attr-defined]
    else:
        _seen.recompiles = None
    if listen(convert_frame, "exceeds_recompile_limit", _note_refusal) is None:
        _seen.may_refuse = True
    handler = _of_dynamo("callback", "CompilationCallbackHandler")
    listen(handler, "install_callbacks", _note_backward)
    found = (
        listen(_of_dynamo("convert_frame", "ConvertFrameAssert"), "__call__", _note_frame),
        listen(_of_dynamo("output_graph", "OutputGraph"), "compile_subgraph", _note_breaks),
        listen(_of_dynamo("exc", "SkipFrame"), "__init__", _note_skip),
    )
    if None in found:
        _seen.left = None
    folder = os.path.dirname(str(load_torch().__file__)) + os.sep
    for code in getattr(_of_dynamo("convert_frame", "input_codes"), "seen", ()):
        if code() and not code().co_filename.startswith(folder):  # torch's own is never compiled
            _leave(code, f"{code().co_name} was tried before torch.compile was watched")
    return False


def _of_dynamo(module: str, name: str) -> Any:
    return getattr(sys.modules.get(f"torch._dynamo.{module}"), name, None)


def _note_refusal(exceeds: Method, /, *args: Any, **kwargs: Any) -> Any:
    """Decide whether the limit is reached, and note each yes."""
    answer = exceeds(*args, **kwargs)
    if answer[0]:
        _seen.refused += 1
        _seen.may_refuse = True
    return answer


def _note_backward(
    announce: Method, handler: Any, trigger: Any, /, *args: Any, **kwargs: Any
) -> Any:
    """Announce a compilation, and note that of a backward graph at its first run: no frame is tried
    for it."""
    if getattr(trigger, "name", "") == "LAZY_BACKWARD":
        _count_one()
    return announce(handler, trigger, *args, **kwargs)


# Breaks of graphs.

_UNKNOWN_BREAKS = "not available: this torch does not tell the graph breaks of a frame"
_RESET = "; call torch._dynamo.reset() before the measured code"
_NOT_WATCHED = f"not available: code ran that was compiled before torch.compile was watched{_RESET}"
_MAY_RUN = f"not available: code that was left uncompiled earlier may have run ({{}}){_RESET}"


@dataclass(slots=True, eq=False)
class _Attempt:
    """To compile one frame. Tracing may begin anew, each time with another ``graph``."""

    graph: Any = None
    id: str | None = None
    breaks: dict[str, None] = field(default_factory=dict)
    why: str = ""


_attempts: list[_Attempt] = []  # one inside another, under the compiler's lock
_breaks_of_id: dict[str, tuple[str, ...]] = {}
_last_try: dict[int, int] = {}
"""By the id of a code, how many frames had been left when it was last tried."""


def graph_breaks(regions: Iterable[str], before: Compilations) -> dict[str, Any]:
    """The graph breaks of what ran: each line with its reason once, since a break inside a function
    breaks its callers, too; and each frame that a break left uncompiled. For the recording.

    Args:
        regions: what the trace calls the compiled frames that ran.
        before: a look before the first call of the code.
    """
    later, ids = compilations().since(before).left, {name.partition(": ")[2] for name in regions}
    tried = _of_dynamo("convert_frame", "input_codes") or ()
    why = "" if _breaks_of_id.keys() >= ids else _NOT_WATCHED
    of_code = ((code(), at, words) for at, (code, words) in enumerate(before.left or ()))
    # One that is tried once more, after a reset, is left no longer.
    if maybe := [
        w for code, at, w in of_code if code in tried and at >= _last_try.get(id(code), 0)
    ]:
        why = _MAY_RUN.format(maybe[0])
    why = _UNKNOWN_BREAKS if later is None else why
    found = [words for one in sorted(ids) for words in _breaks_of_id.get(one, ())]
    found += [words for _, words in later or ()]
    return {"graph_breaks": None if why else (*dict.fromkeys(found),), "graph_breaks_why": why}


def _leave(code: weakref.ref[Any], words: str) -> None:
    if _seen.left is not None:
        _seen.left += ((code, words),)


def _note_frame(convert: Method, converter: Any, frame: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Compile a frame, and note its breaks, and those that leave it uncompiled."""
    attempt, code = _Attempt(), frame.f_code
    _attempts.append(attempt)
    _last_try[id(code)] = len(_seen.left or ())
    try:
        result = convert(converter, frame, *args, **kwargs)
        if getattr(result, "guarded_code", None) is not None and attempt.id is not None:
            _seen.reused += attempt.id in _breaks_of_id
            _breaks_of_id[attempt.id], attempt.why = tuple(attempt.breaks), ""
        return result
    except Exception as error:
        attempt.why = _break_words(error, getattr(error, "real_stack", None) or ())
        raise
    finally:
        _attempts.remove(attempt)
        # One that has to be a whole graph raises, and does not run.
        if attempt.why and not getattr(converter, "_one_graph", False):
            _leave(weakref.ref(code), f"{code.co_name} runs uncompiled, {attempt.why}")


def _note_breaks(compile_subgraph: Method, graph: Any, /, *args: Any, **kwargs: Any) -> Any:
    """End a graph, and note the reason where that is a break."""
    reasons = [one for one in (*args, *kwargs.values()) if hasattr(one, "graph_break")]
    breaks = (_break_words(one.reason, one.user_stack) for one in reasons if one.graph_break)
    for attempt in _attempts[-1:]:
        kept = attempt.breaks if attempt.graph is graph else {}
        attempt.graph, attempt.breaks = graph, kept | dict.fromkeys(breaks)
        # Without a reason nothing is known of the frame.
        context = sys.modules["torch._guards"].CompileContext
        attempt.id = str(context.current_compile_id()) if reasons else None
    return compile_subgraph(graph, *args, **kwargs)


def _note_skip(make: Method, error: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Make the error that skips a frame, and note the reason if that is a break."""
    for attempt in _attempts[-1:]:
        attempt.why = _break_words(args[0]) if "graph break" in str(args) else ""
    return make(error, *args, **kwargs)


def _break_words(reason: Any, stack: Sequence[Any] = ()) -> str:
    """The first line of a reason, and the user's line."""
    words = first_line(getattr(reason, "msg", reason))
    return words + "".join(f" at {one.filename}:{one.lineno}" for one in [*stack][-1:])


# Specialisations of Triton's functions. Threads compile at once, which a list stands.

_specialised: list[str] = []


def _watch_triton(jit: ModuleType) -> bool:
    found = listen(getattr(jit, "JITFunction", None), "_do_compile", _note_specialisation)
    if found is None:
        _seen.jit_compiled = None
    return bool(found)


def _note_specialisation(compile_it: Method, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Compile a new specialisation, or read it from the disk, and note it."""
    by = "of unknown arguments"
    with contextlib.suppress(Exception):  # of a Triton that names them otherwise
        bound = inspect.signature(compile_it).bind(function, *args, **kwargs).arguments
        by = _specialised_by(function, bound).replace("tt.divisibility", "divisible by")
    compiled = compile_it(function, *args, **kwargs)
    if compiled is not None:  # a hook may refuse
        _specialised.append(f"{getattr(function, '__name__', 'kernel')}[{by}]")
    return compiled


def _specialised_by(function: Any, new: Mapping[str, Any]) -> str:
    """The arguments by which a specialisation differs from the nearest one that exists."""
    fixed = _fixed_by(
        function.arg_names, new["signature"], new["constexprs"], new["attrs"], new["options"]
    )
    differences: list[str] = []
    for kernel in list(function.device_caches[new["device"]][0].values()):
        src = getattr(kernel, "src", None)  # of one that is being compiled there is none
        if src is not None:
            was = _fixed_by(
                function.arg_names, src.signature, src.constants, src.attrs, kernel.metadata
            )
            new_of = {name: of for name, of in fixed.items() if was.get(name) != of}
            told = (f"{name} = {of}, was {was.get(name)}" for name, of in new_of.items())
            differences.append(" and ".join(told))
    return min(differences, key=len, default="its first specialisation") or "an option"


def _fixed_by(
    names: Sequence[str], signature: Any, constants: Any, attributes: Any, options: Any
) -> dict[str, str]:
    """What a specialisation fixes of each argument and of the launch, by name."""
    found = {name: str(kind) for name, kind in signature.items()}
    found |= {names[at]: repr(value)[:40] for (at, *_), value in constants.items()}
    for (at, *_), several in attributes.items():
        found[names[at]] += "".join(f" {key} {value}" for key, value in several)
    launch = ("num_warps", "num_stages", "num_ctas")
    return found | {one: str(getattr(options, one)) for one in launch if hasattr(options, one)}


_WATCHED: dict[str, Callable[[ModuleType], bool]] = {
    "torch._dynamo.convert_frame": _watch_dynamo,
    "triton.runtime.jit": _watch_triton,
    **dict.fromkeys(autotuning.MODULES, autotuning.count_runs),
    **dict.fromkeys(PLACES, watch_loading),
}
_importing = autotuning.Importing(_WATCHED)


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
    called, claimed = (
        {match[1] for match in map(_CALLED.fullmatch, names) if match}
        for names in (operators, annotations)
    )
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
