"""Records the corpus of traces that the unit tests read; run it on a machine with a GPU.

    python tests/traces/record.py [FOLDER]

One gzip Chrome trace a case, taken by the plugin's own capture, with device and versions beside
the events. Host names, process names and machine paths are taken out.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from scrubbing import scrub

from pytest_kernelprof.api import Profile
from pytest_kernelprof.gpu.inventory import current_device
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure, measure_once
from pytest_kernelprof.profiler.torch_profiler import prime


class GatedMLP(torch.nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(width, hidden, bias=False)
        self.up = torch.nn.Linear(width, hidden, bias=False)
        self.down = torch.nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))


@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def cases() -> dict[str, Callable[[], object]]:
    torch.manual_seed(0)
    on = {"device": "cuda", "dtype": torch.bfloat16}
    mlp, small_mlp = GatedMLP(768, 3072).to(**on), GatedMLP(1024, 4096).to(**on)
    linear = torch.nn.Linear(768, 3072, **on)
    x, row = torch.randn(8192, 768, **on), torch.randn(1, 1024, **on)
    small = torch.randn(1024, device="cuda")
    out = torch.empty_like(small)
    big, pageable = torch.empty(1 << 20, device="cuda"), torch.randn(1 << 20)
    pinned = pageable.pin_memory()
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    event = torch.cuda.Event()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        for _ in range(3):
            mlp(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            mlp(x)
        compiled, graphed = torch.compile(mlp), torch.compile(small_mlp, mode="reduce-overhead")
        for _ in range(5):
            compiled(x)
            graphed(row)

    def backward() -> None:
        mlp.zero_grad(set_to_none=True)
        mlp(x).sum().backward()

    def copies() -> None:
        big.copy_(pageable)
        big.copy_(pinned, non_blocking=True)
        big.cpu()
        big.clone()
        pinned.copy_(big, non_blocking=True)
        small.copy_(out)

    def syncs() -> None:
        small.sum().item()
        torch.cuda.synchronize()
        torch.cuda.current_stream().synchronize()
        event.record()
        event.synchronize()
        event.record()
        event.query()
        torch.nonzero(small)
        small.tolist()
        bool((small > 0).any())

    def two_streams() -> None:
        current = torch.cuda.current_stream()
        for stream in streams:
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                torch.mul(big, 2)
        for stream in streams:
            current.wait_stream(stream)

    def side_stream() -> None:
        with torch.cuda.stream(streams[0]):
            torch.mul(big, 2)

    def threads() -> None:
        worker = threading.Thread(target=lambda: (small + 1, small.sum().item()))
        worker.start()
        worker.join()

    def capture_inside() -> None:
        inner = torch.cuda.CUDAGraph()
        with torch.cuda.graph(inner):
            small + 1
        inner.replay()

    def no_grad(fn: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            with torch.no_grad():
                return fn()

        return run

    return {
        "linear": no_grad(lambda: linear(x)),
        "mlp": no_grad(lambda: mlp(x)),
        "decode": no_grad(lambda: small_mlp(row)),
        "backward": backward,
        "compiled": no_grad(lambda: compiled(x)),
        "compiled_graphs": no_grad(lambda: graphed(row)),
        "graph": graph.replay,
        "graph_twice_a_round": lambda: (graph.replay(), graph.replay()),
        "graph_capture_inside": capture_inside,
        "triton": lambda: add_one[(8,)](small, out, 1024, BLOCK=128),
        "triton_coop": lambda: add_one[(8,)](
            small, out, 1024, BLOCK=128, launch_cooperative_grid=True
        ),
        "copies": copies,
        "syncs": syncs,
        "two_streams": two_streams,
        "side_stream_nojoin": side_stream,
        "threads": threads,
        "memset": lambda: (small.zero_(), torch.zeros(10, device="cuda")),
        "empty": lambda: None,
        "view": lambda: small.view(32, 32).t(),
    }


def record_odd(folder: Path) -> None:
    """Cases that the plugin does not record itself: other profiler options, no sync records."""
    on = {"device": "cuda", "dtype": torch.bfloat16}
    mlp, x = GatedMLP(768, 3072).to(**on), torch.randn(8192, 768, **on)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.no_grad():
        for _ in range(3):
            mlp(x)
        torch.cuda.synchronize()
        with torch.profiler.profile(
            activities=activities, profile_memory=True, record_shapes=True
        ) as memory:
            mlp(x)
            torch.cuda.synchronize()
    memory.export_chrome_trace(str(folder / "memory.json.gz"))
    syncs = cases()["syncs"]
    syncs()
    with torch.profiler.profile(activities=activities) as plain:
        syncs()
    plain.export_chrome_trace(str(folder / "syncs_nosync.json.gz"))
    with torch.no_grad(), measure_once(Plan("cuda", stacks=True)) as found:
        mlp(x)
    Profile.of(found[0]).save_trace(folder / "stack.json.gz")
    cold = torch.randn(64, device="cuda").abs() + 2
    with measure_once(Plan("cuda")) as found:
        torch.special.zeta(cold, cold)
    Profile.of(found[0]).save_trace(folder / "cold_add.json.gz")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    prime(current_device("cuda"))
    for name, call in cases().items():
        _, measurement = measure(call, Plan("cuda", rounds=2, memory=True))
        profile = Profile.of(measurement)
        profile.save_trace(folder / f"{name}.json.gz")
        print(f"{name:24} {profile} syncs={profile.syncs} memcpys={profile.memcpys}")
    record_odd(folder)
    for path in sorted(folder.glob("*.json.gz")):
        scrub(path)
        print(f"{path.stat().st_size:8} {path.name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
