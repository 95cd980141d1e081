"""Redirects imports of a worker from the user's folder to the revision's tree.

Modules come from the tree however the user's folder got onto the path: by an entry of ``sys.path``,
a ``.pth`` file, or the finder of an editable install.
"""

from __future__ import annotations

import contextlib
import filecmp
import functools
import importlib
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, MutableMapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from typing import Any, NamedTuple

from pytest_kernelprof.system import PACKAGE

_STRICT = "__editable__."
# Finders of builds that compile: by class, the tool.
_COMPILED = {
    "ScikitBuildRedirectingFinder": "scikit-build-core",
    "MesonpyMetaFinder": "meson-python",
}
_ELSEWHERE = (
    "install the revision in its own environment, and give that environment's python with "
    "--kernelprof-against-python"
)


class Mapping(NamedTuple):
    """Maps paths of the user's root folder to the tree.

    Attributes:
        root, tree: absolute, without links.
        stays: folders below the root that both sides use: environments, this plugin.
    """

    root: str
    tree: str
    stays: tuple[str, ...] = ()

    def path(self, path: str) -> str:
        """The path in the tree; the same path if it is not below the root, or stays."""
        for seen in (os.path.abspath(path), os.path.realpath(path)):
            if self._is_mapped(seen):
                return os.path.normpath(os.path.join(self.tree, os.path.relpath(seen, self.root)))
        return path

    def is_users(self, path: str) -> bool:
        """Whether it is below the root and does not stay."""
        return self._is_mapped(os.path.abspath(path)) or self._is_mapped(real_path(path))

    def text(self, text: str) -> str:
        """A command line's word or a variable, with each path of the root mapped to the tree."""
        before, after = r"(?:(?<=[=:,\s'\"])|^)", r"(?=[/:,;\s'\"]|$)"
        path = before + re.escape(self.root) + after + r"[^:,;\s'\"]*"
        return re.sub(path, lambda found: self.path(found[0]), text)

    def _is_mapped(self, path: str) -> bool:
        stays = (stay for stay in self.stays if stay != self.root and is_below(stay, self.root))
        return is_below(path, self.root) and not any(is_below(path, stay) for stay in stays)


def real_path(path: str) -> str:
    """Where a module that is loaded lies. It stays there, and a program has thousands, which are
    looked at for each test."""
    return _real_path(path) if os.path.isabs(path) else os.path.realpath(path)


_real_path = functools.cache(os.path.realpath)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or in it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def roots_in_front(path: Iterable[str], mapping: Mapping) -> list[str]:
    """A ``sys.path`` with its entries of the root mapped to the tree, and moved to the front."""
    entries = [(entry, mapping.path(entry) if entry else entry) for entry in path]
    in_front = sorted(entries, key=lambda entry: entry[0] == entry[1])
    return list(dict.fromkeys(mapped for _, mapped in in_front))


def mapping_of(root: str, tree: str) -> Mapping:
    """The mapping of this process: environments and this plugin stay."""
    folders = [sys.prefix, sys.exec_prefix, PACKAGE, *sysconfig.get_paths().values()]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return Mapping(root, tree, tuple(dict.fromkeys(map(os.path.realpath, folders))))


def refusal(path: Sequence[str], finders: Sequence[object], mapping: Mapping) -> str:
    """Why a tree's code cannot replace the user's, with the remedy; empty where it can.

    Args:
        path: ``sys.path``. finders: ``sys.meta_path``.
    """
    for entry in path:
        if os.path.basename(entry).startswith(_STRICT) and os.path.isdir(entry):
            return (
                f"{entry} holds the links of a strict editable install to each of your files: "
                "install it with pip install -e . without editable_mode=strict"
            )
    for finder in finders:
        tool = _COMPILED.get(_class_of(finder).__name__)
        if tool and any(map(mapping.is_users, _texts(vars(finder).values()))):
            return (
                f"the package is an editable install of {tool}, whose compiled parts belong to "
                f"your code: {_ELSEWHERE}"
            )
    return ""


def _texts(values: Iterable[object]) -> list[str]:
    """All absolute paths in nested containers."""
    found: list[str] = []
    for value in values:
        if isinstance(value, str) and os.path.isabs(value):
            found.append(value)
        elif isinstance(value, dict):
            found += _texts(value.values())
        elif isinstance(value, (list, tuple, set)):
            found += _texts(value)
    return found


def _class_of(finder: object) -> type:
    return finder if isinstance(finder, type) else type(finder)


