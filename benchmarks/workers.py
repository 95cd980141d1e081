"""Several workers on one GPU: wall time, undecided verdicts and failures of a mixed suite."""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import device_and_place, device_kind, in_turn, met, spread, table

# Tests that count, that time, and that use the device without being measured. Limits are far from
# what the calls take, so a verdict that is not reached, or a failure, is other workers' doing.
SUITE = """
import pytest, torch

DEVICE = {device!r}

def mlp(x):
    return torch.nn.functional.gelu(x @ x) + 1

@pytest.fixture(scope="module")
def x():
    size = 2048 if DEVICE == "cuda" else 64
    return torch.randn(size, size, device=DEVICE)

@pytest.mark.parametrize("i", range({counting}))
@pytest.mark.max_kernels(9)
def test_counts(kernel_profile, kernelprof_device, x, i):
    kernel_profile(mlp, x)

@pytest.mark.parametrize("i", range({timed}))
@pytest.mark.max_cuda_time("1s")
@pytest.mark.max_latency("10s")
def test_times(kernel_profile, kernelprof_device, x, i):
    kernel_profile(mlp, x)

@pytest.mark.parametrize("i", range({plain}))
def test_of_others(x, i):
    for _ in range(200):
        mlp(x)
"""
# Warnings of workers come to the controller, which writes them down.
CONFTEST = """
import json, os
NOTED = []
def pytest_warning_recorded(warning_message):
    NOTED.append(str(warning_message.message))
def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        with open("noted.json", "w") as file:
            json.dump(NOTED, file)
"""


@dataclass(frozen=True)
class Seen:
    """One run: seconds, and how its verdicts were."""

    wall_s: float
    passed: int
    failed: int
    errors: int
    undecided: int
    beside_others: int


def run(project: Path, kind: str, workers: int) -> Seen:
    command = [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"-n{workers}"),
        *(f"--kernelprof-device={kind}", "--kernelprof-report", "-o"),
        "kernelprof_spread_workers=false",
    ]
    environment = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
    start = time.perf_counter()
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    wall_s = time.perf_counter() - start
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest failed:\n{done.stdout}{done.stderr}")
    noted = json.loads((project / "noted.json").read_text())
    last = done.stdout.splitlines()[-1]
    return Seen(
        wall_s=wall_s,
        passed=number(r"(\d+) passed", last),
        failed=number(r"(\d+) failed", last),
        errors=number(r"(\d+) errors?", last),
        undecided=sum("UNDECIDED" in words for words in noted),
        beside_others=number(r"(\d+) timed while other processes worked", done.stdout),
    )


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def total(seen: list[Seen], what: str) -> str:
    return str(sum(getattr(one, what) for one in seen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 8], metavar="N")
    parser.add_argument("--counting", type=int, default=96, help="tests that count")
    parser.add_argument("--timed", type=int, default=48, help="tests that time")
    parser.add_argument("--plain", type=int, default=48, help="tests that are not measured")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each number of workers")
    parser.add_argument("--quick", action="store_true", help="one round of a suite of 16 tests")
    options = parser.parse_args()
    kind = device_kind(options.device)
    suite = {"counting": options.counting, "timed": options.timed, "plain": options.plain}
    rounds = options.rounds
    if options.quick:
        suite, rounds = {"counting": 8, "timed": 4, "plain": 4}, 1

    found: dict[int, list[Seen]] = {workers: [] for workers in options.workers}
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "pytest.ini").write_text("[pytest]\n")
        (project / "conftest.py").write_text(CONFTEST)
        (project / "test_mixed.py").write_text(SUITE.format(device=kind, **suite))
        for workers in in_turn(options.workers, rounds):
            found[workers].append(run(project, kind, workers))

    tests = sum(suite.values())
    told = ", ".join(f"{count} {name}" for name, count in suite.items())
    print(f"{tests} tests ({told}), workers that share a device: {rounds} runs of each, in turn")
    print(device_and_place(kind, "pytest", "pytest-xdist", "pytest-kernelprof"))
    print()
    columns = ["workers", "s, median [quartiles]", "passed", "failed", "errors", "undecided"]
    rows = [
        [
            str(workers),
            spread([one.wall_s for one in seen], 1),
            *(total(seen, what) for what in ("passed", "failed", "errors", "undecided")),
            total(seen, "beside_others"),
        ]
        for workers, seen in found.items()
    ]
    print(table([*columns, "timed beside others"], rows))
    print()
    clean = [one.failed + one.errors + one.undecided for seen in found.values() for one in seen]
    print(f"no failure, no error and no undecided verdict: {met(not sum(clean))}")
    walls = {n: statistics.median(one.wall_s for one in seen) for n, seen in found.items()}
    first = options.workers[0]
    for workers in options.workers[1:]:
        ratio = walls[first] / walls[workers]
        print(f"-n {workers} takes 1/{ratio:.2f} of the time of -n {first}")


if __name__ == "__main__":
    main()
