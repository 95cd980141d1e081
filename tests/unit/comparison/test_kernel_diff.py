"""How the kernels of a profile differ from those of its baseline."""

from __future__ import annotations

import random
import time
from itertools import groupby
from typing import Any

import msgspec
import pytest
from corpus import record
from records import CPU, GEMM, LINEAR, MLP, kernel, profile

from pytest_kernelprof.comparison.kernel_diff import diff_profiles, diff_sides
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.comparison import KernelDiff, KernelSide
from pytest_kernelprof.records.profile import Kernel

COPY = kernel("void at::native::direct_copy_kernel(int)", "aten::copy_")
FUSED = kernel("triton_poi_fused_gelu_mul_0", "triton_poi_fused_gelu_mul_0")


def diff(
    old: list[Kernel] | tuple[Kernel, ...], new: list[Kernel] | tuple[Kernel, ...]
) -> KernelDiff:
    return diff_profiles(profile(old), profile(new))


def told(found: KernelDiff) -> list[tuple[str, int, int]]:
    """Kinds of what came or went in each hunk, how often, and where."""
    hunks = [list(hunk) for _, hunk in groupby(found.added_or_removed, key=lambda one: one.hunk)]
    return [(" ".join(one.kind for one in hunk), hunk[0].times, hunk[0].at) for hunk in hunks]


def test_equal_kernels_differ_in_nothing() -> None:
    assert diff(MLP, MLP) == KernelDiff(
        baseline_kernels=5, current_kernels=5, baseline_us=50.0, current_us=50.0
    )


def test_one_kernel_is_where_it_was() -> None:
    assert diff(MLP[:1], MLP[:1]).changes == ()


def test_one_new_kernel_in_five_hundred_is_one_change() -> None:
    old = list(MLP) * 100
    new = [*old[:251], COPY, *old[251:]]
    assert told(diff(old, new)) == [("added", 1, 252)]
    assert told(diff(new, old)) == [("removed", 1, 0)]


def test_equal_changes_of_repeated_layers_are_one_hunk() -> None:
    old = [MLP[0], FUSED, MLP[2], MLP[4]] * 48
    found = diff(old, list(MLP) * 48)
    assert {change.times for change in found.changes} == {48}
    assert sum(one.current.duration_us or 0 for one in found.changes if one.current) == 48 * 20
    assert sum(one.baseline.duration_us or 0 for one in found.changes if one.baseline) == 48 * 10


def test_where_each_new_kernel_stands_is_told_unless_they_are_very_many() -> None:
    layer = [kernel(str(i), str(i)) for i in range(6)]
    more = [*layer[:3], COPY, *layer[3:]]
    twice = [*layer[:3], COPY, COPY, *layer[3:]]
    (change,) = diff(layer * 3, [*more, *twice, *layer]).changes
    assert (change.kind, change.times, change.positions) == ("added", 3, (4, 11, 12))
    (change,) = diff(layer * 1_002, [*more * 1_001, *twice]).changes
    assert (change.times, change.positions) == (1_003, ())


def test_of_kernels_in_another_order_the_fewest_have_moved() -> None:
    letters = [KernelSide(one) for one in "abcdefgh"]
    (change,) = diff_sides(letters, [*letters[1:6], letters[0], *letters[6:]], ordered=True).changes
    assert (change.kind, change.side.name, change.positions) == ("moved", "a", (6,))
    (change,) = diff_sides(letters, [letters[5], *letters[:5], *letters[6:]], ordered=True).changes
    assert (change.kind, change.side.name, change.positions) == ("moved", "f", (1,))


def test_whole_layers_more_are_one_hunk_that_repeats() -> None:
    found = diff(list(MLP) * 10, list(MLP) * 14)
    assert told(found) == [("added added added added added", 4, 51)]


def test_another_tile_of_the_same_product_is_renamed() -> None:
    other = kernel(GEMM.replace("256x128", "192x128"), *LINEAR)
    found = diff(MLP, [*MLP[:2], other, *MLP[3:]])
    assert told(found) == [("renamed", 1, 3)]


def test_another_kernel_under_the_same_operator_replaces_it() -> None:
    other = kernel("my_gelu", "aten::gelu")
    assert told(diff(MLP, [MLP[0], other, *MLP[2:]])) == [("replaced", 1, 2)]


