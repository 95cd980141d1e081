"""git, asked in a way that writes nothing of the user's: not the tree, not the index, not ``.git``.

Inside a hook of ``git commit -a`` the environment names an index that is being written. So all
variables that git itself calls local to a repository are dropped, and with them that index.
"""

from __future__ import annotations

import os
import subprocess
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# What would run programs of the user's, write into ``.git`` or fetch into it.
_QUIET = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.splitIndex": "false",
    "core.untrackedCache": "false",
    "gc.auto": "0",
    "filter.lfs.smudge": "",
    "filter.lfs.process": "",
    "filter.lfs.required": "false",
}


class GitError(Exception):
    """git is not there, or says no: its words."""


def git(folder: str, *arguments: str, index: str | None = None) -> str:
    """What git prints, asked in a folder.

    Args:
        index: a file to use as the index, in place of the repository's.

    Raises:
        GitError: there is no git, or it fails; with what it says.
    """
    quiet = [word for name, value in _QUIET.items() for word in ("-c", f"{name}={value}")]
    environment = _environment()
    if index is not None:
        environment["GIT_INDEX_FILE"] = index
    try:
        done = subprocess.run(
            ["git", *quiet, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise GitError(f"git cannot be run ({error.strerror or error})") from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()
        raise GitError(words or f"git {arguments[0]} ended with status {done.returncode}")
    return os.fsdecode(done.stdout)


def _environment() -> dict[str, str]:
    kept = without(os.environ, local_variables())
    # Neither an index that is refreshed, nor a question, nor a fetch of what a clone left out.
    return {
        **kept,
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",  # the same for git before 2.45
        "LC_ALL": "C",
    }


def without(environment: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    """The environment less some variables."""
    return {name: value for name, value in environment.items() if name not in names}


@lru_cache(maxsize=1)
def local_variables() -> frozenset[str]:
    """The variables that bind git to one repository, as this git knows them."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--local-env-vars"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError:
        return frozenset()
    return frozenset(os.fsdecode(done.stdout).split())


def files_of(folder: str) -> list[str] | None:
    """The files below a folder that git tracks or does not ignore, as they are there now, relative
    to it; None where git does not know."""
    try:
        told = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except GitError:
        return None
    # An index may name a file twice (a conflict), and one that is deleted.
    names = dict.fromkeys(filter(None, told.split("\0")))
    return [name for name in names if os.path.lexists(os.path.join(folder, name))]


def tracked(folder: str, names: list[str]) -> frozenset[str]:
    """Which of some files, relative to a folder, git tracks; none where git does not know."""
    if not names:
        return frozenset()
    try:
        told = git(folder, "--literal-pathspecs", "ls-files", "-z", "--cached", "--", *names)
    except GitError:
        return frozenset()
    return frozenset(filter(None, told.split("\0")))


def top_of(folder: str) -> str | None:
    """The top folder of the working tree around a folder; None where there is none."""
    try:
        return git(folder, "rev-parse", "--show-toplevel").rstrip("\n") or None
    except GitError:
        return None
