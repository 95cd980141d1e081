"""Kernels as rows, diffs side by side, operators as a tree, small pictures."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from records import GELU, GEMM, held_to, kernel
from rounds import Recording, kept, kernels_of, profile_of, run_of

from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.report.html.kernel_names import FullNames, cut, family_of
from pytest_kernelprof.report.html.kernel_rows import MOST_ROWS, side_by_side_of, table_of
from pytest_kernelprof.report.html.operator_tree import tree_of
from pytest_kernelprof.report.html.plots import Rounds, scale_of, strip_of
from pytest_kernelprof.report.html.tests_table import table_rows
from pytest_kernelprof.schema.comparison import (
    KernelChange,
    KernelDiff,
    KernelSide,
    MetricDelta,
    ProfileComparison,
    Source,
)
from pytest_kernelprof.schema.run import KernelGroup, Test, Timeline
from pytest_kernelprof.summary.new_kernels import positions_in
from pytest_kernelprof.summary.run import summary_of


def test_kernels_stand_in_launch_order_with_who_launched_them_and_where() -> None:
    names = FullNames()
    table = table_of(profile_of(4), names, frozenset({3}))
    first, *_, last = table.rows
    assert (first.number, first.name, first.inner, first.outer) == (
        *(1, "nvjet 256x128x64 TNT"),
        *("aten::mm", "aten::linear"),
    )
    assert (first.line, first.size, first.registers) == ("reference_mlp.py:40", "66x2 · 384", 168)
    assert dict(names.all())[first.full] == GEMM
    assert (last.fresh, first.fresh) == (True, False)
    assert sum(row.share for row in table.rows) == pytest.approx(1)
    assert table.kernels == 4


def test_of_very_many_those_that_are_alike_are_one_row() -> None:
    table = table_of(profile_of(MOST_ROWS + 4), FullNames())
    assert table.folded
    assert sum(row.count for row in table.rows) == table.kernels == MOST_ROWS + 4
    assert [row.inner for row in table.rows] == [
        "aten::mm",
        "aten::gelu",
        "aten::mul",
        "aten::copy_",
    ]


def test_kernels_that_were_kept_by_name_alone_count() -> None:
    more = (KernelGroup(GELU, 98_000, 1e6), KernelGroup("own", 1, 3.0))
    table = table_of(replace(profile_of(4), more_kernels=more), FullNames())
    assert table.kernels == 98_005
    assert table.us == pytest.approx(sum(row.us for row in table.rows))


def test_very_many_kinds_are_cut_and_counted() -> None:
    more = tuple(KernelGroup(f"kind_{i}", 1, 1.0) for i in range(300))
    assert table_of(replace(profile_of(0), more_kernels=more), FullNames()).left == 200


def test_long_names_lose_their_middle_and_say_how_much() -> None:
    assert cut("a" * 100_000, 10) == "aaaaa … 99,990 characters … aaaaa"
    assert cut("short", 10) == "short"


@pytest.mark.parametrize(
    ("name", "family"),
    [
        (GEMM, "gemm"),
        (GELU, "elementwise"),
        ("triton_poi_fused_gelu_mul_0", "fused"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64>>()", "attention"),
        ("aten::convolution", "gemm"),
        ("aten::add.Tensor", "elementwise"),
        ("aten::_softmax", "reduce"),
        ("aten::addmm", "gemm"),
        ("void at::native::distribution_elementwise_kernel<normal_kernel>()", "elementwise"),
        ("void layer_norm_kernel()", "reduce"),
        ("my_own_kernel", "other"),
        ("", "other"),
    ],
)
def test_what_kind_of_work_a_kernel_is(name: str, family: str) -> None:
    assert family_of(name) == family


def test_a_diff_has_new_kernels_at_their_places_and_the_same_ones_counted() -> None:
    old, new = profile_of(4), profile_of(4)
    extra = kernel("extra", "aten::mul", us=9.0, source="mlp.py:31")
    new = replace(new, kernels=(*new.kernels[:2], extra, *new.kernels[2:]))
    diff = diff_profiles(old, new)
    found = side_by_side_of(ProfileComparison(source="revision", change="worse", kernels=diff))
    assert found is not None
    assert [(pair.same, pair.current.name if pair.current else None) for pair in found.rows] == [
        (2, None),
        (0, "extra"),
        (2, None),
    ]
    assert found.rows[1].baseline is None
    assert (found.baseline, found.kernels.baseline_kernels, found.kernels.current_kernels) == (
        *("the revision", 4),
        5,
    )
    assert positions_in(diff) == frozenset({2})


def test_a_change_that_repeats_marks_all_of_its_kernels() -> None:
    old, new = profile_of(2), profile_of(2)
    extra = kernel("extra", "aten::mul", us=9.0)
    old = replace(old, kernels=old.kernels * 8)
    new = replace(new, kernels=(*new.kernels, extra) * 8)
    diff = diff_profiles(old, new)
    assert positions_in(diff) == frozenset(range(2, 24, 3))


def test_a_snapshot_stands_beside_what_ran() -> None:
    mul, mm = KernelSide("mul", ("aten::mul",)), KernelSide("gemm", ("aten::mm",))
    copy = KernelSide("elementwise [copy] bf16", ("aten::copy_",), "src/mlp.py:31")
    changes = (
        KernelChange("replaced", KernelSide("gelu", ("aten::gelu",)), copy, at=2, positions=(2,)),
        KernelChange("added", current=KernelSide("other", ("aten::mul",)), at=2, positions=(3,)),
        KernelChange("operator", mul, KernelSide("mul", ("aten::mul_",)), positions=(4,)),
        KernelChange("moved", mm, mm, positions=(5,)),
    )
    kernels = KernelDiff(baseline_kernels=4, current_kernels=5, changes=changes)
    found = side_by_side_of(
        ProfileComparison(
            source="snapshot",
            change="worse",
            kernels=kernels,
            lost=("syncs",),
            differences=("torch 2.10.0 -> 2.11.0",),
        )
    )
    assert found is not None
    first, second, third, same = found.rows
    assert first.baseline is not None
    assert first.current is not None
    assert (first.baseline.name, first.current.name, first.current.by, first.current.line) == (
        *("gelu", "elementwise [copy] bf16"),
        *("aten::copy_", "mlp.py:31"),
    )
    assert (first.baseline.us, first.current.us) == (None, None)
    assert second.baseline is None
    assert third.baseline is not None
    assert third.current is not None
    assert (third.baseline.by, third.current.by) == ("aten::mul", "aten::mul_")
    assert same.same == 2
    assert (found.baseline, found.kernels.baseline_us) == ("the snapshot", None)
    assert found.notes == (
        "some kernels come in another order",
        "could not be compared: syncs",
        "another than the baseline's: torch 2.10.0 -> 2.11.0",
    )


@pytest.mark.parametrize(
    ("source", "told"), [("snapshot", True), ("revision", False), ("run", False)]
)
def test_kernels_in_another_order_alone_are_told_of_a_snapshot(source: Source, told: bool) -> None:
    old = profile_of(4)
    new = replace(old, kernels=(*old.kernels[1:], old.kernels[0]))
    diff = diff_profiles(old, new)
    changed = ProfileComparison(source=source, change="changed", kernels=diff)
    assert (side_by_side_of(changed) is not None) == told
    assert side_by_side_of(replace(changed, change="same")) is None


def test_of_very_many_changes_those_that_are_not_shown_are_counted() -> None:
    kernels = [kernel(f"k{i}", f"op{i}") for i in range(207)]
    diff = diff_profiles(profile_of(0), replace(profile_of(0), kernels=tuple(kernels)))
    found = side_by_side_of(ProfileComparison(source="run", change="worse", kernels=diff))
    assert found is not None
    assert (len(found.rows), found.left) == (200, 7)


def test_the_tree_has_what_launches_and_counts_the_rest() -> None:
    tree = tree_of(profile_of(8).timeline)
    assert tree is not None
    told = [(line.depth, line.name, line.times, line.kernels) for line in tree.lines if line.name]
    assert told == [
        (0, "aten::linear > aten::matmul > aten::mm", 2, 2),
        (0, "aten::gelu", 2, 2),
        (0, "aten::mul", 2, 2),
        (0, "aten::clone > aten::copy_", 2, 2),
    ]
    assert tree.lines[-1].quiet == 8
    gpu = sum(one.duration_us for one in kernels_of(8))
    assert sum(line.gpu_us for line in tree.lines) == pytest.approx(gpu)


def test_without_all_events_or_launches_there_is_no_tree() -> None:
    timeline = profile_of(8).timeline
    assert timeline is not None
    assert tree_of(replace(timeline, left_out=1)) is None
    assert tree_of(Timeline()) is None
    assert tree_of(None) is None


def test_operators_nested_beyond_all_measure_are_a_tree() -> None:
    made = Recording()
    for depth in range(4_000):
        made.add("operator", f"op {depth}", depth * 0.01, 100 - depth * 0.02)
    made.launch(GEMM, 45, 110, 10, 1)
    tree = tree_of(made.timeline())
    assert tree is not None
    assert tree.lines[0].kernels == 1


def test_a_scale_begins_at_zero_and_holds_all() -> None:
    found = scale_of(16, 14, None, None)
    assert found is not None
    assert found.value > found.limit > 2
    assert scale_of(0, 0, None, None) is None
    assert scale_of(float("inf"), 1, None, None) is None


def test_a_strip_holds_rounds_interval_and_limit() -> None:
    strip = strip_of([Rounds("this run", (10.0, 12.0, 11.0), 11.0, 10.2, 11.8)], 20.0)
    assert strip is not None
    (row,) = strip.rows
    assert row.dots.count("M") == 3
    assert strip.limit is not None
    assert row.band is not None
    assert row.band[0] < row.middle < row.band[0] + row.band[1] < strip.limit


def test_equal_rounds_and_very_many_are_a_strip() -> None:
    assert strip_of([Rounds("this run", (5.0,) * 12, 5.0)]) is not None
    assert strip_of([Rounds("this run", (0.0,) * 12, 0.0)]) is not None
    many = strip_of([Rounds("this run", tuple(map(float, range(100_000))), 5.0)])
    assert many is not None
    assert len(many.rows[0].dots) < 10_000
    assert strip_of([Rounds("this run", (5.0,), 5.0)]) is None


def test_a_row_that_only_a_snapshot_breaks_shows_that_beside_limits_that_are_kept() -> None:
    more = MetricDelta(name="kernels", baselines=(4,), current=5, change="worse", judged=True)
    snapshot = ProfileComparison(source="snapshot", change="worse", metrics=(more,))
    test = Test("t.py::test_it", (held_to(profile_of(5, kept(n=5)), snapshot),), outcome="failed")
    (row,) = table_rows(summary_of(run_of(test)).rows, ["p0"])
    assert (row.closest, row.more, row.over) == ("snapshot: kernels 5 of 4", 1, True)