@pytest.mark.parametrize(
    ("operators", "line", "kind"),
    [
        (("aten::gelu",), "m.py:4", ["renamed"]),
        (("aten::gelu",), "m.py:9", ["replaced"]),
        (("aten::silu",), "m.py:9", ["removed", "added"]),
        ((), "m.py:4", ["renamed"]),
        ((), "", ["removed", "added"]),
        (("aten::gelu",), "/new/site-packages/m.py:9", ["renamed"]),
        (("aten::gelu",), "/new/site-packages/other.py:4", ["replaced"]),
    ],
    ids=[
        *("operator and line", "another line", "another operator", "line alone", "neither"),
        *("the file of another environment", "another file"),
    ],
)
def test_where_the_code_is_the_same_operator_and_line_make_one_kernel(
    operators: tuple[str, ...], line: str, kind: list[str]
) -> None:
    """Another compiler may name it otherwise. A kernel that Triton launches has no operator."""
    own = ("aten::gelu",) if operators else ()
    old = profile([MLP[0], kernel("add_kernel_0d1d2de", *own, source=line and "m.py:4"), *MLP[2:]])
    new = profile([MLP[0], kernel("fused_add", *operators, source=line), *MLP[2:]])
    assert [one.kind for one in diff_profiles(old, new, one_code=True).changes] == kind
    assert "renamed" not in [one.kind for one in diff_profiles(old, new).changes]


def test_in_a_graph_names_alone_say_what_stands_for_what() -> None:
    bare = [msgspec.structs.replace(one, operators=()) for one in MLP]
    other = kernel(GEMM.replace("256x128", "192x128"))
    assert told(diff(bare, [*bare[:2], other, *bare[3:]])) == [("renamed", 1, 3)]


@pytest.mark.parametrize(
    ("new", "kinds"),
    [
        ([MLP[1], MLP[0], *MLP[2:]], set[str]()),
        ([*MLP[1:], MLP[0]], set[str]()),
        (list(reversed(MLP)), set[str]()),
        ([msgspec.structs.replace(one, stream=9) for one in MLP], set()),
        (
            [msgspec.structs.replace(one, operators=(*one.operators, "my_range")) for one in MLP],
            set(),
        ),
        (
            [msgspec.structs.replace(MLP[0], operators=("aten::addmm",)), *MLP[1:]],
            {"operator"},
        ),
        (
            [msgspec.structs.replace(one, name=one.name.replace("<4", "<(int)4")) for one in MLP],
            set(),
        ),
    ],
    ids=["swapped", "moved", "reversed", "stream", "a range", "another caller", "demangled"],
)
def test_what_is_moved_or_called_otherwise_neither_comes_nor_goes(
    new: list[Kernel], kinds: set[str]
) -> None:
    found = diff(MLP, new)
    assert found.added_or_removed == ()
    assert {change.kind for change in found.changes} == kinds


def test_the_number_that_inductor_gives_is_no_change() -> None:
    other = kernel("triton_poi_fused_gelu_mul_7", "triton_poi_fused_gelu_mul_7")
    named = msgspec.structs.replace(other, operators=("Torch-Compiled Region: 0/1",))
    of_old = msgspec.structs.replace(FUSED, operators=named.operators)
    assert diff([*MLP, of_old], [*MLP, named]).changes == ()


def test_rounds_without_one_order_are_compared_as_sets_that_count() -> None:
    old = profile(MLP, variants=(tuple(reversed(MLP)),))
    shuffled = [*MLP, COPY]
    random.Random(0).shuffle(shuffled)
    found = diff_profiles(old, profile(shuffled))
    assert not found.ordered
    assert told(found) == [("added", 1, 0)]


def test_shuffled_kernels_and_some_more_are_told_by_their_number() -> None:
    old = list(MLP) * 30
    new = [*old, COPY, COPY]
    random.Random(1).shuffle(new)
    found = diff(old, new)
    assert [(one.kind, one.times) for one in found.added_or_removed] == [("added", 2)]


@pytest.mark.parametrize(
    ("us", "kind"),
    [(10.0, None), (10.9, None), (11.1, "slower"), (8.8, "faster"), (9.2, None)],
)
def test_a_kernel_that_takes_another_time_is_told_with_both(us: float, kind: str | None) -> None:
    found = diff(MLP, [*MLP[:3], msgspec.structs.replace(MLP[3], duration_us=us), MLP[4]])
    assert times(found) == ([(kind, 1, 10.0, us)] if kind else [])


def times(found: KernelDiff) -> list[tuple[str, int, float, float]]:
    """All changes, with what the kernels of both sides take in all."""
    return [
        (one.kind, one.times, one.baseline.duration_us or 0, one.current.duration_us or 0)
        for one in found.changes
        if one.baseline and one.current
    ]


def test_many_short_kernels_are_slower_together() -> None:
    short = [kernel("k", us=0.5)] * 48
    assert times(diff(short, [kernel("k", us=0.75)] * 48)) == [("slower", 48, 24.0, 36.0)]


def test_another_grid_is_told_whatever_the_time() -> None:
    other = msgspec.structs.replace(MLP[1], grid=(2, 1, 1))
    (change,) = diff(MLP, [MLP[0], other, *MLP[2:]]).retimed
    assert change.baseline
    assert change.current
    assert change.kind == "reconfigured"
    assert (change.baseline.grid, change.current.grid) == ((1, 1, 1), (2, 1, 1))


