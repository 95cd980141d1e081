"""How much memory and time it takes to read a large run document: profiles with whole timelines.

Each reading is a process of its own; what Python and the package take without a document is taken
off its peak.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import met, place, table

from pytest_kernelprof.records import codec
from pytest_kernelprof.records.document import Run, Test, pack
from pytest_kernelprof.records.metrics import METRICS
from pytest_kernelprof.records.profile import Kernel, Metric, Profile, Timeline
from pytest_kernelprof.records.recording import Environment

PROFILES, EVENTS = 200, 5_000
MOST_TIMES_THE_FILE = 5.0
_READ = """
import json, sys, time
from pytest_kernelprof.baselines import run_documents
import pytest_kernelprof.records.document, pytest_kernelprof.trace.trace_text
def peak():  # not that of getrusage, which begins with the parent's
    (line,) = (one for one in open("/proc/self/status") if one.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
before, began = peak(), time.process_time()
run = run_documents.read_run(sys.argv[1], timelines=sys.argv[2] == "whole")
print(json.dumps([peak() - before, time.process_time() - began, len(run.tests)]))
"""


def timeline(events: int) -> Timeline:
    return Timeline(
        kind=("operator",) * events,
        name=tuple(f"aten::op{i % 50}" for i in range(events)),
        lane=("thread 4711",) * events,
        start_us=tuple(i * 1.37 for i in range(events)),
        duration_us=tuple(0.7 + i % 13 for i in range(events)),
        correlation=tuple(range(events)),
    )


def run_of(profiles: int, events: int) -> Run:
    kernel = Kernel("k", 1.0, (1, 1, 1), (32, 1, 1), 8, 0, 0, 7, "cudaLaunchKernel", ("aten::mm",))
    profile = Profile(
        environment=Environment("cuda", "NVIDIA H200"),
        metrics={name: Metric(name, spec.kind, spec.unit) for name, spec in METRICS.items()},
        kernels=(kernel,) * 20,
        timeline=timeline(events),
    )
    return Run(tuple(Test(f"test_{i}", (profile,)) for i in range(profiles)), "2026", {})


def read(path: Path, function: str) -> tuple[float, float]:
    """Megabytes at the peak and seconds of the processor."""
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(path), function],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
    )
    found: list[Any] = json.loads(done.stdout)
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profiles", type=int, default=PROFILES)
    parser.add_argument("--events", type=int, default=EVENTS, help="of each timeline")
    parser.add_argument("--quick", action="store_true", help="fewer profiles")
    options = parser.parse_args()
    profiles = 40 if options.quick else options.profiles
    print(place("pytest-kernelprof", "msgspec"))
    print()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        path.write_bytes(codec.encode(pack(run_of(profiles, options.events))))
        size = path.stat().st_size / 2**20
        rows = []
        for function in ("without timelines", "whole"):
            peak, seconds = read(path, function)
            rows.append([function, f"{size:.0f}", f"{peak:.0f}", f"{seconds:.2f}"])
    print(table(["reading", "file MiB", "peak MiB", "CPU s"], rows))
    print()
    worst = float(rows[0][2]) / size
    kept = met(worst <= MOST_TIMES_THE_FILE)
    print(f"to compare takes {worst:.1f} times the file (at most {MOST_TIMES_THE_FILE}): {kept}")


if __name__ == "__main__":
    main()
