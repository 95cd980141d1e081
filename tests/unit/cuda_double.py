"""CUDA for a machine without it: what a session asks of it is noted, and it may be broken."""

from __future__ import annotations

import copy
import threading
from types import SimpleNamespace
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from pytest_kernelprof.gpu import inventory
from pytest_kernelprof.gpu.inventory import Device, Torch

GPU = Device("cuda", 0, "a GPU", "sm_90", 0, {})


def other_functions(functions: Torch, **others: Any) -> Torch:
    """The functions with others in the place of some."""
    changed = copy.copy(functions)
    vars(changed).update(others)
    return changed


class CudaDouble:
    """What our own calls reach in place of CUDA.

    Attributes:
        calls: what was called.
        error: what each call raises, as all do after a device-side assert.
        hangs_s: how long a synchronisation takes, at most until it is released.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.error = ""
        self.hangs_s = 0.0
        self.released = threading.Event()

    def functions(self) -> Torch:
        """torch's, with these in place of CUDA's; its profiler records the CPU alone."""
        return other_functions(
            inventory.bind(torch),
            profiler=_ProfilerOfTheCpu,
            is_initialized=lambda: True,
            default_stream=lambda: SimpleNamespace(query=lambda: self._called("query")),
            sleep=lambda cycles: self._called("sleep"),
            synchronize=self._synchronize,
            exchange_device=lambda index: index,
            put_back_device=lambda index: index,
            count=lambda: 1,
            has_context=lambda index: True,
            is_capturing=lambda: bool(self._called("is_capturing")),
        )

    def _synchronize(self) -> None:
        self.released.wait(self.hangs_s)
        self._called("synchronize")

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.error:
            raise RuntimeError(f"{self.error}\nCUDA kernel errors might be reported elsewhere")


class _ProfilerOfTheCpu:
    def __init__(self, activities: list[Any], **options: Any) -> None:
        self._real = torch.profiler._KinetoProfile(activities=[ProfilerActivity.CPU], **options)
        self.profiler = SimpleNamespace(
            use_device="cuda", config=lambda: self._real.profiler.config()
        )

    def start(self) -> None:
        self._real.start()
