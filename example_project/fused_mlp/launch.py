"""Launching a compiled kernel straight away, without asking Triton each time which one it is.

``kernel[grid](...)`` looks at every argument of every call, to find or compile the variant for
these types, these alignments, these constants. That takes Python tens of microseconds, more than
a decode step takes the GPU. What decides here is known to the caller as a short key: shapes,
dtype, constants. So the compiled kernel is kept under that key, and launched as Triton's tutorial
on fused softmax launches it: ``compiled[grid](*all_arguments)``.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from typing import Any

INTERPRET = os.environ.get("TRITON_INTERPRET") == "1"


class Launcher:
    """One kernel and its compiled variants.

    The key of a call must tell apart all that Triton would: dtypes, which arguments are None,
    whether an integer is 1 or a multiple of 16, whether an address is, and each constant.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._launches: dict[Hashable, Any] = {}

    def __call__(
        self,
        key: Hashable,
        programs: int,
        arguments: tuple[Any, ...],
        constants: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> None:
        """Launch ``programs`` programs; arguments, then constants, in the kernel's own order.

        ``options`` are Triton's (num_warps, num_stages, ...), looked at when compiling only.
        """
        if INTERPRET:
            self._kernel[(programs,)](*arguments, *constants, **options)
            return
        launch = self._launches.get((programs, key))
        if launch is None:
            compiled = self._kernel.warmup(*arguments, *constants, grid=(programs,), **options)
            launch = self._launches[programs, key] = compiled[(programs, 1, 1)]
        launch(*arguments, *constants)
