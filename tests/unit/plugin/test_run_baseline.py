"""A profile judged by an earlier run: its verdict, and what the engine samples on by."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from records import H200, MIXED, absent, around, calls_of, counted, failure_of, of_ranks, timed

from pytest_kernelprof.baselines.run_documents import profiles_of
from pytest_kernelprof.comparison.judge import Allowance, allowances
from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.measure.policy import (
    EVERYTHING,
    Judge,
    ProfileRounds,
    Shown,
    WarmUp,
    next_step,
    plan_of,
)
from pytest_kernelprof.plugin.run_baseline import Baseline, baseline_of, write_profiles
from pytest_kernelprof.records.document import Test
from pytest_kernelprof.records.profile import Profile, Verdict
from pytest_kernelprof.records.recording import Conditions, Integrity
from pytest_kernelprof.summary.verdicts import verdict_line

ID = "test_it.py::test_it"
COUNTS = allowances(())
TIMES = allowances((Allowance("cuda_time", share=0.05), Allowance("latency", share=0.05)))
LOST = Integrity(problems=("1 of 2 launches has no kernel",))
COLD = Integrity(cold=("lazy loading",))
NEWER = replace(H200, versions={**H200.versions, "torch": "2.12.0+cu130"})


def earlier(*profiles: Profile, allowed: dict[str, Allowance] = COUNTS) -> Baseline:
    return Baseline(ID, profiles_of([Test(ID, profiles)]), allowed)


def judged(on: Baseline, profile: Profile) -> Profile:
    found = replace(profile, verdicts=on.verdicts(profile))
    on.note(found)
    return found


def verdict(on: Baseline, profile: Profile) -> Verdict:
    (found,) = judged(on, profile).verdicts
    return found


@pytest.mark.parametrize(
    ("new", "outcome", "why"),
    [
        (calls_of(2), "passed", ""),
        (calls_of(1), "passed", ""),
        (calls_of(3), "failed", ""),
        (calls_of(3, integrity=COLD), "failed", ""),
        (calls_of(3, environment=NEWER), "passed", ""),
        (calls_of(2, integrity=LOST), "incomplete", "1 of 2 launches has no kernel"),
        (calls_of(2, one_shot=True), "not judged", "it was a call and is a block"),
    ],
)
def test_how_a_profile_fares(new: Profile, outcome: str, why: str) -> None:
    found = verdict(earlier(calls_of(2)), new)
    assert (found.limit, found.outcome, found.why) == ("earlier run", outcome, why)


def test_a_block_that_was_cold_and_has_more_is_not_judged() -> None:
    found = verdict(earlier(calls_of(2, one_shot=True)), calls_of(3, one_shot=True, integrity=COLD))
    assert (found.outcome, found.why) == ("not judged", "kernels 2 -> 3, launches 2 -> 3, but cold")


def test_a_number_that_was_had_and_is_not_now_is_no_pass() -> None:
    on = earlier(calls_of(1, counted("syncs", 0)))
    found = verdict(on, calls_of(1, absent("syncs")))
    assert (found.outcome, found.why) == ("incomplete", "syncs is missing; the earlier run has it")


def test_profiles_are_judged_each_by_that_of_its_place() -> None:
    on = earlier(calls_of(2), calls_of(5, label="b"), calls_of(4, label="b"))
    several = [calls_of(2), calls_of(5, label="b"), calls_of(5, label="b"), calls_of(9, label="b")]
    outcomes = [[one.outcome for one in judged(on, profile).verdicts] for profile in several]
    assert outcomes == [["passed"], ["passed"], ["failed"], []]


def test_a_failure_says_what_is_more_and_which_kernels_came() -> None:
    new = judged(earlier(calls_of(2)), calls_of(3, around("cuda_time", 100)))
    lines = failure_of(new).splitlines()
    assert lines[:2] == ["worse than the earlier run: kernels 2 -> 3", "  added kernel: gelu"]
    rows = [" ".join(line.split()) for line in lines]
    assert "against the earlier run: + new" in rows
    assert rows[-2:] == ["1..2 20.0 gelu x2 aten::gelu", "+ 3 10.0 gelu aten::gelu"]
    assert "to do: remove the added kernel, or fuse it (torch.compile)" in rows


def test_a_time_says_by_how_much_and_how_sure_that_is() -> None:
    on = earlier(calls_of(1, around("cuda_time", 100)), allowed=TIMES)
    new = judged(on, calls_of(1, around("cuda_time", 150)))
    assert failure_of(new).splitlines()[:2] == [
        "worse than the earlier run: cuda_time 105.5us -> 155.5us",
        "  cuda_time 105.5us -> 155.5us (+47.4 %, 99 % CI 151.0..160.0us)",
    ]


def test_times_of_another_power_limit_or_a_disturbed_gpu_fail_nothing() -> None:
    slow = around("cuda_time", 200)
    other = calls_of(1, slow, environment=replace(H200, power_limit_w=500))
    disturbed = calls_of(1, slow, conditions=Conditions(not_alone="held by pid 5"))
    fared = [
        verdict(earlier(calls_of(1, around("cuda_time", 100)), allowed=TIMES), one)
        for one in (other, disturbed)
    ]
    assert [one.outcome for one in fared] == ["passed", "undecided"]
    doubt = "the GPU was disturbed"
    assert verdict_line(fared[1]) == f"earlier run: its times: undecided, {doubt}"


def sampled(on: Baseline, *rounds_us: float) -> list[str]:
    """What the engine asks for, where each session takes cuda_time around one of these."""
    plan = plan_of("cuda", EVERYTHING)
    history = [Shown(WarmUp(0, 1))]
    values: list[float] = []
    asked = []
    while (step := next_step(plan, history)) is not None:
        shown = Shown(step)
        if isinstance(step, ProfileRounds):
            us = rounds_us[min(len(asked), len(rounds_us) - 1)]
            values += [us + MIXED[i % 12] for i in range(step.rounds)]
            asked.append(f"{step.rounds} more" if asked else f"{step.rounds}")
        elif isinstance(step, Judge):
            so_far = calls_of(1, timed("cuda_time", values), around("latency", 300))
            shown = Shown(step, verdicts=on.times_so_far(so_far))
        history.append(shown)
    return asked


@pytest.mark.parametrize(
    ("sessions", "asked"),
    [
        ((100,), ["12"]),
        ((150,), ["12", "12 more"]),  # a second session says the same
        ((150, 100), ["12", "12 more", "24 more"]),  # it does not: more rounds decide
        ((106,), ["12", "12 more", "24 more", "48 more"]),  # the interval holds what is allowed
    ],
)
def test_a_time_that_seems_worse_is_looked_at_again(
    sessions: tuple[float, ...], asked: list[str]
) -> None:
    on = earlier(calls_of(1, around("cuda_time", 100), around("latency", 300)), allowed=TIMES)
    assert sampled(on, *sessions)[: len(asked)] == asked
    assert (len(sampled(on, *sessions)) == 1) == (asked == ["12"])


def test_a_time_of_the_host_that_seems_worse_has_a_second_look() -> None:
    on = earlier(calls_of(1, around("latency", 100)), allowed=TIMES)
    slow = calls_of(1, around("latency", 200))
    assert [(one.metric, one.outcome) for one in on.times_so_far(slow)] == [("latency", "failed")]
    fast = replace(slow, second_look={"latency": around("latency", 100)})
    assert [one.outcome for one in on.times_so_far(fast)] == ["undecided"]
    found = verdict(on, fast)
    assert (found.outcome, found.reason) == ("undecided", "second look")


def test_times_that_fail_nothing_take_no_more_rounds() -> None:
    on = earlier(calls_of(1, around("cuda_time", 100)))
    assert on.times_so_far(calls_of(1, around("cuda_time", 200))) == ()


def test_each_test_is_read_by_itself_and_one_that_the_run_has_not_has_nothing(
    tmp_path: Path,
) -> None:
    file = str(tmp_path / "profiles")
    write_profiles(file, [Test(ID, (calls_of(1),))])
    found = baseline_of(file, COUNTS, ID)
    assert found is not None
    assert verdict(found, calls_of(2)).outcome == "failed"
    assert baseline_of(file, COUNTS, "test_it.py::test_new") is None


def test_a_file_of_profiles_that_is_gone_is_no_internal_error(tmp_path: Path) -> None:
    with pytest.raises(IncompleteProfile, match="cannot be read here"):
        baseline_of(str(tmp_path / "gone"), COUNTS, ID)


def test_a_rank_that_launches_more_is_named() -> None:
    on = earlier(of_ranks(calls_of(2), calls_of(2)))
    new = judged(on, of_ranks(calls_of(2), calls_of(3)))
    (found,) = new.verdicts
    assert (found.outcome, found.ranks) == ("failed", (1,))
    assert verdict_line(found) == "earlier run: kernels 2 -> 3 on rank 1"
