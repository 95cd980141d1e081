"""What the page's script draws: columns that say what the timeline says, in a block that nothing in
it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from records import CPU, GEMM, held_to
from rounds import Recording, kept, kernels_of, profile_of, round_of

from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.records.comparison import MetricDelta, Paired, ProfileComparison, TimedPair
from pytest_kernelprof.records.profile import Gaps, Profile, Timeline, Verdict
from pytest_kernelprof.records.recording import Integrity
from pytest_kernelprof.report.html.page import ScriptData, drawn_of


def block(*profiles: Profile) -> dict[str, Any]:
    data = ScriptData()
    for at, profile in enumerate(profiles):
        data.add(f"p{at}", [drawn_of(profile, profile)], profile)
    found: dict[str, Any] = json.loads(data.block())
    return found


def test_names_stand_in_the_block_once_and_cannot_end_it() -> None:
    hostile = "</script><script>alert(1)</script>&\u2028\u202e\x00\ud800"
    made = Recording()
    made.add("operator", hostile, 0, 10)
    made.add("operator", "x" * 100_000, 20, 10)
    data = ScriptData()
    for place in ("p0", "p1"):
        profile = replace(profile_of(1), timeline=made.timeline())
        data.add(place, [drawn_of(profile, profile)], profile)
    told = data.block()
    assert not set("<>&\u2028\u202e\x00") & set(told)
    assert len(told) < 4_000
    names = json.loads(told)["names"]
    assert names[0].startswith("</script><script>alert(1)</script>&\\u2028\\u202e\\x00")


def test_times_survive_the_way_to_the_script() -> None:
    timeline = round_of(kernels_of(3))
    whole = block(replace(profile_of(3), timeline=timeline))
    told = whole["details"]["p0"]["drawn"][0]["timeline"]
    starts, at = [], 0
    for step in told["start"]:
        at += step
        starts.append(at / told["parts"])
    assert starts == pytest.approx(list(timeline.start_us), abs=0.051)
    lasts = [one / told["parts"] for one in told["lasts"]]
    assert lasts == pytest.approx(list(timeline.duration_us), abs=0.051)
    assert [told["lanes"][one] for one in told["lane"]] == list(timeline.lane)
    assert told["kind"].count("k") == 3
    assert told["call"] == list(timeline.correlation)
    kernels = {
        whole["names"][n] for n, k in zip(told["name"], told["kind"], strict=True) if k == "k"
    }
    assert "nvjet 256x128x64 TNT" in kernels


def test_times_are_told_in_hundredths() -> None:
    made = Recording()
    made.launch(GEMM, 0, 10.12, 1.37, 1)
    told = block(replace(profile_of(1), timeline=made.timeline()))["details"]["p0"]["drawn"][0][
        "timeline"
    ]
    assert (told["parts"], told["lasts"][-1]) == (100, 137)


def test_without_a_timeline_there_is_none() -> None:
    for timeline in (None, Timeline()):
        told = block(replace(profile_of(3), timeline=timeline))
        assert told["details"]["p0"]["drawn"][0]["timeline"] is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gaps": Gaps(why="the trace has no launch calls")}, "the trace has no launch calls"),
        ({"integrity": Integrity(clock_skew=True)}, "the clocks of host and device do not agree"),
        ({"timeline": replace(round_of(kernels_of(4)), left_out=3)}, "it would be too much"),
        ({}, ""),
    ],
)
def test_it_says_why_idle_time_is_not_known(change: dict[str, object], why: str) -> None:
    told = block(replace(profile_of(4), **change))["details"]["p0"]["drawn"][0]["idle"]
    assert told.endswith(why)
    assert bool(told) == bool(why)


def test_new_kernels_and_counted_operators_are_named() -> None:
    extra = replace(kernels_of(1)[0], name="extra")
    one, two, *others = kernels_of(4)
    now = replace(profile_of(4), kernels=(one, extra, two, extra, *others))
    found = ProfileComparison(source="revision", kernels=diff_profiles(profile_of(4), now))
    told = block(held_to(now, replace(found, change="worse")))
    assert told["details"]["p0"]["drawn"][0]["marks"] == {"+": [1, 3]}
    kernels = tuple(replace(one, name="aten::mm") for one in kernels_of(2))
    whole = block(replace(profile_of(2), environment=CPU, kernels=kernels))
    (counted,) = whole["details"]["p0"]["drawn"][0]["counted"]
    assert whole["names"][counted] == "aten::mm"


def test_rounds_have_their_interval_limit_and_baselines() -> None:
    limit = Verdict(
        limit="max_cuda_time", outcome="passed", metric="cuda_time", unit="us", measured=1,
        allowed=300.0,
    )  # fmt: skip
    delta = MetricDelta(name="cuda_time", baselines=(90.0, None, 95.0), current=100.0)
    earlier = ProfileComparison(source="run", change="worse", metrics=(delta,))
    plots = block(held_to(profile_of(4, limit), earlier))["details"]["p0"]["plots"]
    time, latency = plots
    assert (time["title"], time["limit"], time["words"]) == (
        *("cuda_time", 300.0),
        "limit 300.0us",
    )
    assert [(row["name"], len(row["values"])) for row in time["rows"]] == [
        ("this run", 12),
        ("baseline 1 of 3", 1),
        ("baseline 3 of 3", 1),
    ]
    assert time["rows"][0]["interval"] is not None
    assert (latency["limit"], latency["words"]) == (None, "")


def test_pairs_timed_in_turn_are_a_plot_in_percent() -> None:
    paired = Paired(
        "worse",
        ratio=1.078,
        pairs=tuple(TimedPair("current", one, 24, 233.1, 251.3) for one in (1.07, 1.08)),
        margin=0.05,
    )
    found = ProfileComparison(source="revision", change="worse", paired=paired)
    *_, plot = block(held_to(profile_of(4, kept(n=4)), found))["details"]["p0"]["plots"]
    assert (plot["title"], plot["words"]) == ("pairs", "margin 5 %")
    assert plot["rows"][0]["values"] == [7.0, 8.0]


def test_very_many_rounds_are_thinned_out() -> None:
    many = replace(profile_of(4).metrics["cuda_time"], rounds=tuple(map(float, range(100_000))))
    profile = profile_of(4)
    told = block(replace(profile, metrics={**profile.metrics, "cuda_time": many}))
    assert len(told["details"]["p0"]["plots"][0]["rows"][0]["values"]) <= 400
