"""Which of the revision's own files a test's code comes from: by what its modules hold."""

from __future__ import annotations

import ast
import functools
import os
import sys
from typing import TYPE_CHECKING

from pytest_kernelprof.against.mapping import is_below
from pytest_kernelprof.against.overlay import changed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
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
        tests: Sequence[str],
        stand_in: Callable[[ModuleType], str] = lambda _: "",
    ) -> None:
        self._tree = tree
        self._tests = {os.path.join(tree, path) for path in tests}
        self._changed = changed(tests, tree)
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

    def shared_with(self, tests: Collection[str]) -> tuple[str, ...]:
        """Today's files, relative to the tree, that the revision has otherwise, and that are code
        of it: its own modules import them, or they are loaded and no test imports them.

        Args:
            tests: the files, absolute, that hold tests or are plugins of pytest.
        """
        if not self._changed:
            return ()
        known = {
            name: (os.path.realpath(file), getattr(one, "__package__", None) or "")
            for name, one in list(sys.modules.items())
            if isinstance(file := getattr(one, "__file__", None), str)
            and self._is_of_the_tree(one, file)
        }
        own = [one for one in known.values() if one[0] not in self._tests]
        loaded = {file for file, _ in known.values()} & self._tests
        for path in self._changed:  # what is not loaded yet, by all names that it may have
            parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
            for at in range(max(1, len(parts) - 1)):
                name, package = ".".join(parts[at:]), ".".join(parts[at:-1])
                known.setdefault(name, (os.path.join(self._tree, path), package))
        by_code = self._followed((name for one in own for name in _imported_by(*one)), known)
        by_tests = self._followed((n for n, (file, _) in known.items() if file in tests), known)
        code = by_code | loaded - by_tests
        return tuple(path for path in self._changed if os.path.join(self._tree, path) in code)

    def _followed(self, names: Iterable[str], known: dict[str, tuple[str, str]]) -> set[str]:
        """Today's files among modules of these names, the packages around them, and what all those
        import."""
        waiting, seen, files = list(names), {""}, set()
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting.append(name.rpartition(".")[0])
                file, package = known.get(name, ("", ""))
                if file in self._tests:
                    files.add(file)
                    waiting += _imported_by(file, package)
        return files

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
    """The names that a file imports anywhere, in its functions too: what another file has loaded
    before does not come anew when a test imports it."""
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
