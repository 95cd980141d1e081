"""One GPU shared by several processes: who counts and who times do not disturb each other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from pytest_kernelprof.gpu import usage_lock
from pytest_kernelprof.gpu.inventory import current_device
from pytest_kernelprof.gpu.usage_lock import PARTNER_OF

RunGpu = Callable[..., pytest.RunResult]

pytestmark = pytest.mark.usefixtures("_minds_who_disturbs_the_gpu")

MIXED = """
import pytest, torch
def once(t): return t @ t
@pytest.fixture
def x():
    return torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
@pytest.mark.parametrize("i", range(24))
@pytest.mark.max_kernels(1)
def test_counted(kernel_profile, x, i):
    kernel_profile(once, x)
@pytest.mark.parametrize("i", range(12))
@pytest.mark.max_cuda_time("1s")
@pytest.mark.max_latency("1s")
def test_timed(kernel_profile, x, i):
    kernel_profile(once, x)
@pytest.mark.parametrize("i", range(12))
def test_of_others(x, i):
    for _ in range(2000):
        once(x)  # and leaves it to the device to end them
"""

STRANGER = """
import sys, torch
from pytest_kernelprof.gpu.usage_lock import sharing
from pytest_kernelprof.gpu.inventory import current_device
x = torch.zeros(4, device="cuda")
with sharing(current_device("cuda"), 60, "test_of_a_stranger"):
    print("shares", flush=True)
    sys.stdin.read()
"""

PARTNER = """
import torch
from pytest_kernelprof import profile
x = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
found = profile(torch.mm, x, x)
print("partner", found.kernel_count, found.record.conditions.contended)
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> RunGpu:
    def run_it(code: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=code)
        return pytester.runpytest_subprocess(
            "-p", "no:cacheprovider", "--kernelprof-report", *options
        )

    return run_it


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start a process that is no partner of this one."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> subprocess.Popen[str]:
        environment = {key: value for key, value in os.environ.items() if key != PARTNER_OF}
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        started.append(process)
        assert process.stdout
        assert process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("workers", ["-n0", "-n4", "-n8"])
def test_workers_on_one_gpu_leave_no_verdict_undecided(run: RunGpu, workers: str) -> None:
    result = run(MIXED, workers, "-o", "kernelprof_spread_workers=false")
    result.assert_outcomes(passed=48, warnings=0)
    result.stdout.no_fnmatch_line("*timed while other processes worked on the GPU*")
    result.stdout.no_fnmatch_line("*: undecided, *")


def test_a_test_ends_when_the_device_is_done_with_it(run: RunGpu) -> None:
    result = run(
        """
import pytest, torch
x = torch.zeros(4, device="cuda")
@pytest.fixture
def ends(request):
    yield
    assert torch.cuda.current_stream().query()
def test_it(ends):
    torch.cuda._sleep(500_000_000)
@pytest.mark.max_kernels(1)
def test_other(kernel_profile):
    kernel_profile(lambda: x + 1)
"""
    )
    result.assert_outcomes(passed=2)


def test_who_shares_it_for_too_long_makes_a_time_undecided_and_is_named(
    run: RunGpu, stranger: Callable[[str], object]
) -> None:
    stranger(STRANGER)
    result = run(
        """
import pytest, torch
x = torch.zeros(4, device="cuda")
@pytest.mark.max_kernels(1)
@pytest.mark.max_cuda_time("1s")
def test_it(kernel_profile):
    kernel_profile(lambda: x + 1)
""",
        "-o",
        "kernelprof_lock_timeout=1",
    )
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.re_match_lines(
        # One holder is named: where other workers' tests share the GPU, too, it may be theirs.
        [r".*undecided, CONTENDED: .* held by pid .*(test_of_a_stranger\) since|and by \d+ more)"]
    )


def test_a_process_that_a_test_starts_times_under_the_tests_own_lock() -> None:
    device = current_device("cuda")
    with usage_lock.sharing(device, 60, "the owner"):
        done = subprocess.run(
            [sys.executable, "-c", PARTNER], capture_output=True, text=True, timeout=300
        )
    assert done.stdout.startswith("partner 1 "), done.stdout + done.stderr
    if os.environ.get("PYTEST_XDIST_WORKER") is None:  # else other tests start strangers
        assert done.stdout == "partner 1 False\n"
