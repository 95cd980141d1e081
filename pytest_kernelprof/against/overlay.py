"""Today's tests over a revision's code: test files, conftests, helpers and the ini file.

So both sides measure by the same tests, and a test that is new today is measured on both. What is
a test is told by its name: a file that pytest collects or loads as a conftest, and everything in
a folder that is called "tests" or alike. A folder "testing" is a package's own code.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import shutil
from dataclasses import dataclass

from pytest_kernelprof.against.generated import BYTECODE
from pytest_kernelprof.against.git import files_of
from pytest_kernelprof.against.mapping import is_below

_TEST_FOLDER = re.compile(r"(?:.*[_-])?tests?(?:[_-].*)?")
_NO_FILES = frozenset({".git", BYTECODE})


@dataclass(frozen=True, slots=True)
class Tests:
    """What is a test.

    Attributes:
        patterns: pytest's ``python_files``.
        ini: the ini file, relative to the root; empty where there is none below it.
    """

    __test__ = False

    patterns: tuple[str, ...]
    ini: str = ""

    def has(self, path: str) -> bool:
        """Whether a file, relative to the root, is one of the tests'."""
        *folders, name = path.split("/")
        if BYTECODE in folders:
            return False
        if path == self.ini or name == "conftest.py":
            return True
        if any(map(_TEST_FOLDER.fullmatch, folders)):
            return True
        return name.endswith(".py") and any(
            fnmatch.fnmatch(path if "/" in pattern else name, pattern) for pattern in self.patterns
        )


def lay_over(tests: Tests, root: str, tree: str) -> tuple[str, ...]:
    """Put today's tests in place of the tree's; which these are, relative to the root.

    Raises:
        OSError: a file cannot be read or written.
    """
    for path in filter(tests.has, _walk(tree)):
        os.unlink(os.path.join(tree, path))
    known = files_of(root)
    mine = tuple(sorted(filter(tests.has, _walk(root) if known is None else _no_tools(known))))
    for path in mine:
        there = os.path.join(tree, path)
        os.makedirs(os.path.dirname(there), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # deleted just now
            _copy(os.path.join(root, path), there)
    return mine


def _no_tools(paths: list[str]) -> list[str]:
    """Without the files of environments, which git may not have been told to ignore."""
    tops = {os.path.dirname(path) for path in paths if os.path.basename(path) == "pyvenv.cfg"}
    return [path for path in paths if not any(is_below(path, top) for top in tops)]


def _copy(here: str, there: str) -> None:
    if os.path.isdir(here) and not os.path.islink(here):  # a submodule
        bytecode = shutil.ignore_patterns(BYTECODE)
        shutil.copytree(here, there, symlinks=True, ignore=bytecode, dirs_exist_ok=True)
    else:
        shutil.copy2(here, there, follow_symlinks=False)


def _walk(folder: str) -> list[str]:
    found = []
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _is_walked(where, name)]
        links = [name for name in folders if os.path.islink(os.path.join(where, name))]
        found += [os.path.relpath(os.path.join(where, name), folder) for name in (*names, *links)]
    return [path.replace(os.sep, "/") for path in found]


def _is_walked(where: str, name: str) -> bool:
    return name not in _NO_FILES and not os.path.exists(os.path.join(where, name, "pyvenv.cfg"))
