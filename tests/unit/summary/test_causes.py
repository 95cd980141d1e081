"""Why a row is marked: what came or went, what ran, where, and with which numbers."""

from __future__ import annotations

from typing import Any

import pytest
from corpus import NAMES, record
from msgspec.structs import replace
from records import GELU, MLP, MUL, counted, held_to, kernel, mlp, profile, timed

from pytest_kernelprof.baselines.protocol import Done
from pytest_kernelprof.baselines.snapshots import compare, kept_of
from pytest_kernelprof.baselines.verdict import judge
from pytest_kernelprof.comparison.judge import made_with
from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_keyword
from pytest_kernelprof.records.comparison import (
    KernelChange,
    KernelDiff,
    KernelSide,
    Paired,
    ProfileComparison,
    RunComparison,
    TimedPair,
)
from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import (
    Bound,
    Cause,
    Copy,
    Kernel,
    Place,
    Profile,
    Verdict,
    Wait,
)
from pytest_kernelprof.records.recording import Conditions, Neighbour
from pytest_kernelprof.report.tables import Style, plain, width_of
from pytest_kernelprof.report.terminal import report_lines
from pytest_kernelprof.summary.run import summary_of
from pytest_kernelprof.summary.verdicts import causes_of, causes_of_diff, found_by


def broken(of: Profile, **limits: object) -> list[Cause]:
    verdicts = evaluate(of, [parse_keyword(name, value) for name, value in limits.items()])
    return list(causes_of(replace(of, verdicts=verdicts), "failed"))


def changes(old: list[Kernel], new: list[Kernel]) -> list[Cause]:
    return list(causes_of_diff(diff_profiles(profile(old), profile(new))))


def test_what_came_is_told_with_what_launched_it_and_where() -> None:
    copy = kernel("elementwise_kernel_copy", "aten::copy_", "MmBackward0", source="t.py:31")
    assert changes(list(MLP), [*MLP, copy]) == [
        Cause("elementwise_kernel_copy, from aten::copy_ in MmBackward0", Place("t.py", 31), "+")
    ]
    assert [one.sign for one in changes(list(MLP), list(MLP[:4]))] == ["-"]


def test_a_fused_kernel_is_tied_to_what_it_became_by_the_operators_in_its_name() -> None:
    fused = kernel("triton_poi_fused_gelu_mul_0")
    apart = [kernel(GELU, "aten::gelu", source="mlp.py:42"), kernel(MUL, "aten::mul")]
    (cause,) = changes([MLP[0], fused, MLP[4]], [MLP[0], *apart, MLP[4]])
    assert cause == Cause(
        "triton_poi_fused [gelu, mul] is now gelu + mul",
        Place("mlp.py", 42),
    )


def test_waits_and_copies_are_told_by_what_made_them() -> None:
    waiting = mlp(
        counted("syncs", 3),
        counted("memcpys", 1),
        waits=(Wait("cudaStreamSynchronize", ("aten::item",), "a/t.py:7"),) * 3,
        copies=(Copy("Memcpy DtoH (Device -> Pageable)", "d2h", 4_000_000, 1.0, ("aten::to",)),),
    )
    assert broken(waiting, max_syncs=0) == [
        Cause("wait in cudaStreamSynchronize x3, from aten::item", Place("a/t.py", 7))
    ]
    (cause,) = broken(waiting, max_memcpys=0)
    assert cause.text == "copied 4 MB: Memcpy DtoH (Device -> Pageable), from aten::to"


def test_of_a_limit_on_single_kernels_the_worst_is_named() -> None:
    one, other = (replace(MLP[0], name=f"k{n}", registers=n, source="k.py:7") for n in (40, 168))
    of = profile([one, other], [counted("registers", 168), counted("shared_memory", 0)])
    assert broken(of, max_registers=64) == [
        Cause(
            "max_registers: 168 > limit 64; k168, from aten::mm in aten::linear", Place("k.py", 7)
        )
    ]


def test_a_time_is_told_by_what_takes_most_of_it() -> None:
    slow = mlp(timed("cuda_time", [50.0] * 12))
    (cause,) = broken(slow, max_cuda_time="10us")
    assert cause.text == "nvjet 256x128x64 TNT x3 takes 30.0us, from aten::mm in aten::linear"


def test_kernels_of_one_kind_are_counted_together_whichever_lines_launch_them() -> None:
    kernels = [kernel(MUL, "aten::mul", source=f"mlp.py:{line}") for line in (6, 7)]
    (cause,) = broken(profile([MLP[0], *kernels], place=Place("test_mlp.py", 3)), max_kernels=2)
    assert cause == Cause(
        "vectorized_elementwise [mul] x2 at mlp.py:6, 7, from aten::mul; "
        "nvjet 256x128x64 TNT, from aten::mm in aten::linear",
        Place("test_mlp.py", 3),
    )


