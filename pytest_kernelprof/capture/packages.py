"""AOTInductor's packages on the CPU: whether what they run leaves events in a trace.

A package is a library that was compiled elsewhere, and its call leaves no event of its own. Its
kernels do if Inductor's switch for it was on: the library then holds the call that records them.
"""

from __future__ import annotations

import functools
import mmap
import os
import re
from dataclasses import dataclass, field

from pytest_kernelprof.capture.compiled_code import TURN_ON, CompiledCode
from pytest_kernelprof.device.inventory import load_torch

_PACKAGE = b"AOTInductorModelContainerRun"
_RECORDS = b"RecordFunction"
_KERNEL = re.compile(rb"\0(graph_\d+_\w+|aoti_torch_\w+)(?=\0)")
_BATCHED = re.compile(r"graph_\d+_.*gemm")

_HIDDEN = "AOTInductor's {} ran kernels that leave no event in the trace: " + TURN_ON
_NOT_FOUND = (
    "a package of AOTInductor ran whose library cannot be found, so it cannot be known whether its "
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
