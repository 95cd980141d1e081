"""A scene in pixels: what is too small to be seen apart is one, and nothing grows without bound."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace
from records import GEMM
from rounds import COPY, Recording, profile_of

from pytest_kernelprof.report.html.drawing import (
    GUTTER,
    MOST_ARROWS,
    WIDTH,
    Scene,
    ScriptData,
    drawn,
    merged,
)
from pytest_kernelprof.report.html.timeline import scene_of
from pytest_kernelprof.schema.run import Timeline


def scene(timeline: Timeline) -> Scene:
    found = scene_of(replace(profile_of(1), timeline=timeline))
    assert found is not None
    return found


def many_kernels(number: int) -> Timeline:
    made = Recording()
    for i in range(number):
        made.launch(GEMM, i * 2, 10 + i * 2, 1.5, i + 1)
    return made.timeline()


def test_neighbours_that_cannot_be_told_apart_are_one() -> None:
    spans = [(0.0, 0.8), (1.0, 0.8), (2.0, 0.8), (10.0, 0.8), (10.1, 30.0)]
    assert [(round(a, 1), round(w, 1)) for a, w in merged(spans)] == [
        (0.0, 2.8),
        (10.0, 0.8),
        (10.1, 30.0),
    ]
    assert list(merged([])) == []


@pytest.mark.bulk
def test_a_trace_of_very_many_kernels_is_a_picture_of_bounded_size() -> None:
    found = drawn(scene(many_kernels(30_000)))
    assert sum(len(path.d) for path in found.paths) < 100_000
    assert found.too_many
    assert found.arrows == ""
    assert len(found.ticks) < 20


@pytest.mark.bulk
def test_a_pixel_has_the_colour_of_what_takes_most_of_it() -> None:
    made = Recording()
    for i in range(5_000):
        made.launch(GEMM, 20 * i, 20 * i + 5, 12, 2 * i + 1)
        made.launch(COPY, 20 * i + 9, 20 * i + 18, 1, 2 * i + 2)
    paths = {path.kind: path.d for path in drawn(scene(made.timeline())).paths}
    assert "h" in paths["stream k-gemm"]
    assert paths["stream k-copy"] == ""


def test_few_arrows_are_drawn() -> None:
    found = drawn(scene(many_kernels(MOST_ARROWS)))
    assert found.arrows.count("M") == MOST_ARROWS
    assert not found.too_many


def test_boxes_stand_between_the_gutter_and_the_right_edge() -> None:
    found = drawn(scene(many_kernels(50)))
    for path in found.paths:
        at = 0
        for command, *numbers in re.findall(r"([Mmh])(-?[\d.]+)(?: (-?[\d.]+))?", path.d):
            at = float(numbers[0]) if command == "M" else at + float(numbers[0])
            assert GUTTER <= at <= WIDTH


def test_an_event_without_a_duration_can_be_seen() -> None:
    made = Recording()
    made.add("operator", "aten::mm", 0, 0)
    found = drawn(scene(made.timeline()))
    assert "h1" in found.paths[0].d


def test_names_stand_in_the_block_once_and_cannot_end_it() -> None:
    data = ScriptData()
    hostile = "</script><script>alert(1)</script>&\u2028\u202e\x00\ud800"
    for place in ("p0", "p1"):
        made = Recording()
        made.add("operator", hostile, 0, 10)
        made.add("operator", "x" * 100_000, 20, 10)
        found = scene(made.timeline())
        data.add(place, found, drawn(found))
    block = str(data.block())
    assert not set("<>&\u2028\u202e\x00") & set(block)
    assert len(block) < 3_000
    names = json.loads(block)["names"]
    assert names[1].startswith("</script><script>alert(1)</script>&\\u2028\\u202e\\x00")


def test_times_survive_the_way_to_the_script() -> None:
    found = scene(many_kernels(3))
    data = ScriptData()
    data.add("p0", found, drawn(found))
    whole = json.loads(str(data.block()))
    told = whole["timelines"]["p0"]
    stream = next(i for i, path in enumerate(drawn(found).paths) if "stream" in path.kind)
    ((_, numbers, marked),) = told["paths"][stream]
    parts, starts, at = told["parts"], [], 0
    for step in numbers[::4]:
        at += step
        starts.append(at / parts)
    assert starts == [10, 12, 14]
    assert [one / parts for one in numbers[1::4]] == [1.5] * 3
    assert {whole["names"][one] for one in numbers[2::4]} == {"nvjet 256x128x64 TNT"}
    assert marked == []
