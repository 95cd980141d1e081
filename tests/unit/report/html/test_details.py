"""Kernels as rows, what changed against a baseline, limits and metrics of one profile."""

from __future__ import annotations

import html
import re

import pytest
from msgspec.structs import replace
from records import CPU, held_to, kernel
from rounds import kept, over, profile_of

from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.records.comparison import (
    KernelChange,
    KernelDiff,
    KernelSide,
    Paired,
    ProfileComparison,
    Source,
)
from pytest_kernelprof.records.document import bounded
from pytest_kernelprof.records.profile import KernelGroup, Profile
from pytest_kernelprof.report.html.page import WHOLE, Detailer, cut


def detail(profile: Profile, name: str = "main") -> str:
    """All of a profile, without tags: a cell or a block a line."""
    names: dict[Source, str] = {"revision": name, "snapshot": "the kernel snapshot"}
    told, _ = Detailer(names).whole(profile, "p1")
    lines = re.sub(r"<(?:td|tr|p|section|h3|li)\b[^>]*>", "\n", told)
    plain = html.unescape(re.sub(r"<[^>]+>", "", lines))
    return re.sub(r"\n+", "\n", re.sub(r" *\n *", "\n", re.sub(" +", " ", plain)))


def compared(change: ProfileComparison, profile: Profile | None = None) -> str:
    return detail(held_to(profile or profile_of(4), change))


def test_kernels_stand_in_launch_order_with_who_launched_them_and_where() -> None:
    told = detail(profile_of(4))
    assert "Kernels 4 kernels in one round, 109.6us\n" in told
    for one in ("66x2, 384", "168", "reference_mlp.py:40", "aten::mm in aten::linear"):
        assert f"\n{one}\n" in told


def test_of_very_many_those_that_are_alike_are_one_row() -> None:
    told = detail(profile_of(WHOLE + 4))
    assert f"{WHOLE + 4} kernels in one round" in told
    assert told.count(" x51\n") == 4


def test_kernels_that_a_document_keeps_by_name_alone_are_told_and_counted() -> None:
    """A document keeps 2,000 kernels one by one, the others by name."""
    profile = bounded(profile_of(2_401))
    assert profile.more_kernels
    told = detail(profile)
    assert "2,401 kernels in one round" in told
    assert told.count("(operator not kept)") == len(profile.more_kernels)
    nameless = replace(profile_of(0), more_kernels=(KernelGroup("", 98_000, 1e6),))
    assert "(name not kept) x98000\n(operator not kept)" in detail(nameless)


def test_very_many_kinds_are_cut_and_counted() -> None:
    more = tuple(KernelGroup(f"kind_{i}", 1, 1.0) for i in range(300))
    told = detail(replace(profile_of(0), more_kernels=more))
    assert "... 100 more of 100 kinds ..." in told
    assert "300 kernels in one round" in told


def test_on_the_cpu_nothing_is_called_a_kernel() -> None:
    told = detail(replace(profile_of(3), environment=CPU, more_kernels=(KernelGroup("x", 2, 1.0),)))
    assert "CPU operators" in told
    assert "5 operators" in told
    assert not re.search(r"\bkernels?\b", told.replace("not GPU kernels", ""))


def test_long_names_lose_their_middle_and_say_how_much() -> None:
    assert cut("a" * 100_000, 10) == "aaaaa … 99,990 characters … aaaaa"
    assert cut("short", 10) == "short"


def test_a_column_that_is_empty_in_every_row_is_no_column() -> None:
    found, _ = Detailer({}).whole(profile_of(4), "p1")
    assert "<th class=n>registers</th>" in found
    assert "registers" not in Detailer({}).compact(profile_of(4))
    unlaunched = tuple(replace(one, registers=0) for one in profile_of(4).kernels)
    found, _ = Detailer({}).whole(replace(profile_of(4), kernels=unlaunched), "p1")
    assert "registers" not in found


