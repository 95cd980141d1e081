"""Whether the code that runs in the process of the reference is the revision's."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from records import kernel, profile

from pytest_kernelprof.baselines import code_origin
from pytest_kernelprof.baselines.code_origin import Copies, Origins, RightCode
from pytest_kernelprof.baselines.protocol import Launch
from pytest_kernelprof.records.document import Test

TESTS = ("tests/model.py", "tests/test_it.py")
OURS, CODE = "/t/tests/model.py:3", "/t/pkg/mlp.py:3"


def right_code(python: str = "") -> RightCode:
    return RightCode(Launch("main", "/r", "/t", "/f", TESTS, python=python))


@pytest.mark.parametrize(
    ("sources", "files"),
    [
        ((OURS, "/t/tests/test_it.py:9"), ("tests/model.py", "tests/test_it.py")),
        ((OURS, CODE), ()),
        ((OURS, ""), ()),
        ((), ()),
    ],
)
def test_code_that_lies_among_the_tests_is_noticed(
    sources: tuple[str, ...], files: tuple[str, ...]
) -> None:
    kernels = [kernel("mul", "aten::mul", source=source) for source in sources]
    test = Test("t.py::a", (profile(kernels),))
    assert right_code().lines_of_today(test) == files
    assert right_code(python="/env/bin/python").lines_of_today(test) == ()
    assert right_code().lines_of_today(None) == ()


def test_of_compiled_code_the_line_of_the_call_says_nothing() -> None:
    fused = kernel("triton_fused", "Torch-Compiled Region: 0/0", source=OURS)
    assert right_code().lines_of_today(Test("t.py::a", (profile([fused]),))) == ()


def module(name: str, file: Path | str) -> tuple[str, ModuleType]:
    made = ModuleType(name)
    made.__file__ = str(file)
    return name, made


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "src/pkg/__init__.py",
        "src/pkg/mlp.py",
        "src/ns/part.py",
        "packages/one/pyproject.toml",
        "packages/one/src/one/__init__.py",
        "third_party/numpy/pyproject.toml",
        "third_party/numpy/numpy/__init__.py",
        "src/pkg/_vendor/packaging/__init__.py",
        "json/__init__.py",
    ):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}")
    return tmp_path / "tree"


@pytest.mark.parametrize("name", ["pkg", "pkg.mlp", "ns.part", "one"])
def test_a_copy_is_refused_wherever_the_tree_has_the_package(tree: Path, name: str) -> None:
    told = Copies(str(tree)).wrong([module(name, "/site/it.py")], is_apart=False)
    assert told.startswith(f"{name} is an installed copy (/site/it.py), so both sides would run")


@pytest.mark.parametrize("name", ["numpy", "packaging", "json", "pkg.other", "ns", "pytest"])
def test_what_others_wrote_and_what_the_tree_lacks_is_none(tree: Path, name: str) -> None:
    assert Copies(str(tree)).wrong([module(name, "/site/it.py")], is_apart=False) == ""


def test_what_comes_from_the_tree_is_none(tree: Path) -> None:
    assert (
        Copies(str(tree)).wrong([module("pkg", tree / "src/pkg/__init__.py")], is_apart=False) == ""
    )
    assert Copies(str(tree)).wrong([("pkg", None)], is_apart=False) == ""


def test_in_another_environment_it_has_to_be_the_revisions(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "mlp.py"
    file.write_text("# src/pkg/mlp.py")
    copies, found = Copies(str(tree)), module("pkg.mlp", file)
    compiled = module("pkg._core", tmp_path / "_core.so")
    assert copies.wrong([found, compiled], is_apart=True) == ""
    assert copies.stand_in(found[1]) == str(tree / "src/pkg/mlp.py")
    assert copies.stand_in(compiled[1]) == ""
    file.write_text("another")
    told = copies.wrong([found], is_apart=True)
    assert told.endswith(
        "is not the revision's src/pkg/mlp.py: install the revision in that environment"
    )


def test_the_packages_of_a_tree(tree: Path) -> None:
    assert sorted(Copies(str(tree)).packages()) == ["json", "one", "pkg"]


def test_it_follows_what_modules_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "kp_test_one.py": "from kp_helpers import run\nimport json",
        "kp_test_own.py": "def mine(): pass",
        "kp_test_late.py": "def test(): import kp_pkg.late",
        "kp_helpers.py": "import kp_pkg.mlp\ndef run(): pass",
        "kp_pkg/__init__.py": "",
        "kp_pkg/mlp.py": "from kp_pkg.ops import gelu",
        "kp_pkg/ops.py": "def gelu(): pass",
        "kp_pkg/late.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = [name for name in files if name.startswith("kp_test")] + ["kp_helpers.py"]
    origins = Origins(str(tmp_path), mine)
    one, own, late = (importlib.import_module(name[:-3]) for name in mine[:3])
    code = ("kp_pkg/__init__.py", "kp_pkg/mlp.py", "kp_pkg/ops.py")
    assert origins.reached([one]) == code
    assert origins.reached([own]) == ()
    assert origins.reached([late]) == ()
    late.test()
    assert "kp_pkg/late.py" in origins.reached([sys.modules["kp_pkg.late"]])
    # From here on nothing is new to a test that imports it as it runs.
    assert "kp_pkg/late.py" in origins.reached([late])
    for name in [name for name in sys.modules if name.startswith("kp_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("test", "imports"),
    [
        ("kp_all/tests/test_it.py", "from ..code import run\n  from .. import code"),
        ("kp_all/test_it.py", "from .code import run"),
        ("kp_all/test_it.py", "from . import code"),
    ],
)
def test_what_a_test_imports_relative_to_itself_is_followed(
    test: str, imports: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "kp_all/__init__.py": "",
        "kp_all/code.py": "def run(): pass",
        "kp_all/tests/__init__.py": "",
        test: f"def test():\n  {imports}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    origins = Origins(str(tmp_path), [test, "kp_all/tests/__init__.py"])
    loaded = importlib.import_module(test.removesuffix(".py").replace("/", "."))
    importlib.import_module("kp_all.code")  # by another test file
    assert "kp_all/code.py" in origins.reached([loaded])
    for name in [name for name in sys.modules if name.startswith("kp_")]:
        del sys.modules[name]


def test_code_that_cannot_be_brought_in_reach_says_why(tmp_path: Path) -> None:
    links = tmp_path / "__editable__.pkg-1-py3-none-any"
    links.mkdir()
    code = RightCode(Launch("main", "/r", "/t", "/f", path=(str(links),)))
    assert "editable_mode=strict" in code.bring_in_reach()


PACKAGE = str(Path(code_origin.__file__).parents[2])
SCRIPT = """
import ctypes, json, os, sys
sys.path.insert(0, {package!r})
from pytest_kernelprof.baselines.import_redirect import Mapping
from pytest_kernelprof.baselines.code_origin import Reads
root, tree = {root!r}, {tree!r}
found = Reads(Mapping(root, tree, (root + "/env",)))
found.watch()
for path in (root + "/data.bin", root + "/data.bin", root + "/env/x", tree + "/data.bin"):
    open(path).close()
os.close(os.open(os.fsencode(root + "/other.bin"), os.O_RDONLY))
open(os.dup(0)).close()
try:
    ctypes.CDLL(root + "/lib.so")
except OSError:
    pass
first = found.taken()
for number in range(100):
    try:
        open(root + "/" + str(number))
    except OSError:
        pass
print(json.dumps([first, len(found.taken()), found.taken()]))
"""


def test_those_are_known_and_no_others(tmp_path: Path) -> None:
    root, tree = tmp_path / "root", tmp_path / "tree"
    for path in (root / "data.bin", root / "other.bin", root / "env" / "x", tree / "data.bin"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    code = SCRIPT.format(package=PACKAGE, root=str(root), tree=str(tree))
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [["data.bin", "other.bin", "lib.so"], 20, []]
