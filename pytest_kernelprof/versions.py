"""The versions that the suite is run with: kept here, for the run's own word, the docs and nox."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

TRIED: dict[str, tuple[str, ...]] = {
    "python": ("3.10", "3.11", "3.12", "3.13"),
    "pytest": ("8.4", "9.0", "9.1", "9.2"),
    "torch": ("2.9", "2.11", "2.13", "2.15"),
    "numpy": ("1.26", "2.4"),
    "pytest-benchmark": ("5.2", "5.3"),
    "pytest-xdist": ("3.8",),
}
"""By package, oldest first; each is the newest of its series. Every one has a cell of its own in
``noxfile.py``, beside which all else is as in ``constraints.txt``."""

WITHOUT = ("pytest-benchmark", "pytest-xdist")
"""Packages that there is a cell without."""


def newer_than_tried(found: Mapping[str, str]) -> list[str]:
    """For each package that is newer than what was tried, a line that says so.

    Args:
        found: versions by the name of the package; names that are not in ``TRIED`` and versions
            without two numbers are passed over.
    """
    lines = []
    for name, version in found.items():
        if name in TRIED:
            newest = TRIED[name][-1]
            if _series(version) > _series(newest):
                shown = ".".join(map(str, _series(version)))
                lines.append(f"{name} {shown} is newer than what was tried ({newest})")
    return lines


def _series(version: str) -> tuple[int, ...]:
    """What comes after the second number is a repair, and tells nothing of this."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else ()
