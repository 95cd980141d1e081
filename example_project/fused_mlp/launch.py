"""Launching a compiled kernel straight away, without asking Triton each time which one it is.

``kernel[grid](...)`` looks at every argument of every call, to find or compile the variant for
these types, these alignments, these constants. That takes Python tens of microseconds, more than
a decode step takes the GPU. What decides here is known to the caller as a short key, such as the
`Plan` of a problem. So the compiled kernel is kept under that key.

It is launched by the function that Triton makes for its signature, with addresses in place of
tensors (of a tensor Triton asks the driver whether it lies on a GPU, each time), with tensor maps
that are at hand in place of descriptors (see `tensor_maps`), and without the hooks of profilers,
where there are none.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from triton import knobs
from triton.runtime import driver

from .problem import Problem
from .tensor_maps import Encoding, Tiles, pieces

INTERPRET = os.environ.get("TRITON_INTERPRET") == "1"

MOST_VARIANTS = 4096
"""Of one kernel; after so many it begins again."""

Arguments = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """What a launch depends on beside its tensors. Each problem has one, compared by identity.

    ``constants``: all that follows the tensors in the kernel's arguments. ``ints``, ``use``: how
    much workspace, and whose it shares. ``kind``: one for all numbers of rows that are alike, where
    the kernel is compiled for any.
    """

    programs: int
    constants: Arguments
    options: Mapping[str, Any]
    ints: int = 0
    use: Hashable = None
    kind: object = None


def kind_of(p: Problem, *numbers: int) -> object:
    """What problems have in common that differ in their rows, if ``numbers`` that are handed to the
    kernel are alike to Triton, which tells apart 1 and multiples of 16."""
    return _kind(p._replace(rows=0), tuple((n == 1, n % 16 == 0) for n in numbers))


@functools.lru_cache(maxsize=1024)
def _kind(*told_apart: object) -> object:
    return object()


class Launcher:
    """One kernel and its compiled variants.

    The key of a call must tell apart all that Triton would: dtypes, which arguments are None,
    whether an integer is 1 or a multiple of 16, whether an address is, the tiles of matrices, and
    each constant. The current device is told apart here.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._launches: dict[Hashable, Callable[[Arguments, Arguments], None]] = {}

    def __call__(
        self,
        key: Hashable,
        programs: int,
        arguments: Arguments,
        constants: Arguments,
        options: Mapping[str, Any],
    ) -> None:
        """Launch ``programs`` programs; arguments, then constants, in the kernel's own order.

        ``options`` are Triton's (num_warps, num_stages, ...), looked at when compiling only.

        Raises RuntimeError with CUDA's words where it refuses the launch.
        """
        if INTERPRET:
            self._kernel[(programs,)](*arguments, *constants, **options)
            return
        device = torch._C._cuda_getDevice()
        launch = self._launches.get((programs, device, key))
        if launch is None:
            grid = (programs,)
            usual = described(arguments)
            compiled = self._kernel.warmup(*usual, *constants, grid=grid, **options)
            if len(self._launches) >= MOST_VARIANTS:
                self._launches.clear()
            launch = self._launches[programs, device, key] = straight(compiled, programs, device)
        launch(arguments, constants)


def alignment(*tensors: torch.Tensor | None) -> tuple[bool | None, ...]:
    """What Triton tells apart of addresses, for a key: of tensors that may begin anywhere."""
    return tuple(t if t is None else t.data_ptr() % 16 == 0 for t in tensors)


def described(arguments: Arguments) -> Arguments:
    """With Gluon's own descriptors in place of ours, as Triton takes them."""
    return tuple(a.descriptor() if isinstance(a, Tiles) else a for a in arguments)


def straight(compiled: Any, programs: int, device: int) -> Callable[[Arguments, Arguments], None]:
    """A function that launches a compiled kernel on the current stream of ``device``."""
    usual = compiled[(programs, 1, 1)]  # loads the kernel
    function, packed = compiled.function, compiled.packed_metadata
    stream_of = torch._C._cuda_getCurrentRawStream
    try:
        encodings = _encodings(compiled.metadata)
        run = _run_with_maps(compiled) if encodings else compiled.run
    except (AttributeError, TypeError):  # a Triton of another make has its maps encoded each time
        return lambda arguments, constants: usual(*described(arguments), *constants)

    def launch(arguments: Arguments, constants: Arguments) -> None:
        if hooked():
            usual(*described(arguments), *constants)
            return
        values: list[Any] = []
        matrices = iter(encodings)
        for a in arguments:
            if isinstance(a, torch.Tensor):
                values.append(a.data_ptr())
            elif isinstance(a, Tiles):
                values += pieces(device, a, next(matrices))
            else:
                values.append(a)
        stream = stream_of(device)
        run(programs, 1, 1, stream, function, packed, None, None, None, *values, *constants)

    return launch


def hooked() -> bool:
    """Has a profiler of Triton's asked to be told of launches?"""
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))


def _encodings(metadata: Any) -> list[Encoding]:
    """Of a kernel's matrices, in the order of its arguments."""
    known = getattr(metadata, "tensordesc_meta", None) or ()
    return [Encoding(**{**one, "block_size": tuple(one["block_size"])}) for one in known]


def _run_with_maps(compiled: Any) -> Callable[..., None]:
    """Triton's launcher of the kernel for a signature in which pieces stand already where its own
    launcher puts them in the place of each descriptor."""
    signature: list[Any] = []
    for kind in compiled.src.signature.values():
        is_matrix = isinstance(kind, str) and kind.startswith("tensordesc")
        signature += ("nvTmaDesc", "i32", "i32", "i64", "i64") if is_matrix else (kind,)
    source = SimpleNamespace(signature=dict(enumerate(signature)))
    metadata = compiled.metadata._replace(tensordesc_meta=None)
    run: Callable[..., None] = driver.active.launcher_cls(source, metadata)
    return run
