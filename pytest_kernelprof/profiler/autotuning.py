"""Watch autotuners: count their runs, and pause the profiler while one benchmarks inside a block.

Benchmarking one configuration takes some thousand launches, none of which the block asked for.
Recorded, they would take seconds to export and to read. They are not in the block's count; that
they ran is reported as a sign of cold code.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.gpu.inventory import Device, bound, is_capturing, synchronize
from pytest_kernelprof.records.recording import OwnNames
from pytest_kernelprof.system import Real

_STDERR = 2


class Pauses:
    """Pauses and resumes a session of this thread.

    The profiler of a GPU session is this thread's own, and is known to the threads of autograd that
    work for it. The CPU's sees all threads, and torch cannot switch that off and on again.

    Args:
        names: of the annotations that tell our waits from those of the measured code.
    """

    def __init__(self, device: Device, names: OwnNames) -> None:
        self._device = device
        self._names = names
        self._thread = Real.this_thread()
        self._paused: set[Any] = set()

    def pause(self) -> bool:
        """Collect nothing until ``resume``; False where that cannot be done."""
        torch = bound()
        if self._device.kind == "cpu" or not torch.runs_in_this_thread() or is_capturing():
            return False
        # A kernel whose record is on its way would be lost.
        with torch.record_function(self._names.pause), contextlib.suppress(RuntimeError):
            synchronize(self._device)
        activities = torch.module.profiler.ProfilerActivity
        self._paused = {activities.CUDA}
        if Real.this_thread() == self._thread:
            # Operators are recorded by callbacks of a thread: another's are not ours to take off.
            self._paused.add(activities.CPU)
        self._toggle(False)
        return True

    def resume(self) -> bool:
        """Collect again, after a wait for what was not to be collected; False where the profiler
        could not go on. An error of the device is the measured code's, and shows there."""
        with contextlib.suppress(RuntimeError):
            synchronize(self._device)
        try:
            self._toggle(True)
        except RuntimeError:
            return False
        with bound().record_function(self._names.resume):
            return True

    def _toggle(self, on: bool) -> None:
        with _without_stderr():
            bound().toggle_collection(on, self._paused)


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """torch warns of each toggle, from C++; what a test prints would not be its own."""
    try:
        kept = os.dup(_STDERR)
    except OSError:  # it is closed: nothing can be written
        yield
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDERR)
        os.close(nowhere)
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)


TRITON, INDUCTOR = "Triton's autotuner", "Inductor's benchmarker"
MODULES = {"triton.runtime.autotuner": TRITON, "torch._inductor.runtime.benchmarking": INDUCTOR}


