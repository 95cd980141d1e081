"""The how-to page's upgrade of a package: its command prints what the page says."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from environments import CODE, NEW, OLD, TESTS, Environments
from repositories import Repository

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "compare-with-main.md"


def test_what_an_upgrade_costs_is_told_as_on_the_page(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, python: str
) -> None:
    Repository(pytester.path).write(
        {
            "pytest.ini": "[pytest]\npythonpath = .",
            "pkg/__init__.py": "",
            "pkg/mlp.py": CODE,
            "test_mlp.py": TESTS,
        }
    )
    made = Environments(tmp_path, monkeypatch, python)
    made.make("new", "1.1", NEW)
    made.enter("new")
    monkeypatch.setenv("COLUMNS", "100")
    old = Environments(pytester.path, monkeypatch, python).make(".venv-old/bin", "1.0", OLD)
    assert Path(old) == pytester.path / ".venv-old" / "bin" / "python"
    story = PAGE.read_text(encoding="utf-8").partition("## What does an upgrade cost?")[2]
    _, command, _, report, *_ = story.split("```")
    name, *options = shlex.split(command)
    assert name == "pytest"
    usual = ("-p", "no:cacheprovider", "-p", "no:benchmark", "--kernelprof-device=cpu")
    result = pytester.runpytest_inprocess(*usual, *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    printed = [line.strip() for line in result.outlines]
    assert [line for line in report.strip().splitlines() if line and line not in printed] == []
