"""Zeroed counters in GPU memory for kernels whose programs must agree; no kernel to zero them.

A fresh ``torch.zeros`` for each call would be a second launch. Instead a kernel leaves the
counters as it found them, all zero, and the next call takes them again. Whose may be shared?

* Calls of one stream run one after the other: one slot per device, stream and size will do.
* A call captured into a CUDA graph runs whenever the graph is replayed, on any stream, so it
  shares with nobody: each gets a slot of its own, for ever. (Two graphs captured on one stream
  may well be replayed at the same time.)

Slots are cut from chunks that are allocated here and never freed. A chunk must not come from a
graph's private memory pool, where another graph's tensors could take its place, so it is never
allocated during capture. Nor is it allocated in the caller's thread: PyTorch's CUDA graph trees
send all that their thread allocates to a private pool, in the warm-up runs too. What a capture
will need is laid by beforehand, by the ordinary calls that come before any capture as a warm-up.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

CHUNK_INTS = 1 << 20
"""Numbers allocated at a time: 4 MiB, enough for 16,384 captured calls with few counters."""

SMALLEST_INTS = 64
"""The smallest slot: 256 bytes, so that no two lie in one cache line."""


class WorkspaceExhausted(RuntimeError):  # noqa: N818  (what is exhausted is the state of things)
    """A call being captured into a CUDA graph found no free slot, and none can be made then."""


def slot(device: torch.device, ints: int) -> torch.Tensor:
    """At least ``ints`` zeroed int32 numbers on ``device``, for one launch on the current stream.

    1-D, contiguous, aligned to 256 bytes. The kernel must leave all of them zero. A GPU must be
    the current device. Ordinary calls that pass one size on one stream get the same slot; a call
    that is being captured gets one that nobody had or will have.

    Raises `WorkspaceExhausted` when there is no slot left for a captured call.
    """
    arena = _arena(device)
    size = max(SMALLEST_INTS, 1 << (ints - 1).bit_length())
    if _capturing(device):
        return arena.give_away(size)
    key = (_stream(device), size)
    lent = arena.ready.get(key)
    return arena.lend(key) if lent is None else lent


def reserve(device: torch.device, ints: int = CHUNK_INTS) -> None:
    """See to it that slots of ``ints`` numbers together are free, before a large capture."""
    _arena(device).reserve(ints)


class Arena:
    """The slots of one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.ready: dict[tuple[int, int], torch.Tensor] = {}
        """The slots that may be lent without a further thought, by stream and size."""
        self._lent: dict[tuple[int, int], torch.Tensor] = {}
        self._free: torch.Tensor | None = None
        self._lock = threading.Lock()

    def lend(self, key: tuple[int, int]) -> torch.Tensor:
        """The slot of this (stream, size), cut now if there is none. Lays by for captures."""
        _, size = key
        with self._lock:
            new = key not in self._lent
            self._grow((size if new else 0) + CHUNK_INTS // 2)
            if new:
                self._lent[key] = self._cut(size)
            self.ready[key] = self._lent[key]
            return self._lent[key]

    def give_away(self, size: int) -> torch.Tensor:
        """A slot for one captured call. Allocates nothing."""
        with self._lock:
            if size > self._room():
                raise WorkspaceExhausted(
                    f"no free workspace of {size} numbers on {self.device}, and none can be "
                    "allocated while a CUDA graph is being captured; make the call once before "
                    "the capture, or lay by more with fused_mlp.workspace.reserve"
                )
            given = self._cut(size)
            if self._room() < CHUNK_INTS // 2:
                self.ready.clear()  # the next ordinary call goes to `lend`, which lays by again
            return given

    def reserve(self, ints: int) -> None:
        """Have ``ints`` numbers free."""
        with self._lock:
            self._grow(ints)

    def _room(self) -> int:
        return 0 if self._free is None else self._free.numel()

    def _grow(self, ints: int) -> None:
        if self._room() < ints:  # what is left of the old chunk is lost: at most half of one
            self._free = _zeros_by_another_thread(self.device, max(ints, CHUNK_INTS))

    def _cut(self, size: int) -> torch.Tensor:
        assert self._free is not None
        cut, self._free = self._free[:size], self._free[size:]
        return cut


_arenas: dict[torch.device, Arena] = {}


def _arena(device: torch.device) -> Arena:
    arena = _arenas.get(device)
    return _arenas.setdefault(device, Arena(device)) if arena is None else arena


def _stream(device: torch.device) -> int:
    """What orders calls: the GPU's current stream; on a CPU (the interpreter), the thread."""
    if device.type == "cuda":
        return torch._C._cuda_getCurrentRawStream(device.index)  # as Triton itself asks
    return threading.get_ident()


def _capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _zeros_by_another_thread(device: torch.device, ints: int) -> torch.Tensor:
    """Zeros that every stream may use at once, from the ordinary pool (see the top)."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_zeros, device, ints).result()


def _zeros(device: torch.device, ints: int) -> torch.Tensor:
    zeros = torch.zeros(ints, dtype=torch.int32, device=device)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return zeros
