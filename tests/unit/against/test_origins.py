"""Which of the revision's files a test's code comes from."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from pytest_kernelprof.against.origins import Origins


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
    before = origins.known()
    late.test()
    assert "kp_pkg/late.py" in origins.reached(origins.loaded_since(before))
    # From here on nothing is new to a test that imports it as it runs.
    assert "kp_pkg/late.py" in origins.reached([late])
    for name in [name for name in sys.modules if name.startswith("kp_")]:
        del sys.modules[name]


def test_what_a_test_imports_relative_to_itself_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "kp_all/__init__.py": "",
        "kp_all/code.py": "def run(): pass",
        "kp_all/tests/__init__.py": "",
        "kp_all/tests/test_it.py": "def test():\n  from ..code import run\n  from .. import code",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    origins = Origins(str(tmp_path), [name for name in files if "tests/" in name])
    test = importlib.import_module("kp_all.tests.test_it")
    importlib.import_module("kp_all.code")  # by another test file
    assert origins.reached([test]) == ("kp_all/__init__.py", "kp_all/code.py")
    for name in [name for name in sys.modules if name.startswith("kp_")]:
        del sys.modules[name]
