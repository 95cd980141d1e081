"""Records to bytes and back: canonical JSON, versions, and files that are whole or not there."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import msgspec
import pytest
from corpus import NAMES, record
from records import comparison, counted, mlp, timed

from pytest_kernelprof.records import codec
from pytest_kernelprof.records.comparison import KernelChange, MetricDelta
from pytest_kernelprof.records.document import Document, Run, Test, pack
from pytest_kernelprof.records.profile import Profile, Verdict
from pytest_kernelprof.records.recording import Environment, Recording
from pytest_kernelprof.system import Real

KEPT = Verdict(limit="max_kernels", outcome="passed", metric="kernels", allowed=6, measured=5)
RUN = Run(
    (
        Test("test_a.py::test_it", (mlp(verdicts=(KEPT,)),), comparisons=(comparison(),)),
        Test("empty"),
    )
)


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_profile_survives_its_bytes(name: str) -> None:
    before = record(name)
    data = codec.encode(before)
    after = codec.decode(data, Profile)
    assert after == before
    assert codec.encode(after) == data


def test_a_run_survives_its_bytes() -> None:
    data = codec.encode(RUN)
    assert codec.decode(data, Run) == RUN
    assert codec.encode(codec.decode(data, Run)) == data


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ('{"name": "speed", "baselines": [1]}', MetricDelta, "'speed' is not a metric"),
        ('{"kind": "added"}', KernelChange, "a kernel on one side"),
        ('{"kind": "slower", "current": {"name": "k"}, "times": 0}', KernelChange, "once at least"),
    ],
)
def test_a_change_of_nothing_is_refused(text: str, kind: type, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        codec.decode(text.encode(), kind)


def test_equal_records_are_equal_bytes_in_whatever_order_they_were_filled() -> None:
    versions = {"torch": "2.11", "python": "3.13"}
    one = Environment("cuda", "GPU", versions=versions)
    other = Environment("cuda", "GPU", versions=dict(reversed(versions.items())))
    assert one == other
    assert codec.encode(one) == codec.encode(other)


def test_equal_records_are_equal_bytes_in_whatever_numbers_they_hold() -> None:
    whole = Verdict(limit="max_kernels", outcome="passed", allowed=6, measured=5, values=(5, 4))
    same = Verdict(
        limit="max_kernels", outcome="passed", allowed=6.0, measured=5.0, values=(5.0, 4)
    )
    assert whole == same
    assert codec.encode(whole) == codec.encode(same)
    assert codec.encode(counted("kernels", 5, 5)) == codec.encode(counted("kernels", 5.0, 5.0))


def test_different_records_are_different_bytes() -> None:
    records = [counted("kernels", 5), counted("kernels", 6), timed("latency", [5.0])]
    assert len({codec.encode(one) for one in records}) == 3


def test_what_is_as_usual_is_left_out() -> None:
    assert codec.encode(Test("a")) == b'{"id":"a"}'


def test_a_run_always_names_its_version() -> None:
    assert msgspec.json.decode(codec.encode(pack(Run())))["schema"] == codec.VERSION


@pytest.mark.parametrize("kind", [Document, Recording])
def test_a_newer_version_says_to_upgrade(kind: type[Document] | type[Recording]) -> None:
    newer = codec.VERSION + 1
    with pytest.raises(ValueError, match=rf"version {newer} .* newer .* upgrade") as error:
        codec.decode(msgspec.json.encode({"schema": newer, "unheard": "of"}), kind)
    assert f"reads up to {codec.VERSION}" in str(error.value)


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0, None, [1]])
def test_what_is_no_version_is_named(version: object) -> None:
    with pytest.raises(ValueError, match="expected a version number from 1") as error:
        codec.from_builtins({"schema": version}, Document)
    assert repr(version) in str(error.value)


def test_a_record_without_a_version_needs_none() -> None:
    assert codec.decode(b'{"id":"a"}', Test) == Test("a")
    with pytest.raises(ValueError, match="version number"):
        codec.decode(b"{}", Document)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"nothing", "malformed"),
        (b"[]", "Expected `object`"),
        (b"3", "Expected `object`"),
        (b"{}", "missing required field `id`"),
        (b'{"id":3}', r"\$\.id"),
        (b'{"id":"a","profiles":[{"environment":{"kind":"tpu"}}]}', r"\$\.profiles\[0\]"),
    ],
)
def test_what_is_no_record_is_an_error_that_says_where(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        codec.decode(data, Test)


@pytest.mark.parametrize(
    ("words", "escaped"),
    [
        ("test_a.py::test_ü[µ]", "test_a.py::test_ü[µ]"),
        ("", ""),
        ("odd\udcff.py", r"odd\udcff.py"),
        ("\ud800", r"\ud800"),
    ],
)
def test_text_escapes_lone_surrogates_alone(words: str, escaped: str) -> None:
    assert codec.text(words) == escaped
    assert codec.decode(codec.encode(Test(escaped)), Test).id == escaped


def test_a_file_is_written_in_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old and much longer")
    codec.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_may_be_named_from_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    codec.write_atomically("run.json", b"new")
    assert (tmp_path / "run.json").read_bytes() == b"new"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes and no umask")
def test_a_file_gets_the_mode_of_any_other_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        codec.write_atomically(tmp_path / "run.json", b"new")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run.json").stat().st_mode) == 0o640


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")

    def full(beside: str, where: str) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Real, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        codec.write_atomically(path, b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_is_interrupted_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(beside: str, where: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Real, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        codec.write_atomically(tmp_path / "run.json", b"new")
    assert list(tmp_path.iterdir()) == []


def test_why_nothing_can_be_written_to_a_path_is_known_before(tmp_path: Path) -> None:
    assert codec.why_no_file(str(tmp_path / "new" / "run.json")) == ""
    assert (tmp_path / "new").is_dir()
    found = [codec.why_no_file(path) for path in ("", f"{tmp_path}/new/", str(tmp_path / "new"))]
    assert found == ["it is empty", "it names a folder", "it is a folder"]
    assert "null" in codec.why_no_file("nul\0.json")


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        codec.write_atomically(tmp_path / "nowhere" / "run.json", b"new")
    assert list(tmp_path.iterdir()) == []
