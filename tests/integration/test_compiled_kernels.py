"""The marker's option targets: without a GPU, kernels are compiled, not run, and judged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("triton")

Run = Callable[..., pytest.RunResult]

SOURCE = Path(__file__).parents[1] / "gpu" / "spilling.py"
TUNED = """

def tuned(*registers):
    configs = [triton.Config({"N": 2048}, num_warps=1, maxnreg=one) for one in registers]
    return triton.autotune(configs, key=[])(spilling)
"""
HEAD = """
import pytest, torch
import kernels_of_the_run as kernels

pytestmark = pytest.mark.kernelprof(targets="sm_90")

def add():
    x = torch.ones(1024, device="cuda")
    y = torch.empty_like(x)
    kernels.adding[(1,)](x, y, 1024)
    return y

def spill(kernel=kernels.spilling, *args, **options):
    x, y = torch.ones(2048 * 5, device="cuda"), torch.empty(2048, device="cuda")
    kernel[(1,)](x, y, *args, **options)
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Runs tests in a file with kernels and functions that launch them."""

    def run_it(code: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(kernels_of_the_run=SOURCE.read_text() + TUNED, test_it=HEAD + code)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rs", "-vv", *options)

    return run_it


def line_of(result: pytest.RunResult, start: str) -> str:
    return next(one for one in result.outlines if start in one)


def test_limits_on_kernels_are_judged_and_the_test_ends_as_not_run(run: Run) -> None:
    result = run(
        """
@pytest.mark.kernelprof(targets=("sm_90", "gfx942"))
@pytest.mark.max_spills(0)
@pytest.mark.max_shared_memory("0 B")
@pytest.mark.max_kernels(1)
@pytest.mark.max_cuda_time("1 ms")
def test_kept(kernel_profile):
    y = kernel_profile(add)
    torch.testing.assert_close(y, torch.full_like(y, 2))  # nothing was computed

@pytest.mark.max_spills(0)
@pytest.mark.max_registers(255)
def test_broken(kernel_profile):
    kernel_profile(spill, kernels.spilling, 2048, **kernels.FEW_REGISTERS)
""",
        "--kernelprof-json=run.json",
        "--kernelprof-report",
    )
    result.assert_outcomes(skipped=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_spills on sm_90: * > limit 0 B",
            "  compiled for sm_90, not run",
            "  at test_it.py:14",
            "    14 | kernel[[](1,)](x, y, [*]args, [*][*]options)",
            "       | spilling",
            "  #  kernel    line",
            "> 1  spilling  test_it.py:*",
            "1 of 2 tests breaks a limit; max_kernels on sm_90, *",
            "* not judged in 1 test (compiled, not run).",
        ]
    )
    assert line_of(result, "SKIPPED [1]").partition(": ")[2] == (
        "compiled for sm_90, gfx942, not run: max_spills on sm_90: 0 B <= 0 B; "
        "max_shared_memory on sm_90, gfx942: 0 B <= 0 B; max_kernels on sm_90, gfx942: compiled, "
        "not run; max_cuda_time on sm_90, gfx942: compiled, not run; max_spills on gfx942: "
        "0 registers <= 0 registers; the test ended early: AssertionError: Tensor-likes are not "
        "close! at test_it.py:23"
    )
    kept, broken = json.loads(Path("run.json").read_text())["tests"]
    assert [one["label"] for one in kept["profiles"]] == ["sm_90", "gfx942"]
    outcomes = [one["outcome"] for one in kept["profiles"][0]["verdicts"]]
    assert outcomes == ["passed", "passed", "not judged", "not judged"]
    assert "not_judged" not in kept
    assert broken["profiles"][0]["compiled"]


def test_all_configurations_of_an_autotuner_have_to_break_it_or_to_keep_it(run: Run) -> None:
    result = run(
        """
@pytest.mark.parametrize("registers", [(32, 40), (32, 255), (255, 255)], ids=str)
@pytest.mark.max_spills(0)
def test_it(kernel_profile, registers):
    kernel_profile(spill, kernels.tuned(*registers))
"""
    )
    result.assert_outcomes(failed=1, skipped=2)
    result.stdout.fnmatch_lines_random(
        [
            "E   max_spills on sm_90: * > limit 0 B",
            "SKIPPED*max_spills on sm_90: some configurations of spilling need up to *",
            "SKIPPED*max_spills on sm_90: 0 B <= 0 B",
        ]
    )


def test_a_kernel_that_does_not_compile_for_the_target_keeps_no_limit(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_registers(255)
@pytest.mark.max_shared_memory("0 B")
@pytest.mark.max_spills(0)
def test_it(kernel_profile):
    kernel_profile(spill, kernels.spilling, 2047)  # no power of two
"""
    )
    result.assert_outcomes(skipped=1)
    (told,) = [one for one in result.outlines if one.startswith("SKIPPED [1]")]
    assert "<=" not in told
    for limit in ("max_registers", "max_shared_memory", "max_spills"):
        assert re.search(rf"{limit} on sm_90: [a-z ]+ not known of 1 of 1 kernels", told), told


