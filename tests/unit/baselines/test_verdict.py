"""Whether a test is worse than a revision, by what it took on both sides."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace
from records import (
    CPU,
    H200,
    MLP,
    MUL,
    absent,
    around,
    counted,
    failure_of,
    held_to,
    kernel,
    profile,
    run_compared,
)

from pytest_kernelprof.baselines.protocol import Done
from pytest_kernelprof.baselines.timing import Timed
from pytest_kernelprof.baselines.verdict import judge, why_judged
from pytest_kernelprof.comparison.judge import STATUS_OF
from pytest_kernelprof.kernel_names.short_names import short_name
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_keyword
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.comparison import (
    SIDES,
    Change,
    Paired,
    PairedChange,
    ProfileComparison,
    RunComparison,
    TimedPair,
)
from pytest_kernelprof.records.document import Test
from pytest_kernelprof.records.profile import Profile, Verdict
from pytest_kernelprof.records.recording import Conditions, Integrity, Neighbour
from pytest_kernelprof.report.tables import Style, plain
from pytest_kernelprof.report.terminal import report_lines
from pytest_kernelprof.summary.comparisons import BaselineSummary, result_of
from pytest_kernelprof.summary.run import summary_of

NAME = "main (abc1234)"
BUSY = Conditions(contenders=(Neighbour(7, 50),))
REACHED = ("pkg/mlp.py",)
EXTRA = (*MLP, kernel(MUL, "aten::mul", source="/t/pkg/mlp.py:31"))


def judged(
    new: list[Profile], old: list[Profile], call: Timed | None = None
) -> tuple[ProfileComparison, ...]:
    answer = Done("t.py::a", Test("t.py::a", tuple(old)), reached=REACHED)
    found = judge(new, answer, {"": call} if call else {})
    return tuple(replace(one, test="t.py::a") for one in found)


def found(new: Profile, old: Profile) -> ProfileComparison:
    (one,) = judged([new], [old])
    return one


def worse(told: ProfileComparison) -> tuple[str, ...]:
    return tuple(one.name for one in told.worse)


def test_more_kernels_are_worse_and_named() -> None:
    extra = profile(EXTRA)
    told = found(extra, profile(MLP))
    assert (told.source, told.change) == ("revision", "worse")
    assert worse(told) == ("kernels", "launches")
    lines = failure_of(held_to(extra, told), base=NAME).splitlines()
    assert lines[:3] == [
        "worse than main: kernels 5 -> 6",
        "  at mlp.py:31",
        "  added kernel: vectorized_elementwise [mul]",
    ]
    (new,) = [line for line in lines if line.startswith("+ 6")]
    assert new.endswith("mlp.py:31  aten::mul")


def test_fewer_are_better_and_equal_ones_the_same() -> None:
    assert found(profile(MLP), profile(EXTRA)).change == "better"
    assert found(profile(MLP), profile(MLP)).change == "same"


def test_other_kernels_at_equal_counts_are_changed() -> None:
    told = found(profile([*MLP[:4], kernel("mine", "aten::mm")]), profile(MLP))
    assert (told.change, told.metrics) == ("changed", ())


@pytest.mark.parametrize("name", ["syncs", "memcpys", "memcpy_bytes", "allocations", "peak_memory"])
def test_all_that_is_exact_is_compared(name: str) -> None:
    old, new = (profile(MLP, [counted(name, n, n)]) for n in (1, 2))
    assert worse(found(new, old)) == (name,)


def test_times_and_memsets_are_not() -> None:
    old = profile(MLP, [around("cuda_time", 100), counted("memsets", 0)])
    slower = [replace(one, duration_us=99.0) for one in MLP]
    new = profile(slower, [around("cuda_time", 900), counted("memsets", 4)])
    told = found(new, old)
    assert told.change == "same"
    assert [(delta.name, delta.change) for delta in told.metrics] == [("memsets", None)]
    assert told.kernels
    assert (told.kernels.changes, told.kernels.current_us) == ((), None)


def test_what_the_revision_does_not_have_is_not_compared_and_what_it_alone_has_is_lost() -> None:
    without, has = profile(MLP, [absent("syncs")]), profile(MLP, [counted("syncs", 3)])
    assert (found(has, without).change, found(has, without).lost) == ("same", ())
    assert found(without, has).lost == ("syncs",)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"integrity": Integrity(("2 kernels are lost",))}, "is incomplete: 2 kernels are lost"),
        ({"integrity": Integrity(cold=("lazy loading",))}, "cold"),
        ({"integrity": Integrity(settled=False)}, "cold"),
        (
            {"metrics": [counted("kernels", 5, 6), counted("launches", 5)]},
            "kernels differ from round to round",
        ),
    ],
)
def test_counts_that_are_in_doubt_are_no_verdict(more: dict[str, Any], why: str) -> None:
    for old, new in (
        (profile(MLP), profile(EXTRA, **more)),
        (profile(EXTRA, **more), profile(MLP, [counted("launches", 5)])),
    ):
        told = found(new, old)
        assert told.change == "not compared"
        assert why in told.reason


def test_a_count_that_varies_is_worse_where_its_least_is_above() -> None:
    def calls(*rounds: int) -> Profile:
        return profile(MLP, [counted("syncs", *rounds)])

    assert worse(found(calls(50, 51, 52), calls(2, 2, 2))) == ("syncs",)
    assert worse(found(calls(50, 51, 52), calls(2, 9, 49))) == ("syncs",)
    assert found(calls(2, 2, 2), calls(50, 51, 52)).change == "better"
    for overlapping in (calls(2, 9), calls(2, 3)):
        told = found(overlapping, calls(2, 2))
        assert (told.change, told.reason) == ("not compared", "syncs differ from round to round")


def test_profiles_are_paired_by_label_and_order() -> None:
    one, two = profile(MLP, label="f"), profile(EXTRA, label="f")
    assert [each.change for each in judged([one, two], [one, two])] == ["same", "same"]
    told = judged([two, one], [one, two])
    assert [(each.label, each.change) for each in told] == [("f", "worse"), ("f", "better")]
    assert "  in f" in failure_of(held_to(two, told[0]), base="main")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ([profile(MLP)], [profile(MLP), profile(MLP)], "2 profiles, 1 in the baseline"),
        ([profile(label="a")], [profile(label="b")], "'b' is not profiled in the baseline"),
        ([profile(environment=CPU)], [profile(environment=H200)], "H200, in the baseline on CPU"),
        ([profile(one_shot=True)], [profile()], "a call, in the baseline a block"),
        ([], [profile()], "1 profiles, 0 in the baseline"),
    ],
)
def test_other_work_is_not_compared(old: list[Profile], new: list[Profile], why: str) -> None:
    for told in judged(new, old):
        assert told.change == "not compared"
        assert told.reason.startswith("different work: ")
        assert why in told.reason


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("the reference died", "the baseline cannot run it: the reference died"),
        (Done("a", failure="AttributeError: x"), "the baseline cannot run it: AttributeError: x"),
        (
            Done("a", skipped="no CUDA device"),
            "the baseline cannot run it: skipped: no CUDA device",
        ),
        (Done("a"), "the test uses no file of the revision, only tests"),
    ],
)
def test_why_a_revision_says_nothing(answer: Done | str, why: str) -> None:
    told = judge([profile(MLP), profile(MLP, label="b")], answer)
    assert [(one.label, one.change, one.reason) for one in told] == [
        ("", "not compared", why),
        ("b", "not compared", why),
    ]


def test_where_nothing_was_measured_is_told_with_the_reason() -> None:
    nothing = profile(
        environment=replace(CPU, device=""), integrity=Integrity(("the GPU is in use",))
    )
    here, there = found(nothing, profile(MLP)), found(profile(MLP), nothing)
    assert here.reason == "nothing is measured: the GPU is in use"
    assert there.reason == "the baseline measures nothing: the GPU is in use"


def held(change: Change, **more: Any) -> Verdict:
    """By its snapshot."""
    compared = ProfileComparison(source="snapshot", change=change, **more)
    outcome = STATUS_OF[change]
    return Verdict(limit="snapshot", outcome=outcome, device="cuda", comparison=compared)


def test_more_is_accepted_where_the_snapshot_allows_it() -> None:
    told = found(replace(profile(EXTRA), verdicts=(held("same"),)), profile(MLP))
    assert (told.change, told.reason, result_of(told)) == ("changed", "", "accepted")
    assert (told.accepted, told.worse) == (("kernels", "launches"), ())
    assert digest(told).failure == ""
    assert digest(told).sentence == ("none of 1 test is worse than main (abc1234)")
    accepted = ["  kernels  test", "accepted by snapshot", "t.py", "✓  5 -> 6  a"]
    assert lines_of(told)[2:6] == accepted


@pytest.mark.parametrize(
    ("verdicts", "names"),
    [
        ((held("worse"),), ("kernels", "launches")),
        ((held("same", lost=("launches",)),), ("launches",)),
        ((Verdict(limit="max_kernels", outcome="passed", device="cuda"),), ("kernels", "launches")),
    ],
)
def test_what_the_snapshot_does_not_hold_is_not_accepted(
    verdicts: tuple[Verdict, ...], names: tuple[str, ...]
) -> None:
    told = found(replace(profile(EXTRA), verdicts=verdicts), profile(MLP))
    assert (told.change, worse(told)) == ("worse", names)


@pytest.mark.parametrize(
    ("name", "accepted"), [("memcpys", True), ("memcpy_bytes", True), ("peak_memory", False)]
)
def test_what_a_snapshot_does_not_keep_it_cannot_accept(name: str, accepted: bool) -> None:
    old, new = (profile(MLP, [counted(name, n, n)]) for n in (1, 2))
    told = found(replace(new, verdicts=(held("same"),)), old)
    assert result_of(told) == ("accepted" if accepted else "worse")


def test_counts_that_are_worse_judge_a_call_before_its_times() -> None:
    accepted = replace(profile(EXTRA), verdicts=(held("same"),))
    assert why_judged(profile(MLP), profile(EXTRA), is_reviewed=True) == (
        "more kernels, launches already fail the test"
    )
    assert why_judged(profile(MLP), accepted, is_reviewed=True) == ""
    assert "already fail" in why_judged(profile(MLP), accepted, is_reviewed=False)
    for old, new in ((profile(MLP), profile(MLP)), (profile(EXTRA), profile(MLP))):
        assert why_judged(old, new, is_reviewed=True) == ""
    assert why_judged(None, profile(EXTRA), is_reviewed=True) == ""
    numbers = replace(profile(MLP), kernels=(), kernels_kept=False)
    assert "already fail" in why_judged(numbers, profile(EXTRA), is_reviewed=True)
    other = versions(profile(MLP), torch="2.11.0")
    assert why_judged(other, profile(EXTRA), is_reviewed=True) == "the baseline has other software"
    cold = profile(EXTRA, integrity=Integrity(cold=("lazy loading",)))
    assert why_judged(profile(MLP), cold, is_reviewed=True) == ""


def versions(one: Profile, **other: str) -> Profile:
    environment = replace(one.environment, versions={**one.environment.versions, **other})
    return replace(one, environment=environment)


def test_with_other_software_a_difference_is_no_verdict_and_equal_counts_hold() -> None:
    old = versions(profile(MLP), torch="2.9.0", python="3.10.1")
    new = versions(profile(EXTRA), torch="2.11.0", python="3.11.2")
    told = found(new, old)
    assert told.change == "not compared"
    assert told.reason == "kernels differ, and so does the software: torch 2.9.0 -> 2.11.0"
    assert told.notes == ("other software: python 3.10.1 -> 3.11.2; torch 2.9.0 -> 2.11.0",)
    told = found(versions(profile(MLP), torch="2.11.0"), old)
    assert (told.change, len(told.notes)) == ("same", 1)


def test_with_other_software_or_an_incomplete_profile_nothing_is_missing() -> None:
    old, new = profile(MLP, [counted("syncs", 3)]), profile(MLP, [absent("syncs")])
    assert found(new, old).lost == ("syncs",)
    assert found(versions(new, torch="2.12.0"), old).lost == ()
    assert found(replace(new, integrity=Integrity(problems=("lost",))), old).lost == ()


def elsewhere(new: Profile, old: Profile, call: Timed | None = None) -> ProfileComparison:
    """The comparison with the same code in another environment, where nobody looks for files of a
    revision."""
    answer = Done("t.py::a", Test("t.py::a", (old,)))
    (one,) = judge([new], answer, {"": call} if call else {}, "environment")
    return one


def test_in_another_environment_other_software_is_the_question_and_forbids_nothing() -> None:
    old = versions(profile(MLP), torch="2.9.0", triton="3.4.0", python="3.10.1")
    new = versions(profile(EXTRA), torch="2.11.0", triton="3.6.0", python="3.11.2")
    told = elsewhere(new, old)
    assert (told.source, told.change, worse(told)) == (
        "environment",
        "worse",
        ("kernels", "launches"),
    )
    assert "triton 3.4.0 -> 3.6.0" in told.differences
    assert elsewhere(old, new).change == "better"
    assert elsewhere(versions(profile(MLP), triton="3.6.0"), old).change == "same"
    slower = elsewhere(versions(profile(MLP), triton="3.6.0"), old, Timed(paired("worse")))
    assert (slower.change, slower.fails) == ("worse", True)
    assert found(versions(profile(MLP), triton="3.6.0"), old).paired is None  # of a revision
    assert why_judged(old, versions(profile(MLP), torch="2.11.0"), is_reviewed=False) != ""
    assert not why_judged(
        old, versions(profile(MLP), torch="2.11.0"), is_reviewed=False, source="environment"
    )


def test_in_another_environment_a_metric_that_only_that_one_has_is_missing() -> None:
    old, new = profile(MLP, [counted("syncs", 3)]), profile(MLP, [absent("syncs")])
    told = elsewhere(versions(new, torch="2.12.0"), old)
    assert (told.change, told.lost) == ("not compared", ("syncs",))
    assert told.reason == "syncs is missing; the other environment has it"


def test_a_kernel_that_another_toolchain_names_otherwise_is_renamed_and_not_worse() -> None:
    other = kernel("gelu_of_the_older_compiler", "aten::gelu", source=MLP[1].source)
    old = versions(profile([MLP[0], other, *MLP[2:]]), triton="3.4.0")
    new = versions(profile(MLP), triton="3.6.0")
    told = elsewhere(new, old)
    assert told.kernels is not None
    assert [one.kind for one in told.kernels.changes] == ["renamed"]
    assert (told.change, told.fails) == ("changed", False)
    call = Timed(paired("worse"), kernels_us=dict.fromkeys(SIDES, (10.0,) * 5))
    told = elsewhere(new, old, call)
    assert told.kernels is not None
    assert (told.kernels.changes[0].kind, told.change) == ("renamed", "worse")


def test_another_python_says_nothing_of_recompilations_alone() -> None:
    old, new = (
        versions(profile(kernels, [counted("recompiles", n, n)]), python=python)
        for kernels, n, python in ((MLP, 0, "3.10.1"), (MLP, 1, "3.11.2"))
    )
    assert found(new, old).change == "not compared"
    assert found(versions(profile(EXTRA), python="3.11.2"), old).change == "worse"


def test_files_of_the_users_and_code_among_the_tests_are_told() -> None:
    test = Test("t.py::a", (profile(MLP),))
    opened = ("a.bin", "b.bin", "c.bin", "d.bin")
    done = Done("t.py::a", test, reached=REACHED, opened=opened, lines=("tests/model.py",))
    first, second = judge([profile(MLP)] * 2, replace(done, test=Test("t", (profile(MLP),) * 2)))
    assert second.notes == ()
    assert first.notes == (
        "the baseline opened files of your folder: a.bin, b.bin, c.bin and 1 more",
        "all lines that launch kernels are in your tests, which replace those of the revision: "
        "tests/model.py",
    )


def digest(*told: ProfileComparison) -> BaselineSummary:
    return BaselineSummary(RunComparison(source="revision", name=NAME), told)


def lines_of(*told: ProfileComparison, width: int = 160, verbosity: int = 0) -> list[str]:
    summary, style = summary_of(run_compared(*told, name=NAME)), Style(width, "utf-8", verbosity)
    return [plain(line) for line in report_lines(summary, style, brief=True)]


def row_of(told: ProfileComparison) -> str:
    return " ".join(" ".join(lines_of(told, verbosity=1)).split())


def paired(change: PairedChange, ratio: float = 1.08, **more: Any) -> Paired:
    pair = TimedPair("current", ratio, 6, 100.0, 100.0 * ratio)
    us = {"baseline_us": 233.1, "current_us": 233.1 * ratio}
    facts: dict[str, Any] = {"agreeing": 4, "margin": 0.05, **us, **more}
    return Paired(change, ratio=ratio, pairs=(pair,) * 4, **facts)


def timed(call: Timed, new: Profile | None = None, old: Profile | None = None) -> ProfileComparison:
    (one,) = judged([new or profile(MLP)], [old or profile(MLP)], call)
    return one


def test_slower_is_worse_and_the_kernels_that_are_slower_are_named() -> None:
    us = tuple(one.duration_us for one in MLP)
    call = Timed(paired("worse"), kernels_us={"baseline": us, "current": (*us[:-1], us[-1] * 1.3)})
    told = timed(call)
    assert told.change == "worse"
    lines = failure_of(held_to(profile(MLP), told), base=NAME).splitlines()
    assert lines[:2] == [
        "worse than main: GPU time +8.0 %, margin 5 %",
        "  mean of 4 interleaved pairs, all beyond the margin; medians 233.1us -> 251.7us",
    ]
    name, at = short_name(MLP[-1].name), lines.index("  against main (abc1234): ~ changed")
    assert lines[at + 1].split() == ["time", "kernel", "launched", "by"]
    assert re.match(rf"~ {us[-1]:.1f}us -> \S+ +{re.escape(name)} x3 ", lines[at + 2])
    assert not any(line.split()[:1] == ["#"] for line in lines)  # other times, of one call
    (todo,) = (line for line in lines if "to do: " in line)
    assert todo == f"  to do: find what slows down {name} x3 (shapes, dtype, layout)"


def test_slower_kernels_do_not_hide_those_of_a_limit_that_is_broken_too() -> None:
    us = tuple(one.duration_us for one in MLP)
    told = timed(
        Timed(paired("worse"), kernels_us={"baseline": us, "current": (*us[:-1], us[-1] * 1.3)})
    )
    over = profile(MLP)
    over = replace(over, verdicts=evaluate(over, [parse_keyword("max_kernels", 4)]))
    lines = [line.split() for line in failure_of(held_to(over, told), base=NAME).splitlines()]
    table = lines[lines.index(["kernels", "of", "one", "call,", "measured", "by", "itself:"]) + 1 :]
    assert table[0][0] == "#"
    assert len([line for line in table if line[:1] and line[0][0].isdigit()]) >= 3


@pytest.mark.parametrize(
    ("call", "change", "words"),
    [
        (paired("same", 1.0), "same", ""),
        (paired("better", 0.8), "better", "faster in 4 of 4 pairs"),
        (paired("undecided", 1.03), "undecided", "? 5 5 233.1 -> 240.1 +3.0 % +3.0..+3.0 % a "),
        (
            paired("undecided", why="no room"),
            "undecided",
            "medians 233.1us -> 251.7us undecided, no room",
        ),
        (
            paired("undecided", disturbed=BUSY),
            "undecided",
            "other processes worked on this GPU (pid 7 up to 50 %)",
        ),
        (Paired("not compared", "MPS"), "same", ""),
    ],
)
def test_what_follows_of_times(call: Paired, change: str, words: str) -> None:
    told = timed(Timed(call))
    assert told.change == change
    assert told.paired == call
    assert words in row_of(told)


def test_more_kernels_are_worse_whatever_the_times_are() -> None:
    assert timed(Timed(paired("better", 0.8)), profile(EXTRA)).change == "worse"
    untimed = Timed(Paired("not compared"), "the result is x")
    assert timed(untimed, profile(EXTRA)).change == "worse"


def test_other_work_is_told_and_not_judged() -> None:
    told = timed(Timed(Paired("not compared"), "the result is x, in the baseline y"))
    assert (told.change, told.reason) == (
        "not compared",
        "different work: the result is x, in the baseline y",
    )


def test_in_another_configuration_slower_needs_all_pairs() -> None:
    moved = tuple(replace(one, grid=(7, 7, 7)) for one in MLP)
    assert timed(Timed(paired("worse", agreeing=3)), profile(moved)).change == "undecided"
    assert timed(Timed(paired("worse", agreeing=4)), profile(moved)).change == "worse"
    assert timed(Timed(paired("worse", agreeing=3))).change == "worse"


def test_a_power_limit_that_one_side_could_not_read_is_no_other_software() -> None:
    limited = profile(MLP, environment=replace(H200, power_limit_w=700))
    told = timed(Timed(paired("worse")), limited)
    assert (told.change, told.notes) == ("worse", ())


def test_latency_is_shown_and_not_judged() -> None:
    old, new = (profile(MLP, [around("latency", us)]) for us in (40.0, 90.0))
    told = timed(Timed(paired("undecided", 1.03)), new, old)
    assert "45.5 -> 95.5 a " in row_of(told)
    assert "margin 5 %, their GPU time +3.0 %" in row_of(told)


def test_a_block_has_no_times() -> None:
    told = timed(Timed(paired("worse")), profile(MLP, one_shot=True), profile(MLP, one_shot=True))
    assert (told.change, told.paired) == ("same", None)


def test_the_line_counts_what_is_undecided_and_the_record_is_json() -> None:
    told = timed(Timed(paired("undecided", 1.03, disturbed=BUSY)))
    assert digest(told).sentence == "none of 1 test is worse than main (abc1234)"
    assert digest(told).failure == ""
    assert codec.decode(codec.encode(told), ProfileComparison) == told


def test_the_line_at_the_end() -> None:
    changes: list[Change] = ["same", "same", "same", "better", *(["not compared"] * 3)]  # type: ignore[list-item]
    told = [
        ProfileComparison(source="revision", test=f"t.py::{i}", change=one)
        for i, one in enumerate(changes)
    ]
    all_of_them = digest(*told, found(profile(EXTRA), profile(MLP)))
    assert all_of_them.sentence == ("1 of 5 compared tests is worse than main (abc1234)")
    assert all_of_them.failure == "1 test is worse than main"
    assert digest(*told[-3:]).sentence == "no test could be compared with main (abc1234)"
    assert digest(*told[:4]).failure == ""
    assert digest(*told[-3:]).failure == "nothing could be compared"
    assert digest().failure == "nothing could be compared"
