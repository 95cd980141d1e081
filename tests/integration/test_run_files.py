"""The files that are made of the run as it ends: each is written whatever becomes of the others."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_kernelprof.records.document import Run
from pytest_kernelprof.report import files

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
        ["ERROR: --kernelprof-json, --kernelprof-benchmark-json: both name *; give two *"]
    )


def test_the_document_that_is_compared_with_is_not_written_over(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    """A run that breaks off would leave an empty one in its place."""
    run(ONE, "--kernelprof-json=run.json")
    baseline = (pytester.path / "run.json").read_bytes()
    (pytester.path / "link").symlink_to("run.json")
    for option in ("--kernelprof-json=run.json", "--kernelprof-markdown=link"):
        result = run(ONE, option, "--kernelprof-against=run.json", "--co")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(
            ["ERROR: --kernelprof-against, --kernelprof-*: both name *; give two different files"]
        )
    assert (pytester.path / "run.json").read_bytes() == baseline


def test_a_full_disk_is_told_and_costs_no_test(
    run: RunIt, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = files.codec.write_atomically

    def is_full(path: str, data: bytes) -> None:
        if path.endswith("run.md"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, data)

    monkeypatch.setattr(files.codec, "write_atomically", is_full)
    result = run(ONE, "--kernelprof-markdown=run.md")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["kernelprof: --kernelprof-markdown: *run.md cannot be written (No space left on device)"]
    )
    assert not (pytester.path / "run.md").exists()


def test_after_ctrl_c_each_says_what_it_had(run: RunIt, pytester: pytest.Pytester) -> None:
    options = ("--kernelprof-markdown=run.md", "--kernelprof-benchmark-json=bench.json")
    with pytest.raises(KeyboardInterrupt):
        run(f"{ONE}def test_ends(): raise KeyboardInterrupt\n", *options)
    assert (
        "**Unfinished:** tests may be missing: interrupted."
        in (pytester.path / "run.md").read_text()
    )
    (one,) = json.loads((pytester.path / "bench.json").read_text())["benchmarks"]
    assert one["name"] == "test_it"


@pytest.mark.skipif(os.name == "nt", reason="needs a file system that takes such names")
def test_hostile_names_of_a_real_run_come_through_everything(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    code = """
import pytest, torch
@pytest.mark.max_kernels(0)
@pytest.mark.parametrize("p", [0], ids=['</details>|`@me #1 <script>alert(1)</script>\\\\|::"\\n'])
def test_it(kernel_profile, p):
    kernel_profile(lambda: torch.ones(2) + 1)
"""
    name = "test_a|b`<b>,%0A::error::x"
    (pytester.path / f"{name}.py").write_text(code)
    (pytester.path / "test_it.py").unlink(missing_ok=True)
    result = run(
        "",
        *("--kernelprof-markdown=run.md", "--kernelprof-benchmark-json=bench.json"),
        *("--kernelprof-json=run.json", "--kernelprof-github", "--junitxml=junit.xml"),
    )
    result.assert_outcomes(failed=1)
    told = re.sub(r"^ *(`{3,}).*?^ *\1$", "", Path("run.md").read_text(), flags=re.M | re.S)
    assert "<script" not in told
    assert "</details>|" not in told
    (one,) = json.loads(Path("bench.json").read_text())["benchmarks"]
    assert one["fullname"].startswith(name)
    (command,) = [line for line in result.outlines if line.startswith("::")]
    assert command.startswith("::error file=")
    assert "%3A%3Aerror%3A%3Ax.py,line=" in command
