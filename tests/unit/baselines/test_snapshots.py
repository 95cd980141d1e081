"""Kernel snapshots: what is kept of a profile, and what of another one is more or other."""

from __future__ import annotations

from typing import Any

import pytest
from corpus import NAMES, record
from msgspec.structs import replace
from records import CPU, GELU, GEMM, H200, LINEAR, MLP, MUL, absent, counted, kernel, mlp, profile

from pytest_kernelprof.baselines.snapshots import (
    compare,
    kept_of,
    loosened,
    parse_line,
    why_not_kept,
)
from pytest_kernelprof.comparison.judge import made_with
from pytest_kernelprof.records.comparison import (
    KEPT_COUNTS,
    KeptProfile,
    KeptTest,
    MetricDelta,
    ProfileComparison,
    Resources,
)
from pytest_kernelprof.records.profile import Kernel, Profile
from pytest_kernelprof.records.recording import Integrity

COUNTED = [counted(name, 0, 0) for name in KEPT_COUNTS if name != "launches"]
MADE = made_with(H200)


def whole(*kernels: object, **more: object) -> Profile:
    """With all that is counted on a GPU."""
    return profile(kernels, COUNTED, **more)  # type: ignore[arg-type]


def compared(kept: Profile, now: Profile) -> ProfileComparison:
    return compare(kept_of(kept), MADE, now)


def lines(found: ProfileComparison) -> list[str]:
    """What came and went as the snapshot has it, with where it stands and the line of its code."""
    sides = [
        (sign, side, change.at)
        for change in found.changes
        for sign, side in (("-", change.baseline), ("+", change.current))
        if side
    ]
    return [f"{sign} {side.line} {at} {side.source}".rstrip() for sign, side, at in sides]


def more(name: str, before: int, now: int) -> MetricDelta:
    return MetricDelta(name=name, baselines=(before,), current=now, change="worse", judged=True)


def test_kernels_are_kept_in_launch_order_with_their_operators_and_runs_as_one() -> None:
    kept = kept_of(mlp(*COUNTED, counted("syncs", 2, 2), label="forward"))
    assert kept == KeptProfile(
        kernels=(
            "nvjet 256x128x64 TNT tst | aten::mm",
            "vectorized_elementwise [gelu] 59e8 | aten::gelu",
            "nvjet 256x128x64 TNT tst | aten::mm",
            "vectorized_elementwise [mul] 5c31 | aten::mul",
            "nvjet 256x128x64 TNT tst | aten::mm",
        ),
        label="forward",
        counts={"launches": 5, "syncs": 2},
        resources=dict.fromkeys(kept.kernels, Resources(registers=32)),
    )
    twice = kept_of(whole(*[kernel("add_one")] * 12, kernel("odd x2")))
    assert twice.kernels == ("add_one x12", "odd x2 x1")
    assert [parse_line(line) for line in twice.kernels] == [("add_one", 12), ("odd x2", 1)]


def test_an_operator_is_named_where_it_says_more_than_the_kernel() -> None:
    region = ("## Call CompiledFxGraph f1 ##", "Torch-Compiled Region: 3/0")
    kernels = (
        kernel("aten::mm", "aten::mm", "aten::linear"),
        kernel("triton_poi_fused_mul_7", "triton_poi_fused_mul_7", *region),
        kernel("own_kernel", *region),
        kernel("own_kernel", "Torch-Compiled Region: 3/0"),
        kernel("bare"),
    )
    assert kept_of(whole(*kernels)).kernels == (
        *("aten::mm", "triton_poi_fused [mul]", "own_kernel x2", "bare"),
    )


def test_what_has_no_stable_order_is_sorted() -> None:
    a, b = kernel("a"), kernel("b")
    kept = kept_of(whole(b, a, b, variants=((a, b, b),)))
    assert (kept.kernels, kept.ordered) == (("a", "b x2"), False)
    assert compared(whole(b, a, b, variants=((a, b, b),)), whole(b, b, a)).change == "same"


def test_a_count_that_could_not_be_had_is_kept_as_unknown() -> None:
    launches = absent("launches")
    assert kept_of(profile(MLP, [*COUNTED, launches])).counts == {"launches": None}
    assert compared(profile(MLP, [*COUNTED, launches]), mlp(*COUNTED)).change == "same"
    gone = compared(mlp(*COUNTED), profile(MLP, [*COUNTED, launches]))
    assert (gone.change, gone.lost) == ("same", ("launches",))


