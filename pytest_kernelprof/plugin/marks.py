"""The markers of a test, evaluated once, and again only if there are others by now."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.limits.marks import Marks, is_marked, marks_of, names_in_vain
from pytest_kernelprof.plugin.keys import EARLY, IN_VAIN, MARKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


_NONE = Marks()


def note_defaults(item: pytest.Item) -> None:
    """Before a test is set up: what it has by now and is not written on it, hooks gave it."""
    early = frozenset(_standing(item)) if is_marked(item) else frozenset()
    if item.stash.get(EARLY, None) != early:
        item.stash[EARLY] = early
        if MARKS in item.stash:  # of another try of the test
            del item.stash[MARKS]


def known_marks(item: pytest.Item) -> Marks:
    """What the markers of a test say. A fixture or the test itself may have added some since.

    Raises:
        MarkerError: as ``marks_of``.
    """
    if not is_marked(item):  # as most tests of most users
        return _NONE
    if EARLY not in item.stash:
        note_defaults(item)
    standing = _standing(item)
    known = item.stash.get(MARKS, None)
    if known is None or known[0] != standing:
        item.stash[MARKS] = known = (standing, marks_of(item, item.stash[EARLY]))
    return known[1]


def _standing(item: pytest.Item) -> tuple[int, ...]:
    return tuple(id(mark) for node in item.listchain() for mark in node.own_markers)


def refuse_marks_in_vain(item: pytest.Item) -> None:
    """Raise where a ``pytestmark`` of ours stands in a conftest.py or an ``__init__.py`` around
    the test: pytest reads none there, so it would limit nothing, and the test would pass.

    Raises:
        MarkerError: with the hook to write instead.
    """
    for file, names in item.config.stash.get(IN_VAIN, ()):
        if Path(file).parent in item.path.parents:
            raise MarkerError(
                f"pytestmark in {file}: {', '.join(names)} limits nothing, because pytest does "
                "not read pytestmark there; to give all tests of the folder a default, write in "
                "its conftest.py: def pytest_itemcollected(item): "
                "item.add_marker(pytest.mark.max_kernels(10))"
            )


def find_marks_in_vain(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Note the files around tests whose ``pytestmark`` pytest does not read."""
    packages = {getattr(getattr(item, "module", None), "__package__", None) for item in items}
    around = {
        ".".join(parts[:i])
        for parts in (package.split(".") for package in packages if package)
        for i in range(1, len(parts) + 1)
    }
    modules = [sys.modules[name] for name in around if name in sys.modules]
    modules += [
        plugin
        for plugin in config.pluginmanager.get_plugins()
        if Path(getattr(plugin, "__file__", None) or "").name == "conftest.py"
    ]
    found = {module.__file__: names_in_vain(module) for module in modules}
    config.stash[IN_VAIN] = [(file, names) for file, names in found.items() if file and names]
