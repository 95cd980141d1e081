"""The option --kernelprof-trace-dir: every profile is kept as a Chrome trace."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


def kept(pytester: pytest.Pytester) -> dict[str, int]:
    """The kernels of each kept trace, by its file name."""
    from pytest_kernelprof.api import Profile

    files = sorted((pytester.path / "traces").iterdir())
    return {file.name: Profile.from_trace(file).kernel_count for file in files}


@pytest.mark.project(
    """
def test_call(kernel_profile):
    kernel_profile(three)
def test_region(kernel_profile):
    with kernel_profile.region("mine"):
        x + 1
@pytest.mark.max_kernels(1)
def test_whole_call():
    three()
def test_plain():
    three()
""",
    "--kernelprof-trace-dir=traces",
)
@pytest.mark.usefixtures("result")
def test_each_profile_is_a_file_that_reads_back(pytester: pytest.Pytester) -> None:
    assert kept(pytester) == {
        "test_it.py-test_call-1.json.gz": 3,
        "test_it.py-test_region-1-mine.json.gz": 1,
        "test_it.py-test_whole_call-1.json.gz": 3,
    }


def test_the_folder_is_made_with_its_parents(run: Run, pytester: pytest.Pytester) -> None:
    code = "def test_it(kernel_profile): kernel_profile(three)\n"
    run(code, "--kernelprof-trace-dir=not/there/yet")
    assert len(list((pytester.path / "not" / "there" / "yet").iterdir())) == 1


def test_profiles_of_one_test_do_not_overwrite_each_other(
    run: Run, pytester: pytest.Pytester
) -> None:
    run(
        """
def test_it(kernel_profile):
    for count in (1, 2):
        with kernel_profile.region("step"):
            [x + 1 for _ in range(count)]
""",
        "--kernelprof-trace-dir=traces",
    )
    assert sorted(kept(pytester).values()) == [1, 2]


def test_tests_with_nearly_the_same_name_do_not_overwrite_each_other(
    run: Run, pytester: pytest.Pytester
) -> None:
    run(
        """
@pytest.mark.parametrize("size", ["8/8", "8-8", "8 8"])
def test_it(kernel_profile, size):
    kernel_profile(three)
""",
        "--kernelprof-trace-dir=traces",
    )
    assert len(kept(pytester)) == 3


def test_a_test_that_fails_keeps_its_trace(run: Run, pytester: pytest.Pytester) -> None:
    run(
        """
def test_it(kernel_profile):
    kernel_profile(three)
    raise KeyError("mine")
""",
        "--kernelprof-trace-dir=traces",
    )
    assert list(kept(pytester).values()) == [3]


def test_tests_whose_folders_and_names_run_together_have_files_of_their_own(
    pytester: pytest.Pytester, run: Run
) -> None:
    code = "import torch\ndef test_it(kernel_profile): kernel_profile(torch.ones, {})\n"
    for number, folder in enumerate(("a", "a-test_b.py", "a/test_b.py")):
        (pytester.path / folder).mkdir(parents=True)
        (pytester.path / folder / "test_it.py").write_text(code.format(number))
    (pytester.path / "a-test_it.py").write_text(code.format(1))
    options = ("--kernelprof-trace-dir=traces", "--import-mode=importlib")
    run(code.format(1), *options, "a", "a-test_b.py", "a-test_it.py")
    assert len(kept(pytester)) == 4


@pytest.mark.parametrize("folder", ["file", "file/below", "/proc/self"])
def test_a_folder_that_cannot_be_written_to_is_told_at_the_start(
    run: Run, pytester: pytest.Pytester, folder: str
) -> None:
    if folder.startswith("/proc") and sys.platform != "linux":
        pytest.skip("of Linux")
    (pytester.path / "file").touch()
    result = run("def test_it(): pass\n", f"--kernelprof-trace-dir={folder}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--kernelprof-trace-dir: '*{folder}' cannot be created or*(*"])


@pytest.mark.parametrize("strict", [[], ["-Werror"]])
def test_a_folder_that_is_lost_on_the_way_hides_no_verdict(run: Run, strict: list[str]) -> None:
    result = run(
        """
import os, shutil
def lose():
    shutil.rmtree(os.path.join(start, "traces"), ignore_errors=True)
start = os.getcwd()
@pytest.mark.max_kernels(3)
def test_kept(kernel_profile):
    lose()
    kernel_profile(three)
@pytest.mark.max_kernels(2)
def test_over(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(2)
def test_whole_call():
    three()
@pytest.mark.xfail
@pytest.mark.max_kernels(2)
def test_expected(kernel_profile):
    kernel_profile(three)
def test_own(kernel_profile):
    kernel_profile(three)
    raise KeyError("mine")
""",
        "--kernelprof-trace-dir=traces",
        *strict,
    )
    # Of the fifth test the teardown is expected to fail, too.
    told = {"errors": 4, "xfailed": 2} if strict else {"warnings": 5, "xfailed": 1}
    result.assert_outcomes(passed=1, failed=3, **told)
    result.stdout.fnmatch_lines(
        ["*--kernelprof-trace-dir: *test_kept-1.json.gz cannot be written*"]
    )
    result.stdout.fnmatch_lines(["*max_kernels: 3 > limit 2*", "*KeyError: 'mine'*"])


def test_a_relative_folder_is_where_pytest_was_started(run: Run, pytester: pytest.Pytester) -> None:
    run(
        """
import os
def test_moves(kernel_profile, tmp_path):
    os.chdir(tmp_path)
    kernel_profile(three)
    assert not list(tmp_path.iterdir())
def test_stands_elsewhere(kernel_profile):
    kernel_profile(three)
def test_stands_nowhere(kernel_profile, tmp_path):
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    kernel_profile(three)
    os.chdir(tmp_path)
""",
        "--kernelprof-trace-dir=traces",
    )
    assert len(kept(pytester)) == 3


def test_without_it_nothing_is_written(run: Run, pytester: pytest.Pytester) -> None:
    run("def test_it(kernel_profile): kernel_profile(three)\n")
    assert list(pytester.path.rglob("*.json*")) == []
