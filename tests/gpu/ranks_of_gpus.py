"""What ranks of ``tests/gpu/test_ranks_on_gpus.py`` run, each in a process of its own."""

from __future__ import annotations

import gzip
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from pytest_kernelprof import profile

Step = Callable[[], Any]

_ACTIVITY = {
    "cpu": torch.profiler.ProfilerActivity.CPU,
    "cuda": torch.profiler.ProfilerActivity.CUDA,
}


def _device() -> torch.device:
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).to(_device())


def _training(model: nn.Module) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, 256, device=_device())

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def ddp() -> Step:
    return _training(nn.parallel.DistributedDataParallel(_mlp()))


def fsdp() -> Step:
    from torch.distributed.fsdp import fully_shard

    model = _mlp()
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    return _training(model)


def tensor_parallel() -> Step:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh(_device().type, (dist.get_world_size(),))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model, x = parallelize_module(_mlp(), mesh, plan), torch.randn(64, 256, device=_device())
    return lambda: model(x).sum()


def all_reduce() -> Step:
    x = torch.ones(1 << 20, device=_device())
    return lambda: dist.all_reduce(x.mul_(0.5))


def all_gather() -> Step:
    x = torch.ones(1 << 18, device=_device())
    found = torch.empty(dist.get_world_size() << 18, device=_device())
    return lambda: dist.all_gather_into_tensor(found, x)


def send_beside_a_matmul() -> Step:
    a = torch.randn(1024, 1024, device=_device())
    sent = torch.ones(1 << 20, device=_device())
    got = torch.empty_like(sent)
    other = 1 - dist.get_rank()

    def step() -> torch.Tensor:
        ops = [dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, got, other)]
        works = dist.batch_isend_irecv(ops)
        y = a @ a
        for work in works:
            work.wait()
        return y + got[0]

    return step


STEPS = {
    step.__name__: step
    for step in (ddp, fsdp, tensor_parallel, all_reduce, all_gather, send_beside_a_matmul)
}


def symmetric() -> Step:
    """All-reduces that kernels of PyTorch do, on memory that ranks share."""
    import torch.distributed._symmetric_memory as shared

    x = shared.empty(1 << 20, device=_device(), dtype=torch.bfloat16).fill_(1)
    shared.rendezvous(x, dist.group.WORLD)
    group = dist.group.WORLD.group_name

    def step() -> None:
        torch.ops.symm_mem.one_shot_all_reduce(x, "sum", group)
        torch.ops.symm_mem.two_shot_all_reduce_(x, "sum", group)

    return step


def counted() -> dict[str, tuple[list[str], list[str]]]:
    """The kernels of each step, as we have them and as torch.profiler alone has them."""
    found = {}
    for name, make in STEPS.items():
        step = make()
        ours = sorted(kernel.name for kernel in profile(step, rounds=2).kernels)
        found[name] = ours, names_by_hand(step)
    return found


def names_by_hand(step: Step) -> list[str]:
    """The kernels of a step, as torch.profiler alone has them."""
    dist.barrier()
    activities = {torch.profiler.ProfilerActivity.CPU, _ACTIVITY[_device().type]}
    with torch.profiler.profile(activities=activities) as by_hand:
        step()
        if _device().type == "cuda":
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json.gz")
        by_hand.export_chrome_trace(str(path))
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return sorted(one["name"] for one in events if one.get("cat") == "kernel")


def taken(*names: str) -> list[int]:
    """Profile these steps; how many kernels each has."""
    return [profile(STEPS[name]()).kernel_count for name in names]


def many(times: int) -> list[int]:
    """Take so many profiles, of all steps in turn; how many numbers of kernels each step has."""
    steps = [make() for make in STEPS.values()]
    counts: list[set[int]] = [set() for _ in steps]
    for i in range(times):
        counts[i % len(steps)].add(profile(steps[i % len(steps)], rounds=2).kernel_count)
    return [len(one) for one in counts]


def more_on(rank: int) -> int:
    """One rank launches one kernel more."""
    step, x = all_reduce(), torch.ones(64, device=_device())
    return profile(lambda: (step(), x.mul_(2) if dist.get_rank() == rank else x)).kernel_count


def lost(how: str) -> None:
    """The second rank does not come to a round."""
    x, calls = torch.ones(1 << 16, device=_device()), []

    def call() -> None:
        calls.append(1)
        if dist.get_rank() == 1 and len(calls) == 5:
            if how == "raises":
                raise ValueError("boom")
            if how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "is late":
                time.sleep(20)
            if how == "skips a collective":
                return
        dist.all_reduce(x.mul_(0.5))

    profile(call)