def test_what_was_recorded_before_the_test_ended_is_broken_or_not_judged(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_registers(4)
def test_broken():
    assert add().sum() == 2048

@pytest.mark.max_registers(64)
def test_kept_so_far():
    assert add().sum() == 2048

@pytest.mark.max_registers(64)
def test_kept_to_the_end():
    add()

@pytest.mark.max_registers(64)
def test_nothing_launched():
    raise ValueError("own")

@pytest.mark.max_registers(64)
def test_refuses(kernel_profile):
    def wrapper(x):
        raise RuntimeError("x has to be pinned")
    kernel_profile(wrapper, torch.ones(1))

@pytest.mark.max_registers(64)
def test_asks(kernel_profile):
    def persistent():
        return torch.cuda.get_device_properties(0).multi_processor_count
    kernel_profile(persistent)
"""
    )
    result.assert_outcomes(failed=1, skipped=5)
    none = "no Triton kernel was launched, so there is none to judge; the code ended early:"
    result.stdout.fnmatch_lines_random(
        [
            "E   max_registers on sm_90: * > limit 4",
            "SKIPPED*: kept by the kernels so far; the code ended early: AssertionError: assert "
            "tensor(0.) == 2048 at test_it.py:22",
            "SKIPPED*: max_registers on sm_90: * <= 64",
            f"SKIPPED*: {none} ValueError: own at test_it.py:*",
            f"SKIPPED*: {none} RuntimeError: x has to be pinned at test_it.py:*",
            "kernelprof: 1 of 6 tests breaks a limit; 4 not judged (compiled for sm_90, not run).",
            f"SKIPPED*: {none} multi_processor_count is known only on a GPU, and is asked for at "
            "test_it.py:*",
        ]
    )


def test_regions_have_limits_of_their_own_and_what_is_outside_is_not_judged(run: Run) -> None:
    result = run(
        """
def test_region(kernel_profile):
    spill(kernels.spilling, 2048, **kernels.FEW_REGISTERS)
    with kernel_profile.region("add", max_spills=0):
        add()
    with kernel_profile.region("add again", max_registers=4):
        add()
    assert kernel_profile.profiles == ()

@pytest.mark.max_spills(0)
def test_call(kernel_profile):
    spill(kernels.spilling, 2048, **kernels.FEW_REGISTERS)
    kernel_profile(add)
"""
    )
    result.assert_outcomes(failed=1, skipped=1)
    assert [one for one in result.outlines if one.startswith("E  ")] == [
        line_of(result, "E   max_registers on sm_90: ")
    ]


def test_fixtures_of_the_test_see_cuda_and_those_of_the_module_what_is_there(run: Run) -> None:
    result = run(
        """
@pytest.fixture
def x():
    yield torch.ones(1024, device="cuda")
    torch.cuda.synchronize()

@pytest.fixture(scope="module")
def is_there():
    return torch.cuda.is_available()

@pytest.mark.max_registers(64)
def test_it(x, is_there):
    assert x.is_cuda and not is_there
    add()

@pytest.mark.kernelprof(device="cpu")
class TestOthers:
    pytestmark = []
def test_after(is_there):
    pass
""",
    )
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*: max_registers on sm_90: * <= 64"])


def test_nothing_is_left_for_the_next_test(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_next="""
import torch, triton
def test_it():
    assert not torch.cuda.is_available()
    assert torch.ones(1).device.type == "cpu"
    assert triton.JITFunction.run.__qualname__ == "JITFunction.run"
"""
    )
    result = run(
        """
@pytest.mark.max_registers(64)
def test_it():
    add()
    raise KeyError
"""
    )
    result.assert_outcomes(skipped=1, passed=1)


def test_what_is_not_the_tests_own_failure_stands(run: Run) -> None:
    result = run(
        """
pytestmark = [pytestmark, pytest.mark.max_registers(64)]
def test_skip(kernel_profile):
    kernel_profile(add)
    pytest.skip("own reason")
def test_xfail(kernel_profile):
    kernel_profile(add)
    pytest.xfail("own reason")
def test_malformed(kernel_profile):
    kernel_profile.limit(max_registers="64")
"""
    )
    result.assert_outcomes(skipped=1, xfailed=1, errors=1)
    result.stdout.fnmatch_lines(["*SKIPPED*own reason*"])


def test_a_test_that_measures_nothing_runs_as_ever_in_a_module_with_targets(run: Run) -> None:
    result = run(
        """
def test_passes():
    assert torch.ones(2).device.type == "cpu"
def test_fails():
    assert torch.ones(2).sum() == 3
"""
    )
    result.assert_outcomes(passed=1, failed=1)


def test_a_test_can_end_the_run(run: Run) -> None:
    result = run(
        """
def test_exit(kernel_profile):
    kernel_profile(add)
    pytest.exit("own reason")
def test_never_runs():
    pass
"""
    )
    result.assert_outcomes()
    result.stdout.fnmatch_lines(["*own reason*"])


def test_an_unknown_target_is_an_error_that_lists_the_known_ones(run: Run) -> None:
    result = run(
        """
@pytest.mark.kernelprof(targets=("sm_9x",))
def test_it():
    add()
"""
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["E *targets=('sm_9x',): expected one or a tuple of sm_75, *", "*write kernelprof(*"]
    )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--kernelprof-disable"], "Torch not compiled with CUDA enabled"),
        (["--kernelprof-require-gpu"], "--kernelprof-require-gpu: no CUDA device"),
    ],
)
def test_options_that_come_first(run: Run, options: list[str], why: str) -> None:
    result = run("@pytest.mark.max_registers(64)\ndef test_it():\n    add()\n", *options)
    assert result.parseoutcomes().keys() <= {"failed", "errors"}
    result.stdout.fnmatch_lines([f"*{why}*"])


def test_kernels_that_triton_interprets_are_not_compiled(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    result = run(
        """
@pytest.mark.max_registers(64)
def test_interpreted():
    x = torch.ones(1024)
    kernels.adding[(1,)](x, x, 1024)
    assert x.sum() == 2048
@pytest.mark.max_registers(64)
@pytest.mark.kernelprof(device="cuda")
def test_for_cuda():
    add()
"""
    )
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["SKIPPED*no CUDA device: *; TRITON_INTERPRET is set, so Triton compiles nothing for *"]
    )