def redirect(path: Sequence[str], mapping: Mapping) -> None:
    """Make this process, and its children, import from the tree.

    Args:
        path: the ``sys.path`` of the run.
    """
    moved = _rewrite_finders(sys.meta_path, mapping)
    sys.path[:] = roots_in_front(path, mapping)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    first = [entry for entry in sys.path if is_below(entry, mapping.tree)]
    children = dict.fromkeys([*first, *moved, *map(mapping.path, filter(None, known))])
    os.environ["PYTHONPATH"] = os.pathsep.join(children)
    for name, module in list(sys.modules.items()):  # what a .pth file has loaded already
        if any(map(mapping.is_users, places_of(module))) and not is_ours(name):
            del sys.modules[name]
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()


class Pinned:
    """Finds the tree's packages that this environment has installed with the same Python files,
    before the tree: there they have their compiled and generated files. To be made before the tree
    is on the path.

    Args:
        packages: each with its ``__init__.py`` in the tree.
    """

    def __init__(self, packages: dict[str, str], mapping: Mapping) -> None:
        self._files: dict[str, str] = {}
        for name, in_tree in packages.items():
            spec = None
            with contextlib.suppress(ImportError, ValueError):
                spec = find_spec(name)
            file = spec.origin if spec is not None else None
            if (
                file is not None
                and os.path.isfile(file)
                and not mapping.is_users(file)
                and filecmp.cmp(file, in_tree, shallow=False)
            ):
                self._files[name] = file

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """As finders of ``sys.meta_path`` have it."""
        file = self._files.get(name) if path is None else None
        if file is None:
            return None
        return spec_from_file_location(
            name, file, submodule_search_locations=[os.path.dirname(file)]
        )


def compiled_of_today(
    modules: Iterable[tuple[str, object]], path: Iterable[str], mapping: Mapping
) -> str:
    """A compiled module of the user's packages that the tree lacks, with the remedy; empty without
    one. Modules that tests build into a cache are in no package and in no folder of ``path``.

    Args:
        path: ``sys.path``.
    """
    loaded, folders = dict(modules), set(path)
    files = ((name, getattr(module, "__file__", None)) for name, module in loaded.items())
    # To ask where each of thousands of modules is would take a quarter of a second.
    compiled = {
        name: file
        for name, file in files
        if isinstance(file, str)
        and file.endswith(tuple(EXTENSION_SUFFIXES))
        and mapping.is_users(file)
    }
    for name, file in sorted(compiled.items()):
        package = name.partition(".")[0]
        places = places_of(loaded.get(package)) if package != name else []
        if (
            any(map(mapping.is_users, places)) or os.path.dirname(file) in folders
        ) and not os.path.exists(mapping.path(file)):
            return (
                f"{name} is compiled ({file}), and the revision's is not: {_ELSEWHERE}, or build "
                "it with the ini key kernelprof_against_prepare"
            )
    return ""


def _rewrite_finders(finders: Sequence[object], mapping: Mapping) -> list[str]:
    """Rewrite the tables of editable finders; return the folders of the packages in the tree."""
    moved: list[str] = []
    for finder in finders:
        known = vars(sys.modules.get(_class_of(finder).__module__) or object)
        for table in (known.get("MAPPING"), getattr(finder, "_redirections", None)):
            if isinstance(table, dict):  # setuptools'; hatch's and others' that use editables
                moved += _rewrite(table, mapping)
        namespaces = known.get("NAMESPACES")
        if isinstance(namespaces, dict):
            for name, folders in namespaces.items():
                namespaces[name] = [mapping.path(folder) for folder in folders]
    return moved


def _rewrite(table: MutableMapping[str, Any], mapping: Mapping) -> list[str]:
    moved = []
    for name, path in table.items():
        if isinstance(path, str) and (mapped := mapping.path(path)) != path:
            table[name] = mapped
            package = os.path.dirname(mapped) if mapped.endswith("__init__.py") else mapped
            if os.path.basename(package).removesuffix(".py") == name:
                moved.append(os.path.dirname(package))
    return moved


def places_of(module: Any) -> list[str]:
    """Where a module is loaded from: its file, or the folders of a namespace package."""
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return [file]
    with contextlib.suppress(AttributeError, TypeError):
        return [one for one in module.__path__ if isinstance(one, str)]
    return []


def is_ours(name: str) -> bool:
    """Whether a module is of this plugin."""
    return name.partition(".")[0] == "pytest_kernelprof"


def loaded_from_the_user(modules: Iterable[tuple[str, object]], mapping: Mapping) -> list[str]:
    """The files of modules that come from the user's folder."""
    files = (getattr(module, "__file__", None) for name, module in modules if not is_ours(name))
    return sorted({file for file in files if isinstance(file, str) and mapping.is_users(file)})
