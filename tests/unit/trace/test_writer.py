"""Writing a trace file again: what was noted goes with it, and nothing is left half-written."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from built import launched, round_of, written
from corpus import FOLDER, NAMES, document
from msgspec.structs import replace

from pytest_kernelprof.api import Profile
from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.records.recording import NOTHING_NOTED, Recording
from pytest_kernelprof.trace.reader import read_trace
from pytest_kernelprof.trace.trace_text import write_trace

NOTED = Recording(schema=1, device_kind="cuda", device="GPU", recompiles=3)


def plain(name: str) -> bytes:
    return gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_what_was_noted_of_a_recorded_trace_survives(tmp_path: Path, name: str) -> None:
    before = read_trace(FOLDER / f"{name}.json.gz").recording
    write_trace(FOLDER / f"{name}.json.gz", before, tmp_path / "saved.json")
    assert read_trace(tmp_path / "saved.json").recording == before
    # And once more: the notes are replaced, not added.
    write_trace(tmp_path / "saved.json", before, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "saved.json").read_bytes()


def test_what_is_noted_later_is_saved_too(tmp_path: Path) -> None:
    source = FOLDER / "mlp.json.gz"
    noted = replace(read_trace(source).recording, recompiles=3)
    write_trace(source, noted, tmp_path / "saved.json.gz")
    assert Profile.from_trace(tmp_path / "saved.json.gz").recompiles == 3


def test_the_events_stay_as_they_are(tmp_path: Path) -> None:
    write_trace(FOLDER / "mlp.json.gz", NOTED, tmp_path / "saved.json")
    saved = json.loads((tmp_path / "saved.json").read_text())
    assert {**saved, "kernelprof": None} == {**document("mlp"), "kernelprof": None}
    assert next(iter(saved)) == "kernelprof"


def test_a_trace_of_which_nothing_is_noted_is_copied(tmp_path: Path) -> None:
    write_trace(FOLDER / "memory.json.gz", NOTHING_NOTED, tmp_path / "saved.json")
    assert (tmp_path / "saved.json").read_bytes() == plain("memory")


def test_only_a_name_that_ends_in_gz_is_packed(tmp_path: Path) -> None:
    for name in ("saved.json", "saved.json.gz"):
        write_trace(FOLDER / "mlp.json.gz", NOTED, tmp_path / name)
    packed, bare = (tmp_path / "saved.json.gz").read_bytes(), (tmp_path / "saved.json").read_bytes()
    assert gzip.decompress(packed) == bare


@pytest.mark.parametrize("indent", [None, 2], ids=["one line", "indented"])
def test_notes_laid_out_by_another_writer_are_replaced(tmp_path: Path, indent: int | None) -> None:
    events = [round_of(0, 0, 99), *launched("k", 10, 1)]
    notes = {"schema": 1, "device_kind": "cuda", "device": "Old GPU"}
    source = tmp_path / "source.json"
    source.write_text(json.dumps({"kernelprof": notes, "traceEvents": events}, indent=indent))
    write_trace(source, NOTED, tmp_path / "saved.json")
    assert read_trace(tmp_path / "saved.json").recording == NOTED
    assert json.loads((tmp_path / "saved.json").read_text())["traceEvents"] == events


def test_notes_that_stand_behind_the_events_are_replaced(tmp_path: Path) -> None:
    source = written(
        tmp_path, round_of(0, 0, 99), kernelprof={"schema": 1, "device": "Old GPU", "retakes": 2}
    )
    write_trace(source, NOTED, tmp_path / "saved.json")
    assert read_trace(tmp_path / "saved.json").recording == NOTED
    assert len(read_trace(tmp_path / "saved.json").operators) == 1


def test_a_trace_can_be_written_over_itself(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(plain("mlp"))
    write_trace(path, NOTED, path)
    assert read_trace(path).recording == NOTED
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    taken = tmp_path / "a folder"
    taken.mkdir()
    with pytest.raises(OSError, match="a folder"):
        write_trace(FOLDER / "mlp.json.gz", NOTED, taken)
    with pytest.raises(FileNotFoundError):
        write_trace(FOLDER / "mlp.json.gz", NOTED, tmp_path / "nowhere" / "t.json")
    with pytest.raises(TraceError, match=r"nowhere\.json: cannot be read: No such file"):
        write_trace(tmp_path / "nowhere.json", NOTED, tmp_path / "t.json")
    assert list(tmp_path.iterdir()) == [taken]


def test_a_source_that_unpacks_to_more_than_is_allowed_is_not_written(tmp_path: Path) -> None:
    packed = FOLDER / "mlp.json.gz"
    with pytest.raises(TraceError, match="holds more than 10 KB"):
        write_trace(packed, NOTED, tmp_path / "t.json", max_bytes=10_000)
    damaged = tmp_path / "damaged.json.gz"
    damaged.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(TraceError, match="truncated or damaged gzip file"):
        write_trace(damaged, NOTED, tmp_path / "t.json")
    assert list(tmp_path.iterdir()) == [damaged]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_a_source_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(TraceError, match="not a regular file"):
        write_trace(tmp_path / "fifo", NOTED, tmp_path / "t.json")


def test_a_name_like_ours_inside_an_event_is_left_alone(tmp_path: Path) -> None:
    event = {**round_of(0, 0, 99), "args": {"kernelprof": {"schema": 1}}}
    source = written(tmp_path, event)
    write_trace(source, NOTED, tmp_path / "saved.json")
    saved = json.loads((tmp_path / "saved.json").read_text())
    assert saved["traceEvents"] == [event]
    assert read_trace(tmp_path / "saved.json").recording == NOTED
