"""The system's functions and clocks are those of the start, whatever a test patches."""

from __future__ import annotations

import ast
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

import pytest_kernelprof
from pytest_kernelprof import system
from pytest_kernelprof.system import Real

ROOT = Path(pytest_kernelprof.__file__).parent
REAL = (time.perf_counter_ns, time.time_ns, time.sleep, time.perf_counter, time.monotonic)
READ = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns", "sleep"}


def test_patched_functions_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def patched(*_: object, **__: object) -> None:
        pytest.fail("the patched function was called")

    for name in ("open", "unlink", "mkdir", "replace", "getpid"):
        monkeypatch.setattr(os, name, patched)
    monkeypatch.setattr("builtins.open", patched)
    monkeypatch.setattr(io, "open", patched)
    Real.mkdir(str(tmp_path / "new"))
    with Real.file(str(tmp_path / "new" / "file"), "wb") as file:
        file.write(b"x")
    Real.unlink(str(tmp_path / "new" / "file"))
    assert Real.getpid() > 0


def test_tempfile_does_not_remember_the_folder_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert system._temporary_folder() == str(tmp_path)
    assert tempfile.tempdir is None


def test_no_temporary_folder_is_no_error_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_there() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none_there)
    assert system._temporary_folder() == ""


# Clocks.


@pytest.mark.parametrize("name", ["perf_counter_ns", "time_ns", "perf_counter"])
@pytest.mark.parametrize("read", [system.now_ns, system.unix_ns, system.now_s])
def test_a_patched_clock_is_not_ours(name: str, read: Callable[[], float]) -> None:
    with mock.patch(f"time.{name}", return_value=5):
        before = read()
        system.sleep(0.001)
        assert before != 5
        assert read() > before


def test_our_sleep_is_not_patched() -> None:
    with mock.patch("time.sleep") as patched:
        system.sleep(0)
    patched.assert_not_called()


def test_nothing_hangs_in_our_modules_that_replacers_of_clocks_look_for() -> None:
    """freezegun replaces the functions of ``time`` in all modules that have them by any name."""
    names = [name for name in sys.modules if name.split(".")[0] == "pytest_kernelprof"]
    assert "pytest_kernelprof.system" in names
    found = [
        f"{name}.{attribute}"
        for name in names
        for attribute, value in vars(sys.modules[name]).items()
        if any(value is real for real in REAL)
    ]
    assert found == []


@pytest.mark.bulk
def test_only_one_file_reads_the_clocks_of_python() -> None:
    reading = {
        path.name
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr in READ) == ("time", True)
    }
    assert reading == {"system.py"}


def test_the_clocks_are_taken_when_the_package_is_loaded() -> None:
    assert sys.modules["pytest_kernelprof.system"] is system
    assert any("system" in name for name in vars(pytest_kernelprof))
