"""The option --kernelprof-require-gpu: what would be skipped for want of a GPU fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from on_workers import two_workers

Run = Callable[..., pytest.RunResult]


REQUIRE = "--kernelprof-require-gpu"


@pytest.mark.parametrize(
    "code",
    [
        "@pytest.mark.max_kernels(3)\ndef test_it(kernel_profile): kernel_profile(three)\n",
        "@pytest.mark.max_syncs(0)\ndef test_it(): three()\n",
        "def test_it(kernel_profile): kernel_profile(three)\n",
        "@pytest.mark.kernelprof(device='cuda')\n"
        "def test_it(kernel_profile): kernel_profile(three)\n",
        "@pytest.mark.max_syncs(0)\n"
        "def test_it(kernel_profile, kernelprof_device): kernel_profile(three)\n",
    ],
    ids=["marker", "whole call", "fixture", "device cuda", "nothing for the cpu"],
)
def test_a_gpu_test_fails_and_names_what_is_missing(run: Run, no_gpu: None, code: str) -> None:
    result = run(code, REQUIRE, device=None)
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["E   ProfilerUnavailable: --kernelprof-require-gpu: no CUDA device*"]
    )


@pytest.mark.parametrize("more", ["", ", kernelprof_device"])
def test_a_test_that_only_loads_a_trace_needs_no_gpu(
    run: Run, no_gpu: None, pytester: pytest.Pytester, more: str
) -> None:
    trace = Path(__file__).parents[1] / "traces" / "mlp.json.gz"
    code = f"""
@pytest.mark.max_kernels({{most}})
def test_it(kernel_profile{more}):
    {{first}}
    kernel_profile.load({str(trace)!r})
"""
    run(code.format(most=9, first=""), REQUIRE, device=None).assert_outcomes(passed=1)
    run(code.format(most=1, first=""), REQUIRE, device=None).assert_outcomes(failed=1)
    result = run(code.format(most=9, first="kernel_profile(three)"), REQUIRE, device=None)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E   ProfilerUnavailable: --kernelprof-require-gpu: no CUDA*"])
    missing = run("def test_it(kernel_profile): pass\n", REQUIRE, device=None)
    missing.assert_outcomes(errors=1)


TRACE = Path(__file__).parents[1] / "traces" / "mlp.json.gz"
LACKING = ["E*ProfilerUnavailable: --kernelprof-require-gpu: no CUDA device*"]


@pytest.mark.parametrize(
    "call", ["load_it(kernel_profile)", "getattr(kernel_profile, 'lo' + 'ad')(TRACE)"]
)
def test_a_trace_may_be_loaded_by_any_code(run: Run, no_gpu: None, call: str) -> None:
    code = f"""
TRACE = {str(TRACE)!r}
def load_it(kernel_profile):
    return kernel_profile.load(TRACE)
@pytest.mark.max_kernels({{most}})
def test_it(kernel_profile):
    {call}
"""
    run(code.format(most=9), REQUIRE, device=None).assert_outcomes(passed=1)
    run(code.format(most=1), REQUIRE, device=None).assert_outcomes(failed=1)


@pytest.mark.parametrize(
    "body",
    [
        "kernel_profile(three)",
        "kernel_profile.compare(three, three)",
        "with kernel_profile.region(): three()",
        "pytest.skip('no CUDA')",
        "pytest.xfail('no CUDA')",
        "raise RuntimeError('no CUDA')",
        "pass",
        "_caught(kernel_profile)",
    ],
)
@pytest.mark.parametrize("mark", ["max_kernels(9)", "xfail(reason='by a limit')"])
def test_what_is_called_load_elsewhere_is_no_trace(
    run: Run, no_gpu: None, body: str, mark: str
) -> None:
    code = f"""
import json
def _caught(kernel_profile):
    try:
        kernel_profile(three)
    except Exception:
        pass
@pytest.mark.{mark}
def test_it(kernel_profile, tmp_path):
    (tmp_path / "a.json").write_text("3")
    json.load(open(tmp_path / "a.json"))
    {body}
"""
    result = run(code, REQUIRE, device=None)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(LACKING)


def test_nothing_runs_of_what_is_measured(run: Run, no_gpu: None) -> None:
    result = run(
        "def test_it(kernel_profile): kernel_profile(lambda: print('r' 'an'))", REQUIRE, device=None
    )
    result.assert_outcomes(errors=1)
    result.stdout.no_fnmatch_line("ran")


def test_a_fixture_that_skips_for_want_of_a_gpu_fails_the_test(run: Run, no_gpu: None) -> None:
    result = run(
        """
@pytest.fixture
def model():
    pytest.skip("no CUDA")
@pytest.mark.max_kernels(9)
def test_it(model, kernel_profile):
    kernel_profile(three)
""",
        REQUIRE,
        device=None,
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(LACKING)


def test_a_test_that_has_loaded_a_trace_ends_as_it_does(run: Run, no_gpu: None) -> None:
    code = f"""
def test_it(kernel_profile):
    kernel_profile.load({str(TRACE)!r})
    {{}}
"""
    run(code.format("pytest.skip('old')"), REQUIRE, device=None).assert_outcomes(skipped=1)
    run(code.format("assert 0"), REQUIRE, device=None).assert_outcomes(failed=1)


@pytest.mark.parametrize("mark", ["", "@pytest.mark.max_kernels(9)"])
def test_a_fixture_that_is_fetched_by_name_needs_a_gpu_too(
    run: Run, no_gpu: None, mark: str
) -> None:
    code = f"""
{mark}
def test_it(request):
    request.getfixturevalue("kernel_profile")(three)
"""
    result = run(code, REQUIRE, device=None)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(LACKING)


@pytest.mark.parametrize("more", [(), ("--kernelprof-all",)], ids=["plain", "all"])
def test_a_plain_test_passes(run: Run, no_gpu: None, more: tuple[str, ...]) -> None:
    run("def test_it(): three()\n", REQUIRE, *more, device=None).assert_outcomes(passed=1)


def test_a_test_marked_for_the_cpu_passes(run: Run, no_gpu: None) -> None:
    result = run(
        """
@pytest.mark.kernelprof(device="cpu")
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    kernel_profile(three)
""",
        REQUIRE,
        device=None,
    )
    result.assert_outcomes(passed=1)


def test_a_test_that_its_author_skips_is_skipped(run: Run, no_gpu: None) -> None:
    result = run(
        """
@pytest.mark.skip(reason="mine")
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    kernel_profile(three)
""",
        REQUIRE,
        device=None,
    )
    result.assert_outcomes(skipped=1)


def test_a_test_that_would_run_on_the_cpu_instead_is_an_error_too(run: Run, no_gpu: None) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_it(kernel_profile, kernelprof_device):
    kernel_profile(three)
""",
        REQUIRE,
        device=None,
    )
    result.assert_outcomes(errors=1)


def test_with_workers_a_gpu_test_fails_too(
    pytester: pytest.Pytester, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    pytester.makepyfile("def test_it(kernel_profile): kernel_profile(lambda: None)\n")
    result = pytester.runpytest_inprocess(
        *("-p", "no:cacheprovider", REQUIRE), *two_workers(python)
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["E   ProfilerUnavailable: --kernelprof-require-gpu: no CUDA device*"]
    )
