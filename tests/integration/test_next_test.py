"""What one test leaves behind does not reach the next."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from pytest_kernelprof.gpu import inventory
from pytest_kernelprof.gpu import inventory as devices
from pytest_kernelprof.gpu.inventory import bound

Run = Callable[..., pytest.RunResult]

AFTER = """
@pytest.mark.max_kernels(3)
def test_{0}_after(kernel_profile):
    kernel_profile(three)
@pytest.mark.xfail(strict=True)
@pytest.mark.max_kernels(2)
def test_{0}_over():
    three()
"""
HEAD = """
import signal, sys, threading, weakref
from unittest import mock
kept = []
class Gone: pass
@pytest.fixture(scope="session", autouse=True)
def as_before():
    before = signal.getsignal(signal.SIGALRM)
    yield
    mock.patch.stopall()
    signal.signal(signal.SIGALRM, before)
"""
LEAVES = {
    "an open block": """
    block = kernel_profile.region("left")
    kept.append(block)
    block.__enter__()
    three()
""",
    "one of a thread": """
    block = kernel_profile.region("left")
    kept.append(block)
    thread = threading.Thread(target=block.__enter__)
    thread.start(), thread.join()
""",
    "an alarm": """
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the alarm"))
    gone = Gone()
    kept.append(weakref.ref(gone, lambda _: pytest.fail("the alarm")))
    del gone  # for one may go off in such a callback, of which Python only warns
    tracer = sys.gettrace()
    sys.settrace(None)  # an exception in coverage's own would leave its lock held for ever
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        while True:
            with kernel_profile.region("alarmed"):
                three()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.settrace(tracer)
""",
    "a profiler inside": """
    with kernel_profile.region("profiled"):
        torch.profiler.profile().start()
""",
    "patches": """
    kept.append(mock.patch("torch.autograd.profiler._disable_profiler", side_effect=ValueError))
    kept.append(mock.patch("torch.profiler.profiler.prof.profile", side_effect=ValueError))
    [patch.start() for patch in kept[-2:]]
    kernel_profile(three)
""",
}


# No other unraisable exception is ignored.
NO_ALARM = "ignore:(?s).*the alarm:pytest.PytestUnraisableExceptionWarning"


def test_whatever_it_leaves_the_next_test_is_as_if_alone(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfilterwarnings = {NO_ALARM}\n")
    code = HEAD
    for number, body in enumerate(LEAVES.values()):
        code += f"def test_{number}(kernel_profile):{body}" + AFTER.format(number)
    result = run(code)
    counts = result.parseoutcomes()
    assert counts.pop("passed") == len(LEAVES) + 1  # that which patches passes as well
    assert counts.pop("xfailed") == len(LEAVES)
    # The others leave a block that was not measured, or whose profile is incomplete.
    assert counts == {"errors": 3, "failed": 1}


def test_a_broken_cuda_is_an_error_of_all_that_ask_for_it_and_names_the_culprit(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "_broken", [])
    monkeypatch.setattr(inventory, "_what_is_broken", lambda: os.environ.get("BROKEN", ""))
    monkeypatch.setattr(devices, "why_no_gpu", lambda: "")
    monkeypatch.setenv("BROKEN", "")
    code = """
import os
def test_culprit():
    os.environ["BROKEN"] = "CUDA error: device-side assert triggered"
@pytest.mark.xfail
def test_fixture(kernel_profile):
    pass
@pytest.mark.max_kernels(1)
def test_marked():
    pass
@pytest.mark.kernelprof(device="cpu")
@pytest.mark.max_kernels(3)
def test_on_the_cpu(kernel_profile):
    kernel_profile(three)
def test_plain():
    pass
"""
    result = run(code, device=None)
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(
        ["*ProfilerUnavailable: *::test_culprit broke CUDA in this process (CUDA error: device-*"]
    )
    result = run(code, "--kernelprof-all", device=None)
    result.assert_outcomes(passed=3, errors=2)


NO_IMPORTS = """
import builtins, threading
from unittest import mock

found = builtins.__import__
def refused(name, *args, **kwargs):
    if name.startswith(("torch", "pytest_kernelprof")): raise ImportError(name)
    return found(name, *args, **kwargs)  # pytest itself needs some

@pytest.fixture
def no_imports():
    with mock.patch.object(builtins, "__import__", refused): yield

def test_a_failure(no_imports):
    assert three() is None, "mine"
def test_b_passes(no_imports):
    three()
def test_c_own_patch(monkeypatch):
    monkeypatch.setattr(builtins, "__import__", refused)
    three()
@pytest.mark.max_kernels(2)
def test_d_limit(no_imports):
    three()
"""


@pytest.mark.parametrize("options", [(), ("--kernelprof-all", "--kernelprof-report", "-v")])
def test_a_test_that_lets_little_be_imported_ends_as_without_us(
    run: Run, options: tuple[str, ...]
) -> None:
    result = run(NO_IMPORTS, *options)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["E *mine*", "E   max_kernels: 3 > limit 2"])
    if options:
        result.stdout.fnmatch_lines(["* 3 *test_c_own_patch"])


class Breaks:
    """A plugin that ends the run in the middle of a test."""

    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        assert call.when == "setup", "mine"


def test_a_run_that_breaks_off_leaves_no_profiler_running(run: Run) -> None:
    result = run(
        HEAD + "def test_it(kernel_profile):" + LEAVES["an open block"], plugins=[Breaks()]
    )
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    assert not bound().any_profiler_runs
