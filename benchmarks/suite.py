"""A public suite bare and with --kernelprof-all: are all outcomes the same, and the counts true?

The suite runs in processes of its own: bare, looked at, and by hand, with a plain torch.profiler
around each test, whose trace is exported and its events of category "kernel" counted. Tests that
fail only under one of the first two are named. The kernels of some tests, spread over the suite,
are compared with those by hand, in runs of these tests alone. What follows `--` goes to pytest.

    python benchmarks/suite.py path/to/Liger-Kernel/test -- -k rms_norm -x

With `--marked` it runs bare and with limits on every second test, as a library does that marks its
tests, on a machine without a CUDA device: are all outcomes the same, and is no limit judged?
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import device_and_place, device_kind, met, table

Found = dict[str, dict[str, Any]]

HERE = Path(__file__).parent
BY_HAND = "KERNELPROF_SUITE_PROFILER"


@dataclass(frozen=True)
class Run:
    """One run of pytest: what was found of each test, and the folder that their names start at."""

    tests: Found
    root: Path
    status: int
    seconds: float


def run(suite: Path, options: list[str], **environment: str) -> Run:
    """Run pytest in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
        variables = {
            **os.environ,
            **environment,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "KERNELPROF_SUITE": str(result),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "suite_outcomes", *options]
        start = time.monotonic()
        done = subprocess.run(command, cwd=suite, env=variables, capture_output=True, text=True)
        took = time.monotonic() - start
        if not result.exists():
            sys.exit(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr}")
        found = json.loads(result.read_text())
        if not found["tests"]:
            sys.exit(f"no test ran, pytest ended with {done.returncode}:\n{done.stdout[-2000:]}")
        return Run(found["tests"], Path(found["root"]), done.returncode, took)


def differing(bare: Found, looked_at: Found) -> list[str]:
    """How outcomes differ, a line for each test."""
    lines = []
    for test in sorted(bare.keys() | looked_at.keys()):
        one, other = (found.get(test, {}).get("outcomes") for found in (bare, looked_at))
        if one != other:
            lines.append(f"{test}: bare {one}, looked at {other}")
    return lines


def spread(found: Found, wanted: int) -> list[str]:
    """Tests with kernels and without a tuner in them, spread evenly over the suite."""
    usable = [
        test
        for test, one in found.items()
        if one["kernels"] and not one["why"] and "call passed" in one["outcomes"]
    ]
    step = max(1.0, len(usable) / wanted)
    return [usable[int(i * step)] for i in range(min(wanted, len(usable)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("suite", type=Path, help="a folder, in which pytest runs")
    parser.add_argument("--counts", type=int, default=30, help="tests whose kernels are counted")
    parser.add_argument("--runs", type=int, default=1, help="of each kind, in turn")
    parser.add_argument("--marked", action="store_true", help="limits on every second test")
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, more = parser.parse_args(sys.argv[1:at]), sys.argv[at + 1 :]
    if options.marked:
        compare_marked(options.suite, more)
        return
    kind = device_kind(options.device)
    look = ["--kernelprof-all", f"--kernelprof-device={kind}", "--kernelprof-report"]
    bares, looked_at, by_hand = [], [], []
    for _ in range(options.runs):
        bares.append(run(options.suite, ["-p", "no:kernelprof", *more]))
        looked_at.append(run(options.suite, [*look, *more]))
        by_hand.append(run(options.suite, ["-p", "no:kernelprof", *more], **{BY_HAND: "1"}))
    bare, ours, hand = runs = [
        min(several, key=lambda one: one.seconds) for several in (bares, looked_at, by_hand)
    ]
    print(f"{options.suite.resolve().name}: {len(bare.tests)} tests, bare and looked at ({kind})")
    print(device_and_place(kind, "triton", "pytest", "pytest-kernelprof"), "\n")
    lines = differing(bare.tests, ours.tests)
    numbers = sum(one["kernels"] is not None for one in ours.tests.values())
    more_ms = [(one.seconds - bare.seconds) / len(bare.tests) * 1e3 for one in (ours, hand)]
    rows = [
        ["exit status", *(str(one.status) for one in runs)],
        ["seconds, the quickest run", *(f"{one.seconds:.1f}" for one in runs)],
        ["times as long", "", *(f"{one.seconds / bare.seconds:.2f}" for one in (ours, hand))],
        ["median ms of a call", *(f"{median_ms(one.tests):.1f}" for one in runs)],
        ["more ms a test", "", *(f"{ms:.1f}" for ms in more_ms)],
        ["tests with a number", "-", str(numbers), "-"],
    ]
    print(table(["run", "bare", "looked at", "torch.profiler by hand"], rows), "\n")
    print(*lines, sep="\n")
    print(f"other outcomes: {len(lines)}; target: none: {met(not lines)}")
    if kind == "cuda":
        compare_counts(ours.root, spread(ours.tests, 2 * options.counts), options.counts, look)
    else:
        print("kernels by hand: need a GPU")


def compare_marked(suite: Path, more: list[str]) -> None:
    """Outcomes bare and with limits, which no test may notice where there is no CUDA device."""
    bare = run(suite, ["-p", "no:kernelprof", *more])
    marked = run(suite, more, KERNELPROF_SUITE_MARKS="1")
    print(f"{suite.resolve().name}: {len(bare.tests)} tests, bare and with limits on every second")
    print(device_and_place("cpu", "triton", "pytest", "pytest-kernelprof"), "\n")
    rows = []
    for told in ("call passed", "call failed", "call skipped", "setup failed", "setup skipped"):
        numbers = [
            sum(told in " ".join(one["outcomes"]) for one in each.tests.values())
            for each in (bare, marked)
        ]
        rows.append([told, *map(str, numbers)])
    left = [one.get("not_judged") for one in marked.tests.values()]
    rows.append(["limits not judged: no CUDA device", "-", str(left.count("no CUDA device"))])
    rows.append(["seconds", f"{bare.seconds:.0f}", f"{marked.seconds:.0f}"])
    print(table(["", "bare", "marked"], rows), "\n")
    lines = differing(bare.tests, marked.tests)
    print(*lines, sep="\n")
    print(f"other outcomes: {len(lines)}; target: none: {met(not lines)}")


def compare_counts(root: Path, tests: list[str], wanted: int, look: list[str]) -> None:
    """The counts of the same tests, ours and by hand, in runs of these tests alone.

    Where nothing that ran before has tuned a kernel, the test does; what the tuner launches is no
    part of our count, and is in the one by hand. Such tests are left out.
    """
    if not tests:
        print("no test has kernels to count")
        return
    by_hand = run(root, ["-p", "no:kernelprof", *tests], **{BY_HAND: "1"})
    ours = run(root, [*look, *tests])
    tuning = [test for test in tests if ours.tests.get(test, {}).get("why")]
    compared = [test for test in tests if test not in tuning][:wanted]
    rows, equal = [], 0
    for test in compared:
        mine, theirs = (one.tests.get(test, {}).get("kernels") for one in (ours, by_hand))
        equal += mine == theirs
        rows.append([test, f"{mine}", f"{theirs}", "" if mine == theirs else "DIFFERENT"])
    print("\n" + table(["test", "ours", "by hand", ""], rows), "\n")
    print(f"left out, since they tune a kernel when they run without the others: {len(tuning)}")
    print(f"equal: {equal} of {len(compared)}; target: all: {met(equal == len(compared))}")


def median_ms(found: Found) -> float:
    seconds = [one["seconds"] for one in found.values() if "seconds" in one]
    return statistics.median(seconds) * 1e3 if seconds else 0.0


if __name__ == "__main__":
    main()
