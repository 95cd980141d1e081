"""The option --kernelprof-report: a table of all profiles and one integrity line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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


def rows_of(result: pytest.RunResult) -> list[str]:
    """The report's rows, the spaces between cells made one."""
    lines = [" ".join(line.split()) for line in result.outlines]
    start = next(i for i, line in enumerate(lines) if line.startswith("test kernels "))
    end = next(i for i, line in enumerate(lines) if line.startswith("on CPU ("))
    return lines[start + 1 : end]


def test_every_profile_is_a_row_the_worst_first(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    result = run(ONE_OF_EACH, "--kernelprof-report")
    assert rows_of(result) == [
        "test_it.py::test_b_broken 3 - - - - - - ✗ over",
        "test_it.py::test_d_not_measured 3 - - - - - - ! incomplete",
        "test_it.py::test_a_kept 3 - - - - - - ✓ kept",
        "test_it.py::test_c_without_limit 3 - - - - - - -",
    ]


def test_one_line_says_how_far_the_profiles_can_be_trusted(run: Run) -> None:
    result = run(ONE_OF_EACH, "--kernelprof-report")
    result.stdout.fnmatch_lines(
        ["4 profiles, 0 taken again, 0 incomplete, 4 of CPU operators, which are no kernels"]
    )


def test_device_and_versions_are_named(run: Run) -> None:
    run(ONE_OF_EACH, "--kernelprof-report").stdout.fnmatch_lines(["on CPU (*), torch *"])


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_it_fits_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    name = "test_with_a_name_too_long_for_any_terminal_" + "x" * 200
    result = run(
        f"""
@pytest.mark.max_kernels(3)
def {name}(kernel_profile):
    kernel_profile(three)
""",
        "--kernelprof-report",
    )
    header = next(line for line in result.outlines if line.startswith("test  "))
    row = next(line for line in result.outlines if line.endswith("✓ kept"))
    assert columns - 10 <= max(len(header), len(row)) <= columns


def test_profiles_of_one_test_are_told_apart(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    result = run(
        """
def test_it(kernel_profile):
    kernel_profile(three)
    kernel_profile(lambda: x + 1)
    with kernel_profile.region("backward"):
        F.gelu(x) + 1
""",
        "--kernelprof-report",
    )
    assert rows_of(result) == [
        "test_it.py::test_it 3 - - - - - - -",
        "test_it.py::test_it [backward] 2 - - - - - - -",
        "test_it.py::test_it [profile 2] 1 - - - - - - -",
    ]


def test_a_slash_in_a_parameter_is_no_folder(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    result = run(
        """
@pytest.mark.parametrize("n", ["a/b"])
def test_it(kernel_profile, n):
    kernel_profile(three)
""",
        "--kernelprof-report",
    )
    assert rows_of(result) == ["test_it.py::test_it[a/b] 3 - - - - - - -"]


def test_nor_is_it_one_above_the_table_of_a_comparison(run: Run) -> None:
    result = run(
        """
@pytest.mark.parametrize("n", ["a/b"])
def test_it(kernel_profile, kernelprof_device, n):
    kernel_profile.compare(three, three)
""",
        "--kernelprof-report",
    )
    result.stdout.fnmatch_lines(["*= comparisons =*", "test_it.py::test_it[[]a/b[]]"])


def test_a_test_that_fails_on_its_own_is_in_the_table_too(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    kernel_profile(three)
    raise KeyError("mine")
""",
        "--kernelprof-report",
    )
    assert rows_of(result) == ["test_it.py::test_it 3 - - - - - - ✗ failed"]


def test_without_it_nothing_is_printed(run: Run) -> None:
    run(ONE_OF_EACH).stdout.no_fnmatch_line("*kernel profiles*")


def test_where_nothing_was_profiled_nothing_is_printed(run: Run) -> None:
    run("def test_it(): pass\n", "--kernelprof-report").stdout.no_fnmatch_line("*kernel profiles*")


def test_a_path_after_it_is_not_swallowed(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_other="def test_other(): pass\n")
    result = run(ONE_OF_EACH, "--kernelprof-report", "test_other.py")
    result.assert_outcomes(passed=1)


def test_the_profiles_of_one_test_stand_in_their_order(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    result = run(
        """
def test_it(kernel_profile, kernelprof_device):
    for _ in range(11):
        kernel_profile.run(three, rounds=1)
""",
        "--kernelprof-report",
    )
    rows = [line for line in result.outlines if "test_it.py::test_it" in line]
    assert [line.partition("[")[2].partition("]")[0] for line in rows[1:]] == [
        f"profile {i}" for i in range(2, 12)
    ]
