"""Parts of a run together: every test once, and what was not finished keeps its file's name."""

from __future__ import annotations

from msgspec.structs import replace
from records import H200, around, profile

from pytest_kernelprof.baseline.allowance import allowances
from pytest_kernelprof.baseline.merge import merge_runs
from pytest_kernelprof.baseline.runs import compare_runs
from pytest_kernelprof.schema.packing import pack, unpack
from pytest_kernelprof.schema.run import Run, Test


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


def test_what_was_not_finished_says_in_which_part() -> None:
    merged, _ = merge_runs({"a": part("1"), "b": part("2", unfinished=("interrupted",))})
    assert merged.unfinished == ("b: interrupted",)
