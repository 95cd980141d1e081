"""The message of a failed limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from records import MLP, MUL, around, counted, held_to, kernel, mlp, profile, timed

from pytest_kernelprof.baselines.snapshots import compare, kept_of
from pytest_kernelprof.comparison.judge import made_with
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_keyword
from pytest_kernelprof.records.profile import Copy, HostShares, Place, Profile, Wait
from pytest_kernelprof.records.recording import Conditions, Integrity, Neighbour
from pytest_kernelprof.report.failure import code_of, error_message, failure_message


def message(of: Profile, place: Place | None = None, **limits: Any) -> list[str]:
    of = msgspec.structs.replace(of, place=place or of.place)
    verdicts = evaluate(of, [parse_keyword(name, value) for name, value in limits.items()])
    return failure_message(msgspec.structs.replace(of, verdicts=verdicts)).splitlines()


def test_verdicts_come_first_then_kernels_then_where_and_how_complete() -> None:
    kernels = [msgspec.structs.replace(one, source="src/mlp.py:31") for one in MLP]
    lines = message(profile(kernels), max_kernels=1, max_launches=4)
    assert lines[0] == "max_kernels: 5 > 1 at mlp.py:31 (+1 more limit exceeded)"
    assert lines[1] == "max_launches: 5 > 4"
    assert lines[2] == "  kernels (> launched most often):"
    assert lines[3].split() == ["#", "us", "kernel", "line", "launched", "by"]
    assert [line[:3] for line in lines[4:9]] == ["> 1", "  2", "> 3", "  4", "> 5"]
    assert all("mlp.py:31" in line for line in lines[4:9])
    assert lines[9:] == [
        "  ",
        "  to do: launch fewer kernels (fuse them, torch.compile)",
        "  if intended, allow max_kernels(5) and max_launches(5)",
    ]


def test_the_first_line_says_how_many_more_are_broken_since_a_summary_shows_it_alone() -> None:
    assert message(mlp(), max_kernels=1)[0] == "max_kernels: 5 > 1"
    lines = message(mlp(), max_kernels=1, max_launches=4, forbid_kernels="gelu")
    assert lines[0] == "max_kernels: 5 > 1 (+2 more limits exceeded)"


def test_of_expected_kernels_the_first_line_has_what_came_instead_and_the_rest_is_below() -> None:
    lines = message(mlp(), expect_kernels=["mm", "relu", ...])
    assert lines[:4] == [
        "expect_kernels: kernel 2: expected 'relu', got vectorized_elementwise [gelu] (aten::gelu)",
        "  5 kernels, expected 'mm', 'relu', ...",
        "  kernels (> not expected):",
        "  #    us  kernel                         launched by",
    ]
    assert [line[:3] for line in lines[4:9]] == ["  1", "> 2", "  3", "  4", "  5"]


def test_a_kept_limit_is_not_told() -> None:
    lines = message(mlp(counted("syncs", 0)), max_kernels=1, max_syncs=0)
    assert not any("max_syncs" in line for line in lines)


def test_of_an_exceeded_time_the_first_line_has_the_place_and_the_next_how_sure_it_is() -> None:
    kernels = [msgspec.structs.replace(one, source="src/mlp.py:31") for one in MLP[:2]]
    slow = profile(kernels, [around("cuda_time", 200.0)])
    lines = message(slow, max_cuda_time="100us")
    assert lines[:3] == [
        "max_cuda_time: 205.5us > 100.0us at mlp.py:31",
        "  +105.5 %, 99 % CI 201.0..210.0us, 12 rounds",
        "  kernels (> takes longest):",
    ]
    assert lines[4].split()[:3] == [">", "1", "10.0"]
    assert not any(" takes 10.0us" in line for line in lines)


def test_a_line_whose_code_stands_below_is_not_in_the_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mlp.py").write_text("def f(h):\n    return h * 2 * 3\n")

    def told(*sources: str) -> list[str]:
        kernels = [kernel(MUL, "aten::mul", source=source) for source in sources]
        return message(profile(kernels), max_kernels=1)

    name = "vectorized_elementwise [mul]"
    assert told("mlp.py:2", "mlp.py:2")[:3] == [
        f"max_kernels: 2 > 1: {name} x2",
        "  at mlp.py:2: return h * 2 * 3",
        "  ",
    ]
    assert told("gone.py:2", "gone.py:2")[0] == f"max_kernels: 2 > 1 at gone.py:2: {name} x2"
    one_known = told("mlp.py:2", "gone.py:7")
    assert one_known[0] == f"max_kernels: 2 > 1 at mlp.py:2, gone.py:7: {name} x2"
    assert one_known[1] == "  at mlp.py:2: return h * 2 * 3"
    Path("four.py").write_text("a\nb\nc\nd\n")
    three, four = ([f"four.py:{line}" for line in range(1, last + 1)] for last in (3, 4))
    assert told(*three)[:4] == [
        f"max_kernels: 3 > 1: {name} x3",
        *("  at four.py:1: a", "  at four.py:2: b", "  at four.py:3: c"),
    ]
    # The fourth has no room below.
    assert told(*four)[:5] == [
        f"max_kernels: 4 > 1 at four.py:1, 2, 3, 4: {name} x4",
        *("  at four.py:1: a", "  at four.py:2: b", "  at four.py:3: c", "  "),
    ]


def test_what_is_launched_most_often_is_named_in_the_first_line_without_these_words() -> None:
    kernels = [kernel(MUL, "aten::mul", source="mlp.py:7")] * 2
    kernels.append(msgspec.structs.replace(MLP[1], source="mlp.py:8"))
    lines = message(profile(kernels), max_kernels=1)
    assert lines[:2] == [
        "max_kernels: 3 > 1 at mlp.py:7: vectorized_elementwise [mul] x2 and 1 other",
        "  kernels (> launched most often):",
    ]


@pytest.mark.parametrize(
    ("more", "end"),
    [
        ({}, " at test_mlp.py:8"),
        ({"label": "profile 2"}, " at test_mlp.py:8"),
        ({"one_shot": True}, " at test_mlp.py:8"),  # a whole test
        ({"one_shot": True, "label": "mine"}, ""),  # a region may have its own limits
    ],
    ids=["call", "one of several", "test", "region"],
)
def test_more_is_allowed_at_the_line_of_the_test_but_of_a_region_no_line_is_named(
    more: dict[str, Any], end: str
) -> None:
    verdicts = evaluate(mlp(), [parse_keyword("max_kernels", 4)])
    told = failure_message(mlp(verdicts=verdicts, **more), at="test_mlp.py:8")
    assert told.splitlines()[-1] == f"  if intended, allow max_kernels(5){end}"


def test_an_undecided_limit_is_told_below_a_broken_one() -> None:
    lines = message(mlp(around("cuda_time", 100.0)), max_cuda_time="105us", max_kernels=1)
    assert lines[0] == "max_kernels: 5 > 1"
    assert lines[1].endswith("undecided, too close to the limit to call")


def test_a_disturbed_time_says_by_what() -> None:
    busy = Conditions(blocks=1, contenders=(Neighbour(7, 60),))
    lines = message(mlp(around("cuda_time", 100.0), conditions=busy), max_cuda_time="100us")
    assert lines[0].endswith(
        "undecided, CONTENDED: other processes worked on this GPU (pid 7 up to 60 %)"
    )


TEST = Place(
    "tests/test_mlp.py", 31
)  # fmt: skip


@pytest.mark.parametrize(
    ("more", "place", "origin"),
    [
        ({}, TEST, ["  at test_mlp.py:31"]),
        ({"place": TEST}, None, ["  at test_mlp.py:31"]),
        ({"label": "profile 2"}, None, ["  in profile 2"]),
        ({"label": "profile 2"}, TEST, ["  in profile 2", "  at test_mlp.py:31"]),
        ({"label": "mine", "one_shot": True}, TEST, ["  in region 'mine'", "  at test_mlp.py:31"]),
    ],
    ids=["limit's place", "profile's place", "one of several", "both", "region"],
)
def test_which_profile_it_is_and_where_it_was_taken_stands_below_the_verdicts(
    more: dict[str, Any], place: Place | None, origin: list[str]
) -> None:
    lines = message(mlp(**more), place, max_kernels=1)
    assert lines[: 1 + len(origin)] == ["max_kernels: 5 > 1", *origin]


def test_the_source_line_that_made_the_call_is_shown() -> None:
    here = Place(__file__, Path(__file__).read_text().splitlines().index("TEST = Place(") + 1)
    assert message(mlp(), here, max_kernels=1)[1].endswith(f"py:{here.line}: TEST = Place(")


def test_a_violated_limit_of_an_incomplete_profile_says_so() -> None:
    lost = mlp(integrity=Integrity(("the profiler stopped collecting",)))
    assert "  INCOMPLETE: the profiler stopped collecting" in message(lost, max_kernels=1)


COPIES = profile(
    (),
    [counted("memcpys", 1), counted("memcpy_bytes", 4)],
    copies=(Copy("Memcpy DtoH (Device -> Pageable)", "d2h", 4, 1.0, ()),),
)


@pytest.mark.parametrize("limits", [{"max_memcpys": 0}, {"max_memcpy_bytes": "0 B"}])
def test_copies_are_shown_where_copies_are_the_violation(limits: dict[str, Any]) -> None:
    text = "\n".join(message(COPIES, **limits))
    assert "Memcpy DtoH (Device -> Pageable)" in text


def test_copies_that_a_limit_of_one_direction_counts_are_marked() -> None:
    there = Copy("Memcpy HtoD (Pageable -> Device)", "h2d", 8, 1.0, ())
    back = COPIES.copies
    both, all_counted = (
        message(
            profile((), [counted("memcpys_d2h", 1)], copies=copies),
            max_memcpys={"n": 0, "direction": "d2h"},
        )
        for copies in ((there, *back), back)
    )
    at = both.index("  copies (> counted by max_memcpys(d2h)):")
    titles, unmarked, marked = both[at + 1 : at + 4]
    assert titles.startswith("  #   us  size  copy")
    assert unmarked.startswith("  1 ")
    assert "Memcpy HtoD" in unmarked
    assert marked.startswith("> 2 ")
    assert "Memcpy DtoH" in marked
    assert any("Memcpy DtoH" in line for line in all_counted)
    assert not any("counted by" in line or line.startswith("> ") for line in all_counted)


def test_where_no_kernels_were_launched_it_is_said() -> None:
    assert "  no kernels were launched" in message(COPIES, max_memcpys=0, expect_kernels=["mm"])


WAITING = mlp(counted("syncs", 1), waits=(Wait("cudaStreamSynchronize", ("aten::item",)),))


def test_waits_are_shown_where_waits_are_the_violation() -> None:
    assert any("cudaStreamSynchronize" in line for line in message(WAITING, max_syncs=0))


@pytest.mark.parametrize(
    ("of", "limits"), [(WAITING, {"max_syncs": 0}), (COPIES, {"max_memcpys": 0})]
)
def test_where_waits_or_copies_alone_are_the_violation_kernels_are_not_shown(
    of: Profile, limits: dict[str, int]
) -> None:
    (titles,) = [line for line in message(of, **limits) if line.startswith("  #")]
    assert "kernel" not in titles
    assert not any("nvjet" in line or "no kernels" in line for line in message(of, **limits))


@pytest.mark.parametrize(
    ("limits", "first"),
    [
        ({"max_syncs": 0, "max_kernels": 1}, "waits in"),
        ({"max_kernels": 1, "max_syncs": 0}, "kernel"),
    ],
)
def test_what_the_first_limit_is_about_comes_first(limits: dict[str, int], first: str) -> None:
    heads = [line for line in message(WAITING, **limits) if line.startswith("  #")]
    assert len(heads) == 2
    assert first in heads[0]
    assert first not in heads[1]


def test_waits_are_not_shown_where_something_else_is_the_violation() -> None:
    assert not any("cudaStreamSynchronize" in line for line in message(WAITING, max_kernels=0))


def test_where_the_overhead_lies_is_shown_where_it_is_the_violation() -> None:
    slow = mlp(
        timed("launch_overhead", [60.0]),
        timed("overhead_per_launch", [12.0]),
        host_shares=HostShares(0.6, 0.3, 0.1),
    )
    lines = message(slow, max_launch_overhead="1us")
    at = lines.index("  overhead of each launch: 12.0us")
    assert lines[at + 1] == "  host, profiled: 60% operator dispatch, 30% launch calls, 10% waiting"


def test_where_any_of_equal_neighbours_may_be_new_each_of_them_is_marked_in_the_table() -> None:
    one, other = (kernel(MUL, "aten::mul", source=f"mlp.py:{line}") for line in (7, 8))
    before, after = profile([MLP[0], one]), profile([MLP[0], one, other])
    kept = compare(kept_of(before), made_with(before.environment), after)
    worse = held_to(after, msgspec.structs.replace(kept, change="worse"))
    assert failure_message(worse).rstrip().splitlines() == [
        "snapshot: kernels 2 -> 3 at mlp.py:7 or 8: + vectorized_elementwise [mul]",
        "  against the snapshot: ? perhaps new",
        "  #    us  kernel                        line      launched by",
        "  1  10.0  nvjet 256x128x64 TNT                    aten::mm in aten::linear",
        "? 2  10.0  vectorized_elementwise [mul]  mlp.py:7  aten::mul",
        "? 3  10.0  vectorized_elementwise [mul]  mlp.py:8  aten::mul",
    ]


def test_no_code_is_shown_of_another_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "named_twice.py").write_text("x = 'of another file'\n")
    monkeypatch.syspath_prepend(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    assert code_of(Place("named_twice.py", 1)) == ""
    assert code_of(Place("other/named_twice.py", 1)) == "x = 'of another file'"


def test_what_to_do_about_an_error_of_ours_stands_last_below_the_line() -> None:
    place, words = Place("t.py", 3), "max_kernels: 'x' is no number. Write max_kernels(3)"
    assert error_message(f"{words} (see docs/a.md)", place).splitlines() == [
        "max_kernels: 'x' is no number",
        "  at t.py:3",
        "  ",
        "  to do: write max_kernels(3) (see docs/a.md)",
    ]
    assert error_message(words, place).splitlines() == [
        "max_kernels: 'x' is no number",
        "  Write max_kernels(3)",
        "  at t.py:3",
    ]


def test_tables_fit_80_columns() -> None:
    long = [kernel("k" * 200, "o" * 200, "p" * 200, source="s" * 200)] * 3
    lines = message(profile(long), max_kernels=0)
    assert max(len(line) for line in lines[:-1]) == 80
