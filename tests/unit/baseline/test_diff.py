"""What is another in the second of two profiles."""

from __future__ import annotations

import random
import time

import msgspec
import pytest
from corpus import record
from records import CPU, GEMM, H200, LINEAR, MLP, absent, counted, kernel, profile, timed

from pytest_kernelprof.baseline.diff import diff_profiles
from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.diff import ProfileDiff
from pytest_kernelprof.schema.run import Kernel

COPY = kernel("void at::native::direct_copy_kernel(int)", "aten::copy_")
FUSED = kernel("triton_poi_fused_gelu_mul_0", "triton_poi_fused_gelu_mul_0")


def diff(
    old: list[Kernel] | tuple[Kernel, ...], new: list[Kernel] | tuple[Kernel, ...]
) -> ProfileDiff:
    return diff_profiles(profile(old), profile(new))


def told(found: ProfileDiff) -> list[tuple[str, int, int, int]]:
    """Kinds of each hunk, how often, and where."""
    return [
        (" ".join(change.kind for change in hunk.changes), hunk.times, hunk.old_at, hunk.new_at)
        for hunk in found.hunks
    ]


def test_equal_profiles_differ_in_nothing() -> None:
    found = diff(MLP, MLP)
    assert found.same_kernels
    assert (found.hunks, found.paces, found.metrics, found.other) == ((), (), (), ())


def test_one_new_kernel_in_five_hundred_is_one_change() -> None:
    old = list(MLP) * 100
    new = [*old[:251], COPY, *old[251:]]
    assert told(diff(old, new)) == [("added", 1, 0, 252)]
    assert told(diff(new, old)) == [("removed", 1, 252, 0)]


def test_equal_changes_of_repeated_layers_are_one_hunk() -> None:
    old = [MLP[0], FUSED, MLP[2], MLP[4]] * 48
    found = diff(old, list(MLP) * 48)
    assert [times for _, times, _, _ in told(found)] == [48] * len(found.hunks)
    changes = [change for hunk in found.hunks for change in hunk.changes]
    assert sum(change.new_us for change in changes) == pytest.approx(48 * 20)
    assert sum(change.old_us for change in changes) == pytest.approx(48 * 10)


def test_whole_layers_more_are_one_hunk_that_repeats() -> None:
    found = diff(list(MLP) * 10, list(MLP) * 14)
    assert [(len(hunk.changes), hunk.times) for hunk in found.hunks] == [(5, 4)]


def test_another_tile_of_the_same_product_is_renamed() -> None:
    other = kernel(GEMM.replace("256x128", "192x128"), *LINEAR)
    found = diff(MLP, [*MLP[:2], other, *MLP[3:]])
    assert told(found) == [("renamed", 1, 3, 3)]


def test_another_kernel_under_the_same_operator_replaces_it() -> None:
    other = kernel("my_gelu", "aten::gelu")
    assert told(diff(MLP, [MLP[0], other, *MLP[2:]])) == [("replaced", 1, 2, 2)]


def test_in_a_graph_names_alone_say_what_stands_for_what() -> None:
    bare = [msgspec.structs.replace(one, operators=()) for one in MLP]
    other = kernel(GEMM.replace("256x128", "192x128"))
    assert told(diff(bare, [*bare[:2], other, *bare[3:]])) == [("renamed", 1, 3, 3)]


@pytest.mark.parametrize(
    "new",
    [
        [MLP[1], MLP[0], *MLP[2:]],
        [*MLP[1:], MLP[0]],
        list(reversed(MLP)),
        [msgspec.structs.replace(one, stream=9) for one in MLP],
        [msgspec.structs.replace(one, operators=(*one.operators, "my_range")) for one in MLP],
        [msgspec.structs.replace(MLP[0], operators=("aten::addmm",)), *MLP[1:]],
        [msgspec.structs.replace(one, name=one.name.replace("<4", "<(int)4")) for one in MLP],
    ],
    ids=["swapped", "moved", "reversed", "stream", "a range", "another caller", "demangled"],
)
def test_what_is_moved_or_called_otherwise_is_no_change(new: list[Kernel]) -> None:
    assert diff(MLP, new).hunks == ()


