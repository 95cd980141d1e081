"""What each report of a large run costs the process that reports: seconds of the processor, and
memory at the peak.

A run of 2,000 profiled tests of 20 kernels is written down as records and told in each form, each
in a process of its own; what the document alone takes there is told apart. Then pytest runs tests
with four workers on the CPU, with no report and with all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import cycle
from pathlib import Path
from typing import Any

from harness import met, place, spread, table

from pytest_kernelprof.records import codec
from pytest_kernelprof.records.document import Run, Test, pack
from pytest_kernelprof.records.metrics import METRICS
from pytest_kernelprof.records.profile import Kernel, Metric, Place, Profile, Timeline, Verdict
from pytest_kernelprof.records.recording import Environment, Integrity
from pytest_kernelprof.report.files import FORMS

TESTS, KERNELS, ROUNDS, WORKERS = 2_000, 20, 12, 4
MOST_SECONDS = 3.0
_NAMES = (
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor>(int)",
    "triton_poi_fused_gelu_mul_0",
)
# Each report is told in a process that has read the document; the peak is that of the process less
# what it was before. Kilobytes by /proc, since getrusage begins with the parent's.
_TELL = """
import json, sys, time
from pytest_kernelprof.baselines.run_documents import read_run
def peak():
    (line,) = (one for one in open("/proc/self/status") if one.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
before, began = peak(), time.process_time()
run = read_run(sys.argv[1], timelines=True)
read, held = time.process_time() - began, peak() - before
began = time.process_time()
if sys.argv[2] == "terminal":
    from pytest_kernelprof.summary.run import summary_of
    from pytest_kernelprof.report.tables import Style
    from pytest_kernelprof.report.terminal import report_lines
    size = sum(len(span.text) for line in report_lines(summary_of(run), Style()) for span in line)
elif sys.argv[2] == "annotations":
    from pytest_kernelprof.report.github import annotations_of, commands
    size = sum(map(len, commands(annotations_of(run), lambda place: place.file)))
else:
    from pytest_kernelprof.report.files import FORMS
    size = len(FORMS[sys.argv[2]](run)[0])
print(json.dumps([time.process_time() - began, peak() - before, size, read, held]))
"""
_PROJECT = """
import pytest, torch
x = torch.ones(4, 4)
def twenty():
    y = x
    for _ in range(20):
        y = y + 1
    return y
@pytest.mark.max_kernels(20)
@pytest.mark.parametrize("i", range({tests}))
def test_it(kernel_profile, i):
    kernel_profile(twenty)
"""
# In the controller, at its very end.
_CONFTEST = """
import os, time
def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        (line,) = (one for one in open("/proc/self/status") if one.startswith("VmHWM"))
        with open(os.environ["COST"], "w") as file:
            file.write(f"{time.process_time()} {int(line.split()[1]) / 1024}")
"""


def run_of(tests: int, broken_every: int) -> Run:
    return Run(
        tuple(_test(i, broken=i % broken_every == 0) for i in range(tests)),
        "2026-11-22T08:50:00Z",
        {"pytest": "9.2.0"},
    )


def _test(i: int, *, broken: bool) -> Test:
    kernels = tuple(
        Kernel(
            name,
            3.0 + (i + j) % 17,
            (64, 1, 1),
            (128, 1, 1),
            32,
            0,
            0,
            7,
            "cudaLaunchKernel",
            ("aten::mm", "aten::linear"),
            f"src/mlp.py:{j}",
        )
        for j, name in zip(range(KERNELS), cycle(_NAMES), strict=False)
    )
    metrics = {}
    for name, spec in METRICS.items():
        value = float(KERNELS if name == "kernels" else 100 + i % 7)
        rounds = tuple(value + (k % 3) * (spec.unit == "us") for k in range(ROUNDS))
        metrics[name] = Metric(name, spec.kind, spec.unit, rounds=rounds, value=value)
    verdict = Verdict(
        limit="max_kernels",
        outcome="failed" if broken else "passed",
        metric="kernels",
        unit="count",
        measured=KERNELS,
        allowed=KERNELS - broken,
    )
    file = f"tests/test_{i // 50:02}.py"
    profile = Profile(
        environment=Environment("cuda", "NVIDIA H200", "sm_90", {"torch": "2.11.0"}),
        metrics=metrics,
        kernels=kernels,
        rounds=ROUNDS,
        verdicts=(verdict,),
        place=Place(file, i % 50 + 1),
        integrity=Integrity(launches=KERNELS, matched=KERNELS),
        timeline=_timeline(),
    )
    name = f"{file}::TestThings::test_{i % 50:02}[{i % 3}-bf16]"
    return Test(name, (profile,), outcome="failed" if broken else "passed", place=profile.place)


def _timeline(events: int = 3 * KERNELS) -> Timeline:
    return Timeline(
        kind=("operator", "call", "kernel") * KERNELS,
        name=tuple(f"aten::op{i % 50}" for i in range(events)),
        lane=("thread 4711", "thread 4711", "device 0 stream 7") * KERNELS,
        start_us=tuple(i * 1.37 for i in range(events)),
        duration_us=tuple(0.7 + i % 13 for i in range(events)),
        correlation=tuple(i // 3 for i in range(events)),
    )


def told(path: Path, form: str) -> list[float]:
    """Seconds and megabytes of telling, bytes told; seconds and megabytes of reading."""
    done = subprocess.run(
        [sys.executable, "-c", _TELL, str(path), form],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
    )
    found: list[Any] = json.loads(done.stdout)
    return found


def ran(folder: Path, *options: str) -> tuple[float, float]:
    """Seconds of the processor and megabytes at the peak, of the controller of a pytest run."""
    cost = folder / "cost"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", str(WORKERS), "-p", "no:cacheprovider"),
            *("--kernelprof-device=cpu", "--kernelprof-rounds=2", *options),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "COST": str(cost), "MALLOC_ARENA_MAX": "1"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    seconds, megabytes = map(float, cost.read_text().split())
    return seconds, megabytes


def from_records(tests: int, repeats: int) -> tuple[list[list[str]], float]:
    forms = [*FORMS, "terminal", "annotations"]
    rows, together = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        path.write_bytes(codec.encode(pack(run_of(tests, broken_every=10))))
        found: dict[str, list[list[float]]] = {form: [] for form in forms}
        for _ in range(repeats):
            for form in forms:
                found[form].append(told(path, form))
        size = path.stat().st_size / 2**20
    for form, several in found.items():
        seconds, peaks, sizes, reads, held = zip(*several, strict=True)
        together += min(seconds)
        rows.append(
            [
                form,
                spread(seconds),
                f"{max(peaks):.0f}",
                f"{sizes[0] / 2**20:.2f}",
                f"{spread(reads)}, {max(held):.0f} MiB of {size:.0f}",
            ]
        )
    return rows, together


def from_a_run(tests: int) -> tuple[list[list[str]], float]:
    """One run without a report, and one with all of them."""
    options = ["--kernelprof-report", "--kernelprof-github"]
    options += [f"--kernelprof-{form.replace('_', '-')}={form}.out" for form in FORMS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_it.py").write_text(_PROJECT.format(tests=tests))
        (folder / "conftest.py").write_text(_CONFTEST)
        bare, told = ran(folder), ran(folder, *options)
    rows = [
        [what, f"{seconds:.1f}", f"{megabytes:.0f}"]
        for what, (seconds, megabytes) in (("no report", bare), ("all reports", told))
    ]
    return rows, told[0] - bare[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tests", type=int, default=TESTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="fewer tests, once")
    options = parser.parse_args()
    tests, repeats = (200, 1) if options.quick else (options.tests, options.repeats)
    print(place("pytest-kernelprof", "pytest", "pytest-xdist", "msgspec"))
    print()
    rows, together = from_records(tests, repeats)
    print(
        f"{tests} profiled tests of {KERNELS} kernels, one in ten over its limit, told from records"
    )
    titles = ["report", "CPU s", "peak MiB", "told MiB", "reading the document: CPU s, MiB"]
    print(table(titles, rows))
    print()
    rows, more = from_a_run(tests)
    print(f"{tests} tests of {KERNELS} operators, pytest -n {WORKERS} on the CPU: its controller")
    print(table(["report", "CPU s", "peak MiB"], rows))
    print()
    kept = met(together <= MOST_SECONDS)
    print(f"all reports take {together:.1f} s (at most {MOST_SECONDS:.0f}): {kept}")
    print(f"all of them together cost a run {more:.1f} s more")


if __name__ == "__main__":
    main()
