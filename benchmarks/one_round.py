"""One profiled round of a 5-kernel call, to the finished Profile, against what is written by hand.

By hand: ``with torch.profiler.profile(...)`` around the call and a synchronisation, then
``key_averages()``. Ours: one round between its sentinels, the trace exported, read, checked for
completeness, every metric and every kernel computed.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from typing import TYPE_CHECKING, Any

from harness import (
    MLP_KERNELS,
    device_and_place,
    device_kind,
    geglu_mlp,
    in_turn,
    met,
    spread,
    table,
)

from pytest_kernelprof.gpu.inventory import load_torch
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_kernelprof.gpu.inventory import DeviceKind


def by_hand(kind: DeviceKind, call: Callable[[Any], Any], x: Any) -> int:
    torch = load_torch()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if kind == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        call(x)
        if kind == "cuda":
            torch.cuda.synchronize()
    return len(profiler.key_averages())


def ours(kind: DeviceKind, call: Callable[[Any], Any], x: Any) -> int:
    with measure_once(Plan(kind)) as found:
        call(x)
    profile = found[0].profile
    assert profile.integrity.complete, profile.integrity.problems
    assert profile.metrics
    assert len(profile.kernels) == profile.kernel_count
    return profile.kernel_count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=100, help="rounds of each")
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--quick", action="store_true", help="20 rounds")
    options = parser.parse_args()
    rounds = 20 if options.quick else options.rounds
    kind = device_kind(options.device)
    call, x = geglu_mlp(kind)

    peers = {"pytest-kernelprof, one round": ours, "by hand, key_averages()": by_hand}
    for peer in peers.values():  # brings the profiler up and warms every path
        for _ in range(5):
            counted = peer(kind, call, x)
        if peer is ours and counted != MLP_KERNELS:
            print(f"note: the call has {counted} kernels here")
    took: dict[str, list[float]] = {name: [] for name in peers}
    gc.collect()
    for name in in_turn(list(peers), rounds):
        start = time.perf_counter()
        peers[name](kind, call, x)
        took[name].append((time.perf_counter() - start) * 1e3)

    mine, theirs = took.values()
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    ratio = statistics.median(ratios)
    print(f"One profiled round of a GeGLU MLP ({kind}): {rounds} of each, in turn")
    print(device_and_place(kind, "pytest-kernelprof"))
    print()
    rows = [[name, spread(values)] for name, values in took.items()]
    print(table(["from the call to the result", "ms, median [quartiles]"], rows))
    print()
    print(f"ours / by hand: {spread(ratios)}; target: at most 1.0: {met(ratio <= 1.0)}")


if __name__ == "__main__":
    main()
