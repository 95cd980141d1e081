"""Launching a compiled kernel straight away, without asking Triton each time which one it is.

``kernel[grid](...)`` looks at every argument of every call, to find or compile the variant for
these types, these alignments, these constants. That takes Python tens of microseconds, more than
a decode step takes the GPU. What decides here is known to the caller as a short key: shapes,
dtype, constants. So the compiled kernel is kept under that key.

It is launched by the function that Triton made for its signature, ``compiled.run``, with addresses
in place of tensors (of a tensor Triton asks the driver whether it lies on a GPU, each time), and
without the hooks of profilers, where there are none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from triton import knobs

INTERPRET = os.environ.get("TRITON_INTERPRET") == "1"

Arguments = tuple[Any, ...]


class Launcher:
    """One kernel and its compiled variants.

    The key of a call must tell apart all that Triton would: dtypes, which arguments are None,
    whether an integer is 1 or a multiple of 16, whether an address is, and each constant. The
    current device is told apart here.
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
        device = torch.cuda.current_device()
        launch = self._launches.get((programs, device, key))
        if launch is None:
            compiled = self._kernel.warmup(*arguments, *constants, grid=(programs,), **options)
            launch = self._launches[programs, device, key] = straight(compiled, programs, device)
        launch(arguments, constants)


def straight(compiled: Any, programs: int, device: int) -> Callable[[Arguments, Arguments], None]:
    """A function that launches a compiled kernel on the current stream of ``device``."""
    usual = compiled[(programs, 1, 1)]  # loads the kernel
    run, function, packed = compiled.run, compiled.function, compiled.packed_metadata
    stream_of = torch._C._cuda_getCurrentRawStream

    def launch(arguments: Arguments, constants: Arguments) -> None:
        if hooked():
            usual(*arguments, *constants)
            return
        where = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
        run(
            programs,
            1,
            1,
            stream_of(device),
            function,
            packed,
            None,
            None,
            None,
            *where,
            *constants,
        )

    return launch


def hooked() -> bool:
    """Has a profiler of Triton's asked to be told of launches?"""
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))
