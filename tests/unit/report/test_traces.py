"""The files of kept traces: their names, and whether their folder can be written to."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import pytest

from pytest_kernelprof.plugin.measuring import trace_path
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.codec import why_unwritable


@pytest.mark.parametrize(
    ("test", "label", "name"),
    [
        ("test_it.py::test_call", "", "test_it.py-test_call-1.json.gz"),
        ("a/test_it.py::test_it", "mine", "a-test_it.py-test_it-1-mine.json.gz"),
        ("test_it.py::TestIt::test_it", "", "test_it.py-TestIt-test_it-1.json.gz"),
    ],
)
def test_a_file_is_named_after_its_test_and_profile(test: str, label: str, name: str) -> None:
    assert Path(trace_path("traces", test, 1, label)) == Path("traces") / name


def test_names_that_lose_characters_are_kept_apart() -> None:
    tests = [f"test_it.py::test_it[{size}]" for size in ("8/8", "8-8", "8 8")]
    assert len({trace_path("traces", test, 1) for test in tests}) == 3


def test_no_two_profiles_have_one_file() -> None:
    """All ids that can be made of a few parts and all separators, with labels that are like parts
    of them."""
    parts = ("a", "a.py", "b", "1")
    separators = ("/", "::", "-", "--", "_")
    tests = {
        one + first + other + second + last
        for one, other, last in itertools.product(parts, repeat=3)
        for first, second in itertools.product(separators, repeat=2)
    }
    labels = ("", "1", "b", "1-b", "b-1")
    profiles = [(test, index, label) for test in tests for index in (1, 2) for label in labels]
    assert len({trace_path("traces", *profile) for profile in profiles}) == len(profiles)


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_no_two_have_one_where_letters_are_not_told_apart(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    tests = ("a.py::test_it", "a.py::test_It", "A.py::test_it")
    assert len({trace_path("traces", test, 1).lower() for test in tests}) == 3


def test_a_long_name_is_cut() -> None:
    assert len(Path(trace_path("traces", "test_" + "x" * 500, 1)).name) < 200


def test_a_folder_is_made_with_its_parents_and_nothing_stays_in_it(tmp_path: Path) -> None:
    assert why_unwritable(str(tmp_path / "not" / "yet")) == ""
    assert list((tmp_path / "not" / "yet").iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("file", "File exists"),
        ("file/below", "Not a directory"),
        ("nul\0", "embedded null "),
    ],
)
def test_a_folder_that_cannot_be_made_says_why(tmp_path: Path, folder: str, why: str) -> None:
    (tmp_path / "file").touch()
    assert why in why_unwritable(str(tmp_path / folder))


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux, for any user")
def test_a_folder_that_cannot_be_written_to_says_why() -> None:
    assert why_unwritable("/proc/self")


def test_a_full_folder_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(codec.Real, "file", full)
    assert why_unwritable(str(tmp_path)) == "No space left on device"
    assert os.listdir(tmp_path) == []
