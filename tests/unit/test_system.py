"""The system's functions are those of the start, whatever a test patches."""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path

import pytest

from pytest_kernelprof import system
from pytest_kernelprof.system import Real


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
