"""Folders of our own are there as long as a process keeps them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_kernelprof.against import folders

PACKAGE = str(Path(folders.__file__).parents[2])


def test_it_is_removed_when_nobody_keeps_it(tmp_path: Path) -> None:
    mine = folders.make(str(tmp_path))
    (mine.tree / "file").touch()
    other = folders.join(mine.path)
    mine.let_go()
    assert other.tree.exists()
    folders.sweep(str(tmp_path))
    assert other.tree.exists()
    other.let_go()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="is gone"):
        folders.join(mine.path)


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {PACKAGE!r});"
        "from pytest_kernelprof.against import folders;"
        f"kept = folders.make({str(tmp_path)!r});"
        "print(kept.path, flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:  # type: ignore
        path = Path(process.stdout.readline().decode().strip())
        folders.sweep(str(tmp_path))
        assert path.exists()
        process.send_signal(signal.SIGKILL)
    folders.sweep(str(tmp_path))
    assert not path.exists()


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "lock").touch()
    (tmp_path / "kernelprof-against-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "kernelprof-against-without-lock").mkdir()
    folders.sweep(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 3
