"""In the reference's process packages come from the tree, however the user has installed them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from setuptools.command import editable_wheel

from pytest_kernelprof.baselines import import_redirect
from pytest_kernelprof.baselines.import_redirect import Mapping, roots_in_front

PACKAGE = str(Path(import_redirect.__file__).parents[2])
EDITABLES = """
import importlib.util, os, sys
class RedirectingFinder:
    _redirections = {}
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if path is None and name in cls._redirections:
            return importlib.util.spec_from_file_location(name, cls._redirections[name])
def install():
    sys.meta_path.append(RedirectingFinder)
"""
SCRIPT = """
import json, site, subprocess, sys
sys.path.insert(0, {package!r})
from pytest_kernelprof.baselines import import_redirect
from pytest_kernelprof.baselines.code_origin import Copies
site.addsitedir({site!r})
for name in {before!r}:
    __import__(name)
path = [*sys.path, *{path!r}]
mapping = import_redirect.mapping_of({root!r}, {tree!r})
why = import_redirect.refusal(path, sys.meta_path, mapping)
import_redirect.redirect(path, mapping)
import {module} as found
told = [why, found.__file__]
child = "import site; site.addsitedir({site!r}); import {module} as m; print(m.__file__)"
told.append(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout)
told.append(Copies({tree!r}).wrong(list(sys.modules.items()), is_apart=False))
print(json.dumps(told))
"""


def project(folder: Path, where: str) -> tuple[Path, Path, Path]:
    """A package of a root folder, that of a tree, and a folder for what installs the first."""
    for name in ("root", "tree"):
        package = folder / name / where
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "mlp.py").touch()
    (folder / "site").mkdir()
    return folder / "root", folder / "tree", folder / "site"


def run(
    folder: Path, module: str, path: tuple[str, ...] = (), before: tuple[str, ...] = ()
) -> list[str]:
    root, tree, site = (str(folder / name) for name in ("root", "tree", "site"))
    code = SCRIPT.format(
        package=PACKAGE, site=site, path=path, root=root, tree=tree, module=module, before=before
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: list[str] = json.loads(done.stdout)
    return told


def finder(site: Path, mapping: dict[str, str], namespaces: dict[str, list[str]]) -> None:
    """As setuptools writes it, by its own function."""
    text = editable_wheel._finder_template("it", mapping, namespaces)
    (site / "__editable___it_finder.py").write_text(text)
    line = "import __editable___it_finder; __editable___it_finder.install()"
    (site / "__editable__.it.pth").write_text(
        f"import sys; sys.path.insert(0, {str(site)!r}); {line}\n"
    )


@pytest.mark.parametrize("layout", ["pth", "finder", "editables", "path", "loaded before"])
def test_a_package_comes_from_the_tree(tmp_path: Path, layout: str) -> None:
    where = "pkg" if layout == "finder" else "src/pkg"
    root, tree, site = project(tmp_path, where)
    path: tuple[str, ...] = ()
    if layout in ("pth", "loaded before"):
        (site / "__editable__.it.pth").write_text(f"{root / 'src'}\n")
    if layout == "finder":
        finder(site, {"pkg": str(root / "pkg")}, {})
    if layout == "editables":
        (site / "redirector.py").write_text(EDITABLES)
        at = str(root / where / "__init__.py")
        (site / "_it.py").write_text(
            f"import redirector as r; r.install(); "
            f"r.RedirectingFinder._redirections['pkg'] = {at!r}"
        )
        (site / "it.pth").write_text(f"import sys; sys.path.insert(0, {str(site)!r}); import _it\n")
    if layout == "path":
        path = (str(root / "src"),)
    before = ("pkg.mlp",) if layout == "loaded before" else ()
    why, file, child, copy = run(tmp_path, "pkg.mlp", path, before)
    assert (why, file, child.strip(), copy) == ("", *[str(tree / where / "mlp.py")] * 2, "")


@pytest.mark.parametrize("layout", ["pth", "finder"])
def test_a_part_of_a_namespace_package_comes_from_the_tree(tmp_path: Path, layout: str) -> None:
    root, tree, site = project(tmp_path, "src/ns/part")
    if layout == "pth":
        (site / "it.pth").write_text(f"{root / 'src'}\n")
    else:
        finder(site, {"ns.part": str(root / "src" / "ns" / "part")}, {"ns": []})
    why, file, _, _ = run(tmp_path, "ns.part.mlp")
    assert (why, file) == ("", str(tree / "src" / "ns" / "part" / "mlp.py"))


def test_environments_in_the_root_and_this_plugin_stay(tmp_path: Path) -> None:
    mapping = Mapping("/r", "/t", ("/r/.venv", "/r/pytest_kernelprof", "/", "/r"))
    assert mapping.path("/r/src") == "/t/src"
    assert mapping.path("/r") == "/t"
    assert mapping.path("/r/.venv/lib/site-packages") == "/r/.venv/lib/site-packages"
    assert mapping.path("/r/pytest_kernelprof/api.py") == "/r/pytest_kernelprof/api.py"
    assert mapping.path("/rest") == "/rest"
    real = import_redirect.mapping_of(PACKAGE, "/t")
    assert not real.is_users(import_redirect.__file__)
    assert real.is_users(f"{PACKAGE}/tests")


def test_a_path_through_a_link_is_mapped(tmp_path: Path) -> None:
    (tmp_path / "root" / "src").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "root")
    mapping = Mapping(str(tmp_path / "root"), "/t")
    assert mapping.path(str(tmp_path / "link" / "src")) == "/t/src"


@pytest.mark.parametrize(
    ("text", "mapped"),
    [
        ("/r/tests/test_it.py::test_one", "/t/tests/test_it.py::test_one"),
        ("--confcutdir=/r", "--confcutdir=/t"),
        ("pythonpath=/r/src:/r/lib", "pythonpath=/t/src:/t/lib"),
        ("tests/r/it", "tests/r/it"),
        ("/rest/it", "/rest/it"),
        ("-o cache_dir='/r/c'", "-o cache_dir='/t/c'"),
    ],
)
def test_paths_in_arguments_are_mapped(text: str, mapped: str) -> None:
    assert Mapping("/r", "/t").text(text) == mapped


def test_roots_stand_in_front() -> None:
    path = ["", "/site", "/r/src", "/r", "/r/src"]
    assert roots_in_front(path, Mapping("/r", "/t")) == ["/t/src", "/t", "", "/site"]


def test_strict_links_and_compiled_installs_are_refused(tmp_path: Path) -> None:
    links = tmp_path / "root" / "build" / "__editable__.it-1-py3"
    links.mkdir(parents=True)
    mapping = Mapping(str(tmp_path / "root"), "/t")
    assert "without editable_mode=strict" in import_redirect.refusal([str(links)], [], mapping)

    class ScikitBuildRedirectingFinder:
        def __init__(self) -> None:
            self.known_wheel_files = {"pkg._core": str(tmp_path / "root" / "build" / "_core.so")}

    why = import_redirect.refusal([], [ScikitBuildRedirectingFinder()], mapping)
    assert why.startswith("the package is an editable install of scikit-build-core")
    assert import_redirect.refusal([], [ScikitBuildRedirectingFinder()], Mapping("/r", "/t")) == ""


def test_an_installed_copy_is_refused_with_the_remedy(tmp_path: Path) -> None:
    _, _, site = project(tmp_path, "src/pkg")
    (site / "pkg").mkdir()
    (site / "pkg" / "__init__.py").touch()
    (site / "pkg" / "mlp.py").touch()
    _, file, _, copy = run(tmp_path, "pkg.mlp")
    assert file == str(site / "pkg" / "mlp.py")
    assert copy == (
        f"pkg is an installed copy ({site / 'pkg' / '__init__.py'}), so both sides would run the "
        "same code, not the revision's src/pkg/__init__.py: install it with pip install -e ., "
        "or give the python of an environment that has the revision with "
        "--kernelprof-against-python"
    )


def test_an_installed_copy_of_a_part_of_a_namespace_is_refused(tmp_path: Path) -> None:
    _, _, site = project(tmp_path, "src/ns/part")
    (site / "ns" / "part").mkdir(parents=True)
    (site / "ns" / "part" / "mlp.py").touch()
    _, _, _, copy = run(tmp_path, "ns.part.mlp")
    assert copy.startswith(f"ns.part.mlp is an installed copy ({site / 'ns' / 'part' / 'mlp.py'})")


def test_what_is_compiled_beside_the_code_is_refused_with_both_remedies(tmp_path: Path) -> None:
    root, tree, _ = project(tmp_path, "pkg")
    file = root / "pkg" / f"_core{EXTENSION_SUFFIXES[0]}"
    package = SimpleNamespace(__file__=str(root / "pkg" / "__init__.py"))
    core = SimpleNamespace(__file__=str(file))
    modules = [("pkg", package), ("pkg._core", core)]
    mapping = Mapping(str(root), str(tree))
    why = import_redirect.compiled_of_today(modules, [], mapping)
    assert why.startswith(f"pkg._core is compiled ({file}), and the revision's is not: install")
    assert why.endswith(
        "--kernelprof-against-python, or build it with the ini key kernelprof_against_prepare"
    )
    assert import_redirect.compiled_of_today([("_core", core)], [str(file.parent)], mapping) != ""
    assert import_redirect.compiled_of_today([("built_as_it_runs", core)], [], mapping) == ""
    assert import_redirect.compiled_of_today(modules, [], Mapping("/other", str(tree))) == ""
    (tree / "pkg" / file.name).touch()
    assert import_redirect.compiled_of_today(modules, [], mapping) == ""


def test_of_another_environment_packages_stay_there_that_are_the_same(tmp_path: Path) -> None:
    root, tree, site = project(tmp_path, "one")
    for name in ("two", "three"):
        (tree / name).mkdir()
        (tree / name / "__init__.py").write_text("")
    for name, text in (("one", ""), ("two", "another = 1")):
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(text)
    code = (
        f"import sys; sys.path[:0] = [{PACKAGE!r}, {str(site)!r}];"
        "from pytest_kernelprof.baselines import code_origin, import_redirect;"
        f"mapping = import_redirect.mapping_of({str(root)!r}, {str(tree)!r});"
        f"packages = code_origin.Copies({str(tree)!r}).packages();"
        "sys.meta_path.insert(0, import_redirect.Pinned(packages, mapping));"
        f"import_redirect.redirect([{str(root)!r}, *sys.path], mapping);"
        "import one, two, three; print(one.__file__, two.__file__, three.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        str(folder / "__init__.py") for folder in (site / "one", tree / "two", tree / "three")
    ]


def test_modules_from_the_users_own_folder_are_named() -> None:
    module = SimpleNamespace(__file__="/r/src/pkg/mlp.py")
    other = ModuleType("other")
    mapping = Mapping("/r", "/t", ("/r/.venv",))
    env = SimpleNamespace(__file__="/r/.venv/x.py")
    modules = [("pkg.mlp", module), ("other", other), ("x", env)]
    assert import_redirect.loaded_from_the_user(modules, mapping) == ["/r/src/pkg/mlp.py"]
