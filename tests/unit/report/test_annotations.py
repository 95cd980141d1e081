"""Annotations of GitHub: which tests, in which order, at which line, and hostile text in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gfm_pages import HOSTILE
from msgspec.structs import replace
from records import GELU, calls_of, comparison, held_to, kernel, mlp, profile, timed

from pytest_kernelprof.records.comparison import (
    KernelChange,
    KernelDiff,
    KernelSide,
    MetricDelta,
    ProfileComparison,
    SnapshotReport,
)
from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import Place, Verdict
from pytest_kernelprof.records.recording import Integrity
from pytest_kernelprof.report.github import (
    MOST_BYTES,
    annotations_of,
    append_summary,
    commands,
    files_in_the_repository,
)

CALL = Place("tests/test_mlp.py", 31)
OVER = Verdict(
    limit="max_kernels", outcome="failed", metric="kernels", unit="count", measured=5, allowed=4
)
TIME = Verdict(
    limit="max_cuda_time",
    outcome="failed",
    metric="cuda_time",
    unit="us",
    measured=234.9,
    allowed=200,
    low=233.0,
    high=236.8,
    rounds=12,
)
UNDECIDED = Verdict(
    limit="max_latency",
    outcome="undecided",
    reason="few",
    metric="latency",
    unit="us",
    measured=199.4,
    allowed=200.0,
)
COMMAND = re.compile(r"::(error|warning) (?:file=([^,:]*),line=(\d+),)?title=([^,:]*)::(.*)")


def told(*tests: Test, most: int = 10) -> list[tuple[str, ...]]:
    """Level, file, line, title and data of each command."""
    found = commands(annotations_of(Run(tests)), lambda place: place.file, most)
    matched = [COMMAND.fullmatch(one) for one in found]
    assert all(matched), found
    return [one.groups("") for one in matched if one]


def failing(name: str = "test_it", *verdicts: Verdict, place: Place = CALL, **more: object) -> Test:
    taken = mlp(timed("cuda_time", [234.9]), verdicts=verdicts or (OVER,), place=place, **more)
    limits, at = tuple(one.limit for one in taken.verdicts), Place("t.py", 3)
    id = f"tests/test_mlp.py::{name}"
    return Test(id, (taken,), outcome="failed", limits=limits, place=at)


def test_one_for_a_test_however_many_limits() -> None:
    ((level, file, line, title, data),) = told(failing("test_it[1]", OVER, TIME))
    assert (level, file, line) == ("error", "tests/test_mlp.py", "31")
    assert title == (
        "kernelprof%3A max_kernels%3A 5 > limit 4%2C max_cuda_time%3A 234.9us > limit 200.0us "
        "(test_it[1])"
    )
    fewer = "launch fewer kernels (fuse them, torch.compile)"
    faster = "make the linear cheaper (shapes, dtype, layout)"
    assert data.split("%0A") == [
        "nvjet 256x128x64 TNT x3; 3 others",
        "max_cuda_time: +17.5 %25, 99 %25 CI 233.0..236.8us, 12 rounds",
        "",
        f"to do: {fewer} and {faster}",
        "rerun: pytest 'tests/test_mlp.py::test_it[1]'",
        "if intended, allow max_kernels(5) and max_cuda_time('249us') (5 %25 to spare) at t.py:3",
    ]


def test_the_line_is_that_of_the_kernel_that_came() -> None:
    changes = (
        KernelChange("removed", KernelSide("gemm", ("aten::mm",), "gone.py:1")),
        KernelChange("added", current=KernelSide("mul", ("aten::mul",), "src/mlp.py:42"), at=5),
    )
    kernels = KernelDiff(baseline_kernels=5, current_kernels=5, changes=changes)
    kept = ProfileComparison(source="snapshot", change="worse", kernels=kernels)
    over = held_to(mlp(timed("cuda_time", [234.9]), place=CALL), kept)
    test = Test("tests/test_mlp.py::test_it[a b]", (over,), outcome="failed")
    ((_, file, line, _, data),) = told(test)
    assert (file, line) == ("src/mlp.py", "42")
    assert "--kernelprof-update" not in data  # another reason to fail, or nothing that can be kept
    taken = SnapshotReport(file="t.py", device="H", key="k", accepts=True)
    ((_, *_, data),) = told(replace(test, snapshot=taken))
    command = "pytest 'tests/test_mlp.py::test_it[a b]' --kernelprof-update"
    assert data.endswith(f"%0Aif intended, accept it in the snapshot:%0A  {command}")


def test_what_does_not_fail_its_test_is_a_warning_after_all_errors() -> None:
    lines = [replace(CALL, line=line) for line in (1, 2)]
    doubted = Test("t.py::doubted", (mlp(verdicts=(UNDECIDED,), place=lines[0]),))
    only_warned = Test("t.py::warned", (mlp(verdicts=(OVER,), place=CALL),))
    lost = calls_of(1, integrity=Integrity(problems=("17 of 18",)), place=lines[1])
    taken = SnapshotReport(file="t.py", device="H", key="k", state="changed")
    stale = Test("t.py::stale", (mlp(),), place=Place("t.py", 9), snapshot=taken)
    well = Test("t.py::well", (mlp(),))
    found = told(doubted, only_warned, Test("t.py::lost", (lost,)), stale, well, failing())
    assert [(one[0], one[3].rpartition(" (")[2]) for one in found] == [
        ("error", "2 tests)"),
        ("warning", "lost)"),
        ("warning", "doubted)"),
        ("warning", "stale)"),
    ]


def test_an_outdated_snapshot_is_told_with_the_kernels_that_differ() -> None:
    gelu, relu = (KernelSide(one, (f"aten::{one}",)) for one in ("gelu", "relu"))
    kernels = KernelDiff(
        baseline_kernels=5, current_kernels=5, changes=(KernelChange("replaced", gelu, relu, at=5),)
    )
    found = ProfileComparison(source="snapshot", change="changed", kernels=kernels)
    report = SnapshotReport(
        file="t.py", device="H", key="k", state="changed", changes=kernels.changes
    )
    ((*_, title, data),) = told(Test("t.py::t", (held_to(mlp(), found),), snapshot=report))
    assert title == "kernelprof%3A relu%3A was gelu (t)"
    accept = "accept the change if it is intended: pytest t.py::t --kernelprof-update"
    assert data == f"to do: {accept}"


def test_tests_with_one_cause_are_one_annotation_and_another_cause_at_its_line_is_another() -> None:
    alike = [failing(f"test_{i}") for i in range(12)]
    slow = Test("t.py::slow", (mlp(verdicts=(TIME,), place=CALL),), outcome="failed")
    many, one = told(*alike, slow)
    assert many[1:4] == (CALL.file, "31", "kernelprof%3A max_kernels%3A 5 > limit 4 (12 tests)")
    assert many[4].split("%0A")[:2] == [
        "test_0, test_1, test_2, test_3, and 8 more",
        "nvjet 256x128x64 TNT x3",
    ]
    time = "max_cuda_time%3A 234.9us > limit 200.0us"
    assert one[1:4] == (CALL.file, "31", f"kernelprof%3A {time} (slow)")
    assert one[4].split("%0A")[:3] == [
        "nvjet 256x128x64 TNT x3 takes 30.0us",
        "+17.5 %25, 99 %25 CI 233.0..236.8us, 12 rounds",
        "",
    ]


@pytest.mark.parametrize(("other", "end"), [(41, "41"), (43, None)])
def test_it_spans_lines_that_adjoin_and_none_between_that_launch_nothing(
    other: int, end: str | None
) -> None:
    kernels = [kernel(GELU, "aten::gelu", source=f"mlp.py:{line}") for line in (40, other)]
    over = replace(OVER, measured=2, allowed=1)
    test = Test("t.py::test_it", (profile(kernels, verdicts=(over,)),), outcome="failed")
    (text,) = commands(annotations_of(Run((test,))), lambda place: place.file)
    found = re.search(r"line=40(?:,endLine=(\d+))?,", text)
    assert found
    assert found[1] == end


def test_a_comparison_that_is_not_as_asserted_is_told() -> None:
    verdict = Verdict(
        limit="min_speedup",
        outcome="failed",
        unit="times",
        metric="speedup",
        measured=1.203,
        allowed=1.5,
        candidate="fused",
        place=CALL,
    )
    test = Test("t.py::test_c", comparisons=(comparison(verdicts=(verdict,)),), outcome="failed")
    ((level, file, line, title, _),) = told(test)
    assert (level, file, line) == ("error", "tests/test_mlp.py", "31")
    assert title == "kernelprof%3A min_speedup%3A 1.203 times < limit 1.500 times (test_c)"


def test_there_are_ten_at_most_and_the_last_says_how_many_more() -> None:
    found = told(*(failing(f"test_{i}", place=Place(f"t{i}.py", i)) for i in range(17)))
    assert len(found) == 10
    assert found[-1][4].endswith("%0Aand 7 more failed tests")
    assert not any("more failed" in one[4] for one in found[:-1])


@pytest.mark.parametrize("name", [*HOSTILE, "x" * 100_000, "a%0Ab", "::error::x", "a,b:c=d"])
def test_hostile_text_is_one_command(name: str) -> None:
    place = Place(f"{name}.py", 3)
    odd = kernel(f"{name} {GELU}", name, source=f"{name}.py:3")
    bad = profile([odd], label=name, verdicts=(OVER,), place=place)
    test = Test(f"{name}.py::test_it[{name}]", (bad,), outcome="failed", place=place)
    (one,) = commands(annotations_of(Run((test,))), lambda place: place.file)
    assert one.isprintable()
    assert len(one) < 10_000 or len(name) > 1000
    one.encode()
    assert COMMAND.fullmatch(one)
    # A per cent sign is one of ours or a code.
    assert re.fullmatch(r"(?:[^%]|%(?:25|0A|0D|3A|2C))*", one)


def test_files_are_as_seen_from_the_repository(tmp_path: Path) -> None:
    root = tmp_path / "repo" / "package"
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    root.mkdir()
    for variables in ({}, {"GITHUB_WORKSPACE": str(tmp_path / "repo")}):
        file_of = files_in_the_repository(str(root), variables)
        assert file_of(Place("tests/t.py", 1)) == "package/tests/t.py"
        assert file_of(Place(str(tmp_path / "repo" / "x.py"), 1)) == "x.py"
        assert file_of(Place("/usr/lib/x.py", 1)) == ""
        assert file_of(Place("../../x.py", 1)) == ""
        assert file_of(Place("lib/site-packages/x.py", 1)) == ""
        assert file_of(Place("nul\0.py", 1)) == ""


def test_outside_of_the_repository_the_next_place_is_told() -> None:
    found = annotations_of(Run((failing(),)))
    (one,) = commands(found, lambda place: place.file if place.file == "t.py" else "")
    assert one.startswith("::error file=t.py,line=3,title=")
    (one,) = commands(found, lambda place: "")
    assert one.startswith("::error title=")


def test_the_summary_is_appended_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    variables = {"GITHUB_STEP_SUMMARY": str(path)}
    run = Run((failing(),))
    assert append_summary(run, variables, ".") == ""
    first = path.read_text()
    assert append_summary(run, variables, ".") == ""
    assert path.read_text() == f"{first}\n{first}"


@pytest.mark.parametrize(
    ("there", "told"),
    [(MOST_BYTES - 50_000, True), (MOST_BYTES - 1000, False), (MOST_BYTES + 1, False)],
)
@pytest.mark.bulk
def test_the_summary_stays_below_what_github_takes(tmp_path: Path, there: int, told: bool) -> None:
    path = tmp_path / "summary"
    path.write_bytes(b"x" * there)
    run = Run(tuple(failing(f"test_{i}") for i in range(1000)))
    why = append_summary(run, {"GITHUB_STEP_SUMMARY": str(path)}, ".")
    assert (why == "") == told
    if not told:
        assert why == f"the step summary is full: {there} of 1048576 bytes"
    assert path.stat().st_size <= max(there, MOST_BYTES)
    assert (path.stat().st_size > there) == told


def test_where_there_is_no_summary_it_is_said(tmp_path: Path) -> None:
    assert (
        append_summary(Run(), {}, ".") == "there is no step summary: GITHUB_STEP_SUMMARY is not set"
    )
    for path, reason in (
        (tmp_path, "Is a directory"),
        (tmp_path / "no" / "such", "No such file or directory"),
        ("nul\0", "embedded null byte"),
    ):
        why = append_summary(Run(), {"GITHUB_STEP_SUMMARY": str(path)}, ".")
        assert why == f"the step summary {path} cannot be written ({reason})"


@pytest.mark.parametrize(
    ("why", "title", "body"),
    [
        ("ValueError: no such layer", "ValueError%3A no such layer (test_it)", []),
        ("OddError: no. Write 3", "OddError%3A no (test_it)", ["Write 3", ""]),
        # A title has room for 200 characters.
        (f"ValueError: {'x' * 300}", None, [f"ValueError: {'x' * 300}", ""]),
    ],
)
def test_a_crash_is_told_once_and_whole(why: str, title: str | None, body: list[str]) -> None:
    crashed = Test("t.py::test_it", outcome="failed", place=Place("t.py", 3), why=why)
    ((*_, found, data),) = told(crashed)
    assert title in (found, None)
    assert data.split("%0A") == [*body, "rerun: pytest t.py::test_it"]


def test_the_title_of_several_tests_names_the_kernel_that_they_have_in_common() -> None:
    new = KernelChange("added", current=KernelSide("mul", ("aten::mul",), "src/mlp.py:42"), at=5)
    kernels = KernelDiff(baseline_kernels=4, current_kernels=5, changes=(new,))
    more = MetricDelta(name="kernels", baselines=(4,), current=5, change="worse", judged=True)
    found = ProfileComparison(source="snapshot", change="worse", kernels=kernels, metrics=(more,))
    tests = [
        Test(f"t.py::test_{name}", (held_to(mlp(place=CALL), found),), outcome="failed")
        for name in ("a", "b")
    ]
    ((*_, title, data),) = told(*tests)
    assert title == "kernelprof%3A added kernel%3A mul (2 tests)"
    assert data.startswith("test_a, test_b: snapshot: kernels 4 -> 5%0A")


def test_what_a_snapshot_would_accept_ends_in_the_command_that_accepts_it() -> None:
    more = MetricDelta(name="kernels", baselines=(4,), current=5, change="worse", judged=True)
    found = ProfileComparison(source="revision", change="worse", metrics=(more,))
    test = Test("t.py::test_it", (held_to(mlp(place=CALL), found),), outcome="failed")
    ((*_, data),) = told(test)
    accept, command = "accept it in a snapshot:", "pytest t.py::test_it --kernelprof-update"
    again = "to do: undo the change%0Arerun: pytest t.py::test_it"
    assert data.endswith(f"{again}%0Aif intended, {accept} {command}")
    both = held_to(mlp(place=CALL, verdicts=(OVER,)), found)
    ((*_, data),) = told(replace(test, profiles=(both,)))
    allow = "if intended, allow max_kernels(5) at t.py::test_it, and"
    assert data.endswith(f"%0A{allow} {accept}%0A  {command}")  # which has no room beside it


def test_lines_in_the_step_summary_lead_to_its_commit(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    summary = tmp_path / "summary.md"
    variables = {
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_REPOSITORY": "team/project",
        "GITHUB_SHA": "abc",
    }
    latency = replace(OVER, limit="max_latency", metric="latency", unit="us", measured=9.0)
    run = Run((failing("test_it", latency),))
    assert append_summary(run, variables, str(tmp_path)) == ""
    url = "https://github.example/team/project/blob/abc/tests/test_mlp.py#L31"
    assert f"[test_mlp.py:31]({url})" in summary.read_text()
    summary.write_text("")
    append_summary(run, {"GITHUB_STEP_SUMMARY": str(summary)}, str(tmp_path))
    assert "](" not in summary.read_text()


def test_of_errors_and_of_warnings_there_are_so_many_each_and_the_last_counts_its_own() -> None:
    places = [Place(f"t{line}.py", line) for line in range(1, 24)]
    failed = [failing(f"test_{at.line}", place=at) for at in places[:12]]
    doubted = [Test(f"t.py::{at.line}", (mlp(verdicts=(UNDECIDED,), place=at),)) for at in places]
    found = told(*failed, *doubted[12:])
    assert [one[0] for one in found] == ["error"] * 10 + ["warning"] * 10
    assert found[9][4].endswith("%0Aand 2 more failed tests")
    assert found[19][4].endswith("%0Aand 1 more test")


def test_a_long_command_is_whole() -> None:
    names = [f"test_{'of_a_long_name_' * 5}{i}" for i in range(8)]
    (one,) = told(*(failing(name) for name in names))
    command = next(line for line in one[4].split("%0A") if line.startswith("  pytest "))
    assert command.split()[1:] == [f"tests/test_mlp.py::{name}" for name in names]


def test_what_a_title_has_no_room_for_is_told_below_it() -> None:
    over = replace(OVER, qualifier="vectorized_elementwise_kernel.*gelu")
    copies = replace(OVER, limit="max_memcpys", metric="memcpys", measured=12)
    ((*_, title, data),) = told(failing(f"test_{'of_a_long_name_' * 6}", over, copies))
    told_of = "max_memcpys%3A 12 > limit 4"
    assert told_of in title or "max_memcpys: 12 > limit 4" in data