@pytest.mark.parametrize("trace", sorted(NAMES))
def test_a_recorded_profile_holds_by_its_own_snapshot(trace: str) -> None:
    found = record(trace)
    assert compare(kept_of(found), made_with(found.environment), found).change == "same"


def test_more_is_more_and_says_which_kernel_of_which_line() -> None:
    new = kernel(MUL, "aten::mul", source="mlp.py:31")
    found = compared(mlp(*COUNTED), whole(*MLP, new))
    assert (found.source, found.change) == ("snapshot", "worse")
    assert found.kernels
    assert found.kernels.current_kernels == 6
    assert found.metrics == (more("kernels", 5, 6), more("launches", 5, 6))
    assert lines(found) == ["+ vectorized_elementwise [mul] 5c31 | aten::mul 6 mlp.py:31"]


def test_one_more_wait_is_more_also_beside_fewer_kernels() -> None:
    now = profile(MLP[:3], [*COUNTED[1:], counted("syncs", 1, 1)])
    assert compared(mlp(*COUNTED), now).change == "worse"


def test_fewer_or_other_kernels_are_changed() -> None:
    kept = mlp(*COUNTED)
    fewer = compared(kept, whole(*MLP[:4]))
    assert (fewer.change, {one.change for one in fewer.metrics}) == ("changed", {"better"})
    other = compared(kept, whole(*MLP[:4], kernel("mine", *LINEAR)))
    assert other.change == "changed"
    assert lines(other) == ["- nvjet 256x128x64 TNT tst | aten::mm 5", "+ mine | aten::mm 5"]
    swapped = compared(kept, whole(*MLP[:3], kernel(GELU, "aten::gelu", source="a.py:9"), MLP[4]))
    assert lines(swapped) == [
        "- vectorized_elementwise [mul] 5c31 | aten::mul 4",
        "+ vectorized_elementwise [gelu] 59e8 | aten::gelu 4 a.py:9",
    ]


def test_where_another_operator_launches_a_kernel_or_it_stands_elsewhere_it_is_changed() -> None:
    kept = mlp(*COUNTED)
    by_another = compared(kept, whole(*MLP[:3], kernel(MUL, "aten::div"), MLP[4]))
    assert by_another.change == "changed"
    assert kinds(by_another) == {
        "operator": (
            "vectorized_elementwise [mul] 5c31 | aten::mul",
            "vectorized_elementwise [mul] 5c31 | aten::div",
        )
    }
    moved = compared(kept, whole(MLP[1], MLP[0], *MLP[2:]))
    assert (moved.change, set(kinds(moved))) == ("changed", {"moved"})


def kinds(found: ProfileComparison) -> dict[str, tuple[str, str]]:
    """The changes of kernels that both sides have."""
    assert found.kernels
    return {
        one.kind: (one.baseline.line, one.current.line)
        for one in found.kernels.changes
        if one.baseline and one.current
    }


def needing(registers: int, shared_memory: int = 0, spills: int | str | None = None) -> Kernel:
    needs = {"registers": registers, "shared_memory": shared_memory, "spills": spills}
    return replace(kernel("fused", source="mlp.py:31"), **needs)


LEAN, SPILLING = needing(128, 1_024, 0), needing(255, 1_024, 7_872)


def test_what_kernels_need_is_kept_by_line_where_it_is_known_of_all_of_them() -> None:
    kept = kept_of(whole(LEAN, needing(64, 4_096, 16), kernel("other")))
    assert kept.resources == {"fused": Resources(128, 4_096, 16), "other": Resources(32)}
    assert kept_of(whole(LEAN, needing(0))).resources == {}  # a trace that does not tell
    for unknown in ("not compiled by Triton", None):
        kept = kept_of(whole(LEAN, needing(64, 2_048, unknown)))
        assert kept.resources == {"fused": Resources(128, 2_048)}


def test_other_resources_are_changed_and_fail_nothing() -> None:
    found = compared(whole(LEAN), whole(SPILLING))
    assert (found.change, found.fails, found.metrics) == ("changed", False, ())
    assert found.kernels
    (one,) = found.kernels.of("reconfigured")
    assert one.baseline
    assert one.current
    assert (one.baseline.registers, one.baseline.spills) == (128, 0)
    assert (one.current.registers, one.current.spills, one.current.source) == (
        *(255, 7_872, "mlp.py:31"),
    )
    assert compared(whole(SPILLING), whole(LEAN)).change == "changed"
    assert compared(whole(LEAN, LEAN), whole(LEAN, LEAN)).change == "same"


