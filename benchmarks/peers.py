"""What other clocks say of the same calls: a tiny add, a decode MLP, a large MLP."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness import device_and_place, in_turn, quartiles, table
from workloads import WORKLOADS, Call

from pytest_kernelprof.gpu.inventory import load_torch
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure

TEST = """
import sys
sys.path.insert(0, {folder!r})
import pytest, torch
from workloads import WORKLOADS
torch.manual_seed(0)
calls = {{name: make(torch) for name, make in WORKLOADS.items()}}
@pytest.mark.parametrize("name", calls)
def test_plain(benchmark, name): benchmark(calls[name])
@pytest.mark.parametrize("name", calls)
def test_synchronised(benchmark, name):
    def call():
        calls[name]()
        torch.cuda.synchronize()
    benchmark(call)
@pytest.mark.parametrize("name", calls)
def test_ours(kernel_benchmark, name): kernel_benchmark(calls[name], timer="cuda")
"""


def by_events(torch: Any, call: Call) -> float:
    """An event pair around a call, as gpucheck and many scripts have it."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end) * 1e3)


def by_do_bench(torch: Any, call: Call) -> float:
    from triton.testing import do_bench

    return float(do_bench(call, warmup=5, rep=20, return_mode="median") * 1e3)


def by_timer(torch: Any, call: Call) -> float:
    from torch.utils.benchmark import Timer

    return float(
        Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=0.05).median * 1e6
    )


def ours(torch: Any, call: Call) -> float:
    return measure(call, Plan("cuda", rounds=12))[1].profile.metrics["cuda_time"].value or 0.0


CLOCKS: dict[str, Callable[[Any, Call], float]] = {
    "CUDA events around a call": by_events,
    "triton.testing.do_bench": by_do_bench,
    "torch.utils.benchmark.Timer": by_timer,
    "pytest-kernelprof, cuda_time": ours,
}


def by_pytest_benchmark() -> dict[str, list[str]]:
    """What its own runs say, with and without synchronisation, and through our bridge."""
    with tempfile.TemporaryDirectory() as folder:
        test, out = Path(folder) / "test_it.py", Path(folder) / "out.json"
        test.write_text(TEST.format(folder=str(Path(__file__).parent)))
        command = [sys.executable, "-m", "pytest", "-q", str(test), f"--benchmark-json={out}"]
        run = subprocess.run(
            [*command, "-p", "no:cacheprovider"], capture_output=True, text=True, cwd=folder
        )
        if run.returncode:
            raise SystemExit(run.stdout + run.stderr)
        found: dict[str, list[str]] = {}
        names = {
            "test_plain": "pytest-benchmark, as it comes",
            "test_synchronised": "pytest-benchmark, synchronised by hand",
            "test_ours": 'pytest-benchmark, kernel_benchmark(timer="cuda")',
        }
        for one in json.loads(out.read_text())["benchmarks"]:
            title = names[one["name"].partition("[")[0]]
            stats = one["stats"]
            cells = found.setdefault(title, [])
            cells.append(_cell([stats["q1"] * 1e6, stats["median"] * 1e6, stats["q3"] * 1e6]))
        return found


def _cell(low_middle_high: Sequence[float]) -> str:
    low, middle, high = low_middle_high
    return f"{middle:.4g} [{low:.4g}, {high:.4g}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch = load_torch()
    torch.manual_seed(0)
    calls = {name: make(torch) for name, make in WORKLOADS.items()}
    cells: dict[str, list[str]] = {name: [] for name in CLOCKS}
    outside = by_pytest_benchmark()  # in a process of its own
    for call in calls.values():
        for _ in range(20):
            call()
        took: dict[str, list[float]] = {name: [] for name in CLOCKS}
        for name in in_turn(list(CLOCKS), options.rounds):
            took[name].append(CLOCKS[name](torch, call))
        for name, values in took.items():
            cells[name].append(_cell(quartiles(values)))
    order = ["tiny add", "decode MLP", "large MLP"]
    at = [list(calls).index(name) for name in order]
    rows = [[name, *(row[i] for i in at)] for name, row in {**cells, **outside}.items()]
    floor = statistics.median(by_events(torch, lambda: None) for _ in range(50))
    print(f"Microseconds a call, median [quartiles] of {options.rounds} measurements, in turn")
    print(device_and_place("cuda", "pytest-kernelprof", "triton", "pytest-benchmark"), "\n")
    print(table(["clock", *order], rows))
    print(f"\nan event pair around nothing: {floor:.1f} us")


if __name__ == "__main__":
    main()