@pytest.mark.parametrize(("kinds", "told"), [(3, ""), (4, "; k3, from op3"), (5, "; and 2 more")])
def test_a_fourth_kind_is_told_and_of_more_how_many(kinds: int, told: str) -> None:
    kernels = [kernel(f"k{i}", f"op{i}") for i in range(kinds)]
    (cause,) = broken(profile(kernels), max_kernels=1)
    assert cause.text == f"k0, from op0; k1, from op1; k2, from op2{told}"


def test_an_overhead_is_told_by_its_launches() -> None:
    idle = mlp(
        timed("launch_overhead", [80.0] * 12),
        timed("latency", [100.0] * 12),
        timed("overhead_per_launch", [16.0]),
        timed("cuda_time", [20.0]),
        second_look=[timed("launch_overhead", [80.0] * 12)],
        bound=Bound("overhead", ""),
    )
    (cause,) = broken(idle, max_launch_overhead="40us")
    assert cause.text == (
        "the GPU works 20.0us of 100.0us (host overhead 16.0us in each of 5 launches, for kernels "
        "of 4.0us)"
    )


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (
            {"forbid_kernels": "gelu"},
            "forbid_kernels: ran vectorized_elementwise [gelu], from aten::gelu",
        ),
        (
            {"expect_kernels": ["mm", "relu", ...]},
            "expect_kernels: kernel 2: expected 'relu', got vectorized_elementwise [gelu] "
            "(aten::gelu)",
        ),
        (
            {"max_kernels": {"n": 0, "match": "gelu"}},
            "max_kernels(match='gelu'): 1 > limit 0; vectorized_elementwise [gelu], from "
            "aten::gelu",
        ),
    ],
)
def test_limits_on_names_say_which_and_what_has_no_cell_says_its_numbers(
    limits: dict[str, object], text: str
) -> None:
    (cause,) = broken(mlp(), **limits)
    assert cause.text == text


MAIN = RunComparison(source="revision", name="main (abc)")


def test_a_revision_says_what_came_and_its_numbers_stand_in_the_cells() -> None:
    new = profile([*MLP, kernel(MUL, "aten::mul", source="mlp.py:43")])
    done = Done("t.py::t", Test("t.py::t", (mlp(),)), reached=("mlp.py",))
    worse = held_to(new, *judge([new], done))
    (row,) = summary_of(Run((Test("t.py::t", (worse,), outcome="failed"),), baselines=(MAIN,))).rows
    assert [(one.metric, one.measured, one.allowed, one.by) for one in row.broken.values()] == [
        ("kernels", 6, 5, "against"),
        ("launches", 6, 5, "against"),
    ]
    assert [(one.sign, one.place) for one in row.causes] == [("+", Place("mlp.py", 43))]


def test_a_snapshot_says_what_came_and_went_in_the_words_of_its_file() -> None:
    new = profile([*MLP[:3], kernel("own", "aten::mul", source="mlp.py:43"), *MLP[3:]])
    kept = compare(kept_of(mlp()), made_with(new.environment), new)
    (cause,) = causes_of(held_to(new, kept), "failed")
    assert cause == Cause("own, from aten::mul", Place("mlp.py", 43), "+")


def test_of_several_baselines_the_first_that_names_kernels_says_them() -> None:
    new = profile([*MLP, kernel("own", "aten::mul")])
    kept = ProfileComparison(source="snapshot", change="worse")
    main, earlier = (
        ProfileComparison(source=source, change="worse", kernels=diff_profiles(mlp(), new))
        for source in ("revision", "run")
    )
    assert len(causes_of(held_to(new, kept, main, earlier), "failed")) == 1


def test_where_a_baseline_names_kernels_limits_on_them_need_not() -> None:
    new = profile([*MLP, kernel("own", "aten::mul")], [counted("syncs", 1)])
    limits = [parse_keyword("max_kernels", 5), parse_keyword("max_syncs", 0)]
    broken_too = replace(new, verdicts=evaluate(new, limits))
    kernels = diff_profiles(mlp(), new)
    main = ProfileComparison(source="revision", change="worse", kernels=kernels)
    texts = [one.text for one in causes_of(held_to(broken_too, main), "failed")]
    assert texts == ["own, from aten::mul", "max_syncs: 1 > limit 0"]


def in_turn(**more: object) -> Paired:
    pair = TimedPair("current", 1.08, 4, 100.0, 108.0)
    usual = {"ratio": 1.08, "pairs": (pair,) * 4, "baseline_us": 100.0, "current_us": 108.0}
    return Paired(**{**usual, **more})  # type: ignore[arg-type]


def test_what_is_slower_than_a_revision_says_by_how_much_and_how_sure_that_is() -> None:
    worse = in_turn(change="worse", agreeing=4)
    slower = ProfileComparison(
        source="revision", change="worse", kernels=diff_profiles(mlp(), mlp()), paired=worse
    )
    tests = (Test("t.py::t", (held_to(mlp(), slower),), outcome="failed"),)
    digest = summary_of(Run(tests, baselines=(MAIN,)))
    (row,) = digest.rows
    assert row.told == "failed"
    assert [one.text for one in row.causes] == [
        "mean of 4 interleaved pairs, all beyond the margin; medians 100.0us -> 108.0us"
    ]
    assert digest.sentence == "1 of 1 test is worse than main (abc)."


