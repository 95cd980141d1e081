"""The report at the end of a run, taken apart."""

from __future__ import annotations

import re

import pytest

SIGNS = "✗!?✓x–"
LAST_LINE = re.compile(r"[\d,]+ profiles?(, |$)")
"""How many profiles there were, and what of them is not to be trusted."""
BELOW = re.compile(r"(not judged|against|suite|tighten) |\S+::\S+( \(\w+\))?$")
"""What stands below the table: the tables of callables, baselines, totals."""


def rows_of(result: pytest.RunResult) -> list[str]:
    """The rows in their order, the spaces between cells made one: sign, cells, name."""
    lines = iter(result.outlines)
    for line in lines:
        if " kernel profiles " in line:  # sections about what was before have rows, too
            break
    for line in lines:
        if line.endswith("  test") and line.split()[0] in ("operators", "kernels"):
            break
    found = []
    for line in lines:
        if LAST_LINE.match(line) or BELOW.match(line):
            break
        if not line:  # between problems
            continue
        is_count = line.startswith("  ") and line.split()[0].isdigit() and ": " not in line
        is_row = line[:1] in SIGNS or is_count
        is_sentence = line[:1] in SIGNS and line[2:3] != " " and " more test" in line
        if is_row and not is_sentence:
            found.append(" ".join(line.split()))
        elif found and line.startswith(" " * 12):  # the name goes on
            found[-1] += line.strip()
    return found


def errors_of(result: pytest.RunResult) -> dict[str, tuple[str, str]]:
    """By the name of its test what each error says: its first sentence, and what stands below it,
    however it is wrapped."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in result.outlines:
        if begin := re.fullmatch(r"_+ ERROR at \w+ of (\S+) _+", line):
            name = begin[1]
        elif line.startswith("E   "):
            found[name] = [line.removeprefix("E   ")]
        elif line.startswith("  ") and name in found:
            found[name].append(line.strip())
        else:
            name = ""
    return {name: (first, " ".join(below)) for name, (first, *below) in found.items()}


def counts_of(result: pytest.RunResult) -> list[str]:
    """The same rows without their times, which -v lists and which differ from run to run."""
    return [without_times(row) for row in rows_of(result)]


def without_times(row: str) -> str:
    return re.sub(r"^(\S )?(\d+(?: > \d+)?) [\d.]+(?= )", r"\1\2", row)
