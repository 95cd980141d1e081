"""How a run compares with a baseline, in all: results, rows, counts, sums and words."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import H200, MIXED, MLP, MUL, around, calls_of, held_to, kernel, mlp, profile, timed

from pytest_kernelprof.baselines.protocol import Done
from pytest_kernelprof.baselines.run_documents import compare_runs
from pytest_kernelprof.baselines.verdict import judge, not_compared
from pytest_kernelprof.comparison.judge import allowances, parse_allowance
from pytest_kernelprof.records.comparison import (
    LIMIT_OF,
    KernelDiff,
    MetricDelta,
    Paired,
    ProfileComparison,
    RunComparison,
    TimedPair,
)
from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import Profile
from pytest_kernelprof.records.recording import Conditions, Integrity, Neighbour
from pytest_kernelprof.summary.comparisons import (
    BaselineSummary,
    baseline_summaries,
    deltas_of,
    range_words,
    result_of,
    share_of,
    weight_of,
    why_of,
)
from pytest_kernelprof.summary.verdicts import causes_of_diff

EXTRA = (*MLP, kernel(MUL, "aten::mul", source="pkg/mlp.py:31"))
MAIN = "main (abc1234)"


def with_runs(olds: dict[str, Profile], news: dict[str, Profile], *fail_on: str) -> BaselineSummary:
    """Of a run and an earlier one, by the names of their tests."""
    old, new = (
        Run(tuple(Test(f"t.py::{name}", (one,)) for name, one in side.items()))
        for side in (olds, news)
    )
    allowed = allowances(tuple(map(parse_allowance, fail_on)))
    found = compare_runs([old], new, allowed, name="old.json")
    return BaselineSummary(found, found.profiles)


def with_main(*found: ProfileComparison, **more: Any) -> BaselineSummary:
    """Of a run and a revision."""
    return BaselineSummary(RunComparison(source="revision", name=MAIN, **more), found)


def of_main(
    test: str, baseline: int, current: int, paired: Paired | None = None, **more: Any
) -> ProfileComparison:
    """Of so many kernels."""
    metrics: tuple[MetricDelta, ...] = ()
    if baseline != current:
        metrics = (
            MetricDelta(
                name="kernels",
                baselines=(baseline,),
                current=current,
                change="worse" if current > baseline else "better",
                judged=True,
            ),
        )
    usual = metrics[0].change if metrics else paired.change if paired else "same"
    facts: dict[str, Any] = {
        "change": usual,
        "kernels": KernelDiff(baseline_kernels=baseline, current_kernels=current),
        **more,
    }
    return ProfileComparison(
        source="revision", test=f"t.py::{test}", metrics=metrics, paired=paired, **facts
    )


def in_turn(*ratios: float, change: Any = "same", **more: Any) -> Paired:
    """Pairs of processes."""
    pairs = tuple(TimedPair(None, one, 12, 100.0, 100.0 * one) for one in ratios)
    ratio = sum(ratios) / len(ratios)
    return Paired(
        *(change, more.pop("why", ""), ratio), pairs=pairs, baseline_us=100.0,
        current_us=100.0 * ratio, **more,
    )  # fmt: skip


def rows(found: BaselineSummary) -> list[ProfileComparison]:
    """Those that are not the same, worst first."""
    changed = (one for one in found.profiles if result_of(one) != "same")
    return sorted(changed, key=weight_of)


def results(found: BaselineSummary) -> list[tuple[str, str]]:
    return [(one.test.rpartition("::")[2], result_of(one)) for one in rows(found)]


def of(us: float, kernels: int = 5) -> Profile:
    return calls_of(kernels, around("cuda_time", us))


def test_each_row_says_what_became_of_it_worst_first() -> None:
    found = with_runs(
        {"more": of(100), "slow": of(100), "few": of(100), "same": of(100), "perhaps": of(100)},
        {
            "more": of(100, 6),
            "slow": of(200),
            "few": of(100, 4),
            "same": of(100),
            "perhaps": profile(MLP, [timed("cuda_time", [100] * 5 + [200] * 7)]),
        },
    )
    assert results(found) == [
        ("more", "worse"),
        ("slow", "not judged"),
        ("perhaps", "undecided"),
        ("few", "better"),
    ]
    assert found.sentence == "1 of 5 profiles is worse than old.json"
    assert found.words == (
        "1 worse, 1 worse (not checked), 1 undecided, 1 better, 1 unchanged; "
        "1 more and 1 fewer kernels"
    )
    assert found.failure == "kernels rose in 1 profile, launches rose in 1 profile"
    assert (found.fails(warn_only=False), found.fails(warn_only=True)) == (True, False)


def test_what_is_judged_decides_before_what_is_only_looked_at() -> None:
    def both(cuda: float, latency: float = 100) -> Profile:
        return profile(MLP, [around("cuda_time", cuda), around("latency", latency)])

    faster = with_runs({"a": both(200)}, {"a": both(100, latency=112)}, "cuda_time:5%")
    assert results(faster) == [("a", "better")]
    slower = with_runs({"a": both(100)}, {"a": both(200)}, "latency:5%")
    assert results(slower) == [("a", "not judged")]
    assert (slower.failure, slower.fails(warn_only=False)) == ("", False)


def test_nothing_worse_is_a_sentence_too() -> None:
    one = with_runs({"a": of(100)}, {"a": of(100)})
    assert one.sentence == "none of 1 profile is worse than old.json"
    two = with_runs({"a": of(100), "b": of(100)}, {"a": of(100), "b": of(100)})
    assert two.sentence == "none of 2 profiles is worse than old.json"
    assert (one.failure, two.failure) == ("", "")


def test_a_run_of_which_nothing_could_be_compared_has_failed() -> None:
    none = with_runs({"a": of(100)}, {"b": of(100)})
    assert none.sentence == "no profile could be compared with old.json"
    assert none.words == "nothing was compared"
    assert none.failure == "nothing could be compared"
    assert none.fails(warn_only=True)
    unmeasured = with_main()
    assert unmeasured.sentence == (
        f"no test is measured, so nothing is compared with {MAIN} (--kernelprof-all measures each)"
    )
    assert unmeasured.fails(warn_only=True)
    (refused,) = not_compared([mlp()], "the baseline cannot run it: no such test")
    cannot = with_main(replace(refused, test="t.py::new"))
    assert cannot.sentence == f"no test could be compared with {MAIN}"


def test_a_test_has_the_result_of_its_worst_profile_and_each_profile_its_own() -> None:
    found = with_main(
        of_main("it", 5, 5, label="a"),
        of_main("it", 5, 6, label="b"),
        of_main("it", 5, 4, label="c"),
        of_main("it", 5, 5, Paired("undecided", "too few turns"), label="d"),
        of_main("it", 5, 5, Paired("not compared"), label="e", change="same"),
        of_main("other", 5, 5),
    )
    assert [(row.label, result_of(row)) for row in rows(found)] == [
        ("b", "worse"),
        ("d", "undecided"),
        ("c", "better"),
    ]
    assert found.sentence == f"1 of 2 tests is worse than {MAIN}"
    assert found.failure == "1 test is worse than main"
    # Kernels come and go; of no pair is there a time.
    assert found.words == "1 worse, 1 unchanged; 1 more and 1 fewer kernels"
    assert [share_of(row) for row in rows(found)] == [None] * 3


def test_of_one_result_the_largest_changes_come_first() -> None:
    def timed_at(test: str, ratio: float) -> ProfileComparison:
        return of_main(test, 5, 5, in_turn(ratio, change="worse"))

    found = with_main(
        *(of_main("test_10", 5, 6), of_main("test_2", 5, 6), of_main("far", 5, 9)),
        *(timed_at("slow", 1.1), timed_at("slower", 1.2)),
    )
    order = [name for name, _ in results(found)]
    assert order == ["slower", "slow", "far", "test_2", "test_10"]


@pytest.mark.parametrize("reached", [("pkg/mlp.py",), ()])
def test_a_test_that_was_not_compared_has_a_row_that_says_why(reached: tuple[str, ...]) -> None:
    done = Done("t.py::a", Test("t.py::a", (profile(MLP),)), reached=reached)
    found = with_main(*judge([profile(EXTRA)], done))
    (row,) = rows(found)
    assert result_of(row) == "worse" if reached else "not compared"
    if not reached:
        assert why_of(row) == "the test uses no file of the revision, only tests"
        assert deltas_of(row) == {}
        assert found.words == "1 not compared"
    else:
        kernels = deltas_of(row)["kernels"]
        assert (kernels.baseline, kernels.current) == (5, 6)
        assert row.kernels is not None
        assert [(one.sign, one.text) for one in causes_of_diff(row.kernels)] == [
            ("+", "vectorized_elementwise [mul], from aten::mul")
        ]


def test_a_test_without_a_profile_counts_and_has_a_row_with_the_reason_too() -> None:
    broken = of_main(
        "broken", 5, 5, change="not compared", reason="it fails on your code", kernels=None
    )
    base = RunComparison(source="revision", name=MAIN, profiles=(broken,))
    well = Test("t.py::a", (held_to(mlp(), of_main("a", 5, 5)),))
    (found,) = baseline_summaries(
        Run((well, Test("t.py::broken", outcome="failed")), baselines=(base,))
    )
    assert found.words == "1 not compared, 1 unchanged; same number of kernels"
    assert results(found) == [("broken", "not compared")]
    assert found.uncompared == ["t.py::broken: it fails on your code"]


def test_reasons_are_told_once_with_the_tests_that_they_hold_for() -> None:
    def refused(test: str, why: str, **more: Any) -> ProfileComparison:
        return of_main(test, 5, 5, change="not compared", reason=why, **more)

    found = with_main(
        refused("a", "cold", notes=("other software: x",)),
        refused("b", "ImportError"),
        refused("c", "cold"),
        refused("c", "cold", label="profile 2"),
        of_main("d", 5, 6),
        notes=("the submodule is left out",),
    )
    assert found.uncompared == ["t.py::a, t.py::c: cold", "t.py::b: ImportError"]
    assert found.notes == ["t.py::a: other software: x", "the submodule is left out"]


def test_of_a_run_document_each_profile_that_was_not_compared_is_named() -> None:
    lost = replace(of(100), integrity=Integrity(("1 of 5 launches has no kernel",)))
    found = with_runs({"a": of(100), "b": lost}, {"a": of(100), "b": of(100)})
    assert found.uncompared == ["t.py::b: it was incomplete"]
    assert found.words == "1 not compared, 1 unchanged; same number of kernels"


def test_what_only_one_run_has_is_named_and_very_many_are_counted() -> None:
    gone = {f"gone_{i}": of(100) for i in range(7)}
    found = with_runs({"a": of(100), **gone}, {"a": of(100), "new": of(100)})
    first = ", ".join(f"t.py::gone_{i}" for i in range(5))
    assert found.notes == [
        f"only in the earlier run: {first}, and 2 more",
        "only in this run: t.py::new",
    ]


def test_why_nothing_fails_or_is_decided_is_said() -> None:
    newer = {**H200.versions, "torch": "2.12.0"}
    other = replace(of(100, 6), environment=replace(H200, versions=newer))
    found = with_runs({"a": of(100)}, {"a": other})
    (row,) = rows(found)
    differ = "torch 2.11.0+cu130 -> 2.12.0"
    assert (result_of(row), why_of(row)) == ("not judged", f"not judged: {differ}")
    assert found.notes == [
        f"times not compared for 1 profile: {differ}",
        f"differences fail nothing in 1 profile: {differ}",
    ]
    cold = {"one_shot": True, "integrity": Integrity(cold=("Lazy Function Loading",))}
    old, new = (replace(of(100, number), **cold) for number in (5, 6))
    (row,) = rows(with_runs({"a": old}, {"a": new}))
    assert (result_of(row), why_of(row)) == (
        "undecided",
        "not judged: a block ran only once, and was cold",
    )
    for rounds, why in (
        ([100 + 100 * (i > 4) for i in MIXED], "99 % CI 100.0..200.0us"),
        ([200], "its rounds are too few, or too alike, for an interval"),
    ):
        now = profile(MLP, [timed("cuda_time", rounds)])
        (row,) = rows(with_runs({"a": of(100)}, {"a": now}, "cuda_time:5%"))
        assert (result_of(row), why_of(row)) == ("undecided", f"cuda_time undecided: {why}")


def test_other_kernels_at_equal_counts_are_changed_and_named() -> None:
    other = replace(profile(MLP), kernels=(*MLP[:-1], kernel("other", "aten::mm")))
    done = Done("t.py::a", Test("t.py::a", (profile(MLP),)), reached=("pkg/mlp.py",))
    revision = with_main(*judge([other], done))
    earlier = with_runs({"a": profile(MLP)}, {"a": other})
    for found in (revision, earlier):
        (row,) = rows(found)
        assert row.kernels is not None
        (cause,) = causes_of_diff(row.kernels)
        assert (result_of(row), cause.text) == ("changed", "other: was nvjet 256x128x64 TNT")
        assert found.words == "1 changed (other kernels, same counts); same number of kernels"
        assert found.failure == ""


def test_what_the_snapshot_allows_is_accepted_and_fails_nothing() -> None:
    found = with_main(of_main("a", 5, 6, change="changed", accepted=("kernels",)))
    assert (found.words, found.failure) == ("1 accepted by snapshot; 1 more kernel in total", "")


def test_a_judged_metric_that_is_lost_fails_the_run_whoever_warns_of_it() -> None:
    found = with_main(of_main("a", 5, 5, lost=("syncs",)), of_main("b", 5, 5))
    told = "syncs is missing in 1 profile that had it before"
    assert (found.lacking, found.failure) == (told, told)
    asked = with_runs({"a": of(100)}, {"a": of(100)}, "syncs:0")
    assert asked.failure == "no profile has syncs"


def test_times_in_turn_are_told_with_their_range_sum_and_how_many_pairs_agree() -> None:
    slower = in_turn(1.03, 1.05, change="worse", agreeing=2, margin=0.02, took_s=3.0)
    found = with_main(
        of_main("a", 5, 5, slower), of_main("b", 5, 5, in_turn(1.0, margin=0.05, took_s=1.4))
    )
    (row,) = rows(found)
    assert share_of(row) == pytest.approx(0.04)
    assert range_words(row) == "+3.0..+5.0 %"
    assert why_of(row) == "slower in 2 of 2 pairs"
    assert found.words == (
        "1 worse, 1 unchanged; same number of kernels; 2 calls timed (interleaved), "
        "margin 2 to 5 %, their GPU time +2.0 %"
    )


def test_why_times_are_undecided_is_said_what_disturbed_them_first() -> None:
    busy = Conditions(contenders=(Neighbour(7, 50),))
    quiet = in_turn(1.04, change="undecided", why="above half of the margin")
    for paired, why in (
        (quiet, "above half of the margin"),
        (
            replace(quiet, disturbed=busy),
            "CONTENDED: other processes worked on this GPU (pid 7 up to 50 %)",
        ),
    ):
        (row,) = rows(with_main(of_main("a", 5, 5, paired)))
        assert why_of(row) == why


def test_on_the_cpu_operators_are_counted() -> None:
    fewer = KernelDiff(baseline_kernels=5, current_kernels=3, what="operators")
    found = with_main(*(replace(of_main(one, 5, 3), kernels=fewer) for one in "ab"))
    assert found.words == "2 better; 4 fewer operators in total"


def judged(name: str, *metrics: MetricDelta, **more: Any) -> Test:
    found = ProfileComparison(source="run", test=name, metrics=metrics, **more)
    return Test(name, (held_to(mlp(timed("cuda_time", [234.9])), found),))


def delta(name: str, old: float, new: float, change: Any, *, fails: bool) -> MetricDelta:
    return MetricDelta(name=name, baselines=(None, old), current=new, change=change, judged=fails)


def test_a_run_without_a_baseline_compares_with_none() -> None:
    run = Run((Test("t.py::a", (mlp(),)),))
    assert baseline_summaries(run) == ()
    assert run.baseline("revision") is None


def test_what_verdicts_say_is_what_the_run_says() -> None:
    worse = delta("kernels", 4, 5, "worse", fails=True)
    slower = delta("cuda_time", 200.0, 234.9, "worse", fails=False)
    better = delta("kernels", 7, 5, "better", fails=True)
    doubted = delta("cuda_time", 230.0, 234.9, "undecided", fails=True)
    tests = (
        judged("t.py::same"),
        judged("t.py::worse", worse, change="worse"),
        judged("t.py::slower", slower, change="worse"),
        judged("t.py::better", better, change="better"),
        judged("t.py::doubted", doubted, change="undecided"),
        judged("t.py::lost", change="not compared", reason="incomplete"),
    )
    base = RunComparison(source="run", name="old.json", began="2026-11-22T08:50:00Z")
    # Of a test that ran again the last try counts.
    again = replace(judged("t.py::same", worse, change="worse"), outcome="rerun")
    (found,) = baseline_summaries(Run((again, *tests), baselines=(base,)))
    assert results(found) == [
        *(("worse", "worse"), ("slower", "not judged"), ("lost", "not compared")),
        *(("doubted", "undecided"), ("better", "better")),
    ]
    assert (found.base, found.short) == ("old.json (2026-11-22 08:50 UTC)", "old.json")
    assert found.words == (
        "1 worse, 1 worse (not checked), 1 not compared, 1 undecided, 1 better, 1 unchanged"
    )
    assert share_of(rows(found)[1]) == pytest.approx(0.1745)


def test_of_each_kind_of_baseline_there_is_one_summary() -> None:
    both = held_to(
        mlp(),
        of_main("a", 5, 6),
        ProfileComparison(source="environment", test="t.py::a", change="better"),
        ProfileComparison(source="run", test="t.py::a", change="same"),
        ProfileComparison(source="snapshot", test="t.py::a", change="same"),
    )
    bases = tuple(RunComparison(source=one, name=one) for one in LIMIT_OF)
    found = baseline_summaries(Run((Test("t.py::a", (both,)),), baselines=bases))
    assert {one.baseline.source for one in found} == {*LIMIT_OF} - {"snapshot"}  # which has rows
    assert [(one.short, one.words) for one in found] == [
        ("revision", "1 worse; 1 more kernel in total"),
        ("environment", "1 better"),
        ("run", "1 unchanged"),
    ]
