"""Today's tests over a revision's code: test files, conftests, helpers and the ini file.

So both sides measure by the same tests, and a test that is new today is measured on both. What is
a test is told by its name at first: a file that pytest collects or loads as a conftest, and
everything in a folder that is called "tests" or alike. A folder "testing" is a package's own code.
What of that turns out to be code of the revision, since other code than tests imports it, is given
back.
"""

from __future__ import annotations

import contextlib
import filecmp
import fnmatch
import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.against.generated import BYTECODE
from pytest_kernelprof.against.git import files_of
from pytest_kernelprof.against.mapping import is_below
from pytest_kernelprof.baseline.shelf import FOLDER

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_kernelprof.schema.against import Laid

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
        if BYTECODE in folders or FOLDER in folders:  # snapshots of both sides are compared
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
        aside = _aside(tree, path)
        os.makedirs(os.path.dirname(aside), exist_ok=True)
        os.replace(os.path.join(tree, path), aside)
    known = files_of(root)
    mine = tuple(sorted(filter(tests.has, _walk(root) if known is None else _no_tools(known))))
    for path in mine:
        there = os.path.join(tree, path)
        os.makedirs(os.path.dirname(there), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # deleted just now
            _copy(os.path.join(root, path), there)
    return mine


def changed(laid: Sequence[str], tree: str) -> tuple[str, ...]:
    """Which of the files that lie over the tree the revision has otherwise."""
    _, different, _ = filecmp.cmpfiles(_aside(tree, ""), tree, laid, shallow=False)
    return tuple(different)


def give_back(code: Collection[str], laid: Laid) -> Laid:
    """Put the revision's own files in the place of today's; processes may do so at the same time.

    Raises:
        OSError: a file cannot be read or written.
    """
    for path in code:
        there = os.path.join(laid.tree, path)
        beside = f"{there}.{os.getpid()}"
        shutil.copyfile(_aside(laid.tree, path), beside)
        os.utime(beside, (0, 0))  # so that no bytecode of today's is taken for its own
        os.replace(beside, there)
    return replace(laid, tests=tuple(one for one in laid.tests if one not in code))


def _aside(tree: str, path: str) -> str:
    return os.path.join(f"{tree}-replaced", path)


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
