"""Which of the revision's own files a test's code comes from: by what its modules hold."""

from __future__ import annotations

import ast
import functools
import os
import sys
from typing import TYPE_CHECKING

from pytest_kernelprof.against.mapping import is_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType


class Origins:
    """Follows what modules of a tree hold of each other.

    Args:
        tests: the files of the tree that are today's, relative to it.
        stand_in: the tree's file that the file of a module from elsewhere is a copy of, if any.
    """

    def __init__(
        self,
        tree: str,
        tests: Iterable[str],
        stand_in: Callable[[ModuleType], str] = lambda _: "",
    ) -> None:
        self._tree = tree
        self._tests = {os.path.join(tree, path) for path in tests}
        self._stand_in = stand_in

    def known(self) -> frozenset[str]:
        """The names of all modules that are loaded."""
        return frozenset(sys.modules)

    def reached(self, start: Iterable[ModuleType]) -> tuple[str, ...]:
        """The revision's own files, relative to the tree, among modules and what they hold."""
        waiting, seen = [module.__name__ for module in start], set[str]()
        files = set()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            module = sys.modules.get(name)
            if module is None:
                continue
            file = self._stand_in(module) or getattr(module, "__file__", None)
            if not self._is_of_the_tree(module, file):
                continue
            if file and os.path.realpath(file) in self._tests:
                waiting += _imported_by(os.path.realpath(file), module.__package__ or "")
            elif file:
                files.add(os.path.relpath(os.path.realpath(file), self._tree))
            waiting += _held(module)
        return tuple(sorted(files))

    def loaded_since(self, before: frozenset[str]) -> list[ModuleType]:
        """The modules that came since."""
        return [module for name, module in list(sys.modules.items()) if name not in before]

    def _is_of_the_tree(self, module: ModuleType, file: object) -> bool:
        if file is not None:
            return isinstance(file, str) and is_below(os.path.realpath(file), self._tree)
        try:
            return any(is_below(os.path.realpath(one), self._tree) for one in module.__path__)
        except (AttributeError, TypeError):
            return False


def _held(module: ModuleType) -> list[str]:
    """The names of modules that a module holds, or holds something of."""
    found = []
    for value in list(vars(module).values()):
        name = vars(value).get("__name__") if isinstance(value, type(sys)) else None
        name = name or getattr(type(value) if not callable(value) else value, "__module__", None)
        if isinstance(name, str):
            found.append(name)
    return found


@functools.cache
def _imported_by(file: str, package: str) -> tuple[str, ...]:
    """The names that a test file imports anywhere, in its functions too: what another file has
    loaded before does not come anew when a test imports it."""
    try:
        with open(file, "rb") as opened:
            tree = ast.parse(opened.read())
    except (OSError, SyntaxError, ValueError):
        return ()
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            origin = ".".join([*(above if node.level else ()), *filter(None, [node.module])])
            found += [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
    return tuple(found)
