"""What follows from what a test took, and what is kept of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as replace_record
from records import CPU, around, counted, kernel, mlp, profile

from pytest_kernelprof.capture.scratch import Folder, Saved
from pytest_kernelprof.capture.session import TraceFile
from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import Limit, parse_keyword, parse_limit
from pytest_kernelprof.limits.marks import Marks
from pytest_kernelprof.measure.runner import Measurement
from pytest_kernelprof.plugin.ledger import (
    MOST_KERNELS,
    MOST_TRACES,
    Asked,
    Conclusion,
    Ledger,
    Records,
    Unmeasured,
    conclude,
)
from pytest_kernelprof.schema.recording import Recording
from pytest_kernelprof.schema.run import Integrity, Place, Profile

LOST = Integrity(problems=("2 launch calls have no kernel in the trace",), retakes=2)


STEP = Unmeasured("region 'step'", ("max_syncs",), "enter it")


def limits(**given: Any) -> tuple[Limit, ...]:
    return tuple(parse_keyword(name, value) for name, value in given.items())


def judged(profile: Profile, **given: Any) -> Profile:
    return replace_record(profile, verdicts=evaluate(profile, limits(**given)))


def of(*profiles: Profile, **more: Any) -> Conclusion:
    return conclude(Records(profiles=profiles, profiled=True, **more))


def test_kept_limits_are_nothing_to_tell() -> None:
    assert of(judged(mlp(), max_kernels=5)) == Conclusion()


def test_all_violations_of_all_profiles_stand_in_one_failure() -> None:
    found = of(judged(mlp(), max_kernels=4, max_launches=3), judged(mlp(), max_kernels=1))
    lines = found.failure.splitlines()
    assert lines[:2] == ["max_kernels: 5 > 4", "max_launches: 5 > 3"]
    assert "max_kernels: 5 > 1" in lines[2:]


def test_a_violated_limit_wins_over_a_number_that_could_not_be_had() -> None:
    found = of(judged(mlp(integrity=LOST), max_kernels=4, max_syncs=0))
    assert found.failure.startswith("max_kernels: 5 > 4")
    assert not found.error


def test_a_kept_limit_on_an_incomplete_profile_is_an_error_that_says_what_is_missing() -> None:
    found = of(judged(mlp(integrity=LOST), max_kernels=5))
    assert not found.failure
    assert found.error.startswith(
        "profile incomplete (taken 3 times): 2 launch calls have no kernel in the trace."
    )


def test_an_incomplete_profile_without_a_limit_is_an_error_too() -> None:
    assert "profile incomplete" in of(mlp(integrity=LOST)).error


def test_what_nobody_asked_for_is_no_error() -> None:
    assert of(mlp(integrity=LOST), asked=False) == Conclusion()
    assert conclude(Records(asked=False)) == Conclusion()
    assert "profile incomplete" in of(mlp(integrity=LOST), asked=False, limits=("x",)).error


def test_a_metric_that_was_not_measured_is_an_error_with_its_reason() -> None:
    found = of(judged(mlp(), max_latency="1s"))
    assert found.error == "max_latency: not measured: nobody asked"


@pytest.mark.parametrize(
    ("policy", "told"), [("warn", "warnings"), ("fail", "failure"), ("pass", "")]
)
def test_what_is_undecided_does_what_was_asked(policy: str, told: str) -> None:
    undecided = judged(mlp(around("cuda_time", 100.0)), max_cuda_time="105us")
    found = of(undecided, undecided=policy)
    assert {name for name in ("failure", "error", "skip", "warnings") if getattr(found, name)} == (
        {told} if told else set()
    )
    if told == "warnings":
        assert found.warnings[0].startswith("max_cuda_time: 105.5us, limit 105.0us")
        assert "UNDECIDED" in found.warnings[0]


def test_a_test_whose_limits_all_need_a_gpu_skips_on_the_cpu() -> None:
    found = of(judged(profile(environment=CPU), max_syncs=0, max_launches=1))
    assert found == Conclusion(skip="not applicable on the CPU: max_syncs, max_launches")


def test_beside_one_that_applies_it_does_not_skip() -> None:
    assert of(judged(profile(environment=CPU), max_syncs=0, max_kernels=0)) == Conclusion()


def test_a_test_that_asks_and_profiles_nothing_is_an_error() -> None:
    assert "profiled nothing" in conclude(Records()).error


def test_in_a_run_that_profiles_nothing_it_is_none() -> None:
    assert conclude(Records(disabled=True, limits=("max_kernels",))) == Conclusion()


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (Records(compared=True, limits=("max_kernels",)), "the test only compares"),
        (Records(profiled=True, unmeasured=(STEP,)), "max_syncs was not judged: region 'step' was"),
        (Records(unmeasured=(STEP,)), "the test profiled nothing: region 'step' was not measured"),
        (Records(profiled=True, unheld=("min_speedup",)), "min_speedup was not judged"),
    ],
    ids=["limits of a comparison", "a region that did not end", "alone", "a comparison not held"],
)
def test_a_limit_that_judged_nothing_is_an_error(records: Records, words: str) -> None:
    assert words in conclude(records).error


def test_a_region_without_limits_may_end_early() -> None:
    early = replace(STEP, limits=())
    assert conclude(Records(profiled=True, unmeasured=(early,))) == Conclusion()


def test_a_violated_limit_wins_over_what_was_not_measured() -> None:
    assert of(judged(mlp(), max_kernels=4), unmeasured=(STEP,)).failure.startswith("max_kernels: 5")


def test_a_broken_comparison_is_a_failure() -> None:
    found = conclude(Records(profiled=True, compared=True, broken=("min_speedup(2): ...",)))
    assert found.failure == "min_speedup(2): ..."


def test_code_that_never_became_warm_is_a_warning() -> None:
    cold = Integrity(launches=10, matched=10, cold=("Lazy Function Loading",), settled=False)
    (words,) = of(mlp(integrity=cold)).warnings
    assert words.startswith("the code never became warm")
    assert of(mlp(integrity=cold, one_shot=True)).warnings == ()


@pytest.mark.parametrize("given", [{"max_cuda_time": "1s"}, {"max_kernels": 5}])
def test_changed_arguments_are_a_warning_where_a_time_is_judged(given: dict[str, Any]) -> None:
    changing = mlp(around("cuda_time", 100.0), in_place=("argument 1",))
    warned = bool(of(judged(changing, **given)).warnings)
    assert warned == ("max_cuda_time" in given)


def test_counts_that_differ_are_a_warning_where_a_time_is_judged() -> None:
    unstable = mlp(around("cuda_time", 100.0), counted("kernels", 4, 5))
    (words,) = of(judged(unstable, max_cuda_time="1s")).warnings
    assert words.startswith("UNSTABLE: the code launches 4 to 5 kernels a call")


# What is kept.


def measured(folder: Path, profile: Profile) -> Measurement:
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text('{"traceEvents": []}')
    saved = Saved(Folder(str(path.parent), maker=os.getpid()), path.name)
    file = TraceFile(saved, rounds=2, collection_stopped=False)
    return Measurement(profile, file, Recording(schema=1, rounds=2))


def ledger(**given: Any) -> Ledger:
    return Ledger(Marks(limits=limits(**given)), "warn")


def test_of_very_many_kernels_those_of_the_newest_profiles_are_kept(tmp_path: Path) -> None:
    many = (kernel("k", "aten::add"),) * (MOST_KERNELS // 2 + 1)
    book = ledger()
    for _ in range(3):
        book.keep(measured(tmp_path, profile(many)))
    old, older, newest = book.profiles
    assert len(newest.kernels) == len(many)
    assert old.kernel_count == older.kernel_count == len(many)
    for dropped in (old, older):
        with pytest.raises(IncompleteProfile, match="kept no more"):
            _ = dropped.kernels


def test_the_newest_profile_is_whole_however_large(tmp_path: Path) -> None:
    book = ledger()
    kept = book.keep(measured(tmp_path, profile((kernel("k"),) * (MOST_KERNELS + 1))))
    assert len(kept.kernels) == MOST_KERNELS + 1


def test_of_very_many_traces_the_newest_are_kept(tmp_path: Path) -> None:
    book = ledger()
    for _ in range(MOST_TRACES + 1):
        book.keep(measured(tmp_path, mlp()))
    first, *others = book.profiles
    with pytest.raises(IncompleteProfile, match="trace of this profile is kept no more"):
        first.save_trace(tmp_path / "saved.json")
    others[0].save_trace(tmp_path / "saved.json")
    assert (tmp_path / "saved.json").exists()
    assert len(first.kernels) == 5


def test_a_limit_that_comes_after_the_kernels_are_gone_is_no_pass(tmp_path: Path) -> None:
    book = ledger()
    for _ in range(3):
        book.keep(measured(tmp_path, profile((kernel("k"),) * (MOST_KERNELS // 2 + 1))))
    book.set_limit(parse_limit("forbid_kernels", ("k",), {}))
    outcomes = [one.verdicts[0].outcome for one in book.records(disabled=False).profiles]
    assert outcomes == ["incomplete", "incomplete", "over"]


def test_no_kernels_are_not_seen_where_the_kernels_are_gone(tmp_path: Path) -> None:
    book = ledger()
    for _ in range(3):
        book.keep(measured(tmp_path, profile((kernel("k"),) * (MOST_KERNELS // 2 + 1))))
    book.set_limit(parse_limit("expect_kernels", (), {}))
    outcomes = [one.verdicts[0].outcome for one in book.records(disabled=False).profiles]
    assert outcomes == ["incomplete", "incomplete", "over"]


def test_a_limit_that_comes_later_judges_what_was_taken_before(tmp_path: Path) -> None:
    book = ledger(max_kernels=9)
    book.keep(measured(tmp_path, mlp()))
    book.set_limit(parse_keyword("max_kernels", 4))
    (one,) = book.records(disabled=False).profiles
    assert [(v.limit, v.outcome) for v in one.verdicts] == [("max_kernels", "over")]


def test_a_limit_of_its_own_replaces_that_of_the_test_for_one_profile(tmp_path: Path) -> None:
    book = ledger(max_kernels=4)
    (own,) = limits(max_kernels=5)
    book.keep(measured(tmp_path, mlp()), {own.key: own})
    book.keep(measured(tmp_path, mlp()))
    outcomes = [one.outcome for one in book.records(disabled=False).profiles]
    assert outcomes == ["kept", "over"]


def test_what_was_concluded_is_not_concluded_again(tmp_path: Path) -> None:
    book = ledger(max_kernels=4)
    book.keep(measured(tmp_path, mlp()))
    assert len(book.records(disabled=False).profiles) == 1
    book.keep(measured(tmp_path, mlp()))
    assert len(book.records(disabled=False).profiles) == 1


def test_a_verdict_knows_the_line_that_made_the_call(tmp_path: Path) -> None:
    book = ledger(max_kernels=4)
    book.keep(measured(tmp_path, mlp()), place=Place("tests/test_mlp.py", 31))
    conclusion = conclude(book.records(disabled=False))
    assert "at test_mlp.py:31" in conclusion.failure


def test_markers_that_come_later_do_not_replace_what_was_set(tmp_path: Path) -> None:
    book = ledger()
    book.set_limit(parse_keyword("max_kernels", 5))
    book.mark(Marks(limits=limits(max_kernels=1, max_launches=5)))
    book.keep(measured(tmp_path, mlp()))
    (one,) = book.records(disabled=False).profiles
    assert [v.outcome for v in one.verdicts] == ["kept", "kept"]


def test_a_marker_that_comes_later_replaces_that_of_an_outer_level(tmp_path: Path) -> None:
    book = ledger(max_kernels=5)
    book.keep(measured(tmp_path, mlp()))
    book.mark(Marks(limits=limits(max_kernels=4)))
    (one,) = book.records(disabled=False).profiles
    assert [v.outcome for v in one.verdicts] == ["over"]


def test_a_promise_that_was_held_with_another_bound_is_not_held() -> None:
    weak, strong = (parse_limit("min_speedup", (n,), {"over": len}) for n in (1, 100))
    book = Ledger(Marks(comparisons=(weak,)), "warn")
    book.hold(weak)
    book.mark(Marks(comparisons=(strong,)))
    assert book.records(disabled=False).unheld == ("min_speedup",)


# What is asked for.


def asked_and_raised(book: Ledger, error: type[BaseException], **more: Any) -> None:
    with pytest.raises(error), book.asking(Asked("the call", "catch it inside", **more)):
        raise error


def test_what_was_raised_is_named_with_what_was_to_be_judged(tmp_path: Path) -> None:
    book = ledger(max_kernels=9)
    book.keep(measured(tmp_path, mlp()))
    (own,) = limits(max_syncs=0)
    asked_and_raised(book, KeyError, own={own.key: own})
    assert conclude(book.records(disabled=False)).error == (
        "max_kernels, max_syncs was not judged: the call was not measured to its end (KeyError "
        "was raised); catch it inside"
    )


def test_it_is_told_once_and_not_where_the_test_has_failed_by_itself() -> None:
    book = ledger(max_kernels=9)
    asked_and_raised(book, KeyError)
    assert book.unconcluded
    assert len(book.records(disabled=False).unmeasured) == 1
    assert not book.unconcluded
    asked_and_raised(book, KeyError)
    book.dismiss()
    assert book.records(disabled=False).unmeasured == ()


def test_a_limit_that_comes_when_all_is_judged_is_about_it_too(tmp_path: Path) -> None:
    book = ledger(max_kernels=9)
    book.keep(measured(tmp_path, mlp()))
    assert conclude(book.records(disabled=False)) == Conclusion()
    book.set_limit(*limits(max_kernels=4))
    assert book.unconcluded
    assert conclude(book.records(disabled=False)).failure.startswith("max_kernels: 5 > 4")
    book.dismiss()
    book.set_limit(*limits(max_kernels=3))
    assert not book.unconcluded


def test_what_ended_well_is_asked_for_no_more() -> None:
    book = ledger(max_kernels=9)
    with book.asking(Asked("the call", "")):
        assert book.unconcluded
    assert book.records(disabled=False).unmeasured == ()


def test_a_region_that_nobody_left_was_not_ended_by_anything_raised() -> None:
    book = ledger(max_kernels=9)
    opened = book.asking(Asked("region 'r'", ""))
    opened.__enter__()
    del opened
    (one,) = book.records(disabled=False).unmeasured
    assert one.raised == ""
