"""The files that are made of the run as it ends: each is written whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_kernelprof.report import files
from pytest_kernelprof.schema.run import Run

RunIt = Callable[..., pytest.RunResult]
ONE = "def test_it(kernel_profile): kernel_profile(three)\n"


@pytest.fixture
def broken_json(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: Run) -> files.Content:
        raise RecursionError("of a fault")

    monkeypatch.setattr(files, "FORMS", {**files.FORMS, "json": breaks})


@pytest.mark.usefixtures("broken_json")
def test_one_that_fails_is_told_and_loses_no_other_and_no_test(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(
        "def pytest_kernelprof_run(run): open('seen', 'w').write(str(len(run.tests)))\n"
    )
    result = run(ONE, "--kernelprof-json=run.json", "--kernelprof-benchmark-json=bench.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "kernelprof: *bench.json: *",
            "kernelprof: --kernelprof-json: *run.json cannot be written (RecursionError: of a *)",
        ]
    )
    assert (pytester.path / "bench.json").exists()
    assert not (pytester.path / "run.json").exists()
    assert (pytester.path / "seen").read_text() == "1"


def test_two_options_do_not_write_one_file(run: RunIt, pytester: pytest.Pytester) -> None:
    (pytester.path / "link").symlink_to("run.json")
    result = run(ONE, "--kernelprof-json=run.json", "--kernelprof-benchmark-json=link")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --kernelprof-json, --kernelprof-benchmark-json: both are to write *; name two *"]
    )
