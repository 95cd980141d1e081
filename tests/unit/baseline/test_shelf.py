"""Files of kernel snapshots on the disk: whole at any moment, and nothing of them is lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_kernelprof.baseline.shelf import (
    change,
    device_folder,
    devices_of,
    file_checked,
    path_of,
    read,
)
from pytest_kernelprof.errors import SnapshotError
from pytest_kernelprof.schema.snapshot import KeptProfile, KeptTest

ENTRY = KeptTest((KeptProfile(("aten::mm",)),), {"device": "CPU (x86_64)"})


@pytest.fixture
def path(tmp_path: Path) -> str:
    return path_of(str(tmp_path), "cpu", "test_it.py")


def add(path: str, key: str) -> None:
    change(path, lambda tests: {**tests, key: ENTRY})


def test_where_they_lie(tmp_path: Path, path: str) -> None:
    assert path == str(tmp_path / "__kernelprof__" / "cpu" / "test_it.json")
    assert path_of("a", "b", "test_it.txt").endswith("test_it.txt.json")
    assert file_checked("test_it.json", str(tmp_path)) == "test_it.py"
    (tmp_path / "test_it.txt").touch()
    assert file_checked("test_it.txt.json", str(tmp_path)) == "test_it.txt"
    assert device_folder("cuda", "NVIDIA H200") == "NVIDIA-H200"
    assert device_folder("cuda", "../../etc/ä") == "etc"
    assert device_folder("cuda", "...") == "gpu"
    assert device_folder("cpu", "CPU (x86_64)") == "cpu"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a FIFO")
def test_what_has_no_end_is_refused_and_not_waited_for(path: str) -> None:
    os.makedirs(os.path.dirname(path))
    os.mkfifo(path)
    with pytest.raises(SnapshotError, match=r"cannot be read \(it is no regular file\)"):
        read(path)
    os.unlink(path)
    os.symlink("/dev/zero", path)
    with pytest.raises(SnapshotError, match=r"cannot be read \(it is no regular file\)"):
        read(path)


def test_without_any_there_are_none(tmp_path: Path, path: str) -> None:
    assert devices_of(str(tmp_path)) == {}
    assert read(path) == {}
    assert change(path, lambda tests: tests) == ({}, {})
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_read_and_without_tests_the_file_goes(tmp_path: Path, path: str) -> None:
    add(path, "test_a")
    assert devices_of(str(tmp_path)) == {"cpu": frozenset({"test_it.json"})}
    before = os.stat(path).st_mtime_ns
    assert change(path, dict) == ({"test_a": ENTRY}, {"test_a": ENTRY})
    assert os.stat(path).st_mtime_ns == before
    change(path, lambda _: {})
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_is_not_overwritten(path: str) -> None:
    add(path, "test_a")
    Path(path).write_text(Path(path).read_text()[:-20])
    before = Path(path).read_bytes()
    with pytest.raises(SnapshotError, match=r"test_it\.json:\d+: no JSON: .* --kernelprof-update"):
        add(path, "test_b")
    assert Path(path).read_bytes() == before


def test_where_nothing_can_be_read_or_written_it_is_told(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "__kernelprof__").write_text("a file")
    with pytest.raises(SnapshotError, match=r"cannot be read .Not a directory"):
        add(path, "test_a")
    assert devices_of(str(tmp_path)) == {}

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "makedirs", refuse)
    (tmp_path / "__kernelprof__").unlink()
    with pytest.raises(SnapshotError, match=r"test_it\.json: cannot be written .Permission denied"):
        add(path, "test_a")


def test_what_a_killed_run_left_beside_it_goes(path: str) -> None:
    add(path, "test_a")
    old, young = (Path(path).parent / f".kernelprof-{'ab' * 5}{i:02}" for i in range(2))
    for left in (old, young):
        left.touch()
    os.utime(old, (0, 0))
    add(path, "test_b")
    assert (old.exists(), young.exists()) == (False, True)


WRITER = """
import sys
from pytest_kernelprof.baseline import shelf
from pytest_kernelprof.schema.snapshot import KeptProfile, KeptTest
path, name, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
entry = KeptTest((KeptProfile(tuple(f"kernel_{i}" for i in range(500))),), {"device": "CPU"})
print("begins", flush=True)
for i in range(times):
    shelf.change(path, lambda tests: {**tests, f"{name}[{i % 20}]": entry})
"""


def writer(path: str, name: str, times: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, path, name, str(times)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_two_that_write_at_once_lose_nothing(path: str) -> None:
    for one in [writer(path, "test_a", 10), writer(path, "test_b", 10)]:
        one.communicate(timeout=60)
        assert one.returncode == 0
    assert len(read(path)) == 20


def test_a_kill_at_any_moment_loses_nothing(path: str) -> None:
    add(path, "test_before")
    chosen = random.Random(3)
    for _ in range(6):
        one = writer(path, "test_new", 1_000_000)
        assert one.stdout is not None
        assert one.stdout.readline() == b"begins\n"
        time.sleep(chosen.uniform(0.0, 0.1))
        one.kill()
        one.communicate()
        found = read(path)
        assert found["test_before"] == ENTRY
        assert {len(test.profiles[0].kernels) for test in found.values()} <= {1, 500}
        add(path, "test_after")  # no lock is left
