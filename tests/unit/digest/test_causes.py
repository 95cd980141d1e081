"""Why a row is marked: what came or went, what ran, where, and with which numbers."""

from __future__ import annotations

import pytest
from corpus import NAMES, record
from msgspec.structs import replace
from records import GELU, MLP, MUL, counted, kernel, mlp, profile, timed

from pytest_kernelprof.baseline.diff import diff_profiles
from pytest_kernelprof.digest.causes import causes_of
from pytest_kernelprof.digest.diff_causes import causes_of_diff
from pytest_kernelprof.digest.whole import digest_of
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_keyword
from pytest_kernelprof.report.spans import plain
from pytest_kernelprof.report.style import Style
from pytest_kernelprof.report.terminal import report_lines
from pytest_kernelprof.report.widths import width_of
from pytest_kernelprof.schema.against import AgainstTest, Compared
from pytest_kernelprof.schema.before import RevisionComparison
from pytest_kernelprof.schema.run import (
    Bound,
    Cause,
    Copy,
    Kernel,
    Place,
    Profile,
    Run,
    Test,
    Wait,
)
from pytest_kernelprof.schema.turns import TimedPair, Timing


def broken(of: Profile, **limits: object) -> list[Cause]:
    verdicts = evaluate(of, [parse_keyword(name, value) for name, value in limits.items()])
    return list(causes_of(replace(of, verdicts=verdicts), "over"))


def changes(old: list[Kernel], new: list[Kernel]) -> list[Cause]:
    return list(causes_of_diff(diff_profiles(profile(old), profile(new))))


def test_what_came_is_told_with_what_launched_it_and_where() -> None:
    copy = kernel("elementwise_kernel_copy", "aten::copy_", "MmBackward0", source="t.py:31")
    assert changes(list(MLP), [*MLP, copy]) == [
        Cause("elementwise_kernel_copy, from aten::copy_ < MmBackward0", Place("t.py", 31), "+")
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
        Cause("cudaStreamSynchronize x3, from aten::item", Place("a/t.py", 7))
    ]
    (cause,) = broken(waiting, max_memcpys=0)
    assert cause.text == "4 MB: Memcpy DtoH (Device -> Pageable), from aten::to"


def test_a_time_is_told_by_what_takes_most_of_it() -> None:
    slow = mlp(timed("cuda_time", [50.0] * 12))
    (cause,) = broken(slow, max_cuda_time="10us")
    assert cause.text == "nvjet 256x128x64 TNT x3 takes 30.0us, from aten::mm < aten::linear"


def test_kernels_of_one_kind_are_counted_together_whichever_lines_launch_them() -> None:
    kernels = [kernel(MUL, "aten::mul", source=f"mlp.py:{line}") for line in (6, 7)]
    (cause,) = broken(profile([MLP[0], *kernels], place=Place("test_mlp.py", 3)), max_kernels=2)
    assert cause == Cause(
        "vectorized_elementwise [mul] x2, from aten::mul; "
        "nvjet 256x128x64 TNT, from aten::mm < aten::linear",
        Place("test_mlp.py", 3),
    )


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
        "80 % of a call the GPU has nothing to do: 5 launches of 16.0us each for kernels of 4.0us"
    )


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (
            {"forbid_kernels": "gelu"},
            "forbid_kernels: vectorized_elementwise [gelu], from aten::gelu",
        ),
        (
            {"expect_kernels": ["mm", "relu", ...]},
            "expect_kernels: kernel 2 is to be 'relu', not vectorized_elementwise [gelu], from "
            "aten::gelu",
        ),
        (
            {"max_kernels": {"n": 0, "match": "gelu"}},
            "max_kernels(match='gelu'): 1 > 0; vectorized_elementwise [gelu], from aten::gelu",
        ),
    ],
)
def test_limits_on_names_say_which_and_what_has_no_cell_says_its_numbers(
    limits: dict[str, object], text: str
) -> None:
    (cause,) = broken(mlp(), **limits)
    assert cause.text == text


def test_a_revision_says_what_came_and_its_numbers_stand_in_the_cells() -> None:
    new = profile([*MLP, kernel(MUL, "aten::mul", source="mlp.py:43")])
    compared = Compared("", diff_profiles(mlp(), new), worse=("kernels",))
    found = RevisionComparison(
        "main (abc)", tests=(AgainstTest("t.py::t", "worse", "", (compared,)),)
    )
    run = Run((Test("t.py::t", (new,), outcome="failed"),), against=found)
    (row,) = digest_of(run).rows
    assert [(one.measured, one.allowed, one.by) for one in row.broken.values()] == [
        (6, 5, "against")
    ]
    assert [(one.sign, one.place) for one in row.causes] == [("+", Place("mlp.py", 43))]


def test_what_is_slower_than_a_revision_says_by_how_much_and_how_sure_that_is() -> None:
    pair = TimedPair("candidate", 1.08, 4, 100.0, 108.0)
    timing = Timing("worse", ratio=1.08, pairs=(pair,) * 4, agreeing=4, old_us=100.0, new_us=108.0)
    compared = Compared("", diff_profiles(mlp(), mlp()), timing=timing)
    found = RevisionComparison("main", tests=(AgainstTest("t.py::t", "worse", "", (compared,)),))
    digest = digest_of(Run((Test("t.py::t", (mlp(),), outcome="failed"),), against=found))
    (row,) = digest.rows
    assert row.told == "over"
    assert [one.text for one in row.causes] == [
        "GPU time 100.0us -> 108.0us, +8.0 % in 4 of 4 pairs"
    ]
    assert digest.sentence == "1 test is worse than main."


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_trace_is_told_at_every_width(name: str) -> None:
    """Whatever of a profile could not be had."""
    of = record(name)
    limits = {"max_kernels": 0, "max_syncs": 0, "max_cuda_time": "1us", "forbid_kernels": "a"}
    verdicts = evaluate(of, [parse_keyword(key, value) for key, value in limits.items()])
    over = Test("t.py::t", (replace(of, verdicts=verdicts),), outcome="failed")
    digest = digest_of(Run((over, Test("t.py::u", (of,)))))
    for width in (60, 100, 160):
        for every_row in (False, True):
            style = Style(width, verbosity=2, every_row=every_row)
            assert all(width_of(plain(line)) <= width for line in report_lines(digest, style))
