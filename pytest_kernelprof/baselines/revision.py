"""The revision of ``--kernelprof-against=REV|PATH``: found, and laid out below today's tests.
Another environment alone (``--kernelprof-against-python``) needs no layout: it runs today's files.

git is asked in a way that writes nothing of the user's: not the tree, not the index, not ``.git``.
Inside a hook of ``git commit -a`` the environment names an index that is being written. So all
variables that git itself calls local to a repository are dropped, and with them that index.
``git worktree`` is not used: it registers itself in ``.git``, runs hooks, and inside a commit's
hook corrupts the commit. ``read-tree`` into our own index and ``checkout-index`` only read.

Today's tests (test files, conftests, helpers, the ini file) replace the revision's, so both sides
measure by the same tests. A file is a test by its name: pytest collects it or loads it as a
conftest, or its folder is called "tests" or alike. A folder "testing" is a package's own code. A
file that other code of the revision imports is given back (``give_back``).
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
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from pytest_kernelprof.baselines.import_redirect import is_below
from pytest_kernelprof.baselines.protocol import Launch
from pytest_kernelprof.baselines.snapshots import FOLDER
from pytest_kernelprof.baselines.supervisor import end, last_lines, start

_MERGE_BASE = "merge-base:"
_LFS = "version https://git-lfs.github.com/spec/"
_SHORT = 7
_MOST_NAMED = 3
_LAST_LINES = 10
_TEST_FOLDER = re.compile(r"(?:.*[_-])?tests?(?:[_-].*)?")
BYTECODE = "__pycache__"
"""Never copied: bytecode belongs to the file that it was compiled from."""
# Of another checkout's folder: what is no code, or an environment's.
_NOT_COPIED = frozenset(
    {".git", ".hg", "__pycache__", "node_modules", ".tox", ".nox", ".mypy_cache", ".pytest_cache"}
)
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

# Neither an index that is refreshed, nor a question, nor a fetch of what a clone left out.
_ALONE = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # the same for git before 2.45
    "LC_ALL": "C",
}


class GitError(Exception):
    """git is missing or fails; the message says what it printed."""


def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, without input, and keep what it prints.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it takes longer than the option ``timeout``.
    """
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, check=False, **options
    )


def git(folder: str, *arguments: str, index: str | None = None) -> str:
    """Run git in a folder; return what it prints.

    Args:
        index: a file to use as the index, in place of the repository's.

    Raises:
        GitError: git is missing, or it fails.
    """
    quiet = [word for name, value in _QUIET.items() for word in ("-c", f"{name}={value}")]
    environment = without(os.environ, local_variables()) | _ALONE
    if index is not None:
        environment["GIT_INDEX_FILE"] = index
    try:
        done = run(["git", *quiet, *arguments], cwd=folder, env=environment)
    except OSError as error:
        raise GitError(f"git cannot be run ({error.strerror or error})") from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()
        raise GitError(words or f"git {arguments[0]} ended with status {done.returncode}")
    return os.fsdecode(done.stdout)


