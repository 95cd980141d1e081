"""Files of kernel snapshots: what a reviewer reads, and what is refused with its line."""

from __future__ import annotations

import json

import pytest

from pytest_kernelprof.baseline.snapshot_text import from_text, to_text
from pytest_kernelprof.schema.json_text import BadTextError
from pytest_kernelprof.schema.snapshot import KeptProfile, KeptTest

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
        ('"aten::mul"', "'aten::mul'", "no JSON: Expecting value"),
        ('      "aten::mul"\n', "<<<<<<< HEAD\n=======\n>>>>>>> b\n", "a merge conflict (<<<<<<<)"),
        ('"schema": 1', '"schema": 2', "written by a newer pytest-kernelprof than this one"),
        ('"schema": 1', '"schema": "1"', "another schema than 1"),
        ('"schema": 1', '"schema": true', "another schema than 1"),
        ('"format": "pytest-kernelprof snapshot"', '"format": "a run"', "no file of snapshots"),
        ('"syncs": 1', '"syncs": NaN', "NaN is no number"),
        ('"syncs": 1', '"syncs": -1', "syncs: expected a whole number of zero or more, got -1"),
        ('"syncs": 1', '"syncs": 1.5', "syncs: expected a whole number"),
        ('"syncs": 1', '"syncs": true', "syncs: expected a whole number"),
        ('"syncs": 1', '"sync": 1', "'sync' is none of launches, syncs"),
        ('"syncs": 1', '"launches": 1', 'the key "launches" stands there twice'),
        ('"test_c": {', '"test_b[1]": {', 'the key "test_b[1]" stands there twice'),
        ('"aten::mm x2"', '"aten::mm x0"', "no such number of kernels"),
        ('"aten::mm x2"', '"aten::mm x999999999"', "more than 1,000,000 kernels"),
        ('"aten::mm x2"', "2", "Expected `str`, got `int`"),
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
