"""What lies over a revision's files: today's tests (test files, conftests, helpers, the ini file),
and generated files, copied, or made in the tree by a command.

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
import glob
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.against.import_redirect import is_below
from pytest_kernelprof.against.keeper import end, last_lines, watched
from pytest_kernelprof.against.revision import files_of, tracked
from pytest_kernelprof.baseline.snapshot_files import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from collections.abc import Mapping as Variables

    from pytest_kernelprof.against.messages import Launch

_TEST_FOLDER = re.compile(r"(?:.*[_-])?tests?(?:[_-].*)?")
BYTECODE = "__pycache__"
"""Never copied: it is of other files than those it would stand beside, by a path or by the code."""
_NO_FILES = frozenset({".git", BYTECODE})
_LAST_LINES = 10


def is_test(path: str, patterns: Sequence[str], ini: str = "") -> bool:
    """Whether a file, relative to the root, is one of the tests'.

    Args:
        patterns: pytest's ``python_files``.
        ini: the ini file, relative to the root; empty where there is none below it.
    """
    *folders, name = path.split("/")
    if BYTECODE in folders or FOLDER in folders:  # snapshots of both sides are compared
        return False
    if path == ini or name == "conftest.py" or any(map(_TEST_FOLDER.fullmatch, folders)):
        return True
    return name.endswith(".py") and any(
        fnmatch.fnmatch(path if "/" in pattern else name, pattern) for pattern in patterns
    )


def lay_over(is_ours: Callable[[str], bool], root: str, tree: str) -> tuple[str, ...]:
    """Put today's tests in place of the tree's; which these are, relative to the root.

    Raises:
        OSError: a file cannot be read or written.
    """
    for path in filter(is_ours, _walk(tree)):
        aside = _aside(tree, path)
        os.makedirs(os.path.dirname(aside), exist_ok=True)
        os.replace(os.path.join(tree, path), aside)
    known = files_of(root)
    mine = tuple(sorted(filter(is_ours, _walk(root) if known is None else _no_tools(known))))
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


def give_back(code: Collection[str], laid: Launch) -> Launch:
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


class NotPreparedError(Exception):
    """The command for the tree has failed; the message has its last lines."""


def copy_generated(
    patterns: Sequence[str], rootdir: str, root: str, tree: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy the user's files that patterns name, that git does not track and that the tree does not
    have: those are the revision's own.

    Args:
        patterns: globs, relative to ``rootdir``, with ``**`` for any folders.
        root: the folder that the tree stands in the place of.

    Returns:
        The files that were copied, relative to the root; what is to be said of it.

    Raises:
        OSError: a file cannot be read or written.
    """
    copied: list[str] = []
    notes = []
    for pattern in patterns:
        found = [os.path.join(rootdir, name) for name in _files(pattern, rootdir)]
        names = [os.path.relpath(path, root) for path in found]
        known = tracked(root, names)
        new = [one for one in names if one not in known and not _is_there(tree, one)]
        if not names:
            notes.append(f"kernelprof_against_copy: {pattern} matches no file")
        for name in new:
            there = os.path.join(tree, name)
            os.makedirs(os.path.dirname(there), exist_ok=True)
            shutil.copy2(os.path.join(root, name), there, follow_symlinks=False)
        copied += new
    return tuple(dict.fromkeys(copied)), tuple(notes)


def _files(pattern: str, rootdir: str) -> list[str]:
    found = glob.glob(pattern, root_dir=rootdir, recursive=True)
    found = [name for name in found if BYTECODE not in name.split(os.sep)]
    return sorted(name for name in found if os.path.isfile(os.path.join(rootdir, name)))


def _is_there(tree: str, name: str) -> bool:
    return os.path.lexists(os.path.join(tree, name))


def prepare(
    command: str, cwd: str, folder: str, environment: Variables[str, str], timeout_s: float
) -> None:
    """Run a command of the shell in the tree; it ends with this process, however that ends.

    Args:
        cwd: the folder of the tree to run it in. folder: the one of our own around the tree.

    Raises:
        NotPreparedError: it fails, or takes too long.
        OSError: it cannot be started.
    """
    log = os.path.join(folder, "scratch", "prepare.log")
    process = subprocess.Popen(
        watched(folder, log, (), ["/bin/sh", "-c", command]),
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status: int | None = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        status = None
    finally:
        end(process)
    if status != 0:
        how = f"took more than {timeout_s:g} s" if status is None else f"ended with status {status}"
        words = [f"{command!r} {how}", *last_lines(log, 8000)[-_LAST_LINES:]]
        raise NotPreparedError("\n  ".join(words))
