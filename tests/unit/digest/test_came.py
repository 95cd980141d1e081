"""Which kernels came since what was before, and whether that can be told of each."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from records import CPU, GELU, MLP, MUL, kernel, profile

from pytest_kernelprof.baseline.diff import diff_profiles
from pytest_kernelprof.baseline.snapshots import find, kept_of, made_with
from pytest_kernelprof.digest.came import Came, came_since
from pytest_kernelprof.schema.run import Kernel, Profile, Verdict
from pytest_kernelprof.schema.runs import ProfileComparison


def over(of: Profile, **found: Any) -> Profile:
    return replace(of, verdicts=(Verdict(limit="compare", outcome="over", **found),))


def against_snapshot(old: list[Kernel], new: list[Kernel]) -> Came | None:
    before, after = profile(old), profile(new)
    found = find(kept_of(before), made_with(before.environment), after)
    return came_since(over(after, snapshot=found))


def against_a_run(old: list[Kernel], new: list[Kernel]) -> Came | None:
    found = ProfileComparison(test="t", diff=diff_profiles(profile(old), profile(new)))
    return came_since(over(profile(new), comparison=found))


COPY = kernel(
    "void at::native::elementwise_kernel<128, direct_copy_kernel_cuda>(int)", "aten::copy_"
)


def test_each_that_came_is_known_by_its_position() -> None:
    old = list(MLP)
    new = [*MLP[:3], COPY, *MLP[3:], kernel(MUL, "aten::mul")]
    for came in (against_snapshot(old, new), against_a_run(old, new)):
        assert came is not None
        assert came.positions == {3, 6}
        assert came.gone == ()


def test_of_those_that_repeat_all_are_known_where_all_of_their_kind_came() -> None:
    old, new = list(MLP) * 3, [*MLP, COPY] * 3
    for came in (against_snapshot(old, new), against_a_run(old, new)):
        assert came is not None
        assert came.positions == {5, 11, 17}


def test_where_it_cannot_be_told_which_of_a_kind_came_nothing_is() -> None:
    old, new = list(MLP) * 3, [*MLP, kernel(MUL, "aten::mul")] * 3
    assert against_snapshot(old, new) is None
    assert against_a_run(old, new) is None


def test_what_another_one_replaces_is_gone_before_it() -> None:
    fused = kernel("triton_poi_fused_gelu_mul_0", us=36.0)
    old = [MLP[0], MLP[2], fused, MLP[4]]
    came = against_a_run(old, [MLP[0], MLP[2], kernel(GELU, "aten::gelu"), MLP[3], MLP[4]])
    assert came is not None
    assert came.since == "the earlier run"
    assert came.positions == {2, 3}
    assert [(one.name, one.before) for one in came.gone] == [("triton_poi_fused [gelu, mul]", 2)]


def test_without_anything_before_there_is_nothing_to_tell() -> None:
    assert came_since(profile(MLP)) is None
    assert came_since(over(profile(MLP, environment=CPU))) is None
