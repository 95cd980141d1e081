"""The option --kernelprof-trace-dir: every profile is kept as a Chrome trace."""

from __future__ import annotations

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


def test_a_folder_that_cannot_be_made_does_not_hide_a_failure(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.path.joinpath("traces").write_text("a file")
    result = run(
        """
def test_it(kernel_profile):
    kernel_profile(three)
    raise KeyError("mine")
""",
        "--kernelprof-trace-dir=traces",
        "-rf",
    )
    # The last exception, which the summary shows, is the test's own; a usage error is as good.
    refused = result.ret == pytest.ExitCode.USAGE_ERROR
    assert refused or "KeyError" in result.stdout.get_lines_after("*short test summary*")[0]


def test_without_it_nothing_is_written(run: Run, pytester: pytest.Pytester) -> None:
    run("def test_it(kernel_profile): kernel_profile(three)\n")
    assert list(pytester.path.rglob("*.json*")) == []
