"""The markers of a test, evaluated once, and again only if there are others by now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.limits.marks import Marks, marks_of
from pytest_kernelprof.plugin.keys import MARKS

if TYPE_CHECKING:
    import pytest


def known_marks(item: pytest.Item) -> Marks:
    """What the markers of a test say. A fixture or the test itself may have added some since.

    Raises:
        MarkerError: as ``marks_of``.
    """
    standing = tuple(id(mark) for node in item.listchain() for mark in node.own_markers)
    known = item.stash.get(MARKS, None)
    if known is None or known[0] != standing:
        item.stash[MARKS] = known = (standing, marks_of(item))
    return known[1]
