"""Whether a test is worse than a revision, by what it took on both sides."""

from __future__ import annotations

from typing import Any

import pytest
from records import CPU, H200, MLP, MUL, absent, around, counted, kernel, profile

from pytest_kernelprof.against.verdict import judge
from pytest_kernelprof.report.against import against_line, failure_words, is_failed
from pytest_kernelprof.schema.against import AgainstTest, Done, Laid
from pytest_kernelprof.schema.run import Integrity, Profile, Test

LAID = Laid("main (abc1234)", "/r", "/t", "/f")
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
    assert told.result == "another work"
    assert why in told.why


@pytest.mark.parametrize(
    ("answer", "result", "why"),
    [
        ("the reference died", "cannot run", "the reference died"),
        (Done("a", failure="AttributeError: x"), "cannot run", "AttributeError: x"),
        (Done("a", skipped="no GPU"), "cannot run", "skipped there: no GPU"),
        (Done("a"), "not compared", "no file of the revision is reached"),
    ],
)
def test_why_a_revision_says_nothing(answer: Done | str, result: str, why: str) -> None:
    told = judge("a", [profile(MLP)], answer)
    assert told.result == result
    assert why in told.why


def test_the_line_at_the_end() -> None:
    results = [*["same"] * 3, "worse", "better", "cannot run", "another work", "not compared"]
    tests = [AgainstTest(str(i), one) for i, one in enumerate(results)]  # type: ignore[arg-type]
    assert against_line(LAID, tests) == (
        "against main (abc1234): 5 compared, 1 worse, 1 better, 1 that main cannot run, "
        "1 not compared, 1 not the same work"
    )
    assert is_failed(tests)
    assert not is_failed([AgainstTest("a", "same"), AgainstTest("b", "cannot run")])
    assert is_failed([AgainstTest("a", "cannot run"), AgainstTest("b", "not compared")])
    assert is_failed([])
