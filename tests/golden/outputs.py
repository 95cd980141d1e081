"""What a run sees of this process's environment, and what it has written, taken apart."""

from __future__ import annotations

import os
import re
from pathlib import Path
from xml.etree import ElementTree

# What changes the output of pytest, of git or of the plugin: by CI pytest 9 does not shorten the
# lines of its short summary.
_CHANGES_OUTPUT = re.compile(
    r"(GITHUB|GIT|PYTEST|COVERAGE|COV_CORE)_.*|CI|BUILD_NUMBER|PY_COLORS|FORCE_COLOR|NO_COLOR|COLUMNS"
)

_AFTER_FAILURES = re.compile(r"-+ generated xml file|-+ benchmark|kernelprof: ")


def environment(project: Path, columns: int) -> dict[str, str]:
    """Of this process, without what would change the output; with a summary of steps."""
    kept = {name: text for name, text in os.environ.items() if not _CHANGES_OUTPUT.fullmatch(name)}
    return kept | {
        "COLUMNS": str(columns),
        "GITHUB_STEP_SUMMARY": str(project / "summary.md"),
    }


def parted(output: str) -> dict[str, str]:
    """What pytest printed: "terminal", "failures" (and errors), GitHub's "annotations"."""
    parts: dict[str, list[str]] = {"terminal": [], "failures": [], "annotations": []}
    inside = False
    for line in output.splitlines():
        heading = re.match(r"=+ (.+?) =+\Z", line)
        if heading or _AFTER_FAILURES.match(line):
            inside = heading is not None and heading[1] in ("FAILURES", "ERRORS")
        is_command = re.match(r"::(error|warning|notice) ", line)
        parts["annotations" if is_command else "failures" if inside else "terminal"].append(line)
    return {name: "\n".join(lines) or "(none)" for name, lines in parts.items()}


def junit_text(path: Path) -> str:
    """Of a JUnit file the suite and each test, how it ended, and its properties."""
    lines = []
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        counted = {name: suite.get(name) for name in ("tests", "errors", "failures", "skipped")}
        lines.append(" ".join(f"{name}={value}" for name, value in counted.items()))
        lines += _properties(suite)
        for case in suite.iter("testcase"):
            ended = [one.tag for one in case if one.tag in ("failure", "error", "skipped")]
            named = f"{case.get('classname')}::{case.get('name')}"
            lines.append(f"{named} {' '.join(ended) or 'passed'}")
            lines += [f"  {line}" for line in _properties(case)]
    return "\n".join(lines)


def _properties(of: ElementTree.Element) -> list[str]:
    found = of.find("properties")
    return [f"{one.get('name')}: {one.get('value')}" for one in found] if found is not None else []