def test_what_is_perhaps_slower_says_why_that_is_not_known() -> None:
    busy = Conditions(contenders=(Neighbour(7, 60),))
    pairs = "4 interleaved pairs; medians 100.0us -> 108.0us"
    told = f"GPU time +8.0 %, mean of {pairs}; undecided, "
    for paired, why in (
        (in_turn(change="undecided", why="too few turns"), "too few turns"),
        (in_turn(change="undecided", disturbed=busy),
         "CONTENDED: other processes worked on this GPU (pid 7 up to 60 %)"),
    ):  # fmt: skip
        perhaps = ProfileComparison(source="revision", change="undecided", paired=paired)
        (cause,) = causes_of(held_to(mlp(), perhaps), "undecided")
        assert cause.text == told + why


def undecided_time(**facts: Any) -> Verdict:
    return Verdict(
        limit="max_cuda_time",
        outcome="undecided",
        metric="cuda_time",
        unit="us",
        measured=200.1,
        allowed=200.0,
        **facts,
    )


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ({"low": 198.4, "high": 201.6}, "198.4..201.6us, limit 200.0us"),
        ({"low": 198.4}, "200.1us, limit 200.0us"),
        ({}, "200.1us, limit 200.0us"),
    ],
)
def test_of_an_undecided_limit_the_interval_is_told_or_else_the_value(
    ends: dict[str, float], words: str
) -> None:
    assert list(found_by([undecided_time(**ends)])) == [f"max_cuda_time undecided: {words}"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            {"reason": "interval", "low": 198.4, "high": 201.6, "rounds": 12},
            "too close to the limit to call: +0.0 %, 12 rounds",
        ),
        (
            {"reason": "alike", "rounds": 12},
            "neighbouring rounds are too alike: +0.0 %, 12 rounds, no interval",
        ),
        (
            {"reason": "disturbed", "rounds": 7},
            "the GPU was disturbed: +0.0 %, 7 rounds, too few for an interval",
        ),
    ],
)
def test_why_a_limit_is_undecided_does_not_repeat_the_interval(
    facts: dict[str, Any], words: str
) -> None:
    (cause,) = causes_of(mlp(verdicts=(undecided_time(**facts),)), "undecided")
    assert cause.text == words


def test_the_cause_of_a_latency_is_what_bounds_it_where_that_is_known() -> None:
    slow = mlp(timed("latency", [100.0]), timed("gpu_busy", [30.0]))
    bound = replace(slow, bound=Bound("overhead", "back-to-back calls take 90.0us"))
    causes = [broken(one, max_latency="50us")[0].text for one in (slow, bound)]
    assert causes == [
        "the GPU works 30.0us of 100.0us",
        "overhead-bound (back-to-back calls take 90.0us)",
    ]


def test_what_a_baseline_has_and_the_profile_lacks_is_incomplete_and_says_so() -> None:
    lost = ProfileComparison(source="revision", change="same", lost=("syncs",))
    (cause,) = causes_of(held_to(mlp(), lost), "incomplete")
    assert cause.text == "against: syncs is missing; the revision has it"


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_trace_is_told_at_every_width(name: str) -> None:
    """Whatever of a profile could not be had."""
    of = record(name)
    limits = {"max_kernels": 0, "max_syncs": 0, "max_cuda_time": "1us", "forbid_kernels": "a"}
    verdicts = evaluate(of, [parse_keyword(key, value) for key, value in limits.items()])
    over = Test("t.py::t", (replace(of, verdicts=verdicts),), outcome="failed")
    digest = summary_of(Run((over, Test("t.py::u", (of,)))))
    for width in (60, 100, 160):
        for verbosity in (0, 2):
            style = Style(width, verbosity=verbosity)
            assert all(width_of(plain(line)) <= width for line in report_lines(digest, style))


def test_a_kernel_that_may_be_of_another_file_has_the_line_there() -> None:
    new = KernelSide("mul", ("aten::mul",), "src/mlp.py:7")
    change = KernelChange("added", current=new, at=1, lines=("7", "src/other.py:8"))
    diff = KernelDiff(baseline_kernels=0, current_kernels=1, changes=(change,))
    (cause,) = causes_of_diff(diff)
    assert cause.lines == ("src/mlp.py:7", "src/other.py:8")


def test_a_kernel_that_takes_longer_with_another_grid_is_told_with_both() -> None:
    small = kernel("add", "aten::add", us=10.0, source="t.py:5")
    large = replace(small, grid=(2, 1, 1), duration_us=12.5)
    (cause,) = changes([small], [large])
    assert cause == Cause("add: grid 1x1x1 -> 2x1x1, 10.0us -> 12.5us", Place("t.py", 5))
