"""Of equal kernels in a row, which one is new: by source lines, which never make two different."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from records import MUL, kernel, profile

from pytest_kernelprof.baselines.snapshots import compare, kept_of
from pytest_kernelprof.comparison.judge import made_with
from pytest_kernelprof.comparison.kernel_diff import diff_profiles, side_by_side
from pytest_kernelprof.records.profile import Profile


def launched(*sources: str) -> Profile:
    """A product, a multiplication for each source in between, and a softmax."""
    first, *between, last = sources
    return profile(
        [
            kernel("gemm", "aten::mm", source=first),
            *(kernel(MUL, "aten::mul", source=one) for one in between),
            kernel("softmax", "aten::softmax", source=last),
        ]
    )


def lines(*numbers: int, file: str = "m.py") -> Profile:
    return launched(*(f"{file}:{one}" for one in numbers))


def the_new_one(old: Profile, new: Profile) -> tuple[str, tuple[str, ...]]:
    (change,) = diff_profiles(old, new).changes
    assert change.current
    return change.current.source, change.lines


@pytest.mark.parametrize(
    ("old", "new", "added"),
    [
        ((5, 7, 8), (5, 6, 7, 8), 6),
        ((5, 6, 8), (5, 6, 7, 8), 7),
        ((5, 6, 20, 30), (5, 6, 13, 21, 31), 13),
        ((5, 7, 7, 8), (5, 6, 7, 7, 8), 6),
        ((15, 17, 18), (12, 13, 14, 15), 13),
    ],
    ids=["before", "behind", "between", "of a run", "moved up"],
)
def test_the_new_kernel_is_the_one_on_the_new_line(
    old: tuple[int, ...], new: tuple[int, ...], added: int
) -> None:
    assert the_new_one(lines(*old), lines(*new)) == (f"m.py:{added}", ())


def test_where_a_line_was_added_before_or_behind_both_are_told() -> None:
    assert the_new_one(lines(5, 6, 7), lines(5, 6, 7, 8)) == ("m.py:6", ("6", "7"))


def test_side_by_side_both_lines_are_told_too() -> None:
    beside = side_by_side(lines(5, 6, 7), lines(5, 6, 7, 8))
    assert [(old is None, told) for old, _, told in beside] == [
        (False, ()),
        (True, ("6", "7")),
        (False, ()),
        (False, ()),
    ]


def test_without_lines_in_the_baseline_all_equals_are_told() -> None:
    unknown = launched("", "", "")
    assert the_new_one(unknown, lines(5, 6, 7, 8)) == ("m.py:6", ("6", "7"))
    assert the_new_one(unknown, lines(5, 6, 6, 8)) == ("m.py:6", ())
    one = launched("m.py:5", "m.py:6", "other.py:7", "m.py:8")
    assert the_new_one(unknown, one) == ("m.py:6", ("6", "other.py:7"))
    (change,) = diff_profiles(unknown, lines(5, *range(10, 30), 40)).changes
    assert change.lines == (*map(str, range(10, 18)), "...")


def test_of_two_trees_the_texts_of_the_lines_tell(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "m.py", tmp_path / "new" / "m.py"
    for path, added in ((old, ""), (new, "s = s * 0.5\n")):
        path.parent.mkdir()
        path.write_text(f"s = q @ k\n{added}s = s * m\ns = s.softmax(-1)\n")
    before, after = lines(1, 2, 3, file=str(old)), lines(1, 2, 3, 4, file=str(new))
    assert the_new_one(before, after) == (f"{new}:2", ())
    (gone,) = diff_profiles(after, before).changes
    assert gone.baseline
    assert (gone.baseline.source, gone.lines) == (f"{new}:2", ())


def test_among_rounds_without_one_order_all_equals_are_told() -> None:
    old, new = lines(5, 6, 8), lines(5, 6, 7, 8)
    (change,) = diff_profiles(old, replace(new, variants=(new.kernels[::-1],))).changes
    assert change.lines == ("6", "7")


def test_code_that_an_edit_above_has_moved_is_the_same() -> None:
    assert not diff_profiles(lines(5, 6, 7, 8), lines(15, 16, 17, 18)).changes
    assert not diff_profiles(lines(5, 6, 7, 8), lines(5, 7, 6, 8)).changes


def test_a_snapshot_names_all_lines_that_may_be_the_new_one() -> None:
    old, new = lines(5, 6, 7), lines(5, 6, 7, 8)
    (change,) = compare(kept_of(old), made_with(old.environment), new).changes
    assert change.current
    assert (change.current.source, change.lines, change.at) == ("m.py:6", ("6", "7"), 2)
