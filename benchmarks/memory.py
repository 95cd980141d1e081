"""Does memory stay flat, however many profiles one test takes?

A test of its own, run by pytest with --kernelprof-report, takes 200 profiles to warm up and then
very many: small ones, and some of a thousand operators each. What grows is read inside of the test,
where all of them are still held, and again when the report has been written.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import device_and_place, device_kind, met, table

LIMIT_MB = 100.0
WARM_UP = 200
TEST = """
import json, os, torch
from pathlib import Path

def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

def test_many(kernel_profile, kernelprof_device):
    x = torch.zeros(16, device=kernelprof_device)
    def work():
        for _ in range({operators}):
            x.add(1)
    for _ in range({warm_up}):
        kernel_profile(work)
    before = resident()
    for _ in range({profiles}):
        kernel_profile(work)
    assert len(kernel_profile.profiles) == {warm_up} + {profiles}
    assert all(one.kernel_count == {operators} for one in kernel_profile.profiles)
    Path({result!r}).write_text(json.dumps([before, resident()]))
"""
CONFTEST = """
import json
from pathlib import Path
from test_many import resident

def pytest_unconfigure():
    path = Path({result!r})
    path.write_text(json.dumps([*json.loads(path.read_text()), resident()]))
"""


def grown(kind: str, profiles: int, operators: int) -> tuple[float, float, float]:
    """Megabytes by which memory grew in the test, by the end of the run, and its seconds."""
    import json

    with tempfile.TemporaryDirectory() as folder:
        result = str(Path(folder, "result.json"))
        values = {
            "operators": operators,
            "profiles": profiles,
            "warm_up": WARM_UP,
            "result": result,
        }
        Path(folder, "test_many.py").write_text(TEST.format(**values))
        Path(folder, "conftest.py").write_text(CONFTEST.format(result=result))
        options = ["-q", "-p", "no:cacheprovider", "--kernelprof-report", "--kernelprof-rounds=1"]
        command = [sys.executable, "-m", "pytest", *options, f"--kernelprof-device={kind}"]
        start = time.monotonic()
        done = subprocess.run(
            [*command, folder],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTEST_ADDOPTS": ""},
        )
        took = time.monotonic() - start
        assert done.returncode == 0, done.returncode
        before, after, end = json.loads(Path(result).read_text())
    return after - before, end - before, took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--small", type=int, default=10_000, help="profiles of one operator")
    parser.add_argument("--large", type=int, default=3_000, help="profiles of 1,000 operators")
    parser.add_argument("--quick", action="store_true", help="a tenth of each")
    options = parser.parse_args()
    kind, part = device_kind(options.device), 10 if options.quick else 1
    rows, most = [], 0.0
    for profiles, operators in ((options.small // part, 1), (options.large // part, 1_000)):
        held, end, took = grown(kind, profiles, operators)
        most = max(most, held, end)
        rows.append(
            [f"{profiles:,} of {operators:,}", f"{held:+.1f}", f"{end:+.1f}", f"{took:.0f}"]
        )
    print(f"Profiles of one test, after {WARM_UP} to warm up ({kind})")
    print(device_and_place("cuda" if kind == "cuda" else "cpu", "pytest-kernelprof"))
    print()
    header = ["profiles, operators each", "MB in the test", "MB with the report", "s"]
    print(table(header, rows))
    print()
    print(f"most: {most:+.1f} MB; target: below {LIMIT_MB:.0f} MB: {met(most < LIMIT_MB)}")


if __name__ == "__main__":
    main()
