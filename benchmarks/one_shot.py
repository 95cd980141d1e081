"""What does a one-shot profile cost (a region, a marked test, --kernelprof-all)?

The same block is run plainly and as a one-shot, in turn. Everything counts: the session, the file,
reading it, all metrics. On a GPU with Triton also a block whose kernel is tuned inside of it, anew
each time: what the tuner launches is not recorded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import device_and_place, device_kind, in_turn, met, table

from pytest_kernelprof.gpu.inventory import current_device, load_torch, synchronize
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure_once
from pytest_kernelprof.records.recording import DeviceKind

TIMES, PLUS_MS, AN_EVENT_US = 1.3, 10.0, 15.0
SIZES = (0, 10, 100, 1_000, 10_000)

Block = Callable[[], object]


def blocks(kind: DeviceKind) -> dict[str, Block]:
    torch = load_torch()
    small = torch.zeros(1024, device=kind)

    def adds(n: int) -> Block:
        def run() -> None:
            for _ in range(n):
                small.add_(1)

        return run

    found = {f"{n:,} operators": adds(n) for n in SIZES}
    if kind == "cuda":
        found |= tuned(torch)
    return found


def tuned(torch: Any) -> dict[str, Block]:
    """A kernel that is tuned at each call of the block; nothing where Triton is not there."""
    try:
        import triton
        from tile_copy import copy_kernel
    except ImportError:
        return {}
    x = torch.randn(1 << 20, device="cuda")
    y, n = torch.empty_like(x), x.numel()

    def run() -> None:
        configurations = [triton.Config({"BLOCK": block}) for block in (256, 512, 1024, 2048)]
        kernel = triton.autotune(configs=configurations, key=["n"])(copy_kernel)
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)

    return {"tuned inside, 4 configurations": run}


def plainly(kind: DeviceKind, block: Block) -> float:
    """Milliseconds of the block, the device idle before and after."""
    device = current_device(kind)
    synchronize(device)
    start = time.perf_counter()
    block()
    synchronize(device)
    return (time.perf_counter() - start) * 1e3


def as_one_shot(kind: DeviceKind, block: Block) -> tuple[float, int]:
    """Milliseconds of the block as a one-shot, and how many events that recorded."""
    synchronize(current_device(kind))
    start = time.perf_counter()
    with measure_once(Plan(kind)) as found:
        block()
    took = (time.perf_counter() - start) * 1e3
    events = json.loads(Path(found[0].file.path).read_text())["traceEvents"]
    return took, sum(event.get("ph") == "X" for event in events)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="5 rounds")
    options = parser.parse_args()
    rounds = 5 if options.quick else options.rounds
    kind = device_kind(options.device)
    rows, all_met = [], True
    for name, block in blocks(kind).items():
        plainly(kind, block)
        as_one_shot(kind, block)
        plain: list[float] = []
        shot: list[tuple[float, int]] = []
        for way in in_turn(["plain", "one-shot"], rounds):
            if way == "plain":
                plain.append(plainly(kind, block))
            else:
                shot.append(as_one_shot(kind, block))
        before, after = statistics.median(plain), statistics.median(took for took, _ in shot)
        events = max(count for _, count in shot)
        target = TIMES * before + PLUS_MS + AN_EVENT_US * events / 1e3
        all_met &= after <= target
        figures = f"{before:.2f}", f"{after:.2f}", f"{events:,}", f"{target:.2f}"
        rows.append([name, *figures, met(after <= target)])
    print(f"A block plainly and as a one-shot, median ms of {rounds} in turn ({kind})")
    print(device_and_place(kind, "pytest-kernelprof"), "\n")
    print(table(["block", "plain", "one-shot", "events", "at most", ""], rows))
    print(
        f"\ntarget: {TIMES} times + {PLUS_MS:.0f} ms + {AN_EVENT_US:.0f} us a recorded event: "
        f"{met(all_met)}"
    )


if __name__ == "__main__":
    main()
