"""Each option is an ini key of the same stem; the command line wins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


ROUNDS = """
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    kernel_profile(three)
    assert kernel_profile.last.rounds == {}
"""


def ini(pytester: pytest.Pytester, *lines: str) -> None:
    pytester.makeini("\n".join(["[pytest]", *lines]))


@pytest.mark.project(ROUNDS.format(5), "kernelprof_rounds = 5")
def test_rounds(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1)


def test_the_command_line_wins(run: Run, pytester: pytest.Pytester) -> None:
    ini(pytester, "kernelprof_rounds = 5")
    run(ROUNDS.format(3), "--kernelprof-rounds=3").assert_outcomes(passed=1)


def test_warmup(run: Run, pytester: pytest.Pytester) -> None:
    ini(pytester, "kernelprof_warmup = 4")
    code = """
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    profiled = []
    kernel_profile(lambda: profiled.append(torch.autograd.profiler._is_profiler_enabled))
    assert profiled.index(True) == 4
"""
    run(code).assert_outcomes(passed=1)


def test_device(run: Run, pytester: pytest.Pytester) -> None:
    ini(pytester, "kernelprof_device = cpu")
    code = "@pytest.mark.max_kernels(2)\ndef test_it(kernel_profile): kernel_profile(three)\n"
    result = run(code, device=None)
    result.stdout.fnmatch_lines(["E   max_kernels: 3 > limit 2", "  at test_it.py:5", "    5 | *"])


def test_report(run: Run, pytester: pytest.Pytester) -> None:
    ini(pytester, "kernelprof_report = true")
    result = run("def test_it(kernel_profile): kernel_profile(three)\n")
    result.stdout.fnmatch_lines(["*kernel profiles*"])


def test_all(run: Run, pytester: pytest.Pytester) -> None:
    ini(pytester, "kernelprof_all = yes")
    run("def test_it(): three()\n", "--kernelprof-report").stdout.fnmatch_lines(["1 profile*"])


def test_only(run: Run, pytester: pytest.Pytester) -> None:
    ini(pytester, "kernelprof_only = on")
    run("def test_it(): pass\n").assert_outcomes(deselected=1)


def test_disable(run: Run, pytester: pytest.Pytester) -> None:
    ini(pytester, "kernelprof_disable = 1")
    run("@pytest.mark.max_kernels(0)\ndef test_it(): three()\n").assert_outcomes(passed=1)


def test_require_gpu(run: Run, pytester: pytest.Pytester, no_gpu: None) -> None:
    ini(pytester, "kernelprof_require_gpu = true")
    code = "def test_it(kernel_profile): kernel_profile(three)\n"
    run(code, device=None).assert_outcomes(errors=1)


def test_stacks(run: Run, pytester: pytest.Pytester) -> None:
    ini(pytester, "kernelprof_stacks = true")
    code = "@pytest.mark.max_kernels(2)\ndef test_it():\n    three()\n"
    run(code).stdout.fnmatch_lines(["  1 * aten::mm *test_it.py:*"])


def test_trace_dir(run: Run, pytester: pytest.Pytester) -> None:
    ini(pytester, "kernelprof_trace_dir = kept")
    run("def test_it(kernel_profile): kernel_profile(three)\n")
    assert len(list((pytester.path / "kept").iterdir())) == 1


@pytest.mark.parametrize("value", ["false", "no", "off", "0"])
def test_a_switch_can_be_off(run: Run, pytester: pytest.Pytester, value: str) -> None:
    ini(pytester, f"kernelprof_disable = {value}")
    run("@pytest.mark.max_kernels(0)\ndef test_it(): three()\n").assert_outcomes(failed=1)


def test_pyproject_may_hold_them_as_toml_values(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\nkernelprof_rounds = 5\n")
    run(ROUNDS.format(5)).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("kernelprof_report = perhaps", "got 'perhaps'; expected true or false"),
        ("kernelprof_flush_l2 = 2", "got '2'; expected true or false"),
        ("kernelprof_rounds = 0", "got 0; expected a whole number of one or more"),
        ("kernelprof_device = tpu", "got 'tpu'; expected one of auto, cuda, cpu"),
    ],
)
def test_nonsense_is_a_usage_error_that_names_the_key(
    run: Run, pytester: pytest.Pytester, line: str, words: str
) -> None:
    ini(pytester, line)
    result = run("def test_it(): pass\n", device=None)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: ini key {line.partition(' ')[0]}: {words}"])
