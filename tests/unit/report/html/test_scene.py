"""A round as lanes: what lies where, which call an arrow comes from, why the device was idle."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from records import CPU, GELU, GEMM, MUL
from rounds import Recording, kernels_of, profile_of, round_of

from pytest_kernelprof.analysis.round_timeline import timeline_of_round
from pytest_kernelprof.report.html.drawing import Lane, Scene
from pytest_kernelprof.report.html.operator_tree import launch_order, nesting_of
from pytest_kernelprof.report.html.timeline import MOST_LANES, MOST_LEVELS, scene_of
from pytest_kernelprof.schema.run import Gaps, Integrity, Profile, Timeline


def scene(profile: Profile, fresh: frozenset[int] = frozenset()) -> Scene:
    found = scene_of(profile, fresh)
    assert found is not None
    return found


def showing(timeline: Timeline, of: Profile | None = None) -> Scene:
    return scene(replace(of or profile_of(3), timeline=timeline))


def lanes(found: Scene, kind: str) -> list[Lane]:
    return [lane for lane in found.lanes if lane.kind == kind]


def test_without_a_timeline_there_is_none() -> None:
    assert scene_of(replace(profile_of(3), timeline=None)) is None
    assert scene_of(replace(profile_of(3), timeline=Timeline())) is None


def test_threads_calls_streams_and_idle_time_have_lanes_in_this_order() -> None:
    found = scene(profile_of(4))
    assert [(lane.kind, lane.name) for lane in found.lanes] == [
        ("thread", "thread 4711"),
        ("calls", "calls"),
        ("stream", "stream 7"),
        ("idle", "GPU idle"),
    ]
    assert (found.kernels, found.streams) == (4, 1)


def test_operators_stand_below_what_they_are_called_by() -> None:
    (thread,) = lanes(scene(profile_of(1)), "thread")
    told = [(box.level, box.name, box.label, box.kind) for box in thread.boxes]
    assert told == [
        (0, "aten::linear", "linear", "op"),
        (1, "aten::matmul", "matmul", "op"),
        (2, "aten::mm", "mm", "op"),
        (0, "aten::view", "view", "quiet"),
    ]


def test_a_kernel_is_labelled_by_its_operator_and_coloured_by_its_family() -> None:
    (stream,) = lanes(scene(profile_of(4)), "stream")
    told = [(box.name, box.label, box.kind) for box in stream.boxes]
    assert told == [
        ("nvjet 256x128x64 TNT", "mm", "k-gemm"),
        ("vectorized_elementwise [gelu]", "gelu", "k-elementwise"),
        ("vectorized_elementwise [mul]", "mul", "k-elementwise"),
        ("elementwise [copy]", "copy", "k-copy"),
    ]


def test_an_arrow_leads_from_the_call_to_the_kernel_of_its_number() -> None:
    made = Recording()
    made.launch(GEMM, 0, 40, 10, correlation=2)
    made.launch(GELU, 10, 20, 10, correlation=1, stream=9)
    found = showing(made.timeline())
    assert [(one.start, one.to, found.lanes[one.to_lane].name) for one in found.arrows] == [
        (0, 40, "stream 7"),
        (10, 20, "stream 9"),
    ]
    assert {found.lanes[one.lane].kind for one in found.arrows} == {"calls"}


def test_a_kernel_without_a_recorded_call_has_no_arrow() -> None:
    made = Recording()
    made.add("kernel", GEMM, 5, 10, "device 0 stream 7", correlation=77)
    made.launch(GELU, 10, 20, 10, correlation=1)
    assert len(showing(made.timeline()).arrows) == 1


def test_idle_time_by_its_three_causes() -> None:
    """The launch call ends at 4 after it began."""
    made = Recording()
    made.launch(GEMM, 0, 10, 10, 1)  # until 20
    made.launch(GELU, 5, 22, 10, 2)  # queued: 2 later; until 32
    made.launch(MUL, 50, 60, 10, 3)  # launched when all was done: 28 later; until 70
    made.launch(MUL, 60, 95, 10, 4)  # launched long before, begun 25 later
    found = showing(made.timeline())
    assert found.idle == {"kernel": 2, "host": 28, "other": 25}
    (idle,) = lanes(found, "idle")
    assert [(box.start, box.end) for box in idle.boxes] == [(20, 22), (32, 60), (70, 95)]


def test_what_runs_beside_leaves_no_gap() -> None:
    made = Recording()
    made.launch(GEMM, 0, 10, 50, 1)
    made.launch(GELU, 5, 20, 5, 2, stream=9)
    made.launch(MUL, 8, 60, 5, 3, stream=9)
    assert not lanes(showing(made.timeline()), "idle")


@pytest.mark.parametrize("name", ["backward", "mlp", "decode", "two_streams", "copies", "syncs"])
def test_the_gaps_are_those_that_the_analysis_has(name: str) -> None:
    """Of recorded rounds: the same sums by cause, by another way."""
    from corpus import reading, record

    profile = record(name)
    for number, gaps in enumerate(profile.gaps.rounds):
        timeline = timeline_of_round(reading(name), number)
        idle = scene(replace(profile, timeline=timeline)).idle
        told = (idle.get("host", 0), idle.get("kernel", 0), idle.get("other", 0))
        assert told == pytest.approx((gaps.host_wait, gaps.kernel_wait, gaps.other), abs=0.01)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gaps": Gaps(why="the trace has no launch calls")}, "the trace has no launch calls"),
        ({"integrity": Integrity(clock_skew=True)}, "the clocks of host and device do not agree"),
        ({"timeline": replace(round_of(kernels_of(4)), left_out=3)}, "it would be too much"),
    ],
)
def test_idle_time_that_cannot_be_told_is_not_drawn(change: dict[str, object], why: str) -> None:
    found = scene(replace(profile_of(4), **change))
    assert not lanes(found, "idle")
    assert why in found.notes[-1]


def test_several_devices_are_told_apart() -> None:
    made = Recording()
    made.launch(GEMM, 0, 10, 10, 1, device=1)
    made.launch(GELU, 5, 12, 10, 2, device=0)
    found = showing(made.timeline())
    assert [lane.name for lane in lanes(found, "stream")] == ["GPU 0, stream 7", "GPU 1, stream 7"]


def test_streams_stand_by_their_numbers() -> None:
    made = Recording()
    for i, stream in enumerate((10, 9, 7)):
        made.launch(GEMM, i, 10 + i, 10, i + 1, stream=stream)
    names = [lane.name for lane in lanes(showing(made.timeline()), "stream")]
    assert names == ["stream 7", "stream 9", "stream 10"]


def test_autograds_thread_is_called_so_and_its_wrappers_are_not_drawn() -> None:
    made = Recording()
    made.launch(GEMM, 0, 10, 10, 1)
    around = "autograd::engine::evaluate_function: MmBackward0"
    made.add("operator", around, 20, 30, "thread 12")
    made.add("operator", "MmBackward0", 21, 28, "thread 12")
    made.launch(MUL, 25, 30, 10, 2, thread="thread 12")
    found = showing(made.timeline())
    assert [lane.name for lane in found.lanes][:3] == [
        "its calls, 4711",
        "autograd 12",
        "its calls, 12",
    ]
    (box,) = lanes(found, "thread")[0].boxes
    assert (box.name, box.level, box.kind) == ("MmBackward0", 0, "op")


def test_of_very_many_lanes_the_busiest_are_drawn_and_the_others_are_said() -> None:
    made = Recording()
    for i in range(40):
        made.launch(GEMM, i, 50 + i, 10 + i, i + 1, stream=i, thread=f"thread {i}")
    found = showing(made.timeline())
    assert len(lanes(found, "stream")) == MOST_LANES
    assert lanes(found, "stream")[0].name == f"stream {40 - MOST_LANES}"
    assert found.notes[:2] == (
        "28 more threads are not drawn, which were less busy",
        "28 more streams are not drawn, which were less busy",
    )


def test_operators_deep_inside_of_others_are_not_drawn_and_that_is_said() -> None:
    made = Recording()
    for depth in range(3_000):
        made.add("operator", f"op {depth}", depth * 0.01, 100 - depth * 0.02)
    made.launch(GEMM, 40, 110, 10, 1)
    found = showing(made.timeline())
    (thread,) = lanes(found, "thread")
    assert thread.levels == len(thread.boxes) == MOST_LEVELS
    assert f"operators inside of {MOST_LEVELS} others are not drawn" in found.notes


def test_new_kernels_are_marked_by_their_place_in_launch_order() -> None:
    found = scene(profile_of(4), frozenset({1, 3}))
    (stream,) = lanes(found, "stream")
    assert [box.marked for box in stream.boxes] == [False, True, False, True]
    assert [arrow.marked for arrow in found.arrows] == [False, True, False, True]


def test_none_is_marked_where_the_timeline_has_others_than_the_profile() -> None:
    other = replace(profile_of(4), timeline=round_of(kernels_of(3)))
    assert not any(box.marked for lane in scene(other, frozenset({1})).lanes for box in lane.boxes)


def test_launch_order_is_that_of_the_calls_not_of_the_starts() -> None:
    made = Recording()
    made.launch("first", 0, 40, 10, correlation=2)
    made.launch("second", 10, 20, 10, correlation=1, stream=9)
    timeline = made.timeline()
    order = launch_order(timeline, nesting_of(timeline))
    assert [timeline.name[i] for i in order] == ["first", "second"]


def test_on_the_cpu_the_operators_that_count_are_coloured() -> None:
    made = Recording()
    made.add("operator", "aten::linear", 0, 20)
    made.add("operator", "aten::addmm", 2, 15)
    made.add("operator", "aten::gelu", 30, 5)
    kernels = tuple(
        replace(one, name=name)
        for one, name in zip(kernels_of(2), ("aten::addmm", "aten::gelu"), strict=True)
    )
    profile = replace(profile_of(1), environment=CPU, kernels=kernels)
    found = showing(made.timeline(), profile)
    (thread,) = lanes(found, "thread")
    assert [box.kind for box in thread.boxes] == ["quiet", "k-gemm", "k-elementwise"]
    fewer = showing(made.timeline(), replace(profile, kernels=kernels[:1] * 3))
    assert {box.kind for box in fewer.lanes[0].boxes} == {"quiet"}  # not just these: none