class Autotuning:
    """Pauses one session while a known autotuner benches.

    Attributes:
        benched: who benched, each once.
    """

    def __init__(self, session: Pauses) -> None:
        self._session = session
        self._lock = Real.lock()
        self._is_paused = False
        self._lost = False
        self.benched: tuple[str, ...] = ()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Pause for those whose runs are counted, until the block ends.

        Raises:
            IncompleteProfile: at the end, when the session could not go on after a pause.
        """
        _pausing.append(self)
        try:
            yield
        finally:
            _pausing.remove(self)
        if self._lost:
            raise IncompleteProfile(
                "collection was paused while an autotuner benched, and the profiler could not "
                "continue: run the code once before it is measured"
            )

    @contextlib.contextmanager
    def benching(self, who: str) -> Iterator[None]:
        """Pause during a call: the outermost of nested ones, of one thread at a time."""
        with self._lock:
            self.benched = tuple(dict.fromkeys((*self.benched, who)))
            pauses = not self._is_paused and self._session.pause()
            self._is_paused |= pauses
        try:
            yield
        finally:
            if pauses:
                with self._lock:
                    self._is_paused = False
                    self._lost |= not self._session.resume()


def benching_methods(module: ModuleType) -> Sequence[tuple[type, str]]:
    """The methods of a known module that run a configuration to time it; they may call each
    other."""
    if module.__name__ == "triton.runtime.autotuner":
        owner = getattr(module, "Autotuner", None)
        return [(owner, "_bench")] if owner is not None and "_bench" in vars(owner) else []
    base = getattr(module, "Benchmarker", None)
    return [
        (owner, name)
        for owner in vars(module).values()
        if base is not None and inspect.isclass(owner) and issubclass(owner, base)
        for name, method in vars(owner).items()
        if name.startswith("benchmark") and inspect.isfunction(method)
    ]


def loaded(known: Collection[str]) -> Iterator[ModuleType]:
    """Those that are imported. What tests put in the place of a module has no such spec."""
    for name in known:
        module = sys.modules.get(name)
        if module is not None and getattr(getattr(module, "__spec__", None), "name", "") == name:
            yield module


# What is listened to once for all.

Method = Callable[..., Any]

_listening: weakref.WeakSet[Any] = weakref.WeakSet()


def listen(owner: Any, name: str, called: Method) -> bool | None:
    """Have ``called`` called in the place of a method, with the method and what that is called
    with, once for all.

    Returns:
        Whether it was not there before; None if the owner has no such method.
    """
    method = getattr(owner, name, None) if owner is not None else None
    if method is None or method in _listening:
        return None if method is None else False

    @functools.wraps(method)
    def told(*args: Any, **kwargs: Any) -> Any:
        return called(method, *args, **kwargs)

    _listening.add(told)
    setattr(owner, name, told)
    return True


_pausing: list[Autotuning] = []
_runs: list[str] = []
_uncounted: set[str] = set()
_benching_here = threading.local()
_tuned: weakref.WeakKeyDictionary[Any, tuple[int, set[int]]] = weakref.WeakKeyDictionary()


def runs() -> tuple[str, ...] | None:
    """The runs of autotuners in this process so far, in words; None if one cannot be watched."""
    return None if _uncounted else tuple(_runs)


def count_runs(module: ModuleType) -> bool:
    """Count the runs of a known module's autotuner from now on, and pause for them what is watched.

    Of Triton's, all configurations that are benched for one key are one run; of Inductor's
    benchmarker, each candidate. A result that is read from the disk is none.

    Returns:
        Whether they were not counted before.
    """
    bench = functools.partial(_bench, MODULES[module.__name__])
    found = [listen(owner, name, bench) for owner, name in benching_methods(module)]
    _uncounted.update(() if found else [module.__name__])
    return any(found)


def _bench(who: str, bench: Method, tuner: Any, /, *args: Any, **kwargs: Any) -> Any:
    depth = vars(_benching_here).setdefault("depth", [])  # one method calls another
    if not depth and (who != TRITON or _begins_run(tuner, kwargs.get("config"))):
        tuned = getattr(getattr(tuner, "base_fn", None), "__name__", "")
        _runs.append(f"{tuned} by {who}" if tuned else who)
    depth.append(bench)
    with contextlib.ExitStack() as benching:
        benching.callback(depth.pop)
        for one in tuple(_pausing):
            benching.enter_context(one.benching(who))
        return bench(tuner, *args, **kwargs)


def _begins_run(tuner: Any, config: Any) -> bool:
    """Whether the configuration is the first of a run: a run benches each once, and then keeps the
    fastest in the autotuner's cache."""
    kept, benched = len(getattr(tuner, "cache", ())), id(config)
    before, several = _tuned.get(tuner, (-1, set()))
    begins = kept != before or benched in several
    _tuned[tuner] = (kept, {benched} if begins else several | {benched})
    return begins


class Importing:
    """A finder of modules that tells when a known one has been imported, and finds as ever.

    Args:
        known: by the name of a module what it is told to.
    """

    def __init__(self, known: Mapping[str, Callable[[ModuleType], object]]) -> None:
        self._known = known

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find as the finders after this one do, and tell when the module has been executed."""
        if name not in self._known:
            return None
        finders = list(sys.meta_path)
        # Those before this one have been asked.
        others = finders[finders.index(self) + 1 :] if self in finders else []
        found = (one.find_spec(name, path, target) for one in others if hasattr(one, "find_spec"))
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_tell(module: ModuleType) -> None:
                execute(module)
                self._known[name](module)

            spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec
