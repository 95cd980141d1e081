"""What does a one-shot profile of very many operators cost on the CPU, beside torch alone?

Each is a process of its own that runs the same block: N operators of one thread. Ours counts to the
finished Profile: the session, torch's file, reading it, and every operator as a kernel. Torch's is
its profiler alone, started and ended, with and without the inputs of operators, which a limit asks
for: they tell operators from ranges that bear an operator's name.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

from harness import device_and_place, in_turn, met, peak_bytes, table

from pytest_kernelprof.gpu.inventory import load_torch
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure_once

OPERATORS = 500_000
MOST_TIMES, MOST_MB = 2.0, 1_000.0
TORCH, TORCH_INPUTS = "torch alone", "torch alone, record_shapes"
OURS, OURS_INPUTS = "no limit (--kernelprof-all)", "with a limit"
WAYS = (TORCH, OURS, TORCH_INPUTS, OURS_INPUTS)


def run_here(way: str, operators: int) -> None:
    """Run the block in one way and print its processor's seconds and the rise of the peak."""
    torch = load_torch()
    torch.set_num_threads(1)
    x, y = torch.zeros(16), torch.ones(16)

    def block(count: int) -> None:
        for _ in range(count):
            x.add_(y)

    profiled(torch, way, block, 10)  # imports
    before, start = peak_bytes(), time.process_time()
    found = profiled(torch, way, block, operators)
    took, peak = time.process_time() - start, peak_bytes() - before
    assert found in (None, operators), found
    print(json.dumps([took, peak]))


def profiled(torch: Any, way: str, block: Any, operators: int) -> int | None:
    if way in (OURS, OURS_INPUTS):
        with measure_once(Plan("cpu", inputs=way == OURS_INPUTS)) as taken:
            block(operators)
        assert taken[0].profile.integrity.complete, taken[0].profile.integrity.problems
        return taken[0].profile.kernel_count
    kinds = [torch.profiler.ProfilerActivity.CPU]
    profiler = torch.profiler.profile(activities=kinds, record_shapes=way == TORCH_INPUTS)
    profiler.start()
    block(operators)
    torch._C._autograd._disable_profiler()  # as stop() does, without its objects of Python
    return None


def run(way: str, operators: int) -> tuple[float, float]:
    command = [sys.executable, __file__, "--run", way, "--operators", str(operators)]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--operators", type=int, default=OPERATORS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="50,000 operators, 1 round")
    parser.add_argument("--run", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_here(options.run, options.operators)
        return
    if options.quick:
        options.operators, options.rounds = 50_000, 1
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for way in in_turn(WAYS, options.rounds):
        taken[way].append(run(way, options.operators))
    seconds = {way: statistics.median(one for one, _ in found) for way, found in taken.items()}
    mb = {way: statistics.median(one for _, one in found) / 1e6 for way, found in taken.items()}
    print(f"{options.operators:,} operators in one profile, median of {options.rounds} in turn")
    print(device_and_place("cpu", "pytest-kernelprof"), "\n")
    rows = [
        [way, f"{seconds[way]:.2f}", f"{seconds[way] / seconds[TORCH]:.1f}x", f"{mb[way]:.0f}"]
        for way in WAYS
    ]
    print(table(["", "CPU s", "of torch alone", "MB more at the peak"], rows), "\n")
    for way, beside in ((OURS, TORCH), (OURS_INPUTS, TORCH_INPUTS), (OURS_INPUTS, TORCH)):
        times = seconds[way] / seconds[beside]
        print(
            f"{way}: {times:.1f} times {beside}, target {MOST_TIMES:.0f}: "
            f"{met(times <= MOST_TIMES)}; {mb[way]:.0f} MB, target {MOST_MB:.0f}: "
            f"{met(mb[way] <= MOST_MB)}"
        )


if __name__ == "__main__":
    main()
