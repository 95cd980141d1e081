"""Parts of a run together: every test once, and what was not finished keeps its file's name."""

from __future__ import annotations

from msgspec.structs import replace
from records import H200, around, calls_of, profile

from pytest_kernelprof.baselines.run_documents import compare_runs, merge_runs
from pytest_kernelprof.comparison.judge import allowances
from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.records.comparison import (
    ProfileComparison,
    RunComparison,
    SnapshotReport,
    Source,
)
from pytest_kernelprof.records.document import Run, Test, pack, unpack
from pytest_kernelprof.records.profile import Verdict
from pytest_kernelprof.summary.comparisons import comparisons_of


def part(*ids: str, unfinished: tuple[str, ...] = ()) -> Run:
    tests = tuple(map(Test, ids))
    return Run(tests, "2026-11-22T08:00:00Z", {"pytest": "9.2.0"}, unfinished=unfinished)


def test_all_tests_of_all_parts_in_their_order() -> None:
    merged, twice = merge_runs({"a": part("1", "2"), "b": part("3")})
    assert ([test.id for test in merged.tests], twice) == (["1", "2", "3"], ())


def test_what_several_have_is_the_last_ones_and_told() -> None:
    again = Run((Test("2", outcome="failed"),), "2026-11-22T07:00:00Z", {"pytest": "9.1.0"})
    merged, twice = merge_runs({"a": part("1", "2"), "b": again})
    assert [(test.id, test.outcome) for test in merged.tests] == [("1", "passed"), ("2", "failed")]
    assert twice == ("2",)
    assert (merged.began, merged.versions) == (again.began, {"pytest": "9.2.0, 9.1.0"})


def test_a_test_that_ran_again_in_one_part_is_no_double() -> None:
    run = Run((Test("1", outcome="rerun"), Test("1")), "2026-11-22T08:00:00Z", {})
    merged, twice = merge_runs({"a": run})
    assert ([test.outcome for test in merged.tests], twice) == (["passed"], ())


def test_parts_of_gpus_with_other_power_limits_are_compared_each_with_its_own() -> None:
    def taken(*watts: int) -> dict[str, Run]:
        limits = (replace(H200, power_limit_w=one) for one in watts)
        tests = (
            Test(str(i), (profile([], [around("cuda_time", 100)], environment=one),))
            for i, one in enumerate(limits)
        )
        return {test.id: Run((test,)) for test in tests}

    (old, _), (new, _) = merge_runs(taken(700, 700)), merge_runs(taken(700, 600))
    assert len(pack(new).environments) == 2
    found = compare_runs([unpack(pack(old))], unpack(pack(new)), allowances(()))
    assert [one.untimed for one in found.profiles] == ["", "power limit 700 W -> 600 W"]


SOURCES: tuple[Source, ...] = ("snapshot", "revision", "run")


def judged(test: str, *, before: str = "2026-11-21T08:00:00Z", gone: tuple[str, ...]) -> Run:
    """A part that has compared its one test in every way."""
    diff = diff_profiles(calls_of(1), calls_of(1))
    verdicts = tuple(
        Verdict(
            limit="compare",
            outcome="passed",
            comparison=ProfileComparison(source=source, test=test, kernels=diff),
        )
        for source in SOURCES
    )
    snapshot = SnapshotReport(file="t.py", device="cpu", key=test, state="same")
    return Run(
        (Test(test, (calls_of(1, verdicts=verdicts),), snapshot=snapshot),),
        baselines=(
            RunComparison(
                source="revision",
                name="main",
                notes=("as it is",),
                profiles=(ProfileComparison(source="revision", test=f"{test}b"),),
            ),
            RunComparison(source="snapshot", gone=(f"cpu: t.py::old_{test}",)),
            RunComparison(
                source="run",
                name="old.json",
                began=before,
                gone=gone,
                fresh=(test,),
                nowhere=("cuda_time", *gone),
            ),
        ),
    )


def test_comparisons_with_what_was_before_are_of_all_tests_together() -> None:
    parts = {"a": judged("a", gone=("b", "c")), "b": judged("b", gone=("a", "c"))}
    merged, _ = merge_runs(parts)
    assert unpack(pack(merged)) == merged
    assert merged.baselines == (
        RunComparison(
            source="revision",
            name="main",
            notes=("as it is",),
            profiles=tuple(
                ProfileComparison(source="revision", test=test) for test in ("ab", "bb")
            ),
        ),
        RunComparison(source="snapshot", gone=("cpu: t.py::old_a", "cpu: t.py::old_b")),
        RunComparison(
            source="run",
            name="old.json",
            began="2026-11-21T08:00:00Z",
            gone=("c",),
            fresh=("a", "b"),
            nowhere=("cuda_time", "c"),
        ),
    )
    for source in SOURCES:
        assert [one.test for one in comparisons_of(merged, source)] == ["a", "b"]
    assert merge_runs({"x": part("1")})[0].baselines == ()


def test_a_test_that_failed_in_one_part_is_told_as_the_last_part_has_it() -> None:
    failed = ProfileComparison(source="revision", test="a", change="not compared", reason="why")
    revision = RunComparison(source="revision", name="main", profiles=(failed,))
    first, last = Run((Test("a"), Test("b")), baselines=(revision,)), judged("a", gone=())
    for parts, told in (((first, last), ()), ((last, first), (failed,))):
        merged, _ = merge_runs({str(number): part for number, part in enumerate(parts)})
        found = merged.baseline("revision")
        assert found is not None
        assert [one for one in found.profiles if one.test == "a"] == list(told)


def test_parts_that_were_compared_with_different_runs_are_no_one_comparison() -> None:
    other = judged("b", before="2026-11-20T08:00:00Z", gone=())
    merged, _ = merge_runs({"a": judged("a", gone=()), "b": other})
    assert merged.baseline("run") is None
    assert [one.test for one in comparisons_of(merged, "run")] == ["a", "b"]


def test_what_was_not_finished_says_in_which_part() -> None:
    merged, _ = merge_runs({"a": part("1"), "b": part("2", unfinished=("interrupted",))})
    assert merged.unfinished == ("b: interrupted",)
