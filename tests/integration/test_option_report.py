"""The option --kernelprof-report: the summary at the end of a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from reported import LAST_LINE, counts_of, rows_of, without_times

Run = Callable[..., pytest.RunResult]


ONE_OF_EACH = """
@pytest.mark.max_kernels(3)
def test_a_kept(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(2)
def test_b_broken(kernel_profile):
    kernel_profile(three)
def test_c_without_limit(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_latency("1s")
def test_d_not_measured():
    three()
def test_plain():
    pass
"""


def section_of(result: pytest.RunResult) -> list[str]:
    """The lines of the report."""
    lines = result.outlines
    begin = next(i for i, line in enumerate(lines) if " kernel profiles " in line)
    end = next(i for i, line in enumerate(lines) if LAST_LINE.match(line))
    return lines[begin + 1 : end + 1]


MANY = """
@pytest.mark.max_kernels(150)
def test_many(kernel_profile):
    def work():
        for _ in range(100):
            x + 1
        for _ in range(100):
            x * 2
    kernel_profile(work)
"""


@pytest.mark.parametrize("options", [(), ("--kernelprof-html=report.html",)], ids=["", "html"])
def test_a_cause_counts_all_kernels_whichever_outputs_were_asked_for(
    run: Run, options: tuple[str, ...]
) -> None:
    told = section_of(run(MANY, "--kernelprof-report", "--tb=no", *options))
    causes = "\n".join(told[: told.index("", 2)])  # below the verdict and an empty line
    assert (
        "\n    11 | x + 1\n       | aten::add x100\n    13 | x * 2\n       | aten::mul x100\n"
        in causes
    ), told


def test_the_verdict_stands_first_and_what_asks_for_a_look_next(run: Run) -> None:
    result = run(ONE_OF_EACH, "--kernelprof-report")
    lines = section_of(result)
    assert lines[0] == ("1 of 3 tests breaks a limit; 1 incomplete.")
    looked = [line for line in lines if line.startswith(("✗", "!"))]
    assert looked == [
        "✗ test_it.py:5: max_kernels: 3 > limit 2 (test_b_broken)",
        "! test_it.py:15: max_latency: not measured: it needs calls that are not profiled",
    ]
    assert rows_of(result) == []
    assert "1 more test is fine, 1 more test has no limit: -v lists all" in lines
    result.stdout.fnmatch_lines(["CPU (*), torch *", "4 profiles"])


def test_verbose_lists_each_profile_the_worst_first(run: Run) -> None:
    result = run(ONE_OF_EACH, "--kernelprof-report", "-v")
    assert counts_of(result) == [
        "✗ 3 > 2 test_b_broken",
        "! test_d_not_measured",
        "✓ 3 test_a_kept",
        "3 test_c_without_limit",
    ]


@pytest.mark.project(
    """
@pytest.mark.max_kernels(3)
@pytest.mark.parametrize("n", [1, 2, 10])
def test_it(kernel_profile, n):
    kernel_profile(three)
""",
    "--kernelprof-report",
)
def test_parametrisations_that_agree_fold(result: pytest.RunResult) -> None:
    assert rows_of(result) == ["✓ 3 test_it[1] and 2 more"]
    result.stdout.fnmatch_lines(
        ["3 of 3 tests are within their limits.", "CPU *: operators counted, not GPU kernels"]
    )


BROKEN = """
@pytest.mark.max_kernels(2)
def test_it(kernel_profile):
    kernel_profile(three)
"""


@pytest.mark.parametrize("style", ["no", "auto"])
def test_a_broken_limit_says_what_ran_and_where(run: Run, workers: str, style: str) -> None:
    """What leaves a worker is enough for it."""
    result = run(BROKEN, workers, "--kernelprof-report", f"--tb={style}", "-v")
    told = section_of(result)
    at = next(i for i, line in enumerate(told) if line.startswith("✗ "))
    assert re.fullmatch(r"✗ test_it\.py:\d+: max_kernels: 3 > limit 2 \(test_it\)", told[at])
    code = "    5 | return F.gelu(x @ x) + 1"
    causes = [code, "      | aten::mm", "      | aten::gelu", "      | aten::add"]
    todo = [
        "  to do: call fewer operators",
        "  rerun: pytest test_it.py::test_it --kernelprof-device=cpu",
        "  if intended, allow max_kernels(3) at test_it.py:7",
    ]
    # What the failure above says is not repeated.
    assert told[at + 1 : told.index("", at)] == ([*causes, *todo] if style == "no" else todo[:1])
    (row,) = rows_of(result)
    assert re.fullmatch(r"✗ 3 > 2 [\d.]+ test_it", row)


def test_quiet_is_verdict_what_is_not_kept_and_integrity(run: Run) -> None:
    lines = section_of(run(ONE_OF_EACH, "--kernelprof-report", "-q"))
    assert not [line for line in lines if line.startswith(("✓", "suite", "1 more"))]
    assert [line[0] for line in lines if line.startswith(("✗", "!"))] == ["✗", "!"]


def test_verbose_unfolds_and_very_verbose_has_the_kernels(run: Run) -> None:
    rows = rows_of(run(ONE_OF_EACH, "--kernelprof-report", "-v"))
    assert re.fullmatch(r"✓ 3 [0-9.]+ test_a_kept", rows[-2])  # with its latency
    lines = section_of(run(ONE_OF_EACH, "--kernelprof-report", "-vv"))
    at = next(i for i, line in enumerate(lines) if line.endswith("test_a_kept"))
    assert lines[at + 1].split()[:4] == ["#", "us", "operator", "line"]
    assert [line.split()[2] for line in lines[at + 2 : at + 5]] == [
        "aten::mm",
        "aten::gelu",
        "aten::add",
    ]


LONG = f"""
@pytest.mark.max_kernels(3)
def test_with_a_name_too_long_for_any_terminal_{"of_so_many_columns_" * 12}(kernel_profile):
    kernel_profile(three)
"""


@pytest.mark.parametrize("columns", [40, 60, 80, 160, 200])
def test_it_fits_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    result = run(LONG, "--kernelprof-report")
    widest = max(map(len, section_of(result)))
    assert widest <= max(60, min(columns, 160))
    (row,) = rows_of(result)
    assert row == f"✓ 3 {re.findall(r'def (.*)[(]', LONG)[0]}"


def test_into_a_pipe_it_is_a_hundred_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert 90 < max(map(len, section_of(run(LONG, "--kernelprof-report")))) <= 100


def test_colour_says_nothing_that_the_text_does_not(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = section_of(run(ONE_OF_EACH, "--kernelprof-report", "-v", "--color=no"))
    coloured = run(ONE_OF_EACH, "--kernelprof-report", "-v", "--color=yes").outlines
    told = [re.sub(r"\x1b\[\d+m", "", line) for line in coloured]
    assert bare[0] in told
    assert any("\x1b[31m✗" in line for line in coloured)
    assert any("\x1b[31m  3 > 2\x1b[0m" in line or "3 > 2\x1b[0m" in line for line in coloured)


@pytest.mark.project(
    """
def test_it(kernel_profile, kernelprof_device):
    kernel_profile(three)
    kernel_profile(lambda: x + 1)
    with kernel_profile.region("backward"):
        F.gelu(x) + 1
""",
    "--kernelprof-report",
)
def test_profiles_of_one_test_are_told_apart(result: pytest.RunResult) -> None:
    assert rows_of(result) == [
        "3 test_it, profile 1",
        "2 test_it [backward]",
        "1 test_it, profile 2",
    ]


def test_a_slash_in_a_parameter_is_no_folder(run: Run) -> None:
    result = run(
        """
@pytest.mark.parametrize("n", ["a/b"])
def test_it(kernel_profile, n):
    kernel_profile(three)
""",
        "--kernelprof-report",
    )
    assert rows_of(result) == ["3 test_it[a/b]"]


def test_nor_is_it_one_above_the_table_of_a_comparison(run: Run) -> None:
    result = run(
        """
@pytest.mark.parametrize("n", ["a/b"])
def test_it(kernel_profile, kernelprof_device, n):
    kernel_profile.compare(three, three)
""",
        "--kernelprof-report",
    )
    result.stdout.fnmatch_lines(["*= kernel profiles =*", "test_it.py::test_it[[]a/b[]]"])


def test_a_test_that_fails_on_its_own_is_in_the_list_and_with_v_in_the_table(run: Run) -> None:
    code = """
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    kernel_profile(three)
    raise KeyError("mine")
"""
    for options, rows in ((), []), (("-v",), ["✗ 3 test_it"]):
        result = run(code, "--kernelprof-report", *options)
        assert list(map(without_times, rows_of(result))) == rows
        result.stdout.fnmatch_lines(["✗ test_it.py:10: KeyError: 'mine' (test_it)"])


def test_what_was_not_judged_for_want_of_a_gpu_is_a_number(run: Run, no_gpu: None) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_gpu(kernel_profile):
    kernel_profile(three)
def test_cpu(kernel_profile, kernelprof_device):
    kernel_profile(three)
""",
        "--kernelprof-report",
        device=None,
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "0 of 1 test is within its limits; 1 not judged (no CUDA device).",
            "not judged   to count CPU operators instead: --kernelprof-device=cpu",
            "             to fail without a GPU: --kernelprof-require-gpu",
        ]
    )


