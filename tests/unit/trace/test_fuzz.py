"""A mutated trace file is a profile or one line of ``TraceError``: a few of each kind. For an hour:
``python benchmarks/fuzz.py``."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from corpus import Document, document
from mutations import KINDS, NOTES, result, small_documents

from pytest_kernelprof.api import Profile
from pytest_kernelprof.errors import TraceError

FILES = 40


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return small_documents()


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_file_is_a_profile_or_refused_in_one_line(
    tmp_path: Path, documents: list[Document], kind: str
) -> None:
    found = []
    for seed in range(FILES):
        chance = random.Random(seed)
        data = KINDS[kind](chance.choice(documents), chance)
        found.append((result(tmp_path / "mutated.json", data), seed))
    assert [one for one in found if one[0] not in ("read", "refused")] == []


@pytest.mark.parametrize("field", NOTES)
def test_notes_that_no_session_would_write_are_read_or_refused(tmp_path: Path, field: str) -> None:
    whole = document("linear")
    for value in NOTES[field]:
        noted = {**whole["kernelprof"], field: value}
        data = json.dumps({**whole, "kernelprof": noted}).encode()
        assert result(tmp_path / "noted.json", data) in ("read", "refused"), value


@pytest.mark.parametrize(
    ("noted", "words"),
    [
        ({"no_times": {"nothing": "known"}}, "no metric is called 'nothing'"),
        ({"more_rounds": {"nothing": [1.0]}}, "no metric is called 'nothing'"),
        (
            {"host_timings": {"latency_us": [], "dispatch_us": [1.0], "floor_us": [1.0]}},
            "Expected `array` of length >= 1 - at `$.host_timings.latency_us`",
        ),
        ({"schema": "x" * 9_999}, "got 'xxxxxxxxxxxx...xxxxxxxxxxxxx'"),
    ],
    ids=["no such metric", "no such rounds", "no round", "a long version"],
)
def test_notes_that_make_no_sense_are_refused_by_name(
    tmp_path: Path, noted: dict[str, Any], words: str
) -> None:
    path = tmp_path / "noted.json"
    whole = {**document("linear"), "kernelprof": {"schema": 1, **noted}}
    path.write_text(json.dumps(whole))
    with pytest.raises(TraceError, match="not from pytest-kernelprof") as caught:
        Profile.from_trace(path)
    assert words in str(caught.value)
