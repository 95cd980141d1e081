"""What Linux tells under /proc, and nothing where there is no /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_kernelprof.device import processes
from pytest_kernelprof.device.processes import files_in, mapped_files, text_of

MAPS = (
    "7f00-7f01 r-xp 00000000 08:01 12 /opt/a tool/lib.so\n"
    "7f01-7f02 rw-p 00001000 08:01 12 /opt/a tool/lib.so\n"
    "7f02-7f03 rw-p 00000000 00:00 0 \n"
    "7f03-7f04 rw-p 00000000 00:00 0 [heap]\n"
    "7f04-7f05 r-xp 00000000 08:01 13 /usr/lib/libc.so.6\n"
)


def test_mapped_files_are_named_once_with_their_blanks() -> None:
    assert files_in(MAPS) == ("/opt/a tool/lib.so", "/usr/lib/libc.so.6")


def test_a_system_without_proc_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(processes, "_MAPS", tmp_path / "missing")
    assert mapped_files() == ()
    assert text_of(tmp_path) == ""
