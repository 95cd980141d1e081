"""Knows when Triton's or Inductor's autotuner benches inside a block, and pauses the profiler.

Benching one configuration takes some thousand launches, none of which the block asked for:
recorded, they take seconds to export and to read. They are no part of the block's count; that they
were there is told as a sign of cold code.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import inspect
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

from pytest_kernelprof.errors import IncompleteProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

TRITON, INDUCTOR = "Triton's autotuner", "Inductor's benchmarker"
_MODULES = {
    "triton.runtime.autotuner": TRITON,
    "torch._inductor.runtime.benchmarking": INDUCTOR,
}

Method = tuple[type, str]


class Pausable(Protocol):
    """A profiler session, as far as it is known here."""

    def pause(self) -> bool:
        """Collect nothing until ``resume``; False where that cannot be done."""

    def resume(self) -> bool:
        """Collect again; False where that cannot be done."""


class Autotuning:
    """Watches the known autotuners during one session; use as a context manager.

    Their methods are wrapped as long as it is entered, also those of a module that is imported
    meanwhile: the first compilation of a process imports Inductor.

    Attributes:
        benched: who benched, each once.

    Raises:
        IncompleteProfile: on exit, when the session could not go on after a pause.
    """

    def __init__(self, session: Pausable) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._is_paused = False
        self._lost = False
        self._wrapped: list[tuple[Method, Any]] = []
        self._finder = _Importing(self._wrap)
        self.benched: tuple[str, ...] = ()

    def __enter__(self) -> Autotuning:
        for name in _MODULES:
            if name in sys.modules:
                self._wrap(sys.modules[name])
        sys.meta_path.insert(0, self._finder)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.suppress(ValueError):  # the block has put its own in place of all finders
            sys.meta_path.remove(self._finder)
        for (owner, name), method in reversed(self._wrapped):
            setattr(owner, name, method)
        if self._lost and kind is None:
            raise IncompleteProfile(
                "collection was paused while an autotuner benched, and the profiler could not "
                "continue: run the code once before it is measured"
            )

    def _wrap(self, module: ModuleType) -> None:
        who = _MODULES[module.__name__]
        for owner, name in benching_methods(module):
            method = owner.__dict__[name]
            self._wrapped.append(((owner, name), method))
            setattr(owner, name, self._told(method, who))

    def _told(self, method: Callable[..., Any], who: str) -> Callable[..., Any]:
        @functools.wraps(method)
        def bench(*args: Any, **kwargs: Any) -> Any:
            pauses = self._begin(who)
            try:
                return method(*args, **kwargs)
            finally:
                if pauses:
                    self._end()

        return bench

    def _begin(self, who: str) -> bool:
        """Whether this call has paused: the outermost of nested ones, of one thread at a time."""
        with self._lock:
            self.benched = tuple(dict.fromkeys((*self.benched, who)))
            if self._is_paused:
                return False
            self._is_paused = self._session.pause()
            return self._is_paused

    def _end(self) -> None:
        with self._lock:
            self._is_paused = False
            self._lost |= not self._session.resume()


def benching_methods(module: ModuleType) -> Sequence[Method]:
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


class _Importing:
    """A finder of modules that tells when a known one has been imported, and finds as ever."""

    def __init__(self, imported: Callable[[ModuleType], None]) -> None:
        self._imported = imported

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_tell(module: ModuleType) -> None:
                execute(module)
                self._imported(module)

            spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec
