"""The option --kernelprof-all: every call phase is profiled, no code changed."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest
import torch
from reported import rows_of

Run = Callable[..., pytest.RunResult]


@pytest.mark.project("def test_it():\n    three()\n", "--kernelprof-all", "--kernelprof-report")
def test_a_plain_test_is_profiled_but_not_limited(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["  * 3  test_it", "1 profile*"])


def test_fixtures_are_not_part_of_the_call_phase(run: Run) -> None:
    result = run(
        """
@pytest.fixture
def y():
    return three()
def test_it(y):
    y + 1
""",
        "--kernelprof-all",
        "--kernelprof-report",
    )
    result.stdout.fnmatch_lines(["  * 1  test_it"])


def test_a_marked_test_keeps_its_limit(run: Run) -> None:
    result = run("@pytest.mark.max_kernels(2)\ndef test_it():\n    three()\n", "--kernelprof-all")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 3 > limit 2"])


def test_a_test_that_uses_the_fixture_is_not_profiled_twice(run: Run) -> None:
    result = run(
        "def test_it(kernel_profile):\n    kernel_profile(three)\n",
        "--kernelprof-all",
        "--kernelprof-report",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 profile*"])


def test_a_plain_test_that_fails_fails_as_ever(run: Run) -> None:
    result = run("def test_it():\n    assert three() is None, 'mine'\n", "--kernelprof-all")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *mine*"])


def test_without_a_gpu_a_plain_test_is_profiled_on_the_cpu(run: Run, no_gpu: None) -> None:
    result = run(
        "def test_it():\n    three()\n", "--kernelprof-all", "--kernelprof-report", device=None
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["  * 3  test_it"])


HAPPENS = """
import contextlib, sys, unittest
from torch.profiler import ProfilerActivity, profile

def by_hand():
    return profile(activities=[ProfilerActivity.CPU])

def test_a_profiler_of_its_own():
    with by_hand() as own:
        x + 1
    assert "aten::add" in [event.key for event in own.key_averages()]

def test_b_profiler_of_autograd():
    with torch.autograd.profiler.profile() as own:
        x + 1
    assert own.key_averages()

def test_b_profile_of_ours():
    from pytest_kernelprof import IncompleteProfile, profile
    assert profile(three, device="cpu", rounds=2).kernel_count == 3
    with pytest.raises(IncompleteProfile, match="pytest_kernelprof.profile is being profiled"):
        profile(lambda: profile(three, device="cpu"), device="cpu", rounds=2)

@pytest.fixture
def running():
    with by_hand() as own:
        yield
    assert own.events()

def test_c_profiler_of_a_fixture(running):
    x + 1

left = by_hand()

def test_d_profiler_left_running():
    left.start()
    x + 1

def test_e_that_ends_it():
    x * 2
    left.stop()
    assert {"aten::add", "aten::mul"} <= {event.key for event in left.key_averages()}

def test_f_fetches_the_fixture_as_it_runs(request):
    three()
    kernel_profile = request.getfixturevalue("kernel_profile")
    kernel_profile(three)
    assert kernel_profile.last.kernel_count == 3

def test_g_sees_no_frame_of_ours():
    assert not any("pytest_kernelprof" in name for name in frames(sys._getframe()))

def frames(frame):
    while frame:
        yield frame.f_code.co_filename
        frame = frame.f_back

def test_h_raises():
    {}["mine"]

def test_i_exits():
    raise SystemExit(3)

@pytest.mark.xfail(raises=KeyError, strict=True)
def test_j_is_expected_to_raise():
    {}["mine"]

def test_k_skips():
    pytest.skip("enough")

def elsewhere(fn):
    source = "def wrapped(): raise OSError('no line of the test')"
    exec(compile(source, "/nowhere/wrapped.py", "exec"), found := {})
    return found["wrapped"]

test_l_raises_elsewhere = elsewhere(None)

class TestIt(unittest.TestCase):
    def test_m(self):
        {}["mine"]

def test_z_is_profiled_as_ever():
    three()
"""


def outcomes_and_texts(result: pytest.RunResult) -> dict[str, tuple[str, str]]:
    """How each test fared, with the text of its failure."""
    reports = result.reprec.getreports("pytest_runtest_logreport")  # type: ignore[attr-defined]
    return {
        f"{report.nodeid} {report.when}": (report.outcome, str(report.longrepr))
        for report in reports
    }


@pytest.mark.parametrize("style", ["auto", "native"])
def test_it_changes_no_outcome_and_no_traceback(run: Run, style: str) -> None:
    bare = run(HAPPENS, f"--tb={style}")
    looked_at = run(HAPPENS, f"--tb={style}", "--kernelprof-all", "--kernelprof-report")
    bare.assert_outcomes(passed=9, failed=4, skipped=1, xfailed=1)
    assert outcomes_and_texts(looked_at) == outcomes_and_texts(bare)


def test_a_row_says_why_it_has_no_number(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    result = run(HAPPENS, "--kernelprof-all", "--kernelprof-report", "-v")
    rows = rows_of(result)
    assert [row[:7] for row in rows].count("! test_") == 6
    assert {"3 test_z_is_profiled_as_ever"} <= set(rows)
    result.stdout.fnmatch_lines(
        [
            "! test_it.py:*: no number: another profiler was started*",
            "  (4 tests)",
            "! test_it.py:*: no number: a torch profiler is already running*",
            "* (2 tests)",
            *("!*test_a_*", "!*test_b_*", "!*test_b_*", "!*test_d_*"),
            *("!*test_c_*", "!*test_e_*"),
        ]
    )
    assert result.stdout.str().count("no number:") == 2  # in the list alone


def test_an_error_of_ours_is_told_in_the_row(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_kernelprof.profiler.session import Session

    def breaks(self: Session) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Session, "export", breaks)
    result = run(
        """
def test_it():
    three()
@pytest.mark.max_kernels(3)
def test_limited():
    three()
""",
        "--kernelprof-all",
        "--kernelprof-report",
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*no number: OSError: *No space left*"])
    result.stdout.fnmatch_lines(["*1 passed*"])


@pytest.fixture
def untouched_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that nobody has used: who brings up CUDA or asks the driver is found out."""

    def touched() -> None:
        raise AssertionError("CUDA was brought up")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    for name in ("is_available", "current_device", "_lazy_init", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, touched)


def test_cuda_stays_down_where_the_test_leaves_it_down(run: Run, untouched_gpu: None) -> None:
    code = "def test_it():\n    three()\n"
    result = run(code, "--kernelprof-all", "--kernelprof-report", device=None)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*kernel profiles*")


def test_a_test_that_brings_cuda_up_is_told_once_at_the_end(run: Run, untouched_gpu: None) -> None:
    code = """
def test_a_plain(): three()
def test_b_up(monkeypatch): torch.cuda.is_initialized = lambda: True
"""
    result = run(code, "--kernelprof-all", "--kernelprof-report", device=None)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["kernelprof: not profiled: CUDA was initialized inside 1 test (test_it.py::test_b_up); *"]
    )
    result.stdout.no_fnmatch_line("*kernel profiles*")
    assert str(result.stdout).count("CUDA was initialized") == 1


def test_what_a_fixture_puts_in_place_of_torch_is_told_in_the_row(run: Run) -> None:
    code = """
@pytest.fixture
def broken(monkeypatch):
    def breaks(*args):
        raise KeyError("patched")
    monkeypatch.setattr(torch.cuda, "is_initialized", breaks)
def test_it(broken):
    three()
"""
    result = run(code, "--kernelprof-all", "--kernelprof-report", device=None)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*no number: *"])


def test_torch_is_not_imported_for_a_test_that_does_not(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_kernelprof.plugin import measuring

    loaded = iter([False, False, False, True, True])
    monkeypatch.setattr(measuring, "torch_is_loaded", lambda: next(loaded))
    result = run(
        """
def test_a_plain():
    pass
def test_b_imports():
    import torch
def test_c_next():
    three()
""",
        "--kernelprof-all",
        "--kernelprof-report",
    )
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*test_c_*", "1 profile*"])
    result.stdout.fnmatch_lines(["kernelprof: not profiled: torch was first imported inside *"])


def test_the_profiler_comes_up_between_tests(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_kernelprof.gpu import inventory
    from pytest_kernelprof.profiler import torch_profiler

    when: list[str] = []
    monkeypatch.setattr(inventory, "cuda_is_up", lambda: True)
    monkeypatch.setattr(inventory, "current_device", lambda kind: kind)
    monkeypatch.setattr(torch_profiler, "prime", when.append)

    class Timer:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(self) -> Generator[None, object, object]:
            when.append("the test's time begins")
            return (yield)

    run("def test_it(): pass\n", "--kernelprof-all", device=None, plugins=[Timer()])
    assert when[:2] == ["cuda", "the test's time begins"]


def test_a_limit_that_comes_as_the_test_runs_is_not_kept_by_a_number_that_is_not_there(
    run: Run,
) -> None:
    result = run(
        """
def test_it(request):
    with torch.profiler.profile():
        three()
    request.node.add_marker(pytest.mark.max_kernels(9))
""",
        "--kernelprof-all",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*another profiler*"])


def test_an_incomplete_profile_that_nobody_limits_is_a_note(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_kernelprof.trace import integrity

    monkeypatch.setattr(integrity, "_check_rounds", lambda reading: ["2 kernels are missing"])
    result = run(
        """
def test_it():
    three()
def test_asks(kernel_profile):
    with kernel_profile.region("it"):
        three()
@pytest.mark.max_kernels(3)
def test_limited():
    three()
""",
        "--kernelprof-all",
        "--kernelprof-report",
        "-v",
    )
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(
        ["! test_it.py:*: no number: 2 kernels are missing (3 tests)", "  test", "! test_it"]
    )
