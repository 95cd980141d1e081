"""Checks in a worker that its code is the revision's.

``Origins`` follows which modules use which. ``Copies`` finds modules that are loaded from elsewhere
although the tree has them. ``Reads`` notes which of the user's files are opened.
"""

from __future__ import annotations

import ast
import filecmp
import functools
import glob
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from types import ModuleType
from typing import Any

from pytest_kernelprof.baselines import import_redirect
from pytest_kernelprof.baselines.protocol import Launch
from pytest_kernelprof.baselines.revision import changed
from pytest_kernelprof.records.document import Test
from pytest_kernelprof.records.profile import Kernel

_FOLDERS = ("", "src", "python", "lib")
_PROJECTS = ("pyproject.toml", "setup.py", "setup.cfg")
_DEPTH = 3
# Code of other projects, whose packages are installed separately.
_OTHERS = ("third_party", "thirdparty", "3rdparty", "vendor", "vendored", "_vendor", "external")
_EVENTS = ("open", "ctypes.dlopen")
_MOST = 20
"""At most so many files are noted for one test."""
_COMPILED = ("Torch-Compiled Region", "## Call CompiledFxGraph ")


class RightCode:
    """The code that this process loads, and the files that it reads.

    Attributes:
        origins: which of the revision's files a test comes from.
        reads: which of the user's files are opened.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._mapping = import_redirect.mapping_of(launch.root, launch.tree)
        self._copies = Copies(launch.tree)
        self._is_apart = bool(launch.python)
        self._is_own = launch.tree == launch.root  # today's code
        self.reads = Reads(self._mapping)
        self.origins = Origins(launch.tree, launch.tests, self._copies if self._is_apart else None)

    def bring_in_reach(self) -> str:
        """Make imports find the tree, or another environment that has the same packages; return why
        that cannot be done, empty if it can."""
        given = self._launch.path
        whole = [*given, *sys.path] if self._is_apart else given
        if self._is_own and self._is_apart:  # the user's path only adds what it lacks
            sys.path[:] = whole = [*filter(None, sys.path), *map(self._mapping.path, given)]
        if not self._is_own:
            why = import_redirect.refusal(whole, sys.meta_path, self._mapping)
            if why:
                return why
        if self._is_apart:
            sys.meta_path.insert(0, import_redirect.Pinned(self._copies.packages(), self._mapping))
        import_redirect.redirect(whole, self._mapping)
        if not self._is_own:
            self.reads.watch()
        return ""

    def wrong(self, modules: Iterable[tuple[str, object]]) -> str:
        """Why the loaded code is not what is compared; empty if it is."""
        loaded = list(modules)
        if self._is_own:
            here = self._is_apart
            return self._copies.wrong(loaded, is_apart=True, whose="your code") if here else ""
        if users := import_redirect.loaded_from_the_user(loaded, self._mapping):
            return (
                f"the baseline loaded code from your own folder ({users[0]}), so it would not "
                "measure the revision: remove the absolute path to that folder"
            )
        return self._copies.wrong(loaded, is_apart=self._is_apart)

    def lines_of_today(self, test: Test | None) -> tuple[str, ...]:
        """The user's test files that hold all lines that launch the kernels of a profile. Lines of
        installed packages and of compiled code are not known."""
        if test is None or self._is_apart:
            return ()
        tree, found = self._launch.tree, set[str]()
        tests = {os.path.join(tree, path) for path in self._launch.tests}
        for profile in test.profiles:
            files = {_file_of(kernel) for kernel in profile.kernels}
            if files <= tests:
                found |= files
        return tuple(sorted(os.path.relpath(file, tree) for file in found))


def _file_of(kernel: Kernel) -> str:
    """The file of the line that launches a kernel; empty if it is not known."""
    if any(operator.startswith(_COMPILED) for operator in kernel.operators):
        return ""  # the line is that of the call
    return os.path.realpath(kernel.source.rpartition(":")[0]) if kernel.source else ""


class Copies:
    """The modules of a tree, to find those of them that are loaded from elsewhere."""

    def __init__(self, tree: str) -> None:
        self._tree = tree
        self._roots = _import_roots(tree)
        self._has = functools.cache(self._is_there)

    def wrong(
        self, modules: Iterable[tuple[str, object]], *, is_apart: bool, whose: str = "the revision"
    ) -> str:
        """A module that both sides would load from the same file, with the remedy; empty without
        one.

        Args:
            is_apart: whether the baseline has its own environment, whose modules may be copies of
                the tree's, but not of another revision's. whose: the code of the tree.
        """
        for name, file, in_tree in self._elsewhere(modules):
            below = os.path.relpath(in_tree, self._tree)
            if not is_apart:
                return (
                    f"{name} is an installed copy ({file}), so both sides would run the same code, "
                    f"not the revision's {below}: install it with pip install -e ., or give the "
                    "python of an environment that has the revision with "
                    "--kernelprof-against-python"
                )
            if not filecmp.cmp(file, in_tree, shallow=False):
                return (
                    f"{name} of {sys.executable} ({file}) is not {whose}'s {below}: install "
                    f"{whose} in that environment"
                )
        return ""

    def stand_in(self, module: ModuleType) -> str:
        """The tree's file for a module that is loaded from elsewhere; empty without one."""
        return next((file for _, _, file in self._elsewhere([(module.__name__, module)])), "")

    def packages(self) -> dict[str, str]:
        """The packages in the import roots of the tree, each with its ``__init__.py``."""
        found: dict[str, str] = {}
        for root in self._roots:
            for file in sorted(glob.glob(os.path.join(glob.escape(root), "*", "__init__.py"))):
                name = os.path.basename(os.path.dirname(file))
                if name.isidentifier():
                    found.setdefault(name, file)
        return found

    def _elsewhere(self, modules: Iterable[tuple[str, object]]) -> Iterable[tuple[str, str, str]]:
        """The modules that come from elsewhere although the tree has them: the name, the file, and
        the tree's file."""
        for name, module in modules:
            top = name.partition(".")[0]
            file: Any = getattr(module, "__file__", None)
            if not isinstance(file, str) or not self._has(top):
                continue
            in_tree = self._file_of(name)
            if in_tree and not import_redirect.is_below(
                import_redirect.real_path(file), self._tree
            ):
                yield name, file, in_tree

    def _is_there(self, top: str) -> bool:
        paths = (os.path.join(root, one) for root in self._roots for one in (top, f"{top}.py"))
        is_foreign = top in sys.stdlib_module_names or import_redirect.is_ours(top)
        return not is_foreign and any(map(os.path.exists, paths))

    def _file_of(self, name: str) -> str:
        """The tree's file for a module; empty without one."""
        below = name.replace(".", os.sep)
        forms = (f"{below}{os.sep}__init__.py", f"{below}.py")
        files = (os.path.join(root, form) for root in self._roots for form in forms)
        return next(filter(os.path.isfile, files), "")


