"""Each test counts once, and what was not judged is no success."""

from __future__ import annotations

from typing import Any

import pytest
from records import MLP, comparison, counted, held_to, mlp, profile, timed

from pytest_kernelprof.records.comparison import (
    Change,
    MetricDelta,
    ProfileComparison,
    RunComparison,
)
from pytest_kernelprof.records.document import Run, Test, TestOutcome
from pytest_kernelprof.records.profile import Profile, Status, Verdict
from pytest_kernelprof.records.recording import Integrity
from pytest_kernelprof.summary.run import summary_of


def kernels(outcome: Status = "passed", allowed: float = 9) -> Verdict:
    return Verdict(
        limit="max_kernels", outcome=outcome, metric="kernels", unit="count",
        measured=5, allowed=allowed, why="needs a GPU" if outcome == "not judged" else "",
    )  # fmt: skip


def faster(outcome: Status) -> Verdict:
    return Verdict(
        limit="is_faster", outcome=outcome, metric="cuda_time", unit="times",
        measured=1.2, allowed=1.5,
    )  # fmt: skip


def one(*verdicts: Verdict) -> Profile:
    return mlp(timed("cuda_time", [50.0]), counted("launches", 5), verdicts=verdicts)


def test_a_try_that_was_repeated_is_in_no_total_and_not_among_the_hottest() -> None:
    tries = [Test("t.py::t", (one(),), outcome="rerun"), Test("t.py::t", (one(),))]
    found = summary_of(Run(tuple(tries)))
    assert found.suite == "5 kernels, 50.0us on the GPU"
    assert [kernel.calls for kernel in found.hottest] == [3, 1, 1]
    assert found.integrity == "2 profiles"  # each was taken


def test_what_a_later_attempt_judged_was_judged() -> None:
    again = Test("t.py::t", (one(kernels()),), outcome="rerun")
    found = summary_of(Run((again, Test("t.py::t", (one(kernels()),)))))
    assert (found.sentence, found.overall) == (
        "1 of 1 test is within its limits; 1 retried.",
        "passed",
    )


@pytest.mark.parametrize("ended", ["failed", "error", "skipped", "xfailed"])
def test_what_a_test_took_that_did_not_pass_tightens_no_limit(ended: TestOutcome) -> None:
    well = Test("t.py::t[1]", (one(kernels()),))
    assert [one.test for one in summary_of(Run((well,))).hints] == ["t"]
    other = Test("t.py::t[2]", (one(kernels()),), outcome=ended)
    assert not summary_of(Run((well, other))).hints


def test_where_no_test_passes_the_undecided_do_not_hide_the_incomplete() -> None:
    undecided = Test("t.py::a", (one(kernels("undecided")),))
    incomplete = Test("t.py::b", (one(kernels("incomplete")),), outcome="error")
    found = summary_of(Run((undecided, incomplete)))
    assert found.sentence == "1 of 2 tests is undecided; 1 incomplete."


def compares(
    verdict: Status, outcome: TestOutcome = "passed", profiles: tuple[Profile, ...] = ()
) -> Test:
    """A test with a comparison that has this verdict."""
    one = comparison(verdicts=(faster(verdict),))
    return Test("t.py::t", profiles, outcome, comparisons=(one,))


@pytest.mark.parametrize(
    ("tests", "sentence"),
    [
        ([], "No test has a profile."),
        ([Test("t.py::t", (), comparisons=(comparison(),))], "No test has a limit."),
        ([Test("t.py::t", (), comparisons=(comparison(),)), Test("t.py::u", (profile(MLP),))],
         "No test has a limit, 1 test has a profile."),
        ([compares("passed")],
         "1 of 1 test is within its limits."),
        ([compares("failed", "failed")],
         "1 of 1 test breaks a limit."),
        ([compares("failed", "failed", profiles=(one(kernels()),))],
         "1 of 1 test breaks a limit."),
        ([compares("passed", "failed")],
         "1 of 1 test failed."),
        ([compares("failed", "rerun"),
          compares("passed")],
         "1 of 1 test is within its limits; 1 retried."),
    ],
)  # fmt: skip
def test_what_was_asserted_of_a_comparison_is_a_limit(tests: list[Test], sentence: str) -> None:
    assert summary_of(Run(tuple(tests))).sentence == sentence


@pytest.mark.parametrize(
    ("worse", "over", "sentence"),
    [
        ("a", "a", "1 of 2 tests is worse than main (abc1234) and breaks a limit."),
        ("ab", "ab", "2 of 2 tests are worse than main (abc1234) and break a limit."),
        ("ab", "a", "1 of 2 tests breaks a limit, 2 of 2 tests are worse than main (abc1234)."),
        ("a", "b", "1 of 2 tests breaks a limit, 1 of 2 tests is worse than main (abc1234)."),
    ],
)
def test_tests_that_break_a_limit_and_are_worse_are_told_once(
    worse: str, over: str, sentence: str
) -> None:
    def of(name: str) -> Test:
        change: Change = "worse" if name in worse else "same"
        more = MetricDelta(name="kernels", baselines=(4,), current=5, change=change, judged=True)
        found = ProfileComparison(
            source="revision", test=f"t.py::{name}", change=change, metrics=(more,)
        )
        taken = held_to(one(kernels("failed" if name in over else "passed")), found)
        failed = name in worse + over
        return Test(f"t.py::{name}", (taken,), outcome="failed" if failed else "passed")

    base = RunComparison(source="revision", name="main (abc1234)")
    run = Run((of("a"), of("b")), baselines=(base,))
    assert summary_of(run).sentence == sentence


