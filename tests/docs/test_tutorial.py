"""The tutorial's files, changes and commands in order, with the outputs that it shows."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from repositories import Repository

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
STEP = re.compile(
    r"<!-- (file|change|undo|run)(?:: (\S+))? -->\n(?:```(?:python)?\n(.*?)```)?", re.DOTALL
)
# What another run has otherwise: times and the widths of their columns, names of commits.
OTHERWISE = re.compile(r"\d+(?:\.\d)?(?=  aten)|\([0-9a-f]{7}\)|=+|-{3,}| ")


def steps() -> Iterator[tuple[str, str, str]]:
    yield from STEP.findall(PAGE.read_text())


def test_the_tutorial_runs_as_it_stands(
    pytester: pytest.Pytester,
    run_apart: Callable[..., pytest.RunResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    folder, before = pytester.path, dict[str, str]()
    for kind, file, text in steps():
        if kind == "file":
            before[file] = text
            (folder / file).write_text(text)
        elif kind == "change":
            old, new = text.splitlines(keepends=True)
            assert old in before[file]
            (folder / file).write_text(before[file].replace(old, new))
        elif kind == "undo":
            (folder / file).write_text(before[file])
            if text:  # the commands that make the repository
                Repository(folder).commit({})
        else:
            command, *shown = text.splitlines()
            program, *arguments = shlex.split(command.removeprefix("$ "))
            assert program == "pytest"
            printed = iter([OTHERWISE.sub("", one) for one in run_apart(*arguments).outlines])
            for line in shown:
                wanted = OTHERWISE.sub("", line)
                assert line == "..." or wanted in printed, f"{command}: not printed here: {line}"


def test_it_has_all_kinds_of_steps() -> None:
    assert {kind for kind, *_ in steps()} == {"file", "change", "undo", "run"}