def test_why_tests_are_missing_is_told(run: Run) -> None:
    result = run(ONE_OF_EACH, "--kernelprof-report", "-x")
    result.stdout.fnmatch_lines(["unfinished   tests may be missing: stopping after 1 failures"])


def test_without_it_nothing_is_printed(run: Run) -> None:
    run(ONE_OF_EACH).stdout.no_fnmatch_line("*kernel profiles*")


def test_where_nothing_was_profiled_nothing_is_printed(run: Run) -> None:
    run("def test_it(): pass\n", "--kernelprof-report").stdout.no_fnmatch_line("*kernel profiles*")


def test_a_path_after_it_is_not_swallowed(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_other="def test_other(): pass\n")
    result = run(ONE_OF_EACH, "--kernelprof-report", "test_other.py")
    result.assert_outcomes(passed=1)


def test_the_profiles_of_one_test_stand_in_their_order(run: Run) -> None:
    result = run(
        """
def test_it(kernel_profile, kernelprof_device):
    for _ in range(11):
        kernel_profile.run(three, rounds=1)
""",
        "--kernelprof-report",
        "-v",
    )
    names = [row.partition(", ")[2] for row in rows_of(result)]
    assert names == [f"profile {i}" for i in range(1, 12)]


def test_a_compared_run_tells_which_kernel_came(run: Run, tmp_path: Path) -> None:
    """What was before says it better than what runs."""
    code = "@pytest.mark.max_kernels({})\ndef test_it(kernel_profile):\n    kernel_profile({})\n"
    run(code.format(9, "three"), f"--kernelprof-json={tmp_path}/old.json")
    result = run(
        code.format(9, "lambda: three().abs()"),
        *(f"--kernelprof-against={tmp_path}/old.json", "--kernelprof-report", "-v"),
    )
    (row,) = rows_of(result)
    assert row.startswith("✗ 3 -> 4 ")
    result.stdout.re_match_lines([r"✗ test_it\.py:\d+: added operator: aten::abs \(test_it\)$"])