def test_the_number_that_inductor_gives_is_no_change() -> None:
    other = kernel("triton_poi_fused_gelu_mul_7", "triton_poi_fused_gelu_mul_7")
    named = msgspec.structs.replace(other, operators=("Torch-Compiled Region: 0/1",))
    of_old = msgspec.structs.replace(FUSED, operators=named.operators)
    assert diff([*MLP, of_old], [*MLP, named]).hunks == ()


def test_rounds_without_one_order_are_compared_as_sets_that_count() -> None:
    old = profile(MLP, variants=(tuple(reversed(MLP)),))
    shuffled = [*MLP, COPY]
    random.Random(0).shuffle(shuffled)
    found = diff_profiles(old, profile(shuffled))
    assert not found.ordered
    assert told(found) == [("added", 1, 0, 0)]


def test_shuffled_kernels_and_some_more_are_told_by_their_number() -> None:
    old = list(MLP) * 30
    new = [*old, COPY, COPY]
    random.Random(1).shuffle(new)
    found = diff(old, new)
    kinds = [c.kind for hunk in found.hunks for c in hunk.changes for _ in range(hunk.times)]
    assert kinds == ["added"] * 2


@pytest.mark.parametrize(
    ("us", "kind"),
    [(10.0, None), (10.9, None), (11.1, "slower"), (8.8, "faster"), (9.2, None)],
)
def test_a_kernel_that_takes_another_time_is_told_with_both(us: float, kind: str | None) -> None:
    found = diff(MLP, [*MLP[:3], msgspec.structs.replace(MLP[3], duration_us=us), MLP[4]])
    assert found.hunks == ()
    assert [(p.kind, p.times, p.old_us, p.new_us) for p in found.paces] == (
        [(kind, 1, 10.0, us)] if kind else []
    )


def test_many_short_kernels_are_slower_together() -> None:
    short = [kernel("k", us=0.5)] * 48
    (pace,) = diff(short, [kernel("k", us=0.75)] * 48).paces
    assert (pace.kind, pace.times, pace.old_us, pace.new_us) == ("slower", 48, 24.0, 36.0)


def test_another_grid_is_told_whatever_the_time() -> None:
    other = msgspec.structs.replace(MLP[1], grid=(2, 1, 1))
    (pace,) = diff(MLP, [MLP[0], other, *MLP[2:]]).paces
    assert (pace.kind, pace.old.grid, pace.new.grid) == ("reconfigured", (1, 1, 1), (2, 1, 1))


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
    assert (found.old_steps, found.new_steps) == (3, 5)
    assert (found.old_kernels, found.new_kernels) == (5, 6)
    assert told(found) == [("added", 1, 0, 3)]
    assert found.metrics == ()  # of all steps


def test_metrics_that_differ_are_told_with_their_intervals() -> None:
    times = [100 + i % 7 for i in range(24)]
    old = profile(MLP, [counted("syncs", 0, 0), timed("cuda_time", times), absent("latency")])
    later = [2 * us for us in times]
    new = profile(MLP, [counted("syncs", 2, 2), timed("cuda_time", later), counted("memsets", 1)])
    found = {change.name: change for change in diff_profiles(old, new).metrics}
    assert set(found) == {"syncs", "cuda_time", "memsets"}
    assert (found["syncs"].old, found["syncs"].new) == (0, 2)
    had = old.metrics["cuda_time"]
    assert found["cuda_time"].old_interval == (had.low, had.high)
    assert (found["memsets"].old, found["memsets"].why) == (None, "not measured: nobody asked")


def test_another_device_or_version_is_told() -> None:
    newer = msgspec.structs.replace(H200, versions={**H200.versions, "torch": "2.13.0"})
    found = diff_profiles(profile(MLP), profile(MLP, environment=newer))
    assert found.other == ("torch 2.11.0+cu130 -> 2.13.0",)
    assert "device" in diff_profiles(profile(MLP), profile(MLP, environment=CPU)).other[0]


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
    assert sorted(change.kind for hunk in found.hunks for change in hunk.changes) == kinds
    assert codec.decode(codec.encode(found), ProfileDiff) == found


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
    assert {c.kind for hunk in found.hunks for c in hunk.changes} == {"replaced"}
