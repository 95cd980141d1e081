"""Files that are no traces, or were made to hurt: one line, in bounded memory and time."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
from built import launched, round_of, written

from pytest_kernelprof.api import Profile
from pytest_kernelprof.cli.main import main
from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.trace.reader import escape_quotes, read_trace
from pytest_kernelprof.trace.trace_text import write_trace

MB = 1 << 20


def refused(path: str | Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The one line with which the command refuses a file."""
    assert main(["show", str(path), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    return line


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_what_is_no_regular_file_is_refused_without_waiting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/zero", "/dev/null"):
        assert "not a regular file" in refused(path, capsys)


def test_a_sparse_file_of_32_gb_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sparse.json"
    path.touch()
    try:
        os.truncate(path, 32 * 10**9)
    except OSError:
        pytest.skip("this file system takes no file of that size")
    assert "it holds 32 GB" in refused(path, capsys)
    assert "byte 0" in refused(path, capsys, "--max-size=64 GB")
    path.unlink()


@pytest.mark.parametrize("head", [b"", b'{"traceEvents":[', b'{\n  "traceEvents": [\n'])
def test_a_gzip_bomb_is_refused_before_it_fills_the_memory(
    head: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    packed = packer.compress(head) + b"".join(packer.compress(b" " * MB) for _ in range(40))
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(packed + packer.flush())
    assert "in a row hold no text" in refused(path, capsys)


def test_what_unpacks_to_more_than_is_allowed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json.gz"
    text = written(tmp_path, launched("k" * 9000, 5, 1)).read_bytes()
    path.write_bytes(gzip.compress(text))
    assert "more than 5 KB" in refused(path, capsys, "--max-size=5 KB")
    assert main(["show", str(path), "--max-size=1 MB"]) == 0
    with pytest.raises(TraceError, match="allow more"):
        Profile.from_trace(path, max_bytes=5000)


def test_what_was_allowed_to_be_read_may_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, launched("k" * 9000, 5, 1))
    monkeypatch.setitem(read_trace.__kwdefaults__, "max_bytes", 5000)
    monkeypatch.setitem(write_trace.__kwdefaults__, "max_bytes", 5000)
    profile = Profile.from_trace(path, max_bytes=1_000_000)
    ((kernel,),) = profile.kernels_of_rounds()
    assert kernel.name == "k" * 9000
    profile.save_trace(tmp_path / "again.json.gz")
    path.write_bytes(b" " * 2_000_000)
    with pytest.raises(TraceError, match="allow more"):
        profile.kernels_of_rounds()
    with pytest.raises(TraceError, match="allow more"):
        profile.save_trace(tmp_path / "again.json.gz")


def test_a_size_that_is_none_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--max-size: 'much' is not a size" in refused("t.json", capsys, "--max-size=much")


@pytest.mark.parametrize("name", ["odd\x1b[31m\nname.json", "caf\udce9.json", "null\0.json"])
def test_a_file_of_an_odd_name_is_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "cannot be read" in refused(tmp_path / name, capsys)


def test_names_do_nothing_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = "k\x1b[2J\n\r\u202e\x9b"
    path = written(tmp_path, launched(odd, 5, 1), deviceProperties=[{"id": 0, "name": odd}])
    assert main(["show", str(path)]) == 0
    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.splitlines())
    assert out.count(r"k\x1b[2J\n\r\u202e\x9b") == 2


NOTES: dict[str, Any] = {"schema": 1, "device_kind": "cuda", "device": "GPU", "rounds": 1}
TIMES = {"latency_us": [1.0], "dispatch_us": [1.0], "floor_us": [1.0], "back_to_back_us": 1.0}


@pytest.mark.parametrize(
    "changed",
    [
        {"host_timings": {**TIMES, "floor_us": []}},
        {"host_timings": {**TIMES, "latency_us": [1e308, 1e308]}},
        {"host_timings": TIMES, "second_look": {**TIMES, "floor_us": []}},
        {"memory": {"peak_bytes": [], "device_allocations": []}},
        {"more_rounds": {"cuda_time": [1e308] * 10}},
        {"more_rounds": {"no_metric": [1]}},
        {"no_times": {"no_metric": "why"}},
        {"host_timings": 3},
        {"schema": 10**30},
        {"rounds": "many"},
    ],
    ids=str,
)
def test_notes_of_ours_that_were_changed_are_refused_or_believed(
    changed: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, round_of(0, 0, 99), launched("k", 5, 1), kernelprof=NOTES)
    assert main(["show", str(path)]) == 0
    capsys.readouterr()
    written(tmp_path, round_of(0, 0, 99), launched("k", 5, 1), kernelprof={**NOTES, **changed})
    assert "not from pytest-kernelprof" in refused(path, capsys)


@pytest.mark.parametrize("encoding", ["ascii", "cp437"])
def test_a_terminal_of_few_characters_gets_what_it_can_show(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, launched("kernel é 漢", 5, 1))
    with open(tmp_path / "out", "w", encoding=encoding) as out:
        monkeypatch.setattr("sys.stdout", out)
        assert main(["show", str(path)]) == 0
        monkeypatch.undo()
    assert "kernel" in (tmp_path / "out").read_text(encoding)


def test_quotes_are_escaped_in_time_that_grows_with_the_text() -> None:
    line = b'{"name": "' + b'"x' * 200_000  # went through it for each of its quotes
    assert escape_quotes(line) == line


def test_json_is_read_from_a_file_of_many_small_values_in_any_layout(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [{}] * 5_000, "more": [[]] * 5_000}))
    assert len(read_trace(path).operators) == 0
