"""Files of kernel snapshots: what a reviewer reads, what is refused with its line, and that nothing
is lost."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_kernelprof.baselines.snapshots import (
    BadTextError,
    device_folder,
    devices_of,
    file_checked,
    from_text,
    path_of,
    read,
    to_text,
    update,
)
from pytest_kernelprof.errors import SnapshotError
from pytest_kernelprof.records.comparison import Edited, KeptProfile, KeptTest, Resources

ENTRY = KeptTest((KeptProfile(("aten::mm",)),), {"device": "CPU (x86_64)"})


@pytest.fixture
def path(tmp_path: Path) -> str:
    return path_of(str(tmp_path / "test_it.py"), "cpu")


def add(path: str, key: str) -> None:
    update(path, {key: ENTRY})


def test_where_they_lie(tmp_path: Path, path: str) -> None:
    assert path == str(tmp_path / "__kernelprof__" / "cpu" / "test_it.json")
    assert path_of("a/test_it.txt", "b").endswith("test_it.txt.json")
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
    with pytest.raises(SnapshotError, match=r"cannot be read \(it is not a regular file\)"):
        read(path)
    os.unlink(path)
    os.symlink("/dev/zero", path)
    with pytest.raises(SnapshotError, match=r"cannot be read \(it is not a regular file\)"):
        read(path)


def test_without_any_there_are_none(tmp_path: Path, path: str) -> None:
    assert devices_of(str(tmp_path)) == {}
    assert read(path) == {}
    assert update(path, {}) == Edited(0, 0, 0, ())
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_read_and_without_tests_the_file_goes(tmp_path: Path, path: str) -> None:
    add(path, "test_a")
    assert devices_of(str(tmp_path)) == {"cpu": frozenset({"test_it.json"})}
    before = os.stat(path).st_mtime_ns
    assert update(path, {"test_a": ENTRY}) == Edited(written=0, same=1, removed=0, looser=())
    assert os.stat(path).st_mtime_ns == before
    update(path, {}, removed={"test_a"})
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_is_not_overwritten(path: str) -> None:
    add(path, "test_a")
    Path(path).write_text(Path(path).read_text()[:-20])
    before = Path(path).read_bytes()
    with pytest.raises(SnapshotError, match=r"test_it\.json:\d+: not JSON: .* --kernelprof-update"):
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
from pytest_kernelprof.baselines.snapshots import update
from pytest_kernelprof.records.comparison import KeptProfile, KeptTest
path, name, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
entry = KeptTest((KeptProfile(tuple(f"kernel_{i}" for i in range(500))),), {"device": "CPU"})
print("begins", flush=True)
for i in range(times):
    update(path, {f"{name}[{i % 20}]": entry})
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


CPU = {"device": "CPU (x86_64)", "mkldnn": "on", "torch": "2.13.0"}
OLD = {**CPU, "torch": "2.11.0"}
TESTS = {
    "test_b[1]": KeptTest((KeptProfile(("aten::mm x2", "aten::mul")),), CPU),
    "TestIt::test_a": KeptTest(
        (
            KeptProfile(("a | b",), "fwd", False, {"syncs": 1, "launches": None}),
            KeptProfile((), "fwd"),
        ),
        OLD,
    ),
    "test_c": KeptTest((), CPU),
}
TEXT = """{
 "format": "pytest-kernelprof snapshot",
 "made_with": {
  "device": "CPU (x86_64)",
  "mkldnn": "on",
  "torch": "2.13.0"
 },
 "schema": 1,
 "tests": {
  "TestIt::test_a": {
   "made_with": {
    "device": "CPU (x86_64)",
    "mkldnn": "on",
    "torch": "2.11.0"
   },
   "profiles": [
    {
     "counts": {
      "launches": null,
      "syncs": 1
     },
     "kernels": [
      "a | b"
     ],
     "label": "fwd",
     "ordered": false
    },
    {
     "kernels": [],
     "label": "fwd"
    }
   ]
  },
  "test_b[1]": {
   "profiles": [
    {
     "kernels": [
      "aten::mm x2",
      "aten::mul"
     ]
    }
   ]
  },
  "test_c": {
   "profiles": []
  }
 }
}
"""


def test_it_is_sorted_with_one_fact_a_line() -> None:
    assert to_text(TESTS).decode() == TEXT
    assert to_text(dict(reversed(TESTS.items()))) == TEXT.encode()


def test_it_is_read_as_it_was() -> None:
    assert from_text(TEXT.encode()) == TESTS
    assert from_text(to_text({})) == {}


def test_odd_keys_are_kept_as_they_are() -> None:
    odd = dict.fromkeys(("a\n::b", "", '"', "é\u202e", "x: 1, {"), TESTS["test_c"])
    assert from_text(to_text(odd)) == odd


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"aten::mul"', "'aten::mul'", "not JSON: Expecting value"),
        ('      "aten::mul"\n', "<<<<<<< HEAD\n=======\n>>>>>>> b\n", "a merge conflict (<<<<<<<)"),
        ('"schema": 1', '"schema": 2', "written by a newer pytest-kernelprof than this one"),
        ('"schema": 1', '"schema": "1"', "schema: expected a version number from 1 to 1"),
        ('"schema": 1', '"schema": true', "schema: expected a version number from 1 to 1"),
        ('"format": "pytest-kernelprof snapshot"', '"format": "a run"', "not a snapshot file"),
        ('"syncs": 1', '"syncs": NaN', "NaN is not a number"),
        ('"syncs": 1', '"syncs": -1', "syncs: expected a whole number of zero or more, got -1"),
        ('"syncs": 1', '"syncs": 1.5', "syncs: expected a whole number"),
        ('"syncs": 1', '"syncs": true', "syncs: expected a whole number"),
        ('"syncs": 1', '"sync": 1', "'sync' is not one of launches, syncs"),
        ('"syncs": 1', '"launches": 1', 'the key "launches" is there twice'),
        ('"test_c": {', '"test_b[1]": {', 'the key "test_b[1]" is there twice'),
        ('"aten::mm x2"', '"aten::mm x0"', "not a valid number of kernels"),
        ('"aten::mm x2"', '"aten::mm x999999999"', "more than 1,000,000 kernels"),
        ('"ordered": false', '"orderd": false', "unknown field `orderd`"),
        ('"label": "fwd"\n    }\n', '"lable": "fwd"\n    }\n', "unknown field `lable`"),
        ('"profiles": []', '"profile": []', "unknown field `profile`"),
    ],
)
def test_what_is_no_such_file_is_told_with_its_line(old: str, new: str, why: str) -> None:
    at = TEXT.rindex(old)
    line = TEXT.count("\n", 0, at) + 1
    with pytest.raises(BadTextError) as told:
        from_text((TEXT[:at] + new + TEXT[at + len(old) :]).encode())
    assert why in str(told.value)
    assert told.value.line == line


def test_what_is_wrong_in_a_list_is_told_with_the_line_of_the_list() -> None:
    with pytest.raises(BadTextError, match=r"Expected `str`, got `int` - at .*kernels") as told:
        from_text(TEXT.replace('"aten::mm x2"', "2").encode())
    assert TEXT.splitlines()[told.value.line - 1].strip() == '"kernels": ['


def test_the_second_count_of_a_name_is_told_with_its_own_line() -> None:
    several = KeptTest(tuple(KeptProfile((), counts={"syncs": n}) for n in (1, 2, 3)), CPU)
    text = to_text({"test_a": several}).decode().replace('"syncs": 3', '"syncs": -3')
    with pytest.raises(BadTextError, match="got -3") as told:
        from_text(text.encode())
    assert '"syncs": -3' in text.splitlines()[told.value.line - 1]


def test_what_a_kernel_needs_is_one_fact_a_line_and_refused_with_its_line() -> None:
    kept = KeptProfile(("mine x2",), resources={"mine": Resources(128, spills=0)})
    text = to_text({"test_a": KeptTest((kept,), CPU)}).decode()
    assert '"mine": {\n       "registers": 128,\n       "spills": 0\n      }' in text
    assert from_text(text.encode())["test_a"].profiles == (kept,)
    for wrong in ('"registers": -1', '"registers": "many"', '"registers": null', '"regs": 1'):
        bad = text.replace('"registers": 128', wrong)
        with pytest.raises(BadTextError) as told:
            from_text(bad.encode())
        assert wrong in bad.splitlines()[told.value.line - 1]


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"3", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b"9" * 5_000, b"{}"]
)
def test_other_data_is_refused(data: bytes) -> None:
    with pytest.raises(BadTextError):
        from_text(data)


@pytest.mark.parametrize("cut", range(0, len(TEXT) - 2, 7))
def test_no_beginning_of_a_file_is_taken_for_one(cut: int) -> None:
    with pytest.raises(BadTextError):
        from_text(TEXT[:cut].encode())


def test_no_line_that_is_removed_passes_for_a_tighter_or_looser_file() -> None:
    lines = TEXT.splitlines(keepends=True)
    for i in range(len(lines)):
        text = "".join(lines[:i] + lines[i + 1 :])
        try:
            found = from_text(text.encode())
        except BadTextError:
            continue
        assert json.loads(text)
        assert set(found) <= set(TESTS)
