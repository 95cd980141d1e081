"""Whether a test is worse than a revision, by what it took on both sides."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import CPU, H200, MLP, MUL, absent, around, counted, kernel, profile

from pytest_kernelprof.against.timing import Timed
from pytest_kernelprof.against.verdict import judge
from pytest_kernelprof.digest.base import changes_against
from pytest_kernelprof.digest.changes_verdict import is_failed
from pytest_kernelprof.report.against import against_lines, failure_words
from pytest_kernelprof.report.spans import plain
from pytest_kernelprof.report.style import Style
from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.against import AgainstTest, Done, Laid
from pytest_kernelprof.schema.run import (
    Conditions,
    Integrity,
    Neighbour,
    Profile,
    Test,
    Verdict,
)
from pytest_kernelprof.schema.snapshot import Finding
from pytest_kernelprof.schema.turns import TimedPair, Timing

LAID = Laid("main (abc1234)", "/r", "/t", "/f")
BUSY = Conditions(contenders=(Neighbour(7, 50),))
REACHED = ("pkg/mlp.py",)
EXTRA = (*MLP, kernel(MUL, "aten::mul", source="/t/pkg/mlp.py:31"))


def found(new: Profile | list[Profile], old: Profile | list[Profile]) -> AgainstTest:
    news = new if isinstance(new, list) else [new]
    olds = old if isinstance(old, list) else [old]
    return judge("t.py::a", news, Done("t.py::a", Test("t.py::a", tuple(olds)), reached=REACHED))


def test_more_kernels_are_worse_and_named() -> None:
    told = found(profile(EXTRA), profile(MLP))
    assert (told.result, told.profiles[0].worse) == ("worse", ("kernels", "launches"))
    lines = failure_words(told, LAID.name).splitlines()
    assert lines[:3] == [
        "kernels: 6 > 5 of main (abc1234)",
        "launches: 6 > 5 of main (abc1234)",
        "  5 -> 6 kernels",
    ]
    assert "+ vectorized_elementwise [mul]" in lines[3]
    assert lines[3].endswith("aten::mul  mlp.py:31")


def test_fewer_are_better_and_equal_ones_the_same() -> None:
    assert found(profile(MLP), profile(EXTRA)).result == "better"
    assert found(profile(MLP), profile(MLP)).result == "same"


@pytest.mark.parametrize("name", ["syncs", "memcpys", "memcpy_bytes", "allocations", "peak_memory"])
def test_all_that_is_exact_is_compared(name: str) -> None:
    old, new = (profile(MLP, [counted(name, n, n)]) for n in (1, 2))
    assert found(new, old).profiles[0].worse == (name,)


def test_times_and_memsets_are_not() -> None:
    old = profile(MLP, [around("cuda_time", 100), counted("memsets", 0)])
    new = profile(MLP, [around("cuda_time", 900), counted("memsets", 4)])
    told = found(new, old)
    assert told.result == "same"
    assert [change.name for change in told.profiles[0].diff.metrics] == ["memsets"]
    assert told.profiles[0].diff.paces == ()


def test_what_one_side_does_not_have_is_not_compared() -> None:
    old, new = profile(MLP, [absent("syncs")]), profile(MLP, [counted("syncs", 3)])
    assert found(new, old).result == "same"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"integrity": Integrity(("2 kernels are lost",))}, "is incomplete: 2 kernels are lost"),
        ({"integrity": Integrity(cold=("lazy loading",))}, "cold"),
        ({"integrity": Integrity(settled=False)}, "cold"),
        (
            {"metrics": [counted("kernels", 5, 6), counted("launches", 5)]},
            "kernels differ from round to round",
        ),
    ],
)
def test_counts_that_are_in_doubt_are_no_verdict(more: dict[str, Any], why: str) -> None:
    for old, new in (
        (profile(MLP), profile(EXTRA, **more)),
        (profile(EXTRA, **more), profile(MLP, [counted("launches", 5)])),
    ):
        told = found(new, old)
        assert told.result == "not compared"
        assert why in told.why


def test_a_count_that_varies_is_worse_where_its_least_is_above() -> None:
    def calls(*rounds: int) -> Profile:
        return profile(MLP, [counted("syncs", *rounds)])

    assert found(calls(50, 51, 52), calls(2, 2, 2)).profiles[0].worse == ("syncs",)
    assert found(calls(50, 51, 52), calls(2, 9, 49)).profiles[0].worse == ("syncs",)
    assert found(calls(2, 2, 2), calls(50, 51, 52)).result == "better"
    for overlapping in (calls(2, 9), calls(2, 3)):
        told = found(overlapping, calls(2, 2))
        assert (told.result, told.why) == ("not compared", "syncs differ from round to round")


def test_profiles_are_paired_by_label_and_order() -> None:
    one, two = profile(MLP, label="f"), profile(EXTRA, label="f")
    assert found([one, two], [one, two]).result == "same"
    told = found([two, one], [one, two])
    assert [bool(each.worse) for each in told.profiles] == [True, False]
    assert "[f]" in failure_words(told, "main")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ([profile(MLP)], [profile(MLP), profile(MLP)], "2 profiles here, 1 there"),
        ([profile(label="a")], [profile(label="b")], "'b' is profiled here, and not there"),
        ([profile(environment=CPU)], [profile(environment=H200)], "H200 here, on CPU"),
        ([profile(one_shot=True)], [profile()], "a call here, a block there"),
        ([], [profile()], "1 profiles here, 0 there"),
    ],
)
def test_other_work_is_not_compared(old: list[Profile], new: list[Profile], why: str) -> None:
    told = found(new, old)
    assert told.result == "different work"
    assert why in told.why


@pytest.mark.parametrize(
    ("answer", "result", "why"),
    [
        ("the reference died", "cannot run", "the reference died"),
        (Done("a", failure="AttributeError: x"), "cannot run", "AttributeError: x"),
        (Done("a", skipped="no CUDA device"), "cannot run", "skipped there: no CUDA device"),
        (Done("a"), "not compared", "no file of the revision is reached"),
    ],
)
def test_why_a_revision_says_nothing(answer: Done | str, result: str, why: str) -> None:
    told = judge("a", [profile(MLP)], answer)
    assert told.result == result
    assert why in told.why


def held(state: str, **more: Any) -> Verdict:
    finding = Finding(state=state, kernels=6, **more)  # type: ignore[arg-type]
    outcome = "over" if state == "more" else "kept"
    return Verdict(limit="snapshot", outcome=outcome, device="cuda", snapshot=finding)


def test_more_is_accepted_where_the_snapshot_allows_it() -> None:
    told = found(replace(profile(EXTRA), verdicts=(held("held"),)), profile(MLP))
    assert (told.result, told.why) == ("accepted", "")
    assert (told.profiles[0].accepted, told.profiles[0].worse) == (("kernels", "launches"), ())
    assert not is_failed([told])
    assert sentence_of(told) == ("The only test is no worse than main; 1 accepted by snapshot.")
    assert lines_of(told)[3:5] == ["accepted by snapshot", "   5 -> 6  t.py::a"]


@pytest.mark.parametrize(
    ("verdicts", "worse"),
    [
        ((held("more"),), ("kernels", "launches")),
        ((held("held", unknown=("launches",)),), ("launches",)),
        ((Verdict(limit="max_kernels", outcome="kept", device="cuda"),), ("kernels", "launches")),
    ],
)
def test_what_the_snapshot_does_not_hold_is_not_accepted(
    verdicts: tuple[Verdict, ...], worse: tuple[str, ...]
) -> None:
    told = found(replace(profile(EXTRA), verdicts=verdicts), profile(MLP))
    assert (told.result, told.profiles[0].worse) == ("worse", worse)


@pytest.mark.parametrize(
    ("name", "accepted"), [("memcpys", True), ("memcpy_bytes", True), ("peak_memory", False)]
)
def test_what_a_snapshot_does_not_keep_it_cannot_accept(name: str, accepted: bool) -> None:
    old, new = (profile(MLP, [counted(name, n, n)]) for n in (1, 2))
    told = found(replace(new, verdicts=(held("held"),)), old)
    assert told.result == ("accepted" if accepted else "worse")


def versions(one: Profile, **other: str) -> Profile:
    environment = replace(one.environment, versions={**one.environment.versions, **other})
    return replace(one, environment=environment)


def test_with_other_software_a_difference_is_no_verdict_and_equal_counts_hold() -> None:
    old = versions(profile(MLP), torch="2.9.0", python="3.10.1")
    new = versions(profile(EXTRA), torch="2.11.0", python="3.11.2")
    told = found(new, old)
    other = "python 3.10.1 there, 3.11.2 here; torch 2.9.0 there, 2.11.0 here"
    assert told.result == "not compared"
    assert told.why == f"kernels differ, and so does the software: {other}"
    assert told.notes == (f"other software: {other}",)
    told = found(versions(profile(MLP), torch="2.11.0"), old)
    assert (told.result, len(told.notes)) == ("same", 1)


def test_another_python_says_nothing_of_recompilations_alone() -> None:
    old, new = (
        versions(profile(kernels, [counted("recompiles", n, n)]), python=python)
        for kernels, n, python in ((MLP, 0, "3.10.1"), (MLP, 1, "3.11.2"))
    )
    assert found(new, old).result == "not compared"
    assert found(versions(profile(EXTRA), python="3.11.2"), old).result == "worse"


def test_files_of_the_users_and_code_among_the_tests_are_told() -> None:
    test = Test("t.py::a", (profile(MLP),))
    opened = ("a.bin", "b.bin", "c.bin", "d.bin")
    done = Done("t.py::a", test, reached=REACHED, opened=opened, lines=("tests/model.py",))
    assert judge("t.py::a", [profile(MLP)], done).notes == (
        "files of your folder were opened there: a.bin, b.bin, c.bin and 1 more",
        "all lines that launch anything are of today's tests, which lie over the revision: "
        "tests/model.py",
    )


def test_the_line_at_the_end() -> None:
    results = [*["same"] * 3, "worse", "better", "cannot run", "different work", "not compared"]
    tests = [AgainstTest(str(i), one) for i, one in enumerate(results)]  # type: ignore[arg-type]
    assert sentence_of(*tests) == (
        "1 of 5 tests is worse than main; 1 better, 3 unchanged, 1 cannot run on main, "
        "1 not compared, 1 did different work."
    )
    assert sentence_of(*tests[-3:]) == (
        "No test could be compared with main: 1 cannot run on main, 1 not compared, 1 did "
        "different work."
    )
    assert lines_of()[0].startswith("No test of this run is measured (")
    assert is_failed(tests)
    assert not is_failed([AgainstTest("a", "same"), AgainstTest("b", "cannot run")])
    assert is_failed([AgainstTest("a", "cannot run"), AgainstTest("b", "not compared")])
    assert is_failed([])


def timing(outcome: str, ratio: float = 1.08, **more: Any) -> Timing:
    pair = TimedPair("candidate", ratio, 6, 100.0, 100.0 * ratio)
    facts = {"agreeing": 4, "margin": 0.05, "old_us": 233.1, "new_us": 233.1 * ratio, **more}
    return Timing(outcome, ratio=ratio, pairs=(pair,) * 4, **facts)  # type: ignore[arg-type]


def sentence_of(*told: AgainstTest) -> str:
    return changes_against(LAID.name, told).sentence


def lines_of(*told: AgainstTest, width: int = 160) -> list[str]:
    return [plain(line) for line in against_lines(LAID, told, Style(width))]


def row_of(told: AgainstTest) -> str:
    return " ".join(" ".join(lines_of(told)).split())


def timed(call: Timed, new: Profile | None = None, old: Profile | None = None) -> AgainstTest:
    new, old = new or profile(MLP), old or profile(MLP)
    done = Done("t.py::a", Test("t.py::a", (old,)), reached=REACHED)
    return judge("t.py::a", [new], done, {"": call})


def test_slower_is_worse_and_the_kernels_that_are_slower_are_named() -> None:
    us = tuple(one.duration_us for one in MLP)
    call = Timed(timing("worse"), "", us, (*us[:-1], us[-1] * 1.3))
    told = timed(call)
    assert told.result == "worse"
    lines = failure_words(told, LAID.name).splitlines()
    assert lines[0] == (
        "cuda_time 233.1 -> 251.7us, +8.0 % in 4 of 4 pairs (margin 5 %), against main (abc1234)"
    )
    assert lines[1] == "  5 kernels, the same; 233.1us -> 251.7us (+8.0 %)"
    assert len(lines) == 3
    assert "slower" in lines[2]


@pytest.mark.parametrize(
    ("call", "result", "words"),
    [
        (timing("held", 1.0), "same", ""),
        (timing("better", 0.8), "better", "faster in 4 of 4 pairs"),
        (timing("undecided", 1.03), "undecided", "? 5 +3.0 % +3.0..+3.0 % t.py::a"),
        (timing("undecided", why="no room"), "undecided", "t.py::a no room"),
        (
            timing("undecided", disturbed=BUSY),
            "undecided",
            "other processes worked on this GPU (pid 7 up to 50 %)",
        ),
        (Timing("not timed", "MPS"), "same", ""),
    ],
)
def test_what_follows_of_times(call: Timing, result: str, words: str) -> None:
    told = timed(Timed(call))
    assert told.result == result
    assert told.profiles[0].timing == call
    assert words in row_of(told)


def test_more_kernels_are_worse_whatever_the_times_are() -> None:
    assert timed(Timed(timing("better", 0.8)), profile(EXTRA)).result == "worse"
    assert timed(Timed(Timing("not timed"), "the result is x"), profile(EXTRA)).result == "worse"


def test_other_work_is_told_and_not_judged() -> None:
    told = timed(Timed(Timing("not timed"), "the result is x here, y there"))
    assert (told.result, told.why) == ("different work", "the result is x here, y there")


def test_in_another_configuration_slower_needs_all_pairs() -> None:
    moved = tuple(replace(one, grid=(7, 7, 7)) for one in MLP)
    assert timed(Timed(timing("worse", agreeing=3)), profile(moved)).result == "undecided"
    assert timed(Timed(timing("worse", agreeing=4)), profile(moved)).result == "worse"
    assert timed(Timed(timing("worse", agreeing=3))).result == "worse"


def test_latency_is_shown_and_not_judged() -> None:
    old, new = (profile(MLP, [around("latency", us)]) for us in (40.0, 90.0))
    told = timed(Timed(timing("undecided", 1.03)), new, old)
    assert "45.5 -> 95.5 +109.9 % t.py::a" in row_of(told)
    assert "in 4 pairs; latency (not judged): 45.5us -> 95.5us, +109.9 %" in row_of(told)


def test_a_block_has_no_times() -> None:
    told = timed(Timed(timing("worse")), profile(MLP, one_shot=True), profile(MLP, one_shot=True))
    assert (told.result, told.profiles[0].timing) == ("same", None)


def test_the_line_counts_what_is_undecided_and_the_record_is_json() -> None:
    told = timed(Timed(timing("undecided", 1.03, disturbed=BUSY)))
    assert sentence_of(told) == "The only test is no worse than main; 1 undecided."
    assert not is_failed([told])
    assert codec.decode(codec.encode(told), AgainstTest) == told
