"""Node ids taken apart: file, name, parameters; and names in the order of people."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"(\d{1,18})")


def parts_of(test: str) -> tuple[str, str]:
    """The file of a node id, and what follows it; an id without a file is all name."""
    file, separator, name = test.partition("::")
    return (file, name) if separator else ("", test)


def with_label(name: str, label: str) -> str:
    """A name with that of the profile: ``test_it [backward]``."""
    return f"{name} [{label}]" if label else name


def parameters_of(name: str) -> tuple[str, str]:
    """A name without its parameters, and these; none where it has none."""
    stem, bracket, rest = name.partition("[")
    return (stem, rest[:-1]) if bracket and rest.endswith("]") else (name, "")


def shortened(test: str) -> str:
    """A test's node id from its file's name on; a slash in a parameter is no folder."""
    path, separator, rest = test.partition("::")
    return path.rsplit("/", 1)[-1] + separator + rest


def natural(text: str) -> tuple[tuple[str, int], ...]:
    """A key that puts 2 before 10."""
    pieces = _DIGITS.split(text)
    numbers = [int(one) for one in pieces[1::2]]
    return tuple(zip(pieces[::2], [*numbers, -1], strict=True))
