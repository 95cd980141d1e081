"""Parts of a run together: every test once, and what was not finished keeps its file's name."""

from __future__ import annotations

from msgspec.structs import replace
from records import H200, around, calls_of, profile

from pytest_kernelprof.baseline.allowance import allowances
from pytest_kernelprof.baseline.diff import diff_profiles
from pytest_kernelprof.baseline.merge import merge_runs
from pytest_kernelprof.baseline.runs import compare_runs
from pytest_kernelprof.schema.against import AgainstTest, Compared
from pytest_kernelprof.schema.before import (
    EarlierComparison,
    RevisionComparison,
    SnapshotsComparison,
)
from pytest_kernelprof.schema.packing import pack, unpack
from pytest_kernelprof.schema.run import Run, Test, Verdict
from pytest_kernelprof.schema.runs import ProfileComparison, RunsComparison
from pytest_kernelprof.schema.snapshot import Taken


def part(*ids: str, began: str = "2026-11-22T08:00:00Z", **more: tuple[str, ...]) -> Run:
    return Run(tuple(map(Test, ids)), began, {"pytest": "9.2.0"}, **more)


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
    assert (found.compared, found.untimed) == (2, {"power limit 700 W -> 600 W": 1})


def judged(test: str, *, before: str = "2026-11-21T08:00:00Z", gone: tuple[str, ...]) -> Run:
    """A part that has compared its one test in every way."""
    verdict = Verdict(limit="compare", outcome="kept", comparison=ProfileComparison(test=test))
    taken = Taken(test=test, folder="", file="t.py", device="cpu", key=test, state="held")
    diff = diff_profiles(calls_of(1), calls_of(1))
    return Run(
        (Test(test, (calls_of(1, verdicts=(verdict,)),), snapshot=taken),),
        against=RevisionComparison(
            "main", (), {"same": 1}, (AgainstTest(test, "same", profiles=(Compared("", diff),)),)
        ),
        snapshots=SnapshotsComparison({"held": 1}, ("cpu: t.py::test_old",)),
        earlier=EarlierComparison("old.json", before, RunsComparison(compared=1, gone=gone)),
    )


def test_comparisons_with_what_was_before_are_of_all_tests_together() -> None:
    parts = {"a": judged("a", gone=("b", "c")), "b": judged("b", gone=("a", "c"))}
    merged, _ = merge_runs(parts)
    assert unpack(pack(merged)) == merged
    assert merged.against is not None
    assert merged.against.counts == {"same": 2}
    assert [test.id for test in merged.against.tests] == ["a", "b"]
    assert merged.snapshots == SnapshotsComparison({"held": 2}, ("cpu: t.py::test_old",))
    assert merged.earlier is not None
    assert (merged.earlier.comparison.compared, merged.earlier.comparison.gone) == (2, ("c",))
    assert merge_runs({"x": part("1")})[0].against is None


def test_parts_that_were_compared_with_different_runs_are_no_one_comparison() -> None:
    other = judged("b", before="2026-11-20T08:00:00Z", gone=())
    merged, _ = merge_runs({"a": judged("a", gone=()), "b": other})
    assert merged.earlier is None
    assert [v.limit for t in merged.tests for p in t.profiles for v in p.verdicts] == [
        "compare"
    ] * 2


def test_what_was_not_finished_says_in_which_part() -> None:
    merged, _ = merge_runs({"a": part("1"), "b": part("2", unfinished=("interrupted",))})
    assert merged.unfinished == ("b: interrupted",)
