"""Is `cuda_time` right? Against Nsight Compute and against CUDA-graph timing, 1 us to 10 ms.

Graph timing: an event pair around the replay of a graph that flushes L2 and runs the kernel, less
one around a graph that only flushes, in turn. What a kernel's start and end add between two nodes
of a graph (about a microsecond) is in that difference and not in a kernel's own duration.
"""

from __future__ import annotations

import argparse
import csv
import io
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from harness import device_and_place, in_turn, table

from pytest_kernelprof.gpu.inventory import current_device, load_torch
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure
from pytest_kernelprof.profiler.unprofiled_rounds import flush_l2

HEAD_START = 400_000
TIMED = "gpu__time_duration.sum"


def kernels(torch: Any) -> dict[str, Callable[[], Any]]:
    """Ten calls of one kernel each, a microsecond to ten milliseconds on an H200."""
    torch.manual_seed(0)

    def numbers(n: int) -> Any:
        return torch.randn(n, device="cuda")

    def add(n: int) -> Callable[[], Any]:
        x, y = numbers(n), torch.empty(n, device="cuda")
        return lambda: torch.add(x, 1.0, out=y)

    def product(n: int) -> Callable[[], Any]:
        a, b, c = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        return lambda: torch.mm(a, b, out=c)

    calls = {f"add, 2^{k}": add(1 << k) for k in (10, 18, 22, 24, 26, 28)}
    calls |= {f"product, {n}": product(n) for n in (1024, 4096, 8192, 16384)}
    return calls


def ours(call: Callable[[], Any], rounds: int) -> tuple[float, int]:
    plan = Plan("cuda", rounds=rounds)
    profile = measure(call, plan)[1].profile
    return profile.metrics["cuda_time"].value or 0.0, profile.kernel_count


def by_graph(torch: Any, call: Callable[[], Any], rounds: int) -> float:
    """Median difference of the two graphs, in microseconds."""
    flush = partial(flush_l2, current_device("cuda"))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        flush()
        call()
    torch.cuda.synchronize()
    graphs = {}
    for name, steps in (("flush", (flush,)), ("both", (flush, call))):
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for step in steps:
                step()
        graphs[name].replay()
    took: dict[str, list[float]] = {name: [] for name in graphs}
    for name in in_turn(list(graphs), rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(HEAD_START)
        begin.record()
        graphs[name].replay()
        end.record()
        end.synchronize()
        took[name].append(begin.elapsed_time(end) * 1e3)
    pairs = zip(took["both"], took["flush"], strict=True)
    return statistics.median(both - flushed for both, flushed in pairs)


def by_ncu(rounds: int) -> tuple[dict[str, float], str]:
    """Median durations by Nsight Compute, caches flushed and clocks left alone; or why not."""
    ncu = shutil.which("ncu") or shutil.which("/usr/local/cuda/bin/ncu")
    if ncu is None:
        return {}, "Nsight Compute (ncu) is not installed"
    command = [ncu, "--csv", "--metrics", TIMED, "--cache-control", "all", "--clock-control"]
    command += ["none", "--nvtx", "--nvtx-include", "counted/", sys.executable, __file__, "--child"]
    run = subprocess.run([*command, "--rounds", str(rounds)], capture_output=True, text=True)
    lines = [line for line in run.stdout.splitlines() if line.startswith('"')]
    if run.returncode or not lines:
        return {}, f"ncu failed: {(run.stdout + run.stderr).strip()[-200:]}"
    found: list[float] = []
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        if row.get("Metric Name") == TIMED:
            scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3}
            found.append(float(row["Metric Value"].replace(",", "")) * scale[row["Metric Unit"]])
    names = list(kernels(load_torch()))
    return {
        name: statistics.median(found[i * rounds : (i + 1) * rounds])
        for i, name in enumerate(names)
    }, ""


def child(torch: Any, rounds: int) -> None:
    """What runs under ncu: each kernel so often, inside a range."""
    for call in kernels(torch).values():
        call()
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_push("counted")
        for _ in range(rounds):
            call()
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=48)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch = load_torch()
    if options.child:
        child(torch, options.rounds)
        return
    ncu, why = by_ncu(12)
    rows = []
    for name, call in kernels(torch).items():
        profiled, count = ours(call, options.rounds)
        graph = by_graph(torch, call, options.rounds)
        single = ncu.get(name)
        rows.append(
            [
                name,
                str(count),
                f"{profiled:.2f}",
                f"{graph:.2f}",
                f"{graph - profiled:+.2f}",
                f"{(graph / profiled - 1) * 100:+.1f} %",
                "-" if single is None else f"{single:.2f}",
                "-" if single is None else f"{(single / profiled - 1) * 100:+.1f} %",
            ]
        )
    print(f"cuda_time against other clocks, {options.rounds} rounds, L2 flushed; microseconds")
    print(device_and_place("cuda", "pytest-kernelprof"), "\n")
    header = ["kernel", "kernels", "cuda_time", "graph", "graph - ours", "", "ncu", ""]
    print(table(header, rows))
    if why:
        print(f"\nncu: {why}")


if __name__ == "__main__":
    main()