def test_other_spills_are_told_where_both_sides_know_them() -> None:
    def spilling(spills: int | str | None) -> list[Kernel]:
        return [MLP[0], msgspec.structs.replace(MLP[1], spills=spills), *MLP[2:]]

    (change,) = diff(spilling(0), spilling(7_872)).retimed
    assert change.baseline
    assert change.current
    assert (change.kind, change.times) == ("reconfigured", 1)
    assert (change.baseline.spills, change.current.spills) == (0, 7_872)
    for one, other in ((0, 0), (None, 7_872), (0, "not compiled by Triton"), (7_872, None)):
        assert not diff(spilling(one), spilling(other)).retimed


@pytest.mark.parametrize(
    "unknown",
    [{"grid": (0, 0, 0)}, {"block": (0, 0, 0)}, {"registers": 0}, {"shared_memory": None}],
)
def test_what_one_side_does_not_know_of_a_launch_is_no_change(unknown: dict[str, Any]) -> None:
    known = [msgspec.structs.replace(one, block=(128, 1, 1), registers=32) for one in MLP]
    less = [msgspec.structs.replace(one, **unknown) for one in known]
    other = [msgspec.structs.replace(one, **{"grid": (2, 1, 1), **unknown}) for one in known]
    assert not diff(known, less).retimed
    assert not diff(less, less).retimed
    changes = {one.kind for one in diff(known, other).retimed}
    assert changes == (set() if "grid" in unknown else {"reconfigured"})


def test_where_times_are_no_comparison_none_is_told() -> None:
    slow = [msgspec.structs.replace(one, duration_us=99.0, registers=64) for one in MLP]
    found = diff_profiles(profile(MLP), profile(slow), noticed=None)
    assert found == KernelDiff(baseline_kernels=5, current_kernels=5)


def test_what_both_ran_on_the_cpu_are_operators() -> None:
    on_cpu = profile(MLP, environment=CPU)
    assert diff_profiles(on_cpu, on_cpu).what == "operators"
    assert diff_profiles(profile(MLP), on_cpu).what == "kernels"


def test_moves_that_are_too_many_are_counted() -> None:
    sides = [KernelSide(f"k{i}") for i in range(600)]
    found = diff_sides(sides, sides[::-1], ordered=True)
    assert (len(found.changes), found.left_out) == (200, 399)


def test_those_that_are_too_many_are_counted() -> None:
    new = [kernel(f"my_{i}", f"mine::f{i}") for i in range(230)]
    found = diff([], new)
    assert (len(found.changes), found.left_out) == (200, 30)


def step(number: int, kernels: list[Kernel]) -> list[Kernel]:
    """As torch.profiler's schedule annotates them; what a backward pass launches is outside."""
    name = f"ProfilerStep#{number}"
    inside = [msgspec.structs.replace(k, operators=(*k.operators, name)) for k in kernels[:-1]]
    return [*inside, kernels[-1]]


def test_the_profilers_own_steps_are_compared_one_by_one() -> None:
    odd = [COPY, *MLP]
    old = [*step(3, odd), *step(4, list(MLP)), *step(5, list(MLP))]
    new = [one for i in range(5) for one in step(i, [*MLP[:2], COPY, *MLP[2:]])]
    found = diff(old, new)
    assert (found.baseline_steps, found.current_steps) == (3, 5)
    assert (found.baseline_kernels, found.current_kernels) == (5, 6)
    assert told(found) == [("added", 1, 3)]


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ("mlp", "mlp", []),
        ("compiled", "mlp", ["added", "added", "removed"]),
        ("decode", "compiled_graphs", ["added", "added", "removed", "removed"]),
        ("empty", "linear", ["added"]),
        ("view", "empty", []),
    ],
)
def test_recorded_profiles_differ_in_what_they_launch(old: str, new: str, kinds: list[str]) -> None:
    found = diff_profiles(record(old), record(new))
    assert sorted(change.kind for change in found.added_or_removed) == kinds
    assert codec.decode(codec.encode(found), KernelDiff) == found


def test_ten_times_as_many_kernels_take_no_more_than_in_proportion() -> None:
    def seconds(size: int) -> float:
        draw = random.Random(0)
        old = list(MLP) * (size // 5)
        new = [COPY if draw.random() < 0.05 else one for one in old]
        first, second = profile(old), profile(new)
        started = time.process_time()
        diff_profiles(first, second)
        return time.process_time() - started

    small = min(seconds(1_000) for _ in range(3))
    assert seconds(10_000) < 50 * max(small, 1e-3)


def test_what_stands_for_what_is_bounded_in_hunks_of_any_size() -> None:
    old = [kernel(f"a{i}", f"aten::f{i % 50}") for i in range(3_000)]
    new = [kernel(f"b{i}", f"aten::f{i % 50}") for i in range(3_000)]
    started = time.process_time()
    found = diff(old, new)
    assert time.process_time() - started < 5
    assert {change.kind for change in found.changes} == {"replaced"}