def _import_roots(tree: str) -> list[str]:
    """The folders of packages: beside each ``pyproject.toml`` or the like, or one below."""
    projects = [tree]
    for where, folders, files in os.walk(tree):
        depth = os.path.relpath(where, tree).count(os.sep) + 1
        below = folders if depth < _DEPTH else ()
        folders[:] = [one for one in below if not one.startswith(".") and one not in _OTHERS]
        if where != tree and any(name in files for name in _PROJECTS):
            projects.append(where)
    roots = (os.path.join(one, name).rstrip(os.sep) for one in projects for name in _FOLDERS)
    return [root for root in roots if os.path.isdir(root)]


class Origins:
    """Follows which modules of a tree use which.

    Args:
        tests: the files of the tree that are today's, relative to it.
        copies: of another environment, whose modules stand for the tree's files.
    """

    def __init__(self, tree: str, tests: Sequence[str], copies: Copies | None = None) -> None:
        self._tree = tree
        self._tests = {os.path.join(tree, path) for path in tests}
        self._changed = changed(tests, tree)
        self._copies = copies

    def reached(self, start: Iterable[ModuleType]) -> tuple[str, ...]:
        """The revision's own files, relative to the tree, among modules and what they use."""
        waiting, seen = [module.__name__ for module in start], set[str]()
        files = set()
        while waiting:
            name = waiting.pop()
            module = sys.modules.get(name)
            if name in seen or module is None:
                continue
            seen.add(name)
            stand_in = self._copies.stand_in(module) if self._copies is not None else ""
            file = stand_in or getattr(module, "__file__", None)
            if not self._is_of_the_tree(module, file):
                continue
            if file and os.path.realpath(file) in self._tests:
                waiting += _imported_by(os.path.realpath(file), module.__package__ or "")
            elif file:
                files.add(os.path.relpath(os.path.realpath(file), self._tree))
            waiting += _held(module)
        return tuple(sorted(files))

    def shared_with(self, tests: Collection[str]) -> tuple[str, ...]:
        """The user's files, relative to the tree, that differ from the revision's and are part of
        its code: its own modules import them, or they are loaded and no test imports them.

        Args:
            tests: the files, absolute, that hold tests or are plugins of pytest.
        """
        if not self._changed:
            return ()
        known = {
            name: (import_redirect.real_path(file), getattr(one, "__package__", None) or "")
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
        """The user's files among modules of these names, their packages, and all that they
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

    def _is_of_the_tree(self, module: ModuleType, file: object) -> bool:
        places = [file] if isinstance(file, str) else import_redirect.places_of(module)
        return any(
            import_redirect.is_below(import_redirect.real_path(one), self._tree) for one in places
        )


def _held(module: ModuleType) -> list[str]:
    """The names of modules that a module holds, or of whose objects it holds one."""
    found = []
    for value in list(vars(module).values()):
        name = vars(value).get("__name__") if isinstance(value, type(sys)) else None
        name = name or getattr(type(value) if not callable(value) else value, "__module__", None)
        if isinstance(name, str):
            found.append(name)
    return found


@functools.cache
def _imported_by(file: str, package: str) -> tuple[str, ...]:
    """The names that a file imports anywhere, also in functions: a module that another file loaded
    before is not loaded again when a test imports it."""
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


class Reads:
    """Watches each file that this process opens, and each library that it loads by ``ctypes``, from
    ``watch`` on. A hook of Python's audit stays as long as its process."""

    def __init__(self, mapping: import_redirect.Mapping) -> None:
        self._mapping = mapping
        self._root = mapping.root.rstrip(os.sep) + os.sep
        self._seen: dict[str, None] = {}

    def watch(self) -> None:
        """Begin."""
        sys.addaudithook(self._look)

    def taken(self) -> tuple[str, ...]:
        """The files since the last call, relative to the user's folder."""
        found, self._seen = tuple(self._seen), {}
        return found

    def _look(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in _EVENTS:
            return
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], (str, bytes)) else ""
        # For nearly all files, the check ends here.
        is_near = path.startswith(self._root) and len(self._seen) < _MOST
        if is_near and self._mapping.is_users(path):
            self._seen[os.path.relpath(path, self._mapping.root)] = None
