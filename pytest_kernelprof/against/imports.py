"""In the process of the reference: what would be imported from the user's folder comes from the
tree, whatever brought it in reach (a path, a ``.pth`` file, the finders of editable installs)."""

from __future__ import annotations

import importlib
import os
import site
import sys
import sysconfig
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.against.mapping import Mapping, is_below, roots_in_front

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping, Sequence
    from types import ModuleType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_STRICT = "__editable__."
# Finders of builds that compile: by class, the tool.
_COMPILED = {
    "ScikitBuildRedirectingFinder": "scikit-build-core",
    "MesonpyMetaFinder": "meson-python",
}
_IMPORT_ROOTS = ("", "src", "python", "lib")


def mapping_of(root: str, tree: str) -> Mapping:
    """The mapping of this process: environments and this plugin stay."""
    folders = [sys.prefix, sys.exec_prefix, _PACKAGE, *_site_folders()]
    return Mapping(root, tree, tuple(dict.fromkeys(map(os.path.realpath, folders))))


def _site_folders() -> list[str]:
    return [*site.getsitepackages(), site.getusersitepackages(), *sysconfig.get_paths().values()]


def refusal(path: Sequence[str], finders: Sequence[object], mapping: Mapping) -> str:
    """Why the code of a tree cannot be imported in the place of the user's, with the remedy; empty
    where it can.

    Args:
        path: ``sys.path``. finders: ``sys.meta_path``.
    """
    for entry in path:
        if os.path.basename(entry).startswith(_STRICT) and os.path.isdir(entry):
            return (
                f"{entry} holds the links of a strict editable install, which name each file of "
                "today's: install it with pip install -e . and without editable_mode=strict"
            )
    for finder in finders:
        tool = _COMPILED.get(_class_of(finder).__name__)
        folders = _texts(vars(finder).values()) if tool else []
        if tool and any(map(mapping.is_users, folders)):
            return (
                f"the package is an editable install of {tool}, whose compiled parts are today's: "
                "only Python code can be compared with a revision"
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
    """Have this process, and those that it starts, import from the tree.

    Args:
        path: the ``sys.path`` of the candidate.
    """
    moved = _rewrite_finders(sys.meta_path, mapping)
    sys.path[:] = roots_in_front(path, mapping)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    first = [entry for entry in sys.path if is_below(entry, mapping.tree)]
    children = dict.fromkeys([*first, *moved, *map(mapping.path, filter(None, known))])
    os.environ["PYTHONPATH"] = os.pathsep.join(children)
    for name, module in list(sys.modules.items()):  # what a .pth file has loaded already
        if _is_loaded_from(module, mapping) and not _is_ours(name):
            del sys.modules[name]
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()


def _rewrite_finders(finders: Sequence[object], mapping: Mapping) -> list[str]:
    """Rewrite what editable finders know; the folders that packages now stand in."""
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
    for name, here in table.items():
        if isinstance(here, str) and (there := mapping.path(here)) != here:
            table[name] = there
            package = os.path.dirname(there) if there.endswith("__init__.py") else there
            if os.path.basename(package).removesuffix(".py") == name:
                moved.append(os.path.dirname(package))
    return moved


def _is_loaded_from(module: ModuleType, mapping: Mapping) -> bool:
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return mapping.is_users(file)
    try:
        return any(isinstance(one, str) and mapping.is_users(one) for one in module.__path__)
    except (AttributeError, TypeError):
        return False


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == "pytest_kernelprof"


def loaded_from_the_user(modules: Iterable[tuple[str, object]], mapping: Mapping) -> list[str]:
    """The files, below the user's folder, that modules come from."""
    files = (getattr(module, "__file__", None) for name, module in modules if not _is_ours(name))
    return sorted({file for file in files if isinstance(file, str) and mapping.is_users(file)})


def installed_copy(modules: Iterable[tuple[str, object]], mapping: Mapping) -> str:
    """What both sides would load from the same file although the tree has a package of that name,
    with the remedy; empty where there is nothing of the kind."""
    for name, module in modules:
        file: Any = getattr(module, "__file__", None)
        if "." in name or name in sys.stdlib_module_names or _is_ours(name):
            continue
        there = _package_in(mapping.tree, name) if isinstance(file, str) else ""
        if there and not is_below(os.path.realpath(file), mapping.tree):
            return (
                f"{name} is an installed copy ({file}), so both sides would run the same code, not "
                f"the revision's {os.path.relpath(there, mapping.tree)}: install it with "
                "pip install -e ."
            )
    return ""


def _package_in(tree: str, name: str) -> str:
    """The file that a module of the tree stands in; empty where there is none of that name."""
    forms = (f"{name}{os.sep}__init__.py", f"{name}.py")
    files = (os.path.join(tree, root, form) for root in _IMPORT_ROOTS for form in forms)
    return next(filter(os.path.isfile, files), "")
