"""How rows are marked: a sign, a word and a class for each, so that no colour tells anything
alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pytest_kernelprof.digest.marks import Told


class Mark(NamedTuple):
    """A mark: its sign, what it says, and the class that gives it a colour."""

    sign: str
    word: str
    tone: str


_MARKS: dict[Told | None, Mark] = {
    "over": Mark("✗", "over a limit", "bad"),
    "incomplete": Mark("!", "incomplete", "lost"),
    "failed": Mark("✗", "failed otherwise", "bad"),
    "error": Mark("!", "error", "lost"),
    "undecided": Mark("?", "undecided", "unsure"),
    "kept": Mark("✓", "kept", "kept"),
    "expected": Mark("x", "over as expected", "none"),
    "xfailed": Mark("x", "xfailed", "none"),
    "rerun": Mark("-", "tried again", "none"),
    "skipped": Mark("-", "skipped", "none"),
    "not judged": Mark("-", "not judged", "none"),
    None: Mark("·", "no limit", "none"),
}


def mark_of(told: Told | None) -> Mark:
    """The mark of a row."""
    return _MARKS[told]


def all_marks() -> dict[Told | None, Mark]:
    """All of them, worst first."""
    return _MARKS
