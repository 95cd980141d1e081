"""Which rows there are of what is another than before, and what a comparison comes to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from records import H200, MIXED, MLP, MUL, around, calls_of, kernel, profile, timed

from pytest_kernelprof.against.verdict import judge
from pytest_kernelprof.baseline.allowance import allowances, parse_allowance
from pytest_kernelprof.baseline.runs import compare_runs
from pytest_kernelprof.digest.base import changes_against, changes_of_runs
from pytest_kernelprof.digest.changes import Changed
from pytest_kernelprof.digest.changes_verdict import (
    notes_of,
    turns_words,
    why_not_compared,
    why_runs_fail,
)
from pytest_kernelprof.schema.against import AgainstTest, Done
from pytest_kernelprof.schema.run import Integrity, Profile, Run, Test
from pytest_kernelprof.schema.runs import RunsComparison

EXTRA = (*MLP, kernel(MUL, "aten::mul", source="pkg/mlp.py:31"))


def compared(olds: dict[str, Profile], news: dict[str, Profile], *fail_on: str) -> RunsComparison:
    old, new = (
        Run(tuple(Test(f"t.py::{name}", (one,)) for name, one in side.items()))
        for side in (olds, news)
    )
    return compare_runs([old], new, allowances(tuple(map(parse_allowance, fail_on))))


def rows_of(found: RunsComparison) -> tuple[Changed, ...]:
    return changes_of_runs(found, "old.json").rows


def results(found: RunsComparison) -> dict[str, str]:
    return {one.test.rpartition("::")[2]: one.result for one in rows_of(found)}


def sentence(found: RunsComparison) -> str:
    return changes_of_runs(found, "old.json").sentence


def of(us: float, kernels: int = 5) -> Profile:
    return calls_of(kernels, around("cuda_time", us))


def test_each_row_says_what_became_of_it() -> None:
    found = compared(
        {"more": of(100), "slow": of(100), "few": of(100), "same": of(100), "perhaps": of(100)},
        {
            "more": of(100, 6),
            "slow": of(200),
            "few": of(100, 4),
            "same": of(100),
            "perhaps": profile(MLP, [timed("cuda_time", [100] * 5 + [200] * 7)]),
        },
    )
    assert results(found) == {
        "more": "worse",
        "slow": "not judged",
        "few": "better",
        "perhaps": "undecided",
    }
    assert [one.result for one in rows_of(found)] == ["worse", "not judged", "undecided", "better"]
    assert sentence(found) == (
        "1 of 5 profiles is worse than old.json; 1 worse (not checked), 1 undecided, 1 better, "
        "1 unchanged."
    )
    assert why_runs_fail(found) == "kernels rose in 1 profile, launches rose in 1 profile"


def test_what_is_judged_decides_before_what_is_only_looked_at() -> None:
    def both(cuda: float, host: Profile | None = None, latency: float = 100) -> Profile:
        return profile(MLP, [around("cuda_time", cuda), around("latency", latency)])

    faster = compared({"a": both(200)}, {"a": both(100, latency=112)}, "cuda_time:5%")
    assert results(faster) == {"a": "better"}
    slower = compared({"a": both(100)}, {"a": both(200)}, "latency:5%")
    assert results(slower) == {"a": "not judged"}


def test_nothing_worse_is_a_sentence_too() -> None:
    one = compared({"a": of(100)}, {"a": of(100)})
    assert sentence(one) == "The only profile is no worse than old.json; 1 unchanged."
    two = compared({"a": of(100), "b": of(100)}, {"a": of(100), "b": of(100)})
    assert sentence(two) == "None of 2 profiles is worse than old.json; 2 unchanged."
    none = compared({"a": of(100)}, {"b": of(100)})
    assert sentence(none) == "No profile could be compared with old.json."
    assert why_runs_fail(none) == "nothing was compared"


@pytest.mark.parametrize("reached", [("pkg/mlp.py",), ()])
def test_a_test_that_was_not_compared_has_a_row_that_says_why(reached: tuple[str, ...]) -> None:
    done = Done("t.py::a", Test("t.py::a", (profile(MLP),)), reached=reached)
    found = judge("t.py::a", [profile(EXTRA)], done)
    rows = changes_against("main", [found]).rows
    assert [one.result for one in rows] == ["worse" if reached else "not compared"]
    if not reached:
        assert rows[0].reasons == "no file of the revision is reached by the test: only tests are"
        assert rows[0].values == {}
    else:
        assert (rows[0].values["kernels"].old, rows[0].values["kernels"].new) == (5, 6)
        assert [(one.sign, one.text) for one in rows[0].causes] == [
            ("+", "vectorized_elementwise [mul], from aten::mul")
        ]


def test_reasons_are_told_once_with_the_tests_that_they_hold_for() -> None:
    tests = [
        AgainstTest("a", "not compared", "cold", notes=("other software: x",)),
        AgainstTest("b", "cannot run", "ImportError"),
        AgainstTest("c", "not compared", "cold"),
        AgainstTest("d", "worse", "ignored"),
    ]
    assert why_not_compared(tests) == {"cold": ("a", "c"), "ImportError": ("b",)}
    assert notes_of(tests) == {"other software: x": ("a",)}
    assert turns_words(tests) == ""


def test_why_nothing_fails_or_is_decided_is_said() -> None:
    newer = {**H200.versions, "torch": "2.12.0"}
    other = replace(of(100, 6), environment=replace(H200, versions=newer))
    (row,) = rows_of(compared({"a": of(100)}, {"a": other}))
    assert (row.result, row.why) == ("not judged", "not judged: torch 2.11.0+cu130 -> 2.12.0")
    cold = {"one_shot": True, "integrity": Integrity(cold=("Lazy Function Loading",))}
    blocks = (replace(of(100, number), **cold) for number in (5, 6))
    old, new = blocks
    (row,) = rows_of(compared({"a": old}, {"a": new}))
    assert (row.result, row.why) == ("undecided", "a block that ran once, and was cold")
    for rounds, why in (
        ([100 + 100 * (i > 4) for i in MIXED], "100.0us to 200.0us at 99 %"),
        ([200], "its rounds are too few, or too alike, for an interval"),
    ):
        now = profile(MLP, [timed("cuda_time", rounds)])
        (row,) = rows_of(compared({"a": of(100)}, {"a": now}, "cuda_time:5%"))
        assert (row.result, row.why) == ("undecided", f"cuda_time undecided: {why}")


def test_other_kernels_at_equal_counts_are_changed_and_named() -> None:
    other = replace(profile(MLP), kernels=(*MLP[:-1], kernel("other", "aten::mm")))
    done = Done("t.py::a", Test("t.py::a", (profile(MLP),)), reached=("pkg/mlp.py",))
    revision = changes_against("main", [judge("t.py::a", [other], done)])
    earlier = changes_of_runs(compared({"a": profile(MLP)}, {"a": other}), "old.json")
    for found in (revision, earlier):
        (row,) = found.rows
        assert (row.result, row.reasons) == (
            "changed",
            "other: was nvjet 256x128x64 TNT",
        )
        assert found.told == "1 changed (other kernels, same counts), same number of kernels"
