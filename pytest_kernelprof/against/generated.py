"""Beside a revision's files: generated ones, copied, or made in the tree by a command."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from pytest_kernelprof.against.git import tracked
from pytest_kernelprof.against.keeper import end, watched

if TYPE_CHECKING:
    from collections.abc import Mapping as Variables
    from collections.abc import Sequence

_LAST_LINES = 10
BYTECODE = "__pycache__"
"""Never copied: it is of other files than those it would stand beside, by a path or by the code."""


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
            notes.append(f"kernelprof_against_copy: {pattern} is no file here")
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
        words = [f"{command!r} {how}", *_last_lines(log)]
        raise NotPreparedError("\n  ".join(words))


def _last_lines(log: str) -> list[str]:
    try:
        with open(log, errors="replace") as file:
            return file.read()[-8000:].splitlines()[-_LAST_LINES:]
    except OSError:
        return []