@pytest.mark.parametrize(
    ("outcome", "ended", "sentence", "overall"),
    [
        ("passed", "passed", "1 of 1 test is within its limits.", "passed"),
        ("expected failure", "xfailed", "No limit applied; 1 expected failure.", "passed"),
        ("passed", "skipped", "No limit applied; 1 skipped.", "not judged"),
        ("not judged", "passed", "0 of 1 test is within its limits; 1 not judged, max_kernels "
         "not judged in 1 test (needs a GPU).", "not judged"),
        ("passed", "not run", "0 of 1 test is within its limits; 1 not judged.", "not judged"),
        ("failed", "passed", "1 of 1 test breaks a limit.", "undecided"),
        ("failed", "failed", "1 of 1 test breaks a limit.", "failed"),
        ("incomplete", "error", "1 incomplete, 0 of 1 test is within its limits.", "failed"),
    ],
)  # fmt: skip
def test_a_run_has_passed_only_if_something_was_judged_and_nothing_is_left(
    outcome: Status, ended: TestOutcome, sentence: str, overall: str
) -> None:
    found = summary_of(Run((Test("t.py::t", (one(kernels(outcome)),), outcome=ended),)))
    assert (found.sentence, found.overall) == (sentence, overall)


@pytest.mark.parametrize(
    ("change", "more", "sentence", "overall"),
    [
        ("same", {}, "None of 1 test is worse than main (abc1234).", "passed"),
        ("changed", {}, "None of 1 test is worse than main (abc1234).", "passed"),
        ("undecided", {}, "None of 1 test is worse than main (abc1234); 1 undecided (not failing).",
         "undecided"),
        ("same", {"lost": ("syncs",)},
         "None of 1 test is worse than main (abc1234); 1 incomplete.", "failed"),
        ("not compared", {"reason": "cold"}, "No test could be compared with main (abc1234).",
         "failed"),
    ],
)  # fmt: skip
def test_a_baseline_is_judged_as_limits_are(
    change: Change, more: dict[str, Any], sentence: str, overall: str
) -> None:
    found = ProfileComparison(source="revision", test="t.py::t", change=change, **more)
    base = RunComparison(source="revision", name="main (abc1234)")
    run = Run((Test("t.py::t", (held_to(mlp(), found),)),), baselines=(base,))
    assert (summary_of(run).sentence, summary_of(run).overall) == (sentence, overall)


def test_a_test_that_is_worse_counts_once_whichever_baseline_it_is_worse_than() -> None:
    kernels = MetricDelta(name="kernels", baselines=(4,), current=5, change="worse", judged=True)
    worse = [
        ProfileComparison(source=source, test="t.py::t", change="worse", metrics=(kernels,))
        for source in ("snapshot", "revision", "run")
    ]
    names = {"revision": "main (abc1234)", "run": "old.json"}
    bases = tuple(RunComparison(source=one, name=name) for one, name in names.items())  # type: ignore[arg-type]
    test = Test("t.py::t", (held_to(mlp(), *worse),), outcome="failed")
    found = summary_of(Run((test,), baselines=bases))
    assert found.sentence == (
        "1 of 1 test exceeds its snapshot, 1 of 1 test is worse than main (abc1234), "
        "1 of 1 profile is worse than old.json."
    )
    (row,) = found.rows
    assert [(one.metric, one.by) for one in row.broken.values()] == [("kernels", "snapshot")]
    assert row.found == (
        "snapshot: kernels 4 -> 5",
        "worse than main: kernels 4 -> 5",
        "worse than the earlier run: kernels 4 -> 5",
    )


def test_a_test_that_was_not_judged_beside_one_that_was_leaves_a_run_not_judged() -> None:
    left = Test("t.py::u", outcome="skipped", limits=("max_kernels",), not_judged="no CUDA device")
    found = summary_of(Run((Test("t.py::t", (one(kernels()),)), left)))
    assert found.sentence == "1 of 2 tests is within its limits; 1 not judged (no CUDA device)."
    assert found.overall == "not judged"


def test_shares_of_the_hottest_are_of_all_kernels_those_of_incomplete_profiles_too() -> None:
    lost = mlp(integrity=Integrity(problems=("lost a kernel",)))
    found = summary_of(Run((Test("t.py::t", (one(),)), Test("t.py::u", (lost,)))))
    assert sum(kernel.share for kernel in found.hottest) == pytest.approx(1)