def without(environment: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    """The environment less some variables."""
    return {name: value for name, value in environment.items() if name not in names}


@lru_cache(maxsize=1)
def local_variables() -> frozenset[str]:
    """The variables that bind git to one repository, as this git knows them."""
    try:
        done = run(["git", "rev-parse", "--local-env-vars"])
    except OSError:
        return frozenset()
    return frozenset(os.fsdecode(done.stdout).split())


def asked(folder: str, *arguments: str) -> str | None:
    """What git prints; None where it fails."""
    with contextlib.suppress(GitError):
        return git(folder, *arguments)
    return None


def files_of(folder: str) -> list[str] | None:
    """The existing files below a folder that git tracks or does not ignore, relative to it; None
    without a repository."""
    printed = asked(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if printed is None:
        return None
    # An index may name a file twice (a conflict), and one that is deleted.
    names = dict.fromkeys(filter(None, printed.split("\0")))
    return [name for name in names if os.path.lexists(os.path.join(folder, name))]


def tracked(folder: str, names: list[str]) -> frozenset[str]:
    """Which of some files, relative to a folder, git tracks; none where git does not know."""
    if not names:
        return frozenset()
    printed = asked(folder, "--literal-pathspecs", "ls-files", "-z", "--cached", "--", *names)
    return frozenset(filter(None, (printed or "").split("\0")))


class CannotCompare(Exception):  # noqa: N818 (a state; becomes a usage error)
    """There is no such code to compare with; the message says what to do.

    Attributes:
        option: the option or ini key that asked for it.
    """

    option = "--kernelprof-against"


class Revision(NamedTuple):
    """What is compared with.

    Attributes:
        name: in messages, for example ``main (abc1234)``.
        root: the user's folder that the whole of it stands beside.
        commit: its full name; empty of a folder.
        folder: of another checkout; empty of a commit.
    """

    name: str
    root: str
    commit: str = ""
    folder: str = ""


def find(given: str, rootdir: str, started_in: str) -> Revision:
    """What the user means.

    Args:
        rootdir: pytest's. started_in: what a path is relative to.

    Raises:
        CannotCompare: neither a revision nor a folder, or both.
    """
    folder = os.path.realpath(os.path.join(started_in, os.path.expanduser(given)))
    is_folder = os.path.isdir(folder)
    is_path = given in (".", "..", "~") or given.startswith(("./", "../", "/", "~/"))
    if is_folder and is_path:
        return _of_folder(given, folder, rootdir)
    try:
        found = _of_revision(given, rootdir)
    except CannotCompare:
        if is_folder:
            return _of_folder(given, folder, rootdir)
        raise
    if is_folder:
        raise CannotCompare(
            f"{given!r} is a revision and a folder: write ./{given} for the folder, or "
            f"{found.commit[:_SHORT]} for the revision"
        )
    return found


def root_of(rootdir: str) -> str:
    """The folder of the user's code: that of the repository around pytest's, or pytest's own."""
    top = (asked(rootdir, "rev-parse", "--show-toplevel") or "").rstrip("\n")
    return os.path.realpath(top or rootdir)


def _of_folder(given: str, folder: str, rootdir: str) -> Revision:
    top = (asked(rootdir, "rev-parse", "--show-toplevel") or "").rstrip("\n")
    below = os.path.relpath(rootdir, top) if top else ""
    root = os.path.realpath(top if top and os.path.isdir(os.path.join(folder, below)) else rootdir)
    if folder == root:
        raise CannotCompare(f"{given!r} is the code that is tested: give another checkout's folder")
    if _names(folder).isdisjoint(_names(root)):
        name = os.path.basename(root)
        is_inside = os.path.isdir(os.path.join(folder, name))
        hint = f", as {os.path.join(given, name)!r}" if is_inside else ""
        raise CannotCompare(
            f"{given!r} has no file or folder with the name of one in {root}: give the folder "
            f"that corresponds to it{hint}"
        )
    return Revision(given, root, folder=folder)


def _names(folder: str) -> set[str]:
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise CannotCompare(f"{folder} cannot be read: {error.strerror}") from None
    return {name for name in names if not name.startswith((".", "__pycache__"))}


def _of_revision(given: str, rootdir: str) -> Revision:
    top = _top(given, rootdir)
    name = given.removeprefix(_MERGE_BASE)
    if not name or name.startswith("-"):
        raise CannotCompare(
            f"{given!r}: expected a revision, for example main or HEAD~1, or a folder"
        )
    commit = _commit(top, name, given)
    if given.startswith(_MERGE_BASE):
        try:
            commit = git(top, "merge-base", "HEAD", commit).strip()
        except GitError:
            how = f": {_fetch(name)}" if _is_shallow(top) else ""
            raise CannotCompare(f"HEAD and {name!r} have no common ancestor here{how}") from None
    short = commit[:_SHORT]
    told = short if commit.startswith(given) else f"{given} ({short})"
    return Revision(told, os.path.realpath(top), commit=commit)


def _top(given: str, rootdir: str) -> str:
    try:
        top = git(rootdir, "rev-parse", "--show-toplevel").rstrip("\n")
    except GitError as error:
        words = str(error)
        if "dubious ownership" in words:
            raise CannotCompare(f"git does not trust this repository. It says: {words}") from None
        if "git cannot be run" in words:
            raise CannotCompare(
                f"{words}: install it, or give the folder of another checkout in place of {given!r}"
            ) from None
        raise CannotCompare(
            f"{given!r} is not a folder, and {rootdir} is not in a git repository that has it: "
            f"give the folder of another checkout. git says: {words}"
        ) from None
    if not top:
        raise CannotCompare(f"the repository of {rootdir} is bare: start pytest in a working tree")
    return top


def _commit(top: str, name: str, given: str) -> str:
    try:
        # In two steps: behind the words of a commit's message nothing may stand.
        found = git(top, "rev-parse", "--verify", "--quiet", name).strip()
        return git(top, "rev-parse", "--verify", "--quiet", f"{found}^{{commit}}").strip()
    except GitError:
        pass
    words = f"there is no revision {name!r} in {top}"
    if given != name:
        words += f", which {given!r} asks for"
    if _is_shallow(top):
        raise CannotCompare(f"{words}, which is a shallow clone: {_fetch(name)}")
    how = f". A branch that only the server has: {_fetch(name)}" if _branch(name) else ""
    raise CannotCompare(f"{words}, nor a folder of that name{how}")


def _fetch(name: str) -> str:
    branch = _branch(name)
    if not branch or re.fullmatch(r"[0-9a-f]{7,40}", name):
        return "git fetch --unshallow origin"
    return f"git fetch --depth=1000 origin +{branch}:refs/remotes/origin/{branch}"


def _branch(name: str) -> str:
    """The branch that a revision begins with; empty where that can be none."""
    branch = re.sub(r"[~^@].*", "", name.removeprefix("origin/"))
    return branch if re.fullmatch(r"[^\s:?*\[\\]+", branch) else ""


def _is_shallow(top: str) -> bool:
    return (asked(top, "rev-parse", "--is-shallow-repository") or "").strip() == "true"


def lay_out(reference: Revision, tree: Path, scratch: Path) -> tuple[str, ...]:
    """Write the revision's files to an empty folder; return what they lack, in words.

    Args:
        scratch: where an index of our own may stand.

    Raises:
        CannotCompare: the files cannot be had, or not be written.
    """
    try:
        if reference.folder:
            _copy_checkout(reference.folder, tree)
            return ()
        return _check_out(reference, tree, str(scratch / "index"))
    except (OSError, GitError) as error:
        words = f"{reference.name} cannot be laid out in {tree}"
        promisors = ("config", "--get-regexp", r"^remote\..*\.promisor$")
        if reference.commit and asked(reference.root, *promisors):
            raise CannotCompare(
                f"{words}. This is a partial clone, which lacks files of it: git fetch --refetch "
                "--no-filter origin"
            ) from None
        raise CannotCompare(f"{words}: {error}") from None


def _check_out(reference: Revision, tree: Path, index: str) -> tuple[str, ...]:
    top, commit = reference.root, reference.commit
    git(top, "read-tree", commit, index=index)
    git(top, "checkout-index", "--all", "--quiet", f"--prefix={tree}{os.sep}", index=index)
    staged = git(top, "ls-files", "-z", "--stage", index=index).split("\0")
    submodules = [entry.partition("\t")[2] for entry in staged if entry.startswith("160000 ")]
    notes = []
    if submodules:
        notes.append(f"submodules are empty in the baseline: {named(submodules)}")
    if pointers := _pointers(top, commit):
        notes.append(f"files of git LFS are pointers in the baseline: {named(pointers)}")
    return tuple(notes)


def named(names: Sequence[str], most: int = _MOST_NAMED) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    shown = ", ".join(names[:most])
    return f"{shown} and {more} more" if more > 0 else shown


def _pointers(top: str, commit: str) -> list[str]:
    """The files of git LFS, of which git itself has only pointers."""
    how = ("grep", "-z", "--name-only", "--no-color", "--basic-regexp")
    if asked(top, *how, "filter=lfs", commit, "--", "*.gitattributes") is None:
        return []
    printed = asked(top, *how, f"^{_LFS}", commit) or ""
    return [one.partition(":")[2] for one in printed.split("\0") if one]


def _copy_checkout(folder: str, tree: Path) -> None:
    """All of another checkout as it stands, what git ignores included, but no environments."""

    def is_left_out(path: str, name: str) -> bool:
        # A pipe has no end.
        is_a_kind = os.path.islink(path) or os.path.isfile(path) or os.path.isdir(path)
        return name in _NOT_COPIED or not is_a_kind or _is_environment(path)

    def left_out(where: str, names: list[str]) -> set[str]:
        return {name for name in names if is_left_out(os.path.join(where, name), name)}

    shutil.copytree(folder, tree, symlinks=True, ignore=left_out, dirs_exist_ok=True)


def _is_environment(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "pyvenv.cfg"))


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
    """Replace the tree's tests by today's; return today's, relative to the root.

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
        with contextlib.suppress(FileNotFoundError):  # deleted just now
            _copy_file(path, root, tree)
    return mine


def changed(laid: Sequence[str], tree: str) -> tuple[str, ...]:
    """The files that lie over the tree and differ from the revision's."""
    _, different, _ = filecmp.cmpfiles(_aside(tree, ""), tree, laid, shallow=False)
    return tuple(different)


def give_back(code: Collection[str], laid: Launch) -> Launch:
    """Restore the revision's own files; several processes may do so at the same time.

    Raises:
        OSError: a file cannot be read or written.
    """
    for path in code:
        target = os.path.join(laid.tree, path)
        beside = f"{target}.{os.getpid()}"
        shutil.copyfile(_aside(laid.tree, path), beside)
        os.utime(beside, (0, 0))  # so that the bytecode of today's file does not count
        os.replace(beside, target)
    return replace(laid, tests=tuple(one for one in laid.tests if one not in code))


def _aside(tree: str, path: str) -> str:
    return os.path.join(f"{tree}-replaced", path)


def _no_tools(paths: list[str]) -> list[str]:
    """Without the files of environments, which git may not ignore."""
    tops = {os.path.dirname(path) for path in paths if os.path.basename(path) == "pyvenv.cfg"}
    return [path for path in paths if not any(is_below(path, top) for top in tops)]


def _copy_file(path: str, root: str, tree: str) -> None:
    """Copy a file, or a submodule, from the root to the tree."""
    source, target = os.path.join(root, path), os.path.join(tree, path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(source) and not os.path.islink(source):  # a submodule
        bytecode = shutil.ignore_patterns(BYTECODE)
        shutil.copytree(source, target, symlinks=True, ignore=bytecode, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def _walk(folder: str) -> list[str]:
    found = []
    for where, folders, names in os.walk(folder):
        kept = [name for name in folders if name not in (".git", BYTECODE)]
        folders[:] = [name for name in kept if not _is_environment(os.path.join(where, name))]
        links = [name for name in folders if os.path.islink(os.path.join(where, name))]
        found += [os.path.relpath(os.path.join(where, name), folder) for name in (*names, *links)]
    return [path.replace(os.sep, "/") for path in found]


class NotPreparedError(CannotCompare):
    """The command for the tree has failed; the message has its last lines."""

    option = "kernelprof_against_prepare"


def copy_generated(
    patterns: Sequence[str], rootdir: str, root: str, tree: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy the user's files that patterns match, git does not track, and the tree lacks.

    Args:
        patterns: globs, relative to ``rootdir``, with ``**`` for any folders.
        root: the folder that the tree stands in the place of.

    Returns:
        The files that were copied, relative to the root; notes for the report.

    Raises:
        OSError: a file cannot be read or written.
    """
    copied: list[str] = []
    notes = []
    for pattern in patterns:
        found = sorted(glob.glob(pattern, root_dir=rootdir, recursive=True))
        paths = [os.path.join(rootdir, one) for one in found if BYTECODE not in one.split(os.sep)]
        names = [os.path.relpath(path, root) for path in paths if os.path.isfile(path)]
        if not names:
            notes.append(f"kernelprof_against_copy: {pattern} matches no file")
        known = tracked(root, names)
        for name in names:
            if name not in known and not os.path.lexists(os.path.join(tree, name)):
                _copy_file(name, root, tree)
                copied.append(name)
    return tuple(copied), tuple(notes)


def prepare(
    command: str, cwd: str, folder: str, environment: Mapping[str, str], timeout_s: float
) -> None:
    """Run a shell command in the tree; it ends with this process, however that ends.

    Args:
        cwd: the folder of the tree to run it in. folder: the one of our own around the tree.

    Raises:
        NotPreparedError: it fails, or takes too long.
        OSError: it cannot be started.
    """
    log = os.path.join(folder, "scratch", "prepare.log")
    process = start(folder, log, (), ["/bin/sh", "-c", command], environment, cwd)
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
