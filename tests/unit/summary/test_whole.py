"""What a run says: rows, their order, causes and folding, the verdict, totals and advice."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import CPU, GEMM, MLP, MUL, around, counted, held_to, kernel, mlp, profile, timed

from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.records.comparison import (
    MetricDelta,
    Paired,
    ProfileComparison,
    RunComparison,
    TimedPair,
)
from pytest_kernelprof.records.document import Run, Test, TestOutcome
from pytest_kernelprof.records.profile import Place, Profile, Status, Verdict
from pytest_kernelprof.records.recording import Integrity
from pytest_kernelprof.summary.records import Row
from pytest_kernelprof.summary.run import summary_of


def limit(outcome: Status = "passed", allowed: float = 5, measured: float = 5) -> Verdict:
    return Verdict(
        limit="max_kernels", outcome=outcome, metric="kernels", unit="count",
        measured=measured, allowed=allowed,
    )  # fmt: skip


def judged(outcome: Status, us: float = 100.0) -> Profile:
    return mlp(around("cuda_time", us), verdicts=(limit(outcome, 4 if outcome == "failed" else 5),))


def told(*tests: Test) -> list[tuple[str, str]]:
    """File and name of each row, folded, in their order."""
    return [(row.file, row.name) for row in summary_of(Run(tests)).folded]


def row_of(test: Test) -> Row:
    (row,) = summary_of(Run((test,))).rows
    return row


@pytest.mark.parametrize(
    ("fared", "ended", "mark"),
    [
        ("passed", "passed", "passed"),
        ("passed", "failed", "failed otherwise"),
        ("passed", "error", "error"),
        ("passed", "skipped", "skipped"),
        ("passed", "xfailed", "xfailed"),
        ("passed", "rerun", "rerun"),
        ("failed", "failed", "failed"),
        ("failed", "rerun", "rerun"),
        ("expected failure", "xfailed", "expected failure"),
        ("incomplete", "error", "incomplete"),
        ("undecided", "failed", "failed otherwise"),
        ("not judged", "skipped", "skipped"),
    ],
)
def test_a_limit_that_was_kept_is_no_pass_where_the_test_ended_otherwise(
    fared: Status, ended: TestOutcome, mark: str
) -> None:
    assert row_of(Test("t.py::t", (judged(fared),), outcome=ended)).told == mark


def test_files_come_by_their_worst_row_then_by_gpu_time() -> None:
    tests = [
        Test("a.py::test_a", (judged("passed", 100),)),
        Test("b.py::test_b", (judged("passed", 300),)),
        Test("c.py::test_10", (judged("passed", 10),)),
        Test("c.py::test_2", (judged("passed", 10),)),
        Test("c.py::test_over", (judged("failed", 1),), outcome="failed"),
    ]
    assert told(*tests) == [
        ("c.py", "test_over"),
        ("c.py", "test_2"),
        ("c.py", "test_10"),
        ("b.py", "test_b"),
        ("a.py", "test_a"),
    ]


def test_a_value_beyond_its_limit_stands_in_its_cell() -> None:
    row = row_of(Test("t.py::t", (judged("failed"),), outcome="failed"))
    broken = row.broken["kernels"]
    assert (broken.measured, broken.allowed, broken.by) == (5, 4, "max_kernels")


def test_without_a_baseline_the_cause_is_what_ran_and_the_place_its_line_or_the_call() -> None:
    kernels = [*MLP[:1], *[kernel(MUL, "aten::mul", source="model/mlp.py:31")] * 3]
    over = profile(kernels, verdicts=(limit("failed", 2, 4),), place=Place("test_mlp.py", 7))
    (cause,) = row_of(Test("t.py::t", (over,), outcome="failed")).causes
    assert cause.text == (
        "vectorized_elementwise [mul] x3 at mlp.py:31, launched most often, from aten::mul; "
        "nvjet 256x128x64 TNT, from aten::mm in aten::linear"
    )
    assert cause.place == Place("model/mlp.py", 31)
    other = kernel(MUL, "aten::mul", source="model/mlp.py:32")
    two_lines = replace(over, kernels=(*kernels, other))
    (cause,) = row_of(Test("t.py::t", (two_lines,), outcome="failed")).causes
    assert cause.place == Place("model/mlp.py", 31)
    none_allowed = replace(over, verdicts=(limit("failed", 0, 4),))
    (cause,) = row_of(Test("t.py::t", (none_allowed,), outcome="failed")).causes
    assert cause.place == Place("model/mlp.py", 31)


def launched_at(*lines: str) -> str:
    """The cause of a test that launches multiplications at some lines, and others at others."""
    named = {"m": ("mul", "aten::mul"), "g": ("gelu", "aten::gelu")}
    kernels = [kernel(*named[one[0]], source=one[1:] and f"mlp.py:{one[1:]}") for one in lines]
    over = profile(kernels, verdicts=(limit("failed", 1, len(lines)),))
    (cause,) = row_of(Test("t.py::t", (over,), outcome="failed")).causes
    return cause.text


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("g9", "m7", "m7"), "mul x2 at mlp.py:7, launched most often, from aten::mul; gelu"),
        (("m7", "m7", "m8", "g9"), "mul x3 at mlp.py:7, 8, launched most often, from aten::mul"),
        (("m7", "m7"), "mul x2, from aten::mul"),  # a kind alone
        (("g9", "m", "m"), "mul x2, from aten::mul; gelu at mlp.py:9"),  # at no known line
        (("m7", "m7", "g9", "g9"), "mul x2 at mlp.py:7, from aten::mul; gelu x2"),
        # Of one line: the other kind is there more often.
        (
            ("m7", "m8", "m9", "m5", "g9", "g9"),
            "gelu x2 at mlp.py:9, launched most often, from aten::gelu; "
            "mul x4 at mlp.py:7, 8, 9, 5, from aten::mul",
        ),
    ],
)
def test_a_kind_that_stands_out_at_a_known_line_is_told_to_be_launched_most_often(
    lines: tuple[str, ...], words: str
) -> None:
    cause = launched_at(*lines)
    assert cause.startswith(words)
    assert ("launched most often" in cause) == ("launched most often" in words)


def test_a_shared_cause_leaves_out_the_numbers_in_which_tests_differ() -> None:
    def of(name: str, times: int) -> Test:
        kernels = [kernel(MUL, "aten::mul", source="model/mlp.py:31")] * times
        over = profile(kernels, verdicts=(limit("failed", 0, times),))
        return Test(f"t.py::{name}", (over,), outcome="failed")

    (problem,) = summary_of(Run((of("test_a", 4), of("test_b", 2)))).problems
    assert problem.cause is not None
    assert problem.cause.text == "vectorized_elementwise [mul], from aten::mul"
    (problem,) = summary_of(Run((of("test_a", 4), of("test_b", 4)))).problems
    assert problem.cause is not None
    assert problem.cause.text == "vectorized_elementwise [mul] x4, from aten::mul"


def test_limits_to_raise_are_told_with_their_places_where_they_differ() -> None:
    def of(name: str, times: int, line: int, broken: str = "max_kernels", call: int = 0) -> Test:
        kernels = [kernel(MUL, "aten::mul", source="model/mlp.py:31")] * times
        called = Place("tests/t.py", call) if call else None
        metric = "kernels" if broken == "max_kernels" else ""
        over = replace(limit("failed", 0, times), limit=broken, metric=metric, place=called)
        return Test(
            f"t.py::{name}",
            (profile(kernels, verdicts=(over,)),),
            outcome="failed",
            place=Place("tests/t.py", line),
            limits=() if call else (broken,),
        )

    def allowed(*tests: Test) -> list[str]:
        return [one.remedy.intended for one in summary_of(Run(tests)).problems]

    first = of("test_a[x]", 4, 8)
    assert allowed(first) == ["if intended, allow max_kernels(4) at t.py:8"]
    assert allowed(first, of("test_b", 2, 13)) == [
        "if intended, allow max_kernels(4) at t.py:8 and max_kernels(2) at t.py:13"
    ]
    assert allowed(first, of("test_a[y]", 2, 8)) == [
        "if intended, allow max_kernels(4) at t.py:8 and max_kernels(2) at t.py:8"
    ]
    assert allowed(first, of("test_b", 4, 13)) == ["if intended, allow max_kernels(4)"]
    # A limit of a region or a call is changed there.
    assert allowed(of("test_a", 4, 8, call=11)) == ["if intended, allow max_kernels(4) at t.py:11"]
    forbidden = of("test_b", 2, 13, "forbid_kernels")  # which has no number to raise
    assert allowed(first, forbidden) == ["if intended, allow max_kernels(4) at t.py:8", ""]


def test_a_new_kernel_that_tests_share_is_told_without_times_in_which_they_differ() -> None:
    def of(name: str, times: int) -> Test:
        new = [kernel(MUL, "aten::mul", source="model/mlp.py:31")] * times
        found = diff_profiles(profile(MLP[:1]), profile([*MLP[:1], *new]))
        more = MetricDelta(
            name="kernels", baselines=(1.0,), current=1.0 + times, change="worse", judged=True
        )
        worse = ProfileComparison(
            source="revision", test=f"t.py::{name}", change="worse", kernels=found, metrics=(more,)
        )
        return Test(f"t.py::{name}", (held_to(profile(MLP[:1]), worse),), outcome="failed")

    found = summary_of(Run((of("test_a", 4), of("test_b", 1))))
    (problem,), (task,) = found.problems, found.tasks
    assert task.what == "added kernel: vectorized_elementwise [mul]"
    assert task.facts == (
        "test_a: worse than the revision: kernels 1 -> 5",
        "test_b: worse than the revision: kernels 1 -> 2",
    )
    assert problem.cause is not None
    assert problem.cause.text == "vectorized_elementwise [mul], from aten::mul"
    assert [row.causes[0].text for row in problem.rows] == [
        "vectorized_elementwise [mul] x4, from aten::mul",
        "vectorized_elementwise [mul], from aten::mul",
    ]


def test_what_is_incomplete_says_what_is_missing_and_how_often_it_was_tried() -> None:
    lost = mlp(integrity=Integrity(("17 of 18 launches have their kernel",), retakes=2))
    (cause,) = row_of(Test("t.py::t", (lost,), outcome="error")).causes
    assert cause.text == "no number: 17 of 18 launches have their kernel, after 3 tries"


def folding(*of: tuple[str, Profile]) -> list[str]:
    return [name for _, name in told(*(Test(f"t.py::test_it[{i}]", (p,)) for i, p in of))]


def test_parameters_that_agree_fold_and_others_stand_alone() -> None:
    same = [(name, judged("passed", 100 + i)) for i, name in enumerate("abc")]
    other = ("d", profile(MLP[:4], verdicts=(limit(),)))
    assert folding(*same, other) == ["test_it[c] and 2 more", "test_it[d]"]


def test_tries_of_a_test_and_its_profiles_are_no_parametrisation() -> None:
    tries = [
        Test("t.py::t", (judged("passed"), judged("passed"))),
        Test("t.py::t", (judged("passed"),)),
    ]
    assert [name for _, name in told(*tries)] == ["t", "t", "t"]


def test_folded_rows_have_the_numbers_of_the_slowest() -> None:
    tests = [Test(f"t.py::t[{us}]", (judged("passed", us),)) for us in (100, 104, 50)]
    row = summary_of(Run(tuple(tests))).folded[0]
    assert (row.profile.metrics["cuda_time"].value, len(row.each)) == (109.5, 3)


@pytest.mark.parametrize(
    ("tests", "sentence"),
    [
        (["passed", "passed"], "2 of 2 tests are within their limits."),
        (["undecided", "undecided"], "2 of 2 tests are undecided."),
        (["undecided", "passed"], "1 of 2 tests is within its limits; 1 undecided (not failing)."),
        (["passed", "expected failure"], "1 of 1 test is within its limits; 1 expected failure."),
        (
            ["failed", "passed", "incomplete", "undecided"],
            "1 of 4 tests breaks a limit; 1 incomplete; 1 undecided (not failing).",
        ),
    ],
)
def test_the_verdict_is_a_sentence_of_what_is_not_zero(tests: list[Any], sentence: str) -> None:
    of = [Test(f"t.py::t{i}", (judged(one),)) for i, one in enumerate(tests)]
    assert summary_of(Run(tuple(of))).sentence == sentence


def test_without_limits_the_verdict_says_so_and_on_the_cpu_what_is_counted() -> None:
    plain = Test("t.py::t", (profile(MLP, environment=CPU),))
    found = summary_of(Run((plain,)))
    assert found.sentence == "No test has a limit, 1 test has a profile."
    assert [one.partition(": ")[2] for one in found.places] == [
        "operators counted, not GPU kernels"
    ]


def test_the_hottest_kernels_are_of_all_tests() -> None:
    tests = [Test(f"t.py::t{i}", (mlp(timed("cuda_time", [50.0])),)) for i in range(2)]
    hottest = summary_of(Run(tuple(tests))).hottest
    assert [(one.full, one.calls, one.us, one.tests) for one in hottest][:1] == [(GEMM, 6, 60.0, 2)]
    assert hottest[0].share == pytest.approx(0.6)


def timed_limit(measured: float, allowed: float) -> Profile:
    return mlp(
        verdicts=(
            Verdict(
                limit="max_cuda_time", outcome="passed", metric="cuda_time", unit="us",
                measured=measured, allowed=allowed, low=measured - 1, high=measured + 1,
            ),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        (150.0, []),
        (99.0, ["allows 200.0us, needs 99.0us"]),
    ],
)
def test_a_time_that_needs_less_than_half_of_its_limit_is_loose(
    measured: float, told: list[str]
) -> None:
    found = summary_of(Run((Test("t.py::t", (timed_limit(measured, 200.0),)),)))
    assert [one.words for one in found.hints] == told


def test_a_count_below_its_limit_is_loose_by_the_largest_of_all_parameters() -> None:
    of = [
        Test(f"t.py::t[{n}]", (mlp(counted("kernels", n), verdicts=(limit("passed", 12, n),)),))
        for n in (7, 9)
    ]
    assert summary_of(Run(tuple(of))).hints == (("t", "max_kernels", "allows 12, needs 9"),)


def test_a_margin_that_tests_share_is_that_of_the_slowest() -> None:
    def of(name: str, ratio: float) -> Test:
        before = profile([kernel(MUL, "aten::mul", us=100.0, source="mlp.py:31")])
        now = profile([kernel(MUL, "aten::mul", us=100.0 * ratio, source="mlp.py:31")])
        pairs = (TimedPair(None, ratio, 12, 100.0, 100.0 * ratio),) * 4
        found = ProfileComparison(
            source="revision",
            test=f"t.py::{name}",
            change="worse",
            kernels=diff_profiles(before, now),
            paired=Paired("worse", ratio=ratio, pairs=pairs, agreeing=4),
        )
        return Test(f"t.py::{name}", (held_to(now, found),), outcome="failed")

    main = RunComparison(source="revision", name="main (abc1234)")
    (problem,) = summary_of(
        Run((of("test_a", 1.21), of("test_b", 1.31)), baselines=(main,))
    ).problems
    assert problem.tests == 2
    assert problem.remedy.intended == (
        "if intended, allow kernelprof(margin='35%') until main has this change"
    )
