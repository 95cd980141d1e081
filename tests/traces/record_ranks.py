"""Records the traces of two ranks in ``ranks/`` by plain torch.profiler, on two GPUs of one host:

    torchrun --nproc-per-node 2 tests/traces/record_ranks.py

What is in them: collectives, a rank that comes last, a send and its receive, a batch of both, a
CUDA graph, and a step of DistributedDataParallel.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from scrubbing import scrub
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

FOLDER = Path(__file__).parent / "ranks"


def cases(rank: int, device: torch.device) -> dict[str, Callable[[], object]]:
    x = torch.ones(1 << 21, device=device)
    half = torch.ones(1 << 20, device=device, dtype=torch.bfloat16)
    gathered = torch.empty(2 << 20, device=device, dtype=torch.bfloat16)
    part = torch.empty(1 << 20, device=device)
    large = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    layers = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(6)]).to(device)
    model = DistributedDataParallel(layers, device_ids=[rank])
    data = torch.randn(512, 2048, device=device)

    def slow() -> None:
        for _ in range(3):
            for _ in range(8 * rank):
                large @ large
            dist.all_reduce(x)

    def gather_scatter() -> None:
        dist.all_gather_into_tensor(gathered, half)
        dist.reduce_scatter_tensor(part, x)

    def pairs() -> None:
        if rank:
            dist.recv(half, 0)
        else:
            dist.send(half, 1)

    def batch() -> None:
        both = [
            dist.P2POp(dist.isend, half, 1 - rank),
            dist.P2POp(dist.irecv, gathered[: 1 << 20], 1 - rank),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    slow()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
        x.mul_(0.5)
    return {
        "slow": slow,
        "gather_scatter": gather_scatter,
        "pairs": pairs,
        "batch": batch,
        "graph": graph.replay,
        "ddp": lambda: model(data).sum().backward(),
    }


def main() -> None:
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    for name, call in cases(rank, device).items():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
            call()
            torch.cuda.synchronize()
        path = FOLDER / f"{name}_rank{rank}.json.gz"
        prof.export_chrome_trace(str(path))
        scrub(path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