def test_a_diff_names_new_kernels_and_launch_order_marks_them() -> None:
    old, new = profile_of(4), profile_of(4)
    extra = kernel("extra", "aten::mul", us=9.0, source="mlp.py:31")
    new = replace(new, kernels=(*new.kernels[:2], extra, *new.kernels[2:]))
    diff = diff_profiles(old, new)
    told = compared(ProfileComparison(source="revision", change="worse", kernels=diff), new)
    assert (
        "Kernels against main\ntimekernellinelaunched by\n"
        "9.0us\n+new: extra\nmlp.py:31\naten::mul\n+ new\n4 kernels → 5, GPU time "
    ) in told
    assert "\n3\n9.0\n+new: extra\n" in told  # the same kernel in launch order


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
        *("Kernels against the kernel snapshot", "4 kernels → 5.", "some kernels run in another"),
        *("-gone: gelu\naten::gelu", "+new: elementwise [copy] bf16\nmlp.py:31\naten::copy_\n"),
        *("+new: other", "-gone: mul\naten::mul\n", "+new: mul\naten::mul_\n"),
        *("not available now: syncs", "differs from the snapshot: torch 2.10.0 → 2.11.0"),
    ):
        assert line in told


def test_kernels_that_take_longer_are_told_of_a_profile_that_is_slower() -> None:
    old = profile_of(4)
    slow = replace(old.kernels[1], duration_us=100.0)
    new = replace(old, kernels=(old.kernels[0], slow, *old.kernels[2:]))
    slower = ProfileComparison(source="run", change="worse", kernels=diff_profiles(old, new))
    assert "→ 100.0us\n~changed: vectorized_elementwise [gelu]\n" in compared(slower, new)
    assert "Kernels against" not in compared(replace(slower, change="same"), new)


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
    assert "7 more changes not shown" in told


def test_of_several_ranks_the_one_that_breaks_the_limit_is_shown_and_named() -> None:
    limit = replace(over(5, 4), ranks=(1,))
    other = replace(profile_of(5), rank=1, timeline=None)  # its rank did not send one
    first = replace(profile_of(4, limit), rank=0, other_ranks=(other,))
    told = detail(first)
    for line in (
        *("Kernels of rank 1 5 kernels in one round", "Metrics of rank 1 per call"),
        *("kernels\n5\n", "How rank 1 was measured"),
    ):
        assert line in told
    assert 'data-note="rank 1 left no timeline"' in Detailer({}).whole(first, "p1")[0]
    both = replace(first, other_ranks=(replace(profile_of(5), rank=1),))
    assert "left no timeline" not in Detailer({}).whole(both, "p1")[0]


def test_of_a_test_that_is_timed_in_turn_the_numbers_are_said_to_be_of_a_separate_run() -> None:
    paired = Paired(ratio=1.2, low=1.1, high=1.3)
    told = compared(ProfileComparison(source="revision", change="worse", paired=paired))
    for head in ("Kernels 4 kernels in one round, 109.6us (", "Metrics per call; "):
        assert f"{head}a separate run, not the pairs that are judged" in told
    assert "separate run" not in detail(profile_of(4))


def test_what_a_limit_is_about_and_what_is_slower_is_marked_in_launch_order() -> None:
    old = profile_of(4)
    slow = replace(old.kernels[1], duration_us=100.0)
    new = replace(old, kernels=(old.kernels[0], slow, *old.kernels[2:]))
    worse = ProfileComparison(source="run", change="worse", kernels=diff_profiles(old, new))
    told = compared(worse, new)
    assert "~slower: vectorized_elementwise [gelu]" in told
    assert "\n~ slower\n" in told
    told = detail(profile_of(5, over(5, 4)))
    assert ">look here: nvjet" in told  # two of this kind
    assert "Kernels 5 kernels in one round, 160.0us; > launched most often\n" in told


def test_limits_metrics_and_how_it_was_measured_are_told() -> None:
    told = detail(profile_of(4, kept(n=4)))
    for line in ("✓ max_kernels: 4 <= 4\n", "cuda_time\n111.2us\n", "complete: 8/8 launches"):
        assert line in told