def test_resources_that_one_side_does_not_tell_are_no_change() -> None:
    without = replace(kept_of(whole(LEAN)), resources={})
    assert compare(without, MADE, whole(SPILLING)).change == "same"
    assert compared(whole(LEAN), whole(needing(0))).change == "same"
    assert compared(whole(LEAN), whole(needing(128, 1_024))).change == "same"  # no limit on spills
    assert compared(whole(needing(128, 1_024)), whole(needing(128, 1_024, 16))).change == "same"


@pytest.mark.parametrize(
    "other",
    [
        {"device": "NVIDIA A100"},
        *({"versions": {**H200.versions, it: "9"}} for it in H200.versions),
    ],
)
def test_resources_of_another_device_or_software_are_not_compared(other: dict[str, Any]) -> None:
    elsewhere = replace(H200, **other)
    found = compare(kept_of(whole(LEAN)), MADE, whole(SPILLING, environment=elsewhere))
    is_moved = made_with(elsewhere) != MADE  # another Python says nothing of kernels
    assert (found.change, bool(found.differences)) == (
        ("same", True) if is_moved else ("changed", False)
    )


def test_another_software_or_device_is_told() -> None:
    newer = replace(H200, versions={**H200.versions, "torch": "2.12.0+cu130", "python": "3.14"})
    found = compare(kept_of(mlp(*COUNTED)), MADE, whole(*MLP, environment=newer))
    assert (found.change, found.differences) == ("same", ("torch 2.11.0+cu130 -> 2.12.0+cu130",))


def test_on_the_cpu_kernels_and_reads_of_values_count_and_what_changes_operators_is_told() -> None:
    cpu = replace(CPU, versions={"torch": "2.11.0+cpu", "mkldnn": "on", "triton": "3.6.0"})
    operators = (kernel("aten::mm", "aten::mm"),)
    never = [counted("would_wait", 0, 0)]
    kept = kept_of(profile(operators, never, environment=cpu))
    assert (kept.kernels, kept.counts) == (("aten::mm",), {})
    made = made_with(cpu)
    assert made == {"device": "CPU (x86_64)", "torch": "2.11.0", "mkldnn": "on"}
    off = replace(cpu, versions={**cpu.versions, "torch": "2.11.0+cu130", "mkldnn": "off"})
    found = compare(kept, made, profile(operators, never, environment=off))
    assert (found.change, found.differences) == ("same", ("mkldnn on -> off",))
    waits = profile(operators, [counted("would_wait", 1, 1)], environment=cpu)
    worse = compare(kept, made, waits)
    assert (worse.change, worse.metrics) == ("worse", (more("would_wait", 0, 1),))


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"integrity": Integrity(problems=("1 of 5 launches has no kernel",))}, "incomplete"),
        ({"integrity": Integrity(cold=("lazy loading",))}, "cold"),
        ({"integrity": Integrity(settled=False)}, "cold"),
        ({"variants": (MLP[:4],)}, "unstable"),
        ({}, ""),
    ],
)
def test_what_is_not_sure_is_not_kept(made: dict[str, object], why: str) -> None:
    assert why_not_kept(mlp(*COUNTED, **made)) == why


def test_counts_that_differ_between_rounds_are_unstable() -> None:
    assert why_not_kept(mlp(*COUNTED[1:], counted("syncs", 1, 2))) == "unstable"
    other_kernels_at_equal_counts = (*MLP[:4], kernel(GELU, "aten::gelu"))
    assert why_not_kept(mlp(*COUNTED, variants=(other_kernels_at_equal_counts,))) == "unstable"


def test_what_an_update_loosens() -> None:
    def test(*labelled: tuple[str, Profile]) -> KeptTest:
        return KeptTest(tuple(replace(kept_of(one), label=label) for label, one in labelled), MADE)

    five, six = mlp(*COUNTED), whole(*MLP, kernel(GEMM, *LINEAR))
    looser = (more("kernels", 5, 6), more("launches", 5, 6))
    assert loosened(test(("", five), ("b", six)), test(("", six), ("b", five))) == {"": looser}
    again = test(("b", five), ("b", five))
    assert loosened(again, test(("b", five), ("b", six))) == {"b": looser}
    assert loosened(test(("", five)), test(("new", six))) == {}


def test_an_operator_with_the_sign_that_parts_it_from_the_kernel_holds() -> None:
    again = whole(kernel("own", "load | compute"))
    assert compared(again, again).change == "same"


def test_a_hostile_name_is_one_line() -> None:
    (line,) = kept_of(whole(kernel("a\nb\x1b[31m\udcff", "op\n"))).kernels
    assert line.isprintable()
