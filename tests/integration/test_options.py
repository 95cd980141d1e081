"""Each command-line option and its ini key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from reported import rows_of

from pytest_kernelprof.api import Profile

TITLE = "  operators  test"
ONE_OF_EACH = """
@pytest.mark.max_kernels(2)
def test_broken(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_kept(kernel_profile):
    kernel_profile(three)
def test_without_limit(kernel_profile):
    kernel_profile(three)
def test_plain():
    three()
"""


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.project(ONE_OF_EACH, "--kernelprof-report", "-v")
@pytest.mark.usefixtures("wide")
def test_report_prints_a_row_a_profile_worst_first_and_an_integrity_line(
    result: pytest.RunResult,
) -> None:
    result.assert_outcomes(passed=3, failed=1)
    assert result.ret == 1
    rows = [re.sub(r"\d+\.\d+ ", "", row) for row in rows_of(result)]  # without latencies
    assert rows == ["✗ 3 > 2 test_broken", "✓ 3 test_kept", "3 test_without_limit"]
    result.stdout.fnmatch_lines(
        [
            "  rerun: pytest test_it.py::test_broken --kernelprof-device=cpu",
            "  if intended, allow max_kernels(3) at test_it.py:7",
            "1 of 2 tests breaks a limit.",
            "✗ test_it.py:5: max_kernels: 3 > limit 2 (test_broken)",
            "  to do: call fewer operators",
            "  operators  latency us  test",
            "CPU (*), torch *",
            "3 profiles",
        ]
    )


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_the_report_fits_the_terminal(run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code = (
        "def test_with_a_name_that_is_rather_long_for_a_table_of_eighty_columns(kernel_profile):\n"
    )
    result = run(code + "    kernel_profile(three)\n", "--kernelprof-report")
    (row,) = rows_of(result)
    assert row == f"3 {code[4:-18]}"  # whole, and wrapped under itself
    assert max(map(len, result.outlines[result.outlines.index(TITLE) :])) <= columns


def test_nothing_is_printed_without_the_report(run) -> None:
    result = run("def test_it(kernel_profile): kernel_profile(three)\n")
    result.stdout.no_fnmatch_line("*kernel profiles*")
    result.stdout.no_fnmatch_line("1 profile*")


def test_report_prints_nothing_where_nothing_was_profiled(run) -> None:
    result = run("def test_it(): pass\n", "--kernelprof-report")
    result.stdout.no_fnmatch_line("*kernel profiles*")


@pytest.mark.project("def test_plain():\n    three()\n", "--kernelprof-all", "--kernelprof-report")
def test_all_profiles_every_call_phase_without_changing_code(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1)
    assert rows_of(result) == ["3 test_plain"]


def test_only_runs_the_tests_that_use_the_plugin(run) -> None:
    result = run(ONE_OF_EACH, "--kernelprof-only")
    result.assert_outcomes(passed=2, failed=1, deselected=1)


def test_disable_runs_the_code_once_and_limits_nothing(run) -> None:
    result = run(
        """
calls = []
@pytest.mark.max_kernels(0)
def test_call(kernel_profile):
    assert kernel_profile(lambda: calls.append(1) or 7) == 7
    assert calls == [1]
    kernel_profile.limit(max_kernels=0)
@pytest.mark.max_kernels(0)
def test_region(kernel_profile):
    with kernel_profile.region("it"), torch.profiler.profile():
        three()
@pytest.mark.max_kernels(0)
def test_whole():
    three()
def test_that_looks_at_a_profile(kernel_profile):
    kernel_profile(three)
    assert kernel_profile.last.kernel_count == 3
""",
        "--kernelprof-disable",
    )
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["*--kernelprof-disable: *; there is no profile to look at*"])


def test_rounds_and_warmup_are_as_asked(run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    calls = []
    kernel_profile(lambda: calls.append(1))
    assert kernel_profile.last.rounds == 4
    assert len(calls) == 3 + 4 + 4
""",
        "--kernelprof-rounds=4",
        "-o",
        "kernelprof_warmup=3",
    )
    result.assert_outcomes(passed=1)


def test_stacks_give_one_shot_profiles_source_lines(run) -> None:
    code = "@pytest.mark.max_kernels(0)\ndef test_it():\n    three()\n"
    without = run(code)
    without.stdout.fnmatch_lines(["*1 * aten::mm*in test_it.py:**"])
    run(code, "--kernelprof-stacks").stdout.fnmatch_lines(["*1 * aten::mm* test_it.py:*"])


def test_trace_dir_keeps_each_profile_as_a_trace_that_reads_back(
    run, pytester: pytest.Pytester
) -> None:
    run(ONE_OF_EACH, "--kernelprof-trace-dir=kept/traces")
    files = sorted(Path(pytester.path / "kept" / "traces").iterdir())
    assert [file.name for file in files] == [
        "test_it.py-test_broken-1.json.gz",
        "test_it.py-test_kept-1.json.gz",
        "test_it.py-test_without_limit-1.json.gz",
    ]
    assert [Profile.from_trace(file).kernel_count for file in files] == [3, 3, 3]


def test_auto_measures_a_test_on_the_cpu_only_if_it_asks_for_the_device(run, no_gpu: None) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_either(kernel_profile, kernelprof_device):
    assert kernelprof_device == "cpu"
    kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_gpu_only(kernel_profile):
    kernel_profile(three)
""",
        device=None,
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["kernelprof: *; 1 not judged (no CUDA device)*"])


def test_require_gpu_fails_what_would_be_skipped_for_want_of_one(run, no_gpu: None) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_gpu_only(kernel_profile):
    kernel_profile(three)
def test_plain():
    pass
""",
        "--kernelprof-require-gpu",
        device=None,
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["E   ProfilerUnavailable: --kernelprof-require-gpu: no CUDA device*"]
    )


def test_device_cuda_skips_without_one(run, no_gpu: None) -> None:
    code = "def test_it(kernel_profile, kernelprof_device): kernel_profile(three)\n"
    run(code, device="cuda").assert_outcomes(skipped=1)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--kernelprof-device=tpu", "*--kernelprof-device: got 'tpu'; expected one of auto, cuda*"),
        ("--kernelprof-rounds=0", "*--kernelprof-rounds: got '0'; expected a whole number*"),
        ("--kernelprof-rounds=many", "*--kernelprof-rounds: got 'many'; expected a whole number*"),
    ],
)
def test_nonsense_on_the_command_line_is_a_usage_error(run, option: str, words: str) -> None:
    result = run("def test_it(): pass\n", option, device=None)
    assert result.ret == 4
    result.stderr.fnmatch_lines([words])


def test_ini_keys_count_and_the_command_line_wins(run, pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\nkernelprof_device = cpu\nkernelprof_rounds = 5\nkernelprof_report = true\n"
    )
    code = """
def test_it(kernel_profile):
    kernel_profile(three)
    assert kernel_profile.last.rounds == %d
"""
    run(code % 5, device=None).stdout.fnmatch_lines(["*kernel profiles*", "1 profile*"])
    run(code % 3, "--kernelprof-rounds=3", device=None).assert_outcomes(passed=1)


def test_nonsense_in_an_ini_key_is_a_usage_error(run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkernelprof_report = perhaps\n")
    result = run("def test_it(): pass\n")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*ini key kernelprof_report: got 'perhaps'; expected true or f*"])
