"""The message of a failed limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from records import MLP, MUL, around, counted, failure_of, held_to, kernel, mlp, profile, timed

from pytest_kernelprof.baselines.snapshots import compare, kept_of
from pytest_kernelprof.comparison.judge import made_with
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_keyword
from pytest_kernelprof.records.profile import Copy, HostShares, Place, Profile, Wait
from pytest_kernelprof.records.recording import Conditions, Integrity, Neighbour
from pytest_kernelprof.report.failure import call_in, code_of, error_message


def message(of: Profile, place: Place | None = None, **limits: Any) -> list[str]:
    of = msgspec.structs.replace(of, place=place or of.place)
    verdicts = evaluate(of, [parse_keyword(name, value) for name, value in limits.items()])
    return failure_of(msgspec.structs.replace(of, verdicts=verdicts)).splitlines()


def test_verdicts_come_first_then_where_and_what_to_do_then_kernels() -> None:
    kernels = [msgspec.structs.replace(one, source="src/mlp.py:31") for one in MLP]
    lines = message(profile(kernels), max_kernels=1, max_launches=4)
    assert lines[:11] == [
        "max_kernels: 5 > limit 1",
        "max_launches: 5 > limit 4",
        "  at mlp.py:31",
        "  nvjet 256x128x64 TNT x3, launched most often",
        "  vectorized_elementwise [gelu]",
        "  vectorized_elementwise [mul]",
        "  ",
        "  to do: launch fewer kernels (fuse them, torch.compile)",
        "  if intended, allow max_kernels(5) and max_launches(5)",
        "  ",
        "  kernels (> launched most often):",
    ]
    assert lines[11].split() == ["#", "us", "kernel", "line", "launched", "by"]
    assert [line[:3] for line in lines[12:]] == ["> 1", "  2", "> 3", "  4", "> 5"]
    assert all("mlp.py:31" in line for line in lines[12:])


def test_each_broken_limit_is_a_line_the_first_one_first_since_a_summary_shows_it_alone() -> None:
    lines = message(mlp(), max_kernels=1, max_launches=4, forbid_kernels="gelu")
    assert lines[:3] == [
        "max_kernels: 5 > limit 1",
        "max_launches: 5 > limit 4",
        "forbid_kernels: 1 forbidden kernel ran: #2 vectorized_elementwise [gelu] ('gelu')",
    ]


def test_of_expected_kernels_the_first_line_has_what_came_instead_and_the_rest_is_below() -> None:
    lines = message(mlp(), expect_kernels=["mm", "relu", ...])
    assert lines[:5] == [
        "expect_kernels: kernel 2: expected 'relu', got vectorized_elementwise [gelu] (aten::gelu)",
        "  5 kernels, expected 'mm', 'relu', ...",
        "  ",
        "  to do: change the code, or the kernels that the test expects",
        "  ",
    ]
    assert lines[5] == "  kernels (> not expected):"
    assert [line[:3] for line in lines[7:12]] == ["  1", "> 2", "  3", "  4", "  5"]


def test_a_kept_limit_is_not_told() -> None:
    lines = message(mlp(counted("syncs", 0)), max_kernels=1, max_syncs=0)
    assert not any("max_syncs" in line for line in lines)


def test_how_sure_an_exceeded_time_is_stands_below_its_line() -> None:
    kernels = [msgspec.structs.replace(one, source="src/mlp.py:31") for one in MLP[:2]]
    slow = profile(kernels, [around("cuda_time", 200.0)])
    lines = message(slow, max_cuda_time="100us")
    assert lines[:4] == [
        "max_cuda_time: 205.5us > limit 100.0us",
        "  +105.5 %, 99 % CI 201.0..210.0us, 12 rounds",
        "  at mlp.py:31",
        "  nvjet 256x128x64 TNT takes 10.0us",
    ]
    table = lines.index("  kernels (> takes longest):")
    assert lines[table + 2].split()[:3] == [">", "1", "10.0"]


NAME = "vectorized_elementwise [mul]"


def test_marks_stand_below_the_call_that_launched_what_is_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mlp.py").write_text("def f(h):\n    return h.sum() * 2\n    return h * 2 * 3\n")

    def told(*sources: str) -> list[str]:
        kernels = [kernel(MUL, "aten::mul", source=source) for source in sources]
        return message(profile(kernels), max_kernels=1)

    assert told("mlp.py:2", "mlp.py:2")[:5] == [
        "max_kernels: 2 > limit 1",
        "  at mlp.py:2",
        "    2 | return h.sum() * 2",
        f"      |        ^^^^^^^^^^^ {NAME} x2",
        "  ",
    ]
    # Which of the two signs launched it, nobody knows.
    assert told("mlp.py:3", "mlp.py:3")[1:4] == [
        "  at mlp.py:3",
        "    3 | return h * 2 * 3",
        f"      | {NAME} x2",
    ]


def lines_at(tmp_path: Path, code: str, *operators: str, **limits: Any) -> list[str]:
    """Of a failure by kernels that are launched at ``mlp.py:LINE``, given as ``LINE operator``."""
    (tmp_path / "mlp.py").write_text(code)
    told = (one.split() for one in operators)
    kernels = [kernel(f"{of}_kernel", f"aten::{of}", source=f"mlp.py:{at}") for at, of in told]
    return message(profile(kernels), Place("test_mlp.py", 3), **limits)


def test_no_call_is_marked_where_limits_are_about_different_kernels_of_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, launched = "y = gelu(x @ x)\n", ("1 matmul", "1 gelu")
    (marked,) = [
        one for one in lines_at(tmp_path, code, *launched, forbid_kernels="gelu") if "^" in one
    ]
    assert marked.index("^") == "    1 | y = gelu(x @ x)".index("gelu")
    both = lines_at(tmp_path, code, *launched, max_kernels=0, forbid_kernels="gelu")
    assert "    1 | y = gelu(x @ x)" in both
    assert not any("^" in one for one in both)


def test_of_more_causes_than_are_told_the_first_is_no_label_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    launched = ["1 sin", *(f"2 {of}" for of in ("cos", "tan", "exp", "log", "abs"))]
    lines = lines_at(tmp_path, "a = f(x)\nb = g(a)\n", *launched, max_kernels=1)
    at = lines.index("    1 | a = f(x)")
    assert lines[at + 1] == "    2 | b = g(a)"
    assert lines[at + 2].startswith("  sin_kernel")
    assert lines[at + 2].endswith("; 5 others")


def test_a_line_whose_code_is_not_known_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("four.py").write_text("a\nb\nc\nd\n")

    def told(*sources: str) -> list[str]:
        kernels = [kernel(MUL, "aten::mul", source=source) for source in sources]
        return message(profile(kernels), max_kernels=1)

    assert told("gone.py:2", "gone.py:2")[:3] == [
        "max_kernels: 2 > limit 1",
        "  at gone.py:2",
        f"  {NAME} x2",
    ]
    assert told("four.py:2", "gone.py:7")[1:3] == [
        "  at four.py:2, gone.py:7",
        "    four.py:2 | b",
    ]
    three, four = ([f"four.py:{line}" for line in range(1, last + 1)] for last in (3, 4))
    code = ["    1 | a", "    2 | b", "    3 | c"]
    assert told(*three)[1:5] == ["  at four.py:1, 2, 3", *code]
    # The fourth has no room below.
    assert told(*four)[1:5] == ["  at four.py:1, 2, 3, 4", *code]


@pytest.mark.parametrize(
    ("code", "operators", "called"),
    [
        ("h = h.transpose(0, 1).contiguous()", "copy_ clone contiguous", "contiguous()"),
        ("h = F.linear(x, w)", "mm addmm linear", "F.linear(x, w)"),
        ("if loss.item() > limit:", "_local_scalar_dense item", "loss.item()"),
        ("dist.all_reduce(x)", "allreduce_", "dist.all_reduce(x)"),
        ("return gelu(x @ w)", "mm matmul", "x @ w"),
        ("return gelu(x @ w)", "gelu", "gelu(x @ w)"),
        ("ünö = x * 'ü' + y", "mul", "x * 'ü'"),
        ("x *= 2", "mul_", "x *= 2"),
        ("(a * b).sum().backward()", "mul MulBackward0", "(a * b).sum().backward()"[-10:]),
        ("y = x * a * b", "mul", ""),
        ("y = f(x)", "mul", ""),
        ("y = F.linear(x,", "mm linear", ""),
        ("", "mm", ""),
    ],
)
def test_a_call_is_found_by_the_operator_that_it_led_to_unless_there_are_several(
    code: str, operators: str, called: str
) -> None:
    start, end = call_in(code, [f"aten::{one}" for one in operators.split()])
    assert code[start:end] == called


def test_what_is_launched_most_often_stands_below_its_line() -> None:
    kernels = [kernel(MUL, "aten::mul", source="mlp.py:7")] * 2
    kernels.append(msgspec.structs.replace(MLP[1], source="mlp.py:8"))
    lines = message(profile(kernels), max_kernels=1)
    assert lines[:3] == [
        "max_kernels: 3 > limit 1",
        "  at mlp.py:7",
        f"  {NAME} x2 at mlp.py:7, launched most often",
    ]
    assert "  kernels (> launched most often):" in lines


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
    told = failure_of(mlp(verdicts=verdicts, **more), at=Place("test_mlp.py", 8))
    assert f"  if intended, allow max_kernels(5){end}" in told.splitlines()


def test_an_undecided_limit_is_told_below_a_broken_one() -> None:
    lines = message(mlp(around("cuda_time", 100.0)), max_cuda_time="105us", max_kernels=1)
    assert lines[0] == "max_kernels: 5 > limit 1"
    assert lines[1] == "max_cuda_time undecided: 101.0..110.0us, limit 105.0us"


def test_a_disturbed_time_says_by_what() -> None:
    busy = Conditions(blocks=1, contenders=(Neighbour(7, 60),))
    lines = message(mlp(around("cuda_time", 100.0), conditions=busy), max_cuda_time="100us")
    why = "  CONTENDED: other processes worked on this GPU (pid 7 up to 60 %): +5.5 %"
    assert any(line.startswith(why) for line in lines)


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
    assert lines[0] == "max_kernels: 5 > limit 1"
    assert [one for one in lines[: lines.index("  ")] if one.startswith(("  in", "  at"))] == origin


def test_the_source_line_that_made_the_call_is_shown() -> None:
    here = Place(__file__, Path(__file__).read_text().splitlines().index("TEST = Place(") + 1)
    lines = message(mlp(), here, max_kernels=1)
    at = lines.index(f"  at test_failure.py:{here.line}")
    assert lines[at + 1] == f"    {here.line} | TEST = Place("


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
    lines = failure_of(worse).splitlines()
    assert lines[:3] == [
        "snapshot: kernels 2 -> 3",
        "  at mlp.py:7 or 8",
        f"  added kernel: {NAME}",
    ]
    assert lines[lines.index("  against the snapshot: ? perhaps new") :] == [
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
