"""When a run's tests share the GPU: which code is told of, in runs without one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_kernelprof.gpu import usage_lock

Run = Callable[..., pytest.RunResult]

TESTS = """
import seeing
@pytest.fixture
def made():
    seeing.note("set up")
    yield
    seeing.note("torn down")
@pytest.mark.max_kernels(9)
def test_it(kernel_profile, kernelprof_device):
    kernel_profile(lambda: seeing.note("measured") or three())
def test_of_others(made):
    seeing.note("called")
    breakpoint()
    seeing.note("went on")
    raise KeyError("its own")
"""
# What debuggers are made of is pytest's: it calls the hooks when this one is entered and left.
SEEING = """
from pytest_kernelprof.gpu import usage_lock
stop, go_on = usage_lock.stop, usage_lock.go_on
def note(what):
    with open(FILE, "a") as file:
        print(what, *(one.who.partition("::")[2] for one in usage_lock._stretches), file=file)
class Debugger:
    quitting = False
    def __init__(self, *_, **__): pass
    def set_trace(self, *_): self.do_continue("")
    def do_continue(self, _): note("in the debugger")
    def reset(self): pass
    def interaction(self, *_): note("post mortem")
"""


@pytest.fixture
def seen(pytester: pytest.Pytester) -> Callable[[], list[str]]:
    file = pytester.path / "seen.txt"
    pytester.makepyfile(seeing=f"FILE = {str(file)!r}\n{SEEING}")
    return lambda: file.read_text().splitlines()


def test_fixtures_calls_and_teardowns_share_it_also_of_tests_that_are_not_measured(
    run: Run, seen: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(usage_lock, "stop", lambda: told.append("stop"))
    monkeypatch.setattr(usage_lock, "go_on", lambda: told.append("go on"))
    result = run(TESTS, "--pdb", "--pdbcls=seeing:Debugger", device=None)
    result.assert_outcomes(passed=1, failed=1)
    lines = seen()
    assert {line for line in lines if "measured" in line} == {"measured test_it"}
    assert [line for line in lines if "measured" not in line] == [
        "set up test_of_others",
        "called test_of_others",
        "in the debugger test_of_others",
        "went on test_of_others",
        "post mortem",  # when the call is over, and holds nothing
        "torn down test_of_others",
    ]
    assert told == ["stop", "go on", "stop"]
    assert not usage_lock._stretches


def test_a_run_on_the_cpu_and_one_that_measures_nothing_share_nothing(
    run: Run, seen: Callable[[], list[str]]
) -> None:
    run(TESTS, "--pdbcls=seeing:Debugger")
    alone = "import seeing\ndef test_it():\n    seeing.note('alone')\n"
    run(alone, device=None)
    run(TESTS, "--pdbcls=seeing:Debugger", "--kernelprof-disable", device=None)
    assert {line.partition(" test_")[1] for line in seen()} == {""}


def test_nothing_of_it_is_in_a_tests_traceback(run: Run, seen: Callable[[], list[str]]) -> None:
    result = run(TESTS, "--pdbcls=seeing:Debugger", "--fulltrace", device=None)
    result.stdout.no_fnmatch_line("*plugin/measuring.py*")
