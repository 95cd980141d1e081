"""What does a limit on a test of very many operators take? A run of pytest with that one test,
bare and measured, each in a process of its own, in turn.

    python benchmarks/large_test.py [--operators 50000]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import device_and_place, device_kind, in_turn, met, table

MOST_S = 20.0
BARE, COUNTED, TIMED = "bare", "max_kernels", "max_kernels and max_cuda_time"
TEST = """
import pytest, torch
x = torch.zeros(16, device={device!r})
def work():
    for _ in range({operators}):
        x.add_(1)
{marks}
def test_it({fixture}):
    {call}
"""


def run(way: str, kind: str, operators: int) -> tuple[float, float]:
    """One run: seconds, and the peak of its memory in MB."""
    marks = f"@pytest.mark.max_kernels({operators})\n" * (way != BARE)
    marks += '@pytest.mark.max_cuda_time("60 s")\n' * (way == TIMED)
    fixture, call = ("", "work()") if way == BARE else ("kernel_profile", "kernel_profile(work)")
    code = TEST.format(device=kind, operators=operators, marks=marks, fixture=fixture, call=call)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_it.py").write_text(code)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--kernelprof-device={kind}", "test_it.py"]
        with Path(folder, "told").open("w+") as told:
            start = time.monotonic()
            process = subprocess.Popen(command, cwd=folder, stdout=told, stderr=told)
            _, status, usage = os.wait4(process.pid, 0)
            took = time.monotonic() - start
        if status != 0:
            sys.exit(f"{way}: pytest ended with {status}:\n{Path(folder, 'told').read_text()}")
    return took, usage.ru_maxrss / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--operators", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    kind = device_kind(options.device)
    ways = (BARE, COUNTED, TIMED) if kind == "cuda" else (BARE, COUNTED)
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for way in in_turn(ways, options.repeats):
        found[way].append(run(way, kind, options.operators))
    print(f"A test of {options.operators:,} operators, {options.repeats} runs of each kind in turn")
    print(device_and_place(kind, "pytest", "pytest-kernelprof"), "\n")
    rows = []
    for way, runs in found.items():
        seconds = sorted(took for took, _ in runs)
        spread = f"{statistics.median(seconds):.1f} [{seconds[0]:.1f}, {seconds[-1]:.1f}]"
        rows.append([way, spread, f"{statistics.median(mb for _, mb in runs):,.0f}"])
    print(table(["run", "seconds, median [least, most]", "peak MB"], rows))
    most = statistics.median(took for took, _ in found[ways[-1]])
    print(f"\n{ways[-1]}: {most:.1f} s; target: {MOST_S:.0f} s: {met(most <= MOST_S)}")


if __name__ == "__main__":
    main()
