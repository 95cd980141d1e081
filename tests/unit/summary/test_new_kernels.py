"""Which kernels are new or slower since a baseline or break a limit, and whether that can be told
of each."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import CPU, GELU, MLP, MUL, held_to, kernel, of_ranks, profile

from pytest_kernelprof.baselines.snapshots import compare, kept_of
from pytest_kernelprof.comparison.judge import made_with
from pytest_kernelprof.comparison.kernel_diff import MOST_CHANGES, diff_profiles
from pytest_kernelprof.records.comparison import ProfileComparison, Source
from pytest_kernelprof.records.profile import (
    Copy,
    Hit,
    Kernel,
    Mismatch,
    Profile,
    Verdict,
    Wait,
)
from pytest_kernelprof.summary.kernels import (
    NewKernels,
    new_kernels,
    slower_kernels,
)
from pytest_kernelprof.summary.verdicts import (
    offending_calls,
    offending_kernels,
)


def against_snapshot(old: list[Kernel], new: list[Kernel]) -> NewKernels | None:
    before, after = profile(old), profile(new)
    found = compare(kept_of(before), made_with(before.environment), after)
    return new_kernels(held_to(after, replace(found, change="worse")))


def compared(old: list[Kernel], new: list[Kernel], source: Source = "run") -> ProfileComparison:
    kernels = diff_profiles(profile(old), profile(new))
    return ProfileComparison(source=source, test="t", change="worse", kernels=kernels)


def against_a_run(old: list[Kernel], new: list[Kernel]) -> NewKernels | None:
    return new_kernels(held_to(profile(new), compared(old, new)))


MUL_ALONE = kernel(MUL, "aten::mul")
COPY = kernel(
    "void at::native::elementwise_kernel<128, direct_copy_kernel_cuda>(int)", "aten::copy_"
)
COPY_AT_7 = replace(COPY, source="mlp.py:7")


def test_each_that_is_new_is_known_by_its_position() -> None:
    old = list(MLP)
    new = [*MLP[:3], COPY, *MLP[3:], kernel(MUL, "aten::mul")]
    for found in (against_snapshot(old, new), against_a_run(old, new)):
        assert found is not None
        assert found.marks == {3: "+", 6: "+"}
        assert found.gone == ()


def test_of_those_that_repeat_each_is_known_also_where_others_of_their_kind_stand() -> None:
    old = list(MLP) * 3
    for one in (COPY, kernel(MUL, "aten::mul")):
        new = [*MLP, one] * 3
        for found in (against_snapshot(old, new), against_a_run(old, new)):
            assert found is not None
            assert found.marks == {5: "+", 11: "+", 17: "+"}


def test_where_it_cannot_be_told_which_of_equal_neighbours_is_new_each_is_in_doubt() -> None:
    one, other = (kernel(MUL, "aten::mul", source=f"mlp.py:{line}") for line in (7, 8))
    old = [*MLP[:3], one, MLP[4]]
    of_one_line = against_a_run(old, [*MLP[:3], one, one, MLP[4]])
    assert of_one_line is not None
    assert of_one_line.marks == {4: "+"}
    for make in (against_snapshot, against_a_run):
        found = make(old, [*MLP[:3], one, other, MLP[4]])
        assert found is not None
        assert found.marks == {3: "?", 4: "?"}
        assert found.gone == ()


def test_of_a_line_that_several_may_be_at_each_is_in_doubt_whatever_called_its_operator() -> None:
    one = kernel(MUL, "aten::mul", source="mlp.py:7")
    other = kernel(MUL, "aten::mul", "aten::baddbmm", source="mlp.py:8")
    (change,) = diff_profiles(profile([one]), profile([one, other])).changes
    assert change.lines == ("7", "8")
    found = against_a_run([one], [one, other])
    assert found is not None
    assert found.marks == {0: "?", 1: "?"}


def test_equal_ones_that_stand_elsewhere_are_not_in_doubt() -> None:
    one, other = (kernel(MUL, "aten::mul", source=f"mlp.py:{line}") for line in (7, 8))
    old = [one, *MLP[:3], one, MLP[4]]
    found = against_a_run(old, [one, *MLP[:3], one, other, MLP[4], COPY])
    assert found is not None
    assert found.marks == {4: "?", 5: "?", 7: "+"}


def test_the_positions_of_a_diff_have_those_that_are_in_doubt() -> None:
    one, other = (kernel(MUL, "aten::mul", source=f"mlp.py:{line}") for line in (7, 8))
    (change,) = (diff := diff_profiles(profile([one]), profile([one, other]))).changes
    assert change.lines == ("7", "8")
    assert diff.new_positions == {at - 1 for at in change.positions}
    assert len(change.positions) == 1


def test_of_more_changes_than_a_diff_names_none_is_told() -> None:
    many = [kernel(f"k{i}", f"op{i}") for i in range(MOST_CHANGES + 1)]
    named = diff_profiles(profile([]), profile(many[1:]))
    assert named.new_positions == frozenset(range(MOST_CHANGES))
    assert diff_profiles(profile([]), profile(many)).new_positions is None


def test_what_another_one_replaces_is_gone_before_it() -> None:
    fused = kernel("triton_poi_fused_gelu_mul_0", us=36.0)
    old = [MLP[0], MLP[2], fused, MLP[4]]
    found = against_a_run(old, [MLP[0], MLP[2], kernel(GELU, "aten::gelu"), MLP[3], MLP[4]])
    assert found is not None
    assert found.source == "run"
    assert found.marks == {2: "+", 3: "+"}
    assert [(one.side.short_name, one.at) for one in found.gone] == [
        ("triton_poi_fused [gelu, mul]", 3)
    ]


def test_the_first_that_is_worse_and_names_kernels_tells() -> None:
    new = [*MLP, COPY]
    held = ProfileComparison(source="snapshot", change="same")
    slower = ProfileComparison(source="snapshot", change="worse")
    main = compared(list(MLP), new, "revision")
    taken = held_to(profile(new), held, slower, main, compared(list(MLP[:4]), new))
    found = new_kernels(taken)
    assert found is not None
    assert (found.source, found.marks) == ("revision", {5: "+"})


def test_of_another_rank_or_beyond_the_kernels_that_are_kept_none_is_told() -> None:
    old, new = [kernel("a")], [kernel("a"), kernel("b")]
    found = replace(compared(old, new), rank=1)
    assert new_kernels(held_to(profile(new), found)) is None
    assert new_kernels(held_to(profile(new, rank=1), found)) is not None
    kept = replace(held_to(profile(new), compared(old, new)), kernels=())
    assert new_kernels(kept) is None


def test_without_a_baseline_there_is_nothing_to_tell() -> None:
    def of(taken: Profile) -> NewKernels | None:
        return new_kernels(held_to(taken, ProfileComparison(source="run", change="worse")))

    assert new_kernels(profile(MLP)) is None
    assert of(profile(MLP, environment=CPU)) is None


def test_those_that_are_slower_are_known_where_all_of_their_kind_are() -> None:
    copy = replace(COPY, duration_us=10.0)
    old = [MLP[0], copy, MLP[1], copy]
    slow = replace(copy, duration_us=30.0)

    def of(new: list[Kernel]) -> frozenset[int]:
        worse = compared(old, new)
        return slower_kernels(held_to(profile(new), worse))

    assert of([MLP[0], slow, MLP[1], slow]) == {1, 3}
    assert of(old) == frozenset()
    assert slower_kernels(profile(old)) == frozenset()


def broken(allowed: float, pattern: str = "", ranks: tuple[int, ...] = ()) -> Verdict:
    return Verdict(
        limit="max_kernels",
        outcome="failed",
        metric="kernels",
        unit="count",
        qualifier=pattern,
        measured=9,
        allowed=allowed,
        ranks=ranks,
    )


def offending(kernels: list[Kernel], *verdicts: Verdict) -> dict[int, str]:
    taken = profile(kernels, verdicts=verdicts)
    return offending_kernels(taken, taken)


def test_of_too_many_kernels_the_most_frequent_kind_offends() -> None:
    several = [*MLP[:2], COPY_AT_7, COPY_AT_7]
    assert offending(several, broken(3)) == dict.fromkeys((2, 3), "launched most often")
    assert offending(several[:3], broken(2)) == {}  # which of them is not known
    assert offending([*MLP[:2], COPY, COPY], broken(3)) == {}  # nor where
    assert offending(several[2:], broken(1)) == dict.fromkeys((0, 1), "launched most often")
    assert offending(several, broken(0)) == dict.fromkeys(range(4), "none is allowed")


def test_of_kernels_of_one_name_at_several_lines_those_of_one_line_are_a_kind() -> None:
    muls = [kernel("mul", "aten::mul", source=f"mlp.py:{line}") for line in (7, 8, 9, 5)]
    two = [kernel("gelu", "aten::gelu", source="mlp.py:9")] * 2
    assert offending([*muls, *two], broken(1)) == dict.fromkeys((4, 5), "launched most often")


def test_of_a_pattern_those_offend_that_it_counts() -> None:
    assert offending([*MLP[:3], COPY, MLP[4]], broken(0, "copy")) == {3: "matches 'copy'"}


def test_where_a_baseline_names_new_kernels_no_kind_is_guessed() -> None:
    new = [*MLP, COPY, COPY]
    taken = held_to(profile(new), compared(list(MLP), new))
    taken = replace(taken, verdicts=(*taken.verdicts, broken(5)))
    assert offending_kernels(taken, taken) == {}


def of_names(limit: str, **facts: Any) -> Verdict:
    return Verdict(limit=limit, outcome="failed", measured=5, **facts)


FORBIDDEN = of_names(
    "forbid_kernels", hits=(Hit(2, MLP[1].short_name, "gelu"), Hit(4, "of a variant", "mul"))
)
UNEXPECTED = of_names(
    "expect_kernels", mismatch=Mismatch(5, 4, MLP[3].short_name, ("aten::mul",), ("add",))
)
LONG = Verdict(
    limit="max_cuda_time", outcome="failed", metric="cuda_time", unit="us", measured=90, allowed=50
)


@pytest.mark.parametrize(
    ("verdict", "whys"),
    [
        (FORBIDDEN, {1: "forbidden"}),
        (UNEXPECTED, {3: "not expected"}),
        (LONG, dict.fromkeys((0, 2, 4), "takes longest")),
        (broken(4), dict.fromkeys((0, 2, 4), "launched most often")),
        (broken(0), dict.fromkeys(range(5), "none is allowed")),
        (broken(0, "gelu"), {1: "matches 'gelu'"}),
    ],
)
def test_each_that_offends_says_why(verdict: Verdict, whys: dict[int, str]) -> None:
    assert offending([replace(one, source="mlp.py:42") for one in MLP], verdict) == whys


def test_what_only_one_rank_launches_says_that() -> None:
    ranks = of_ranks(profile(MLP[:1], rank=0), profile([MLP[0], MUL_ALONE], rank=1))
    taken = replace(ranks, verdicts=(replace(broken(1), measured=2, ranks=(1,)),))
    _, judged = taken.ranks
    assert offending_kernels(taken, judged) == {1: "only on rank 1"}
    assert offending_kernels(taken, taken) == {}


def test_of_several_limits_each_says_why_and_nothing_is_guessed() -> None:
    lined = [replace(one, source="mlp.py:42") for one in MLP]
    assert offending(lined, FORBIDDEN, UNEXPECTED, broken(4)) == {
        1: "forbidden",
        3: "not expected",
    }


def test_of_a_time_that_is_over_the_kind_that_takes_longest_offends() -> None:
    kernels = [kernel(MUL, us=40.0), kernel(GELU, us=90.0), kernel(MUL, us=60.0)]
    over = Verdict(limit="max_cuda_time", outcome="failed", metric="cuda_time", measured=190.0)
    taken = profile(kernels, verdicts=(over,))
    assert offending_kernels(taken, taken) == dict.fromkeys((0, 2), "takes longest")
    kept = replace(taken, verdicts=(replace(over, outcome="passed"),))
    assert offending_kernels(kept, kept) == {}


WAIT = Wait("cudaStreamSynchronize", ("aten::item",))
TO_HOST, TO_DEVICE = (Copy("Memcpy", way, 4, 1.0, ()) for way in ("d2h", "h2d"))


@pytest.mark.parametrize(
    ("metric", "qualifier", "waits", "copies"),
    [
        ("syncs", "", {0}, set()),
        ("memcpys", "", set(), {0, 1}),
        ("memcpys_d2h", "d2h", set(), {0}),
        ("memcpy_bytes_h2d", "h2d", set(), {1}),
        ("kernels", "", set(), set()),
    ],
)
def test_waits_and_copies_offend_where_a_limit_counts_them(
    metric: str, qualifier: str, waits: set[int], copies: set[int]
) -> None:
    over = Verdict(
        limit=f"max_{metric}", outcome="failed", metric=metric, qualifier=qualifier, measured=9
    )
    taken = profile(MLP, waits=(WAIT,), copies=(TO_HOST, TO_DEVICE), verdicts=(over,))
    assert offending_calls(taken, taken) == (waits, copies)


def test_of_several_ranks_only_the_waits_of_the_one_that_is_judged_offend() -> None:
    over = Verdict(
        limit="max_syncs", outcome="failed", metric="syncs", measured=1, allowed=0, ranks=(1,)
    )
    both = of_ranks(profile(MLP, waits=(WAIT,)), profile(MLP, waits=(WAIT,)))
    both = replace(both, verdicts=(over,))
    assert [offending_calls(both, one)[0] for one in both.ranks] == [frozenset(), {0}]
