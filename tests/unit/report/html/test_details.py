"""Kernels as rows, what changed against a baseline, limits and metrics of one profile."""

from __future__ import annotations

import html
import re

import pytest
from msgspec.structs import replace
from records import CPU, GELU, held_to, kernel, timed
from rounds import kept, profile_of, run_of

from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.report.html.details import WHOLE, Detailer, FullNames, kernel_rows
from pytest_kernelprof.report.html.markup import Column, cut, table, text
from pytest_kernelprof.report.html.script_data import ScriptData
from pytest_kernelprof.schema.comparison import KernelChange, KernelDiff, KernelSide, Source
from pytest_kernelprof.schema.document import bounded
from pytest_kernelprof.schema.run import KernelGroup, Profile, ProfileComparison, Test
from pytest_kernelprof.summary.run import summary_of


def detail(profile: Profile, name: str = "main (abc1234)") -> str:
    """All of a profile, without tags: a cell or a block a line."""
    names: dict[Source, str] = {"revision": name, "snapshot": "the kernel snapshot"}
    (row,) = summary_of(run_of(Test("t.py::test_it", (profile,)))).rows
    told, _ = Detailer(FullNames(), ScriptData(), names).whole(row, "p1")
    lines = re.sub(r"<(?:td|tr|p|section|h3|li)\b[^>]*>", "\n", told)
    plain = html.unescape(re.sub(r"<[^>]+>", "", lines))
    return re.sub(r"\n+", "\n", re.sub(r" *\n *", "\n", re.sub(" +", " ", plain)))


def compared(change: ProfileComparison, profile: Profile | None = None) -> str:
    return detail(held_to(profile or profile_of(4), change))


def test_kernels_stand_in_launch_order_with_who_launched_them_and_where() -> None:
    rows, is_grouped, _ = kernel_rows(profile_of(4), WHOLE, frozenset({3}))
    first, *_, last = rows
    assert not is_grouped
    assert (first.chain, first.line, first.size, first.registers) == (
        *("aten::mm < aten::linear", "reference_mlp.py:40", "66x2 · 384", "168"),
    )
    assert (last.is_new, first.is_new) == (True, False)
    assert sum(row.us for row in rows) == pytest.approx(
        sum(one.duration_us for one in profile_of(4).kernels)
    )


def test_of_very_many_those_that_are_alike_are_one_row() -> None:
    rows, is_grouped, left = kernel_rows(profile_of(WHOLE[0] + 4), WHOLE, ())
    assert is_grouped
    assert not left
    assert sum(row.number for row in rows) == WHOLE[0] + 4
    assert [row.chain.partition(" <")[0] for row in rows] == [
        *("aten::mm", "aten::gelu", "aten::mul", "aten::copy_"),
    ]


def test_kernels_that_were_kept_by_name_alone_belong_to_the_group_of_their_name() -> None:
    """A document keeps 2,000 kernels one by one, the others by name."""
    profile = bounded(profile_of(2_401))
    assert profile.more_kernels
    rows, _, _ = kernel_rows(profile, WHOLE, ())
    assert len(rows) == len({row.name for row in rows}) == 4
    assert sum(row.number for row in rows) == 2_401


def test_by_name_alone_and_of_several_groups_they_are_told_apart() -> None:
    kernels = (kernel(GELU, "aten::gelu"), kernel(GELU, "aten::mish"))
    more = (KernelGroup(GELU, 98_000, 1e6), KernelGroup("own", 1, 3.0))
    profile = replace(profile_of(0), kernels=kernels, more_kernels=more)
    rows, _, _ = kernel_rows(profile, WHOLE, ())
    told = sorted((row.number, row.chain) for row in rows)
    assert told == [
        (1, ""),
        (1, "aten::gelu"),
        (1, "aten::mish"),
        (98_000, "98,000 more calls, operator not kept"),
    ]


def test_very_many_kinds_are_cut_and_counted() -> None:
    more = tuple(KernelGroup(f"kind_{i}", 1, 1.0) for i in range(300))
    profile = replace(profile_of(0), more_kernels=more)
    rows, _, left = kernel_rows(profile, WHOLE, ())
    assert (len(rows), len(left)) == (100, 200)
    assert "200 more kinds not shown" in detail(profile)
    assert "300 kernels" in detail(profile)


def test_a_sum_that_is_not_the_metric_says_why() -> None:
    profile = profile_of(4)
    same = timed("cuda_time", [sum(one.duration_us for one in profile.kernels)])
    same = replace(profile, metrics={"cuda_time": same})
    assert "The table shows one round, of 109.6us; the GPU time of 111.2us" in detail(profile)
    assert "is the median of 12 rounds" in detail(profile)
    assert "The table shows one round" not in detail(same)


