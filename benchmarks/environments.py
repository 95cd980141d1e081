"""What do two environments that differ in one package say? None of the unchanged tests is worse; a
package that is slower, by more work, is found with its kernel and its size. Seen on a GPU.

Both are this Python with another folder in front of its path, on which stands the package ``ops``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from against import DOCUMENT, Project, compared
from harness import device_and_place, device_kind, met, table

from pytest_kernelprof.records.comparison import ProfileComparison

OPS = """
import torch
VERSION = {version!r}
def norm(x): return torch.nn.functional.layer_norm(x, x.shape[-1:])
def scale(x, out):
    n = int(x.shape[0] * {share})
    torch.add(x[:n], 1.0, out=out[:n])
    return out  # of one shape: else it is other work, which is not timed
"""
TESTS = """
import pytest, torch, ops
torch.manual_seed(0)
ROWS = 64 if {device!r} == "cpu" else 8192
x = torch.randn(ROWS, 1024, device={device!r})
out = torch.empty_like(x)

@pytest.mark.parametrize("n", range({tests}))
def test_it(kernel_profile, n):
    kernel_profile(*((ops.scale, x, out) if n % 2 else (ops.norm, x)))
"""
PLANTED = 0.12
"""So much more of the rows the planted package works on."""


def environment(folder: Path, version: str, share: float) -> str:
    """The Python of an environment with this version of the package."""
    about = folder / f"ops-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ops\nVersion: {version}\n")
    (folder / "ops.py").write_text(OPS.format(version=version, share=share))
    kept = os.environ.get("PYTHONPATH", "")
    python, path = folder / "python", os.pathsep.join(filter(None, [str(folder), kept]))
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return str(python)


def run(folder: Path, kind: str, tests: int, share: float) -> tuple[ProfileComparison, ...]:
    """Compare the tests with the same package in another version, where this one does more."""
    project = Project(folder, kind, tests)
    code = folder / "code"
    (code / "tests").mkdir(parents=True)
    (code / "pytest.ini").write_text("[pytest]\n")
    (code / "tests" / "test_it.py").write_text(TESTS.format(device=kind, tests=tests))
    old = environment(folder / "old", "1.0", 0.8)
    new = environment(folder / "new", "1.1", share)
    done, wall_s = project.tried(code, f"--kernelprof-against-python={old}", python=new)
    if "(ops 1.0 -> 1.1)" not in done.stdout:
        raise SystemExit(f"no versions in the report\n{done.stdout[-4000:]}{done.stderr[-3000:]}")
    print(f"  {tests} tests in {wall_s:.0f} s", *worse_lines(done.stdout), sep="\n  ", flush=True)
    return compared(code / DOCUMENT, done)


def worse_lines(printed: str) -> list[str]:
    """The causes that a report names."""
    return [line for line in printed.splitlines() if line.startswith("✗")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--tests", type=int, default=100)
    options = parser.parse_args()
    tests, kind = options.tests, device_kind(options.device)
    print(device_and_place(kind, "pytest", "pytest-kernelprof", "triton"))
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        same = run(Path(temporary, "same"), kind, tests, 0.8)
        few = max(2, tests // 10)
        slower = run(Path(temporary, "slower"), kind, few, 0.8 * (1 + PLANTED))
    worse = sum(one.change == "worse" for one in same)
    rows.append([f"{tests} unchanged tests: worse", str(worse), "0", met(worse == 0)])
    timed = sum(one.paired is not None and bool(one.paired.pairs) for one in same)
    is_timed = timed == tests or kind == "cpu"
    rows.append(["the same: timed in turn", str(timed), str(tests), met(is_timed)])
    undecided = sum(one.change == "undecided" for one in same)
    most = tests // 50
    rows.append(["the same: undecided", str(undecided), f"{most}", met(undecided <= most)])
    planted, others = slower[1::2], slower[::2]
    named = [
        one.kernels.of("slower", "reconfigured")  # more rows are more blocks
        for one in planted
        if one.change == "worse" and one.kernels is not None
    ]
    found = sum(bool(one) for one in named)
    is_found = found == len(planted) or kind == "cpu"  # where no times are compared
    words = f"{len(planted)} planted, {PLANTED:.0%} more rows: worse, with their kernel"
    rows.append([words, str(found), str(len(planted)), met(is_found)])
    sizes = [one.paired.ratio - 1 for one in planted if one.paired is not None and one.paired.pairs]
    told = f"{min(sizes):+.1%} .. {max(sizes):+.1%}" if sizes else "none"
    rows.append(["their size", told, f"{PLANTED:+.0%}", ""])
    wrong = sum(one.change == "worse" for one in others)
    rows.append([f"{len(others)} beside them: worse", str(wrong), "0", met(wrong == 0)])
    print(table(["what", "seen", "wanted", "met"], rows))


if __name__ == "__main__":
    main()
