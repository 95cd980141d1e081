"""The process group of ranks that a test has started, on this machine."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.device.inventory import load_torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOST = "127.0.0.1"


@contextlib.contextmanager
def hosted_store(size: int) -> Iterator[int]:
    """The store of a process group, in this process, which outlives any rank; its port."""
    dist = load_torch().distributed
    store = dist.TCPStore(_HOST, 0, size, is_master=True, wait_for_workers=False)
    yield store.port


@contextlib.contextmanager
def in_group(rank: int, size: int, backend: str, port: int) -> Iterator[None]:
    """Be a rank of the default group; with NCCL on the GPU of its number."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR=_HOST,
        MASTER_PORT=str(port),
    )
    torch = load_torch()
    given: dict[str, Any] = {}
    if backend == "nccl":
        torch.cuda.set_device(rank)
        given["device_id"] = torch.device("cuda", rank)
    store = torch.distributed.TCPStore(_HOST, port, size, is_master=False)
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size, **given)
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