def test_on_the_cpu_nothing_is_called_a_kernel() -> None:
    told = detail(replace(profile_of(3), environment=CPU, more_kernels=(KernelGroup("x", 2, 1.0),)))
    assert "CPU operators" in told
    assert "5 operators" in told
    assert not re.search(r"\bkernels?\b", told.replace("not GPU kernels", ""))


def test_long_names_lose_their_middle_and_say_how_much() -> None:
    assert cut("a" * 100_000, 10) == "aaaaa … 99,990 characters … aaaaa"
    assert cut("short", 10) == "short"


def test_a_column_that_is_empty_in_every_row_is_no_column() -> None:
    found = table([Column("a", [text("1"), text("")]), Column("b", [text(""), text("")])])
    assert "<th>a</th>" in found
    assert "<th>b</th>" not in found


def test_a_diff_has_new_kernels_at_their_places_and_the_same_ones_counted() -> None:
    old, new = profile_of(4), profile_of(4)
    extra = kernel("extra", "aten::mul", us=9.0, source="mlp.py:31")
    new = replace(new, kernels=(*new.kernels[:2], extra, *new.kernels[2:]))
    diff = diff_profiles(old, new)
    told = compared(ProfileComparison(source="revision", change="worse", kernels=diff), new)
    assert (
        "Kernels against main (abc1234)\nkernellaunched bylineGPU us\n2 kernels unchanged\n"
        "+new: extra\naten::mul\nmlp.py:31\n9.0\n2 kernels unchanged\n"
        "4 kernels in main (abc1234), 5 in this run\n"
    ) in told
    assert "\n3\n+new: extra\n" in told  # the same kernel in launch order


def test_a_snapshot_is_told_beside_what_ran() -> None:
    mul, mm = KernelSide("mul", ("aten::mul",)), KernelSide("gemm", ("aten::mm",))
    copy = KernelSide("elementwise [copy] bf16", ("aten::copy_",), "src/mlp.py:31")
    changes = (
        KernelChange("replaced", KernelSide("gelu", ("aten::gelu",)), copy, at=2, positions=(2,)),
        KernelChange("added", current=KernelSide("other", ("aten::mul",)), at=2, positions=(3,)),
        KernelChange("operator", mul, KernelSide("mul", ("aten::mul_",)), positions=(4,)),
        KernelChange("moved", mm, mm, positions=(5,)),
    )
    kernels = KernelDiff(baseline_kernels=4, current_kernels=5, changes=changes)
    told = compared(
        ProfileComparison(
            source="snapshot",
            change="worse",
            kernels=kernels,
            lost=("syncs",),
            differences=("torch 2.10.0 -> 2.11.0",),
        )
    )
    for line in (
        *("Kernels against the kernel snapshot", "4 kernels in the kernel snapshot, 5 in this run"),
        *("−gone: gelu\naten::gelu", "+new: elementwise [copy] bf16\naten::copy_\nmlp.py:31"),
        *("+new: other", "−gone: mul\naten::mul\n", "+new: mul\naten::mul_\n"),
        *("2 kernels unchanged", "some kernels are launched in another order"),
        *("could not be compared: syncs", "differs from the baseline: torch 2.10.0 -> 2.11.0"),
    ):
        assert line in told


@pytest.mark.parametrize(
    ("source", "is_told"), [("snapshot", True), ("revision", False), ("run", False)]
)
def test_kernels_in_another_order_alone_are_told_of_a_snapshot(
    source: Source, is_told: bool
) -> None:
    old = profile_of(4)
    new = replace(old, kernels=(*old.kernels[1:], old.kernels[0]))
    changed = ProfileComparison(source=source, change="changed", kernels=diff_profiles(old, new))
    assert ("Kernels against" in compared(changed, new)) == is_told
    assert "Kernels against" not in compared(replace(changed, change="same"), new)


def test_of_very_many_changes_those_that_are_not_shown_are_counted() -> None:
    kernels = [kernel(f"k{i}", f"op{i}") for i in range(207)]
    new = replace(profile_of(0), kernels=tuple(kernels))
    diff = diff_profiles(profile_of(0), new)
    told = compared(ProfileComparison(source="run", change="worse", kernels=diff), new)
    assert "7 more lines not shown" in told


def test_limits_metrics_and_how_it_was_measured_are_told() -> None:
    told = detail(profile_of(4, kept(n=4)))
    for line in ("max_kernels\n4\n4\n✓ 4 <= 4", "cuda_time\n111.2us\n", "complete: 8/8 launches"):
        assert line in told
