"""Empties the device's L2 cache before a timed round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pytest_kernelprof.device.bindings import without_modes
from pytest_kernelprof.device.inventory import load_torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_kernelprof.device.inventory import Device

_FLUSHED_ROW = 4096


def flusher(device: Device, *, wanted: bool) -> Callable[[], None]:
    """What to call before each round: a flush, or nothing where none is wanted."""
    return L2Flush(device) if wanted else _nothing


def _nothing() -> None:
    """No flush."""


class L2Flush:
    """Reads a buffer larger than the device's L2, so that a round starts with a cold cache.

    Reads, since writing would leave the cache full of lines that the round has to write back: a
    copy of 67 MB takes 7 % longer then on an H200. The buffers are kept for the process:
    allocating them anew would disturb the user's allocator.
    """

    _buffers: ClassVar[dict[int, tuple[Any, Any]]] = {}

    def __init__(self, device: Device) -> None:
        self._device = device

    def __call__(self) -> None:
        """Flush; the caller synchronises. Nothing on the CPU, or where L2 is unknown."""
        if self._device.kind != "cuda" or not self._device.l2_bytes:
            return
        torch = load_torch()
        with without_modes():
            buffers = self._buffers.get(self._device.index)
            if buffers is None:
                # Rows and their maxima: a reduction along rows needs no memory beside these.
                rows = 2 * self._device.l2_bytes // (4 * _FLUSHED_ROW)
                buffer = torch.zeros((rows, _FLUSHED_ROW), device="cuda")
                buffers = self._buffers[self._device.index] = buffer, buffer.new_empty(rows)
            torch.amax(buffers[0], 1, out=buffers[1])
