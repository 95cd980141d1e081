"""Modules that come from elsewhere although the tree has them: a copy of who knows what, or, in an
environment that the user names for the revision, the revision's own where the files are equal."""

from __future__ import annotations

import filecmp
import os
import sys
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.against.mapping import is_below

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

_FOLDERS = ("", "src", "python", "lib")
_PROJECTS = ("pyproject.toml", "setup.py", "setup.cfg")
_DEPTH = 3
# What others wrote, whose packages are installed by themselves.
_OTHERS = ("third_party", "thirdparty", "3rdparty", "vendor", "vendored", "_vendor", "external")
_OURS = "pytest_kernelprof"


class Copies:
    """The modules of a tree, to tell which of them are loaded from elsewhere."""

    def __init__(self, tree: str) -> None:
        self._tree = tree
        self._roots = _import_roots(tree)
        self._tops: dict[str, bool] = {}

    def of_today(self, modules: Iterable[tuple[str, object]]) -> str:
        """What both sides would load from the same file, with the remedy; empty where there is
        nothing of the kind."""
        for name, file, there in self._elsewhere(modules):
            return (
                f"{name} is an installed copy ({file}), so both sides would run the same code, not "
                f"the revision's {os.path.relpath(there, self._tree)}: install it with "
                "pip install -e ., or name the python of an environment that has the revision, "
                "--kernelprof-against-python"
            )
        return ""

    def of_another_revision(self, modules: Iterable[tuple[str, object]]) -> str:
        """Of the environment that the user names for the revision: what it has of another one."""
        for name, file, there in self._elsewhere(modules):
            if not filecmp.cmp(file, there, shallow=False):
                return (
                    f"{name} of {sys.executable} ({file}) is not the revision's "
                    f"{os.path.relpath(there, self._tree)}: install the revision there"
                )
        return ""

    def stand_in(self, module: ModuleType) -> str:
        """The tree's file that the file of a module loaded elsewhere is a copy of; empty for
        none."""
        return next((there for _, _, there in self._elsewhere([(module.__name__, module)])), "")

    def packages(self) -> dict[str, str]:
        """The packages in the import roots of the tree, each with its ``__init__.py``."""
        found: dict[str, str] = {}
        for root in self._roots:
            for name in _names_in(root):
                file = os.path.join(root, name, "__init__.py")
                if name.isidentifier() and os.path.isfile(file):
                    found.setdefault(name, file)
        return found

    def _elsewhere(self, modules: Iterable[tuple[str, object]]) -> Iterable[tuple[str, str, str]]:
        """Of the modules that the tree has and that come from elsewhere: the name, the file, and
        that of the tree."""
        for name, module in modules:
            top = name.partition(".")[0]
            file: Any = getattr(module, "__file__", None)
            if not isinstance(file, str) or not self._has(top):
                continue
            there = self._file_of(name)
            if there and not is_below(os.path.realpath(file), self._tree):
                yield name, file, there

    def _has(self, top: str) -> bool:
        found = self._tops.get(top)
        if found is None:
            names = (top, f"{top}.py")
            found = top not in sys.stdlib_module_names and top != _OURS
            found = found and any(
                os.path.exists(os.path.join(root, name)) for root in self._roots for name in names
            )
            self._tops[top] = found
        return found

    def _file_of(self, name: str) -> str:
        """The file that a module of the tree stands in; empty where there is none of that name."""
        below = name.replace(".", os.sep)
        forms = (f"{below}{os.sep}__init__.py", f"{below}.py")
        files = (os.path.join(root, form) for root in self._roots for form in forms)
        return next(filter(os.path.isfile, files), "")


def _import_roots(tree: str) -> list[str]:
    """Where packages lie: beside each ``pyproject.toml`` or the like, or in a folder there."""
    projects = [tree]
    for where, folders, files in os.walk(tree):
        depth = os.path.relpath(where, tree).count(os.sep) + 1
        folders[:] = [
            name
            for name in folders
            if depth < _DEPTH and not name.startswith(".") and name not in _OTHERS
        ]
        if where != tree and any(name in files for name in _PROJECTS):
            projects.append(where)
    roots = (os.path.join(one, name).rstrip(os.sep) for one in projects for name in _FOLDERS)
    return [root for root in roots if os.path.isdir(root)]


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
