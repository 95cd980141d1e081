"""Memory on the GPU that outlives a launch, for kernels whose programs must agree.

Tickets and counters must be zero when a kernel starts, and a fresh ``torch.zeros`` for each call
would be a second launch. Instead a kernel leaves what it got as the next launch wants to find it:
counters all zero, or, under a name for that ``use``, whatever it needs. Whose may be shared?

* Calls of one stream run one after the other: one slot per device, stream, size and use will do.
* Calls captured into a CUDA graph run whenever it is replayed, on any stream, so they share with
  nobody outside: each capture gets slots of its own, for ever. (Two graphs captured on one stream
  may well be replayed at the same time; one graph never runs twice at once.) Within a capture
  the calls of one stream run one after the other again.

Slots are cut from chunks that are allocated here and never freed. A chunk must not come from a
graph's private memory pool, where another graph's tensors could take its place, so it is never
allocated during capture. Nor is it allocated in the caller's thread: PyTorch's CUDA graph trees
send all that their thread allocates to a private pool, in the warm-up runs too. What a capture
will need is laid by beforehand, by the ordinary calls that come before any capture as a warm-up.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

CHUNK_INTS = 1 << 20
"""Numbers allocated at a time: 4 MiB, enough for 16,384 small slots."""

SMALLEST_INTS = 64
"""The smallest slot: 256 bytes, so that no two lie in one cache line."""

Key = tuple[int, int, int, Hashable]
"""Capture (0: none), stream, size and use."""


class WorkspaceExhausted(RuntimeError):  # noqa: N818  (what is exhausted is the state of things)
    """A call being captured into a CUDA graph found no free slot, and none can be made then."""


def slot(device: torch.device, ints: int, use: Hashable = None) -> torch.Tensor:
    """At least ``ints`` int32 numbers on ``device``, for one launch on the current stream.

    1-D, contiguous, aligned to 256 bytes; zero at first. A kernel without a ``use`` of its own must
    leave all of them zero; a launch with one finds what the last of that use left. A GPU must be
    the current device. Calls of one use and size on one stream get the same slot, those that are
    being captured one of their capture's.

    Raises `WorkspaceExhausted` when there is no slot left for a capture.
    """
    arena = _arenas.get(device) or _arena(device)
    size = max(SMALLEST_INTS, 1 << (ints - 1).bit_length())
    key = (_capture(device), _stream(device), size, use)
    lent = arena.ready.get(key)
    return arena.lend(key) if lent is None else lent


def reserve(device: torch.device, ints: int = CHUNK_INTS) -> None:
    """See to it that slots of ``ints`` numbers together are free, before a large capture."""
    _arena(device).reserve(ints)


class Arena:
    """The slots of one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.ready: dict[Key, torch.Tensor] = {}
        """The slots that may be lent without a further thought."""
        self._lent: dict[Key, torch.Tensor] = {}
        self._free: torch.Tensor | None = None
        self._spare = CHUNK_INTS // 2
        """How much is laid by for captures: half a chunk, or two of the largest slots."""
        self._lock = threading.Lock()

    def lend(self, key: Key) -> torch.Tensor:
        """The slot of this key, cut now if there is none; where nothing is being captured, more is
        laid by."""
        capture, _, size, _ = key
        with self._lock:
            cut = 0 if key in self._lent else size
            if not capture:
                self._spare = max(self._spare, 2 * size)
                self._grow(cut + self._spare)
            elif cut > self._room():
                raise WorkspaceExhausted(
                    f"no free workspace of {size} numbers on {self.device}, and none can be "
                    "allocated while a CUDA graph is being captured; make the call once before "
                    "the capture, or lay by more with fused_mlp.workspace.reserve"
                )
            if cut:
                self._lent[key] = self._cut(size)
            self.ready[key] = self._lent[key]
            if capture and self._room() < self._spare:  # the next ordinary call comes here again
                self.ready = {k: v for k, v in self.ready.items() if k[0]}
            return self._lent[key]

    def reserve(self, ints: int) -> None:
        """Have ``ints`` numbers free."""
        with self._lock:
            self._grow(ints)

    def _room(self) -> int:
        return 0 if self._free is None else self._free.numel()

    def _grow(self, ints: int) -> None:
        if self._room() < ints:  # what is left of the old chunk is lost
            self._free = _zeros_by_another_thread(self.device, max(ints, CHUNK_INTS))

    def _cut(self, size: int) -> torch.Tensor:
        assert self._free is not None
        cut, self._free = self._free[:size], self._free[size:]
        return cut


_arenas: dict[torch.device, Arena] = {}


def _arena(device: torch.device) -> Arena:
    return _arenas.setdefault(device, Arena(device))


def _stream(device: torch.device) -> int:
    """What orders calls: the GPU's current stream; on a CPU (the interpreter), the thread."""
    if device.type == "cuda":
        return torch._C._cuda_getCurrentRawStream(device.index)  # as Triton itself asks
    return threading.get_ident()


_uncounted = itertools.count(-1, -1)


def _capture(device: torch.device) -> int:
    """The number of the capture that the current stream is in, as CUDA counts them; 0 for none.

    PyTorch does not tell it. Where the driver does not either, each call counts as a capture.
    """
    if device.type != "cuda" or not torch._C._cuda_isCurrentStreamCapturing():
        return 0
    status, number = ctypes.c_int(), ctypes.c_uint64()
    ask = _capture_info()
    stream = ctypes.c_void_p(_stream(device))
    if ask is None or ask(stream, ctypes.byref(status), ctypes.byref(number), None, None, None):
        return next(_uncounted)
    return number.value


@functools.cache
def _capture_info() -> Any:
    """The driver's ``cuStreamGetCaptureInfo``, or None if it has no such function."""
    try:
        return ctypes.CDLL("libcuda.so.1").cuStreamGetCaptureInfo_v2
    except (OSError, AttributeError):
        return None


def _zeros_by_another_thread(device: torch.device, ints: int) -> torch.Tensor:
    """Zeros that every stream may use at once, from the ordinary pool (see the top)."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_zeros, device, ints).result()


def _zeros(device: torch.device, ints: int) -> torch.Tensor:
    zeros = torch.zeros(ints, dtype=torch.int32, device=device)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return zeros
