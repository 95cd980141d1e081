"""What users read is in plain words: phrases that do not stand in messages, README or docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.bulk  # text is read here, no code runs

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "pytest_kernelprof"
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
# Phrases, and what to write instead.
INSTEAD = {
    "(stale)": "outdated, not failing",
    "a call in a row": "back-to-back calls",
    "after somebody": "what was changed: after one extra multiplication",
    "agreed on": "accept",
    "and works on": "and continues",
    "anew": "again",
    "another work": "different work",
    "are none of": "are not",
    "are to be": "must be, or expected",
    "are told": "are reported",
    "as ever": "as usual",
    "as many kernels": "the same number of kernels",
    "be had": "available",
    "being had": "prevent or distort measurements",
    "by pairs": "range",
    "cannot be told": "unknown",
    "compute operators of the cpu": "CPU operators counted, not GPU kernels",
    "cupti resident": "the loaded profiler slows launches by 30 %",
    "fails by it": "this comparison fails nothing",
    "for want of": "because no GPU is available",
    "had before and": "missing in profiles that had it before",
    "hand back": "return",
    "hands back": "returns",
    "how sure": "confidence",
    "in vain": "has no effect",
    "is none of": "is not one of",
    "is to be": "must be, or expected",
    "is to write": "writes",
    "is told": "is reported",
    "kept no more": "dropped",
    "limit keep it": "are within their limits",
    "mend": "fix",
    "more are broken": "+3 more limits exceeded",
    "more is broken": "+1 more limit exceeded",
    "more of than": "compare a run with earlier runs",
    "no code changed": "unchanged",
    "not to be kept": "no limit applied",
    "nothing judges": "not checked",
    "of which 0": "0 bytes",
    "of which there": "two short sentences",
    "one too many": "unexpected",
    "one of lines": "model.py:6 or 7",
    "or it says that it": "or reported as unavailable",
    "over as expected": "expected failures",
    "says nothing of": "cannot separate change from noise",
    "stands there": "is there",
    "stands twice": "is set twice",
    "still holds its limit": "too close to its limit to call",
    "taken again": "retried",
    "tell at the end": "print after the tests",
    "tells at the end": "prints after the tests",
    "the host slowed": "host times slowed by profiling",
    "the last try": "the last attempt",
    "the other code's": "from the baseline",
    "the slower kernels": "their names",
    "though not by a limit": "the test failed for another reason",
    "times as good": "37x slower",
    "was probably meant": "did you mean",
    "was to be": "should have been",
    "what came of": "the results of",
    "what makes two": "limits are identified by name plus match or direction",
    "what of it": "now",
    "what several did": "fusions are reported",
    "whatever it takes": "the test fails on your code",
    "where it cannot": "None if unknown",
    "which another one reports": "a run whose results another process reports",
    "whose value is another": "a metric that changed",
    "with a limit keep": "are within their limits",
}
# Temporary: they are being rewritten.
PHRASE = re.compile("|".join(rf"(?<!\w){re.escape(one)}(?!\w)" for one in INSTEAD), re.IGNORECASE)


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module that may be shown, f-strings with ``{}`` for their values."""
    tree = ast.parse(path.read_text())
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in left_out:
            yield node.lineno, node.value if isinstance(node.value, str) else ""


def paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    """The paragraphs of a page, as one line each."""
    number = 1
    for text in re.split(r"(\n{2,})", path.read_text()):
        if text.strip():
            yield number, " ".join(text.split())
        number += text.count("\n")


def found_in(path: Path) -> list[str]:
    texts = literals(path) if path.suffix == ".py" else paragraphs(path)
    return [
        f"{path.relative_to(REPOSITORY)}:{line}: {phrase[0]!r}; write: {INSTEAD[phrase[0].lower()]}"
        for line, text in texts
        for phrase in PHRASE.finditer(text)
    ]


def test_what_users_read_is_in_plain_words() -> None:
    read = [*PACKAGE.rglob("*.py"), *PAGES]
    assert [found for path in sorted(read) for found in found_in(path)] == []


def test_a_phrase_is_found_across_lines_and_beside_values(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Docstring: could not be had."""\nx = 1\nwhy = (f"{x} could not "\n"be had")\n'
    )
    assert [PHRASE.findall(text) for _, text in literals(module)] == [[], ["be had"]]
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nA number that could not be\nhad is told.\n")
    assert [(line, PHRASE.findall(text)) for line, text in paragraphs(page)] == [
        (1, []),
        (3, ["be had", "is told"]),
    ]
