"""What follows from what a test took."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_record
from records import CPU, SLOW, absent, around, counted, mlp, of_ranks, profile

from pytest_kernelprof.analysis.metric_values import rate_metrics
from pytest_kernelprof.errors import IncompleteProfile, LimitExceeded, NotJudged
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import Limit, parse_keyword
from pytest_kernelprof.plugin.outcome import Conclusion, Records, Request, conclude
from pytest_kernelprof.plugin.settings import Settings
from pytest_kernelprof.records.comparison import ProfileComparison
from pytest_kernelprof.records.document import Test
from pytest_kernelprof.records.profile import Place, Profile, Verdict
from pytest_kernelprof.records.recording import Integrity, Work

LOST = Integrity(problems=("2 launch calls have no kernel in the trace",), retakes=2)


STEP = Request("region 'step'", ("max_syncs",), "enter it")


def limits(**given: Any) -> tuple[Limit, ...]:
    return tuple(parse_keyword(name, value) for name, value in given.items())


def judged(profile: Profile, **given: Any) -> Profile:
    return replace_record(profile, verdicts=evaluate(profile, limits(**given)))


def words_of(found: Conclusion, kind: type[BaseException]) -> str:
    """The words of what it raises, if that is of this kind."""
    return str(found.raises) if isinstance(found.raises, kind) else ""


def of(
    *profiles: Profile, undecided: str = "warn", warn_only: bool = False, **more: Any
) -> Conclusion:
    records = Records(profiles=profiles, profiled=True, **more)
    settings = Settings({"undecided": undecided, "warn_only": warn_only})
    return conclude(records, Test("t.py::test_it"), settings)


def test_kept_limits_are_nothing_to_tell() -> None:
    assert of(judged(mlp(), max_kernels=5)) == Conclusion()


UNKNOWN = {"throughput": Work(0, unknown=("my::gemm",)), "bandwidth": Work(0)}
BUSY = around("gpu_busy", 100.0)


def test_a_test_with_nothing_but_unknown_work_skips_and_says_what_to_do() -> None:
    of_unknown = mlp(BUSY, *rate_metrics(UNKNOWN, BUSY).values())
    assert words_of(of(judged(of_unknown, min_throughput="80%")), NotJudged) == (
        "nothing to judge: min_throughput: the work of my::gemm is not known: say that of a call "
        "with kernel_profile.work(flops=...)"
    )
    assert of(judged(of_unknown, min_throughput="80%", max_kernels=5)) == Conclusion()


def test_all_violations_of_all_profiles_stand_in_one_failure() -> None:
    found = of(judged(mlp(), max_kernels=4, max_launches=3), judged(mlp(), max_kernels=1))
    lines = words_of(found, LimitExceeded).splitlines()
    assert lines[:2] == ["max_kernels: 5 > limit 4", "max_launches: 5 > limit 3"]
    assert "max_kernels: 5 > limit 1" in lines[2:]


def test_a_test_whose_only_limit_finds_nothing_to_judge_is_skipped_with_the_reason() -> None:
    found = of(judged(mlp(absent("spills", "nobody asked")), max_spills=0))
    words = words_of(found, NotJudged)
    assert words.startswith("nothing to judge: max_spills: spills not known of 5 of 5 kernels: ")
    assert not words_of(of(judged(mlp(absent("spills")), max_spills=0, max_kernels=5)), NotJudged)


def test_a_violated_limit_wins_over_a_number_that_could_not_be_had() -> None:
    found = of(judged(mlp(integrity=LOST), max_kernels=4, max_syncs=0))
    assert words_of(found, LimitExceeded).startswith("max_kernels: 5 > limit 4")
    assert not words_of(found, IncompleteProfile)


def test_a_kept_limit_on_an_incomplete_profile_is_an_error_that_says_what_is_missing() -> None:
    found = of(judged(mlp(integrity=LOST), max_kernels=5))
    assert not words_of(found, LimitExceeded)
    assert words_of(found, IncompleteProfile).startswith(
        "profile incomplete (tried 3 times): 2 launch calls have no kernel in the trace."
    )


def test_an_incomplete_profile_without_a_limit_is_an_error_too() -> None:
    assert "profile incomplete" in words_of(of(mlp(integrity=LOST)), IncompleteProfile)


def test_what_nobody_asked_for_is_no_error() -> None:
    assert of(mlp(integrity=LOST), asked=False) == Conclusion()
    assert conclude(Records(asked=False), Test("t.py::test_it"), Settings({})) == Conclusion()
    assert "profile incomplete" in words_of(
        of(mlp(integrity=LOST), asked=False, limits=("x",)), IncompleteProfile
    )


def test_a_metric_that_was_not_measured_is_an_error_with_its_reason() -> None:
    found = of(judged(mlp(), max_latency="1s"))
    assert words_of(found, IncompleteProfile) == "max_latency: not measured: nobody asked"


@pytest.mark.parametrize(
    ("policy", "raised", "warned"),
    [("warn", None, True), ("fail", LimitExceeded, False), ("pass", None, False)],
)
def test_what_is_undecided_does_what_was_asked(
    policy: str, raised: type[BaseException] | None, warned: bool
) -> None:
    undecided = judged(mlp(around("cuda_time", 100.0)), max_cuda_time="105us")
    found = of(undecided, undecided=policy)
    assert (type(found.raises) if found.raises else None) == raised
    assert bool(found.warnings) == warned
    if warned:
        assert found.warnings[0].startswith("max_cuda_time: 105.5us, limit 105.0us")
        assert "undecided" in found.warnings[0]


def test_a_test_whose_limits_all_need_a_gpu_skips_on_the_cpu() -> None:
    found = of(judged(profile(environment=CPU), max_syncs=0, max_launches=1))
    assert words_of(found, NotJudged) == (
        "not applicable on the CPU: max_syncs, max_launches "
        "(see docs/trust.md#what-counts-without-a-gpu)"
    )


def test_beside_one_that_applies_it_does_not_skip() -> None:
    assert of(judged(profile(environment=CPU), max_syncs=0, max_kernels=0)) == Conclusion()


def test_a_test_that_asks_and_profiles_nothing_is_an_error() -> None:
    assert "profiled nothing" in words_of(
        conclude(Records(), Test("t.py::test_it"), Settings({})), IncompleteProfile
    )


def test_in_a_run_that_profiles_nothing_it_is_none() -> None:
    assert (
        conclude(
            Records(
                unmeasured="--kernelprof-disable: nothing is measured", limits=("max_kernels",)
            ),
            Test("t.py::test_it"),
            Settings({}),
        )
        == Conclusion()
    )


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (Records(compared=True, limits=("max_kernels",)), "the test only compares"),
        (Records(profiled=True, unfinished=(STEP,)), "max_syncs was not judged: region 'step' was"),
        (Records(unfinished=(STEP,)), "the test profiled nothing: region 'step' was not measured"),
        (Records(profiled=True, unheld=("min_speedup",)), "min_speedup was not judged"),
    ],
    ids=["limits of a comparison", "a region that did not end", "alone", "a comparison not held"],
)
def test_a_limit_that_judged_nothing_is_an_error(records: Records, words: str) -> None:
    assert words in words_of(
        conclude(records, Test("t.py::test_it"), Settings({})), IncompleteProfile
    )


def test_a_region_without_limits_may_end_early() -> None:
    early = replace(STEP, limits=())
    assert (
        conclude(Records(profiled=True, unfinished=(early,)), Test("t.py::test_it"), Settings({}))
        == Conclusion()
    )


def test_a_violated_limit_wins_over_what_was_not_measured() -> None:
    assert words_of(of(judged(mlp(), max_kernels=4), unfinished=(STEP,)), LimitExceeded).startswith(
        "max_kernels: 5"
    )


MORE = Verdict(
    limit="snapshot",
    outcome="failed",
    comparison=ProfileComparison(source="snapshot", change="worse"),
)
NONE = "snapshot: this test has none for NVIDIA-H200"


def with_snapshot(profile: Profile) -> Profile:
    return replace_record(profile, verdicts=(*profile.verdicts, MORE))


@pytest.mark.parametrize(
    ("records", "accepts"),
    [
        (Records((with_snapshot(judged(mlp(), max_kernels=5)),)), True),
        (Records((mlp(),), no_snapshot=(NONE,)), True),
        (Records((with_snapshot(judged(mlp(), max_kernels=4)),)), False),
        (Records((with_snapshot(mlp()), judged(mlp(), max_kernels=4))), False),
        (Records((with_snapshot(mlp(integrity=LOST)),)), False),
        (Records((with_snapshot(judged(mlp(), max_latency="1s")),)), False),
        (Records((with_snapshot(mlp()),), broken=("min_speedup(2): ...",)), False),
        (Records((with_snapshot(mlp()),), profiled=True, unfinished=(STEP,)), False),
        (Records(no_snapshot=(NONE,)), False),
    ],
)
def test_a_failure_names_the_update_that_mends_it(records: Records, accepts: bool) -> None:
    found = conclude(records, Test("a b.py::test_it"), Settings({}))
    remedy = "    pytest 'a b.py::test_it' --kernelprof-update"
    assert words_of(found, LimitExceeded).startswith("snapshot: ") or not accepts
    assert found.accepts == accepts
    lines = words_of(found, LimitExceeded).splitlines()
    assert (remedy in lines and "allow max_kernels" not in "".join(lines)) == accepts


@pytest.mark.parametrize(
    ("taken", "command", "allowed"),
    [
        (mlp(), "pytest 'a b.py::test_it'", 5),
        (mlp(environment=CPU), "pytest 'a b.py::test_it' --kernelprof-device=cpu", 5),
        (of_ranks(*SLOW), "torchrun --nproc-per-node 2 -m pytest 'a b.py::test_it'", 3),
    ],
    ids=["GPU", "CPU", "ranks"],
)
def test_a_failure_has_the_command_that_measures_again_and_what_may_be_allowed(
    taken: Profile, command: str, allowed: int
) -> None:
    over = judged(taken, max_kernels=2)
    for profiles in ((over,), (judged(taken, max_kernels=9), over, over)):
        records = Records(profiles, profiled=True)
        test = Test("a b.py::test_it", place=Place("b.py", 8), limits=("max_kernels",))
        words = words_of(conclude(records, test, Settings({})), LimitExceeded)
        at = words.splitlines().index(f"  rerun: {command}")
        assert words.splitlines()[at : at + 2] == [
            f"  rerun: {command}",
            f"  if intended, allow max_kernels({allowed}) at b.py:8",
        ]
        assert words.count("rerun") == 1


@pytest.mark.parametrize("more", [{"broken": ("min_speedup(2): ...",)}, {"no_snapshot": (NONE,)}])
def test_what_else_is_told_stands_below_all_that_is_told_of_profiles(more: Any) -> None:
    words = words_of(of(judged(mlp(), max_kernels=4), **more), LimitExceeded)
    assert words.startswith("max_kernels: 5 > limit 4")
    assert words.count("rerun") == 1
    assert words.splitlines()[-1] in ("min_speedup(2): ...", NONE)


def test_a_broken_comparison_is_a_failure() -> None:
    found = conclude(
        Records(profiled=True, compared=True, broken=("min_speedup(2): ...",)),
        Test("t.py::test_it"),
        Settings({}),
    )
    assert words_of(found, LimitExceeded) == "min_speedup(2): ..."


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


def test_in_a_run_that_only_warns_broken_limits_fail_nothing_and_hide_nothing() -> None:
    broken = judged(mlp(), max_kernels=4)
    found = of(broken, warn_only=True)
    assert (words_of(found, LimitExceeded), words_of(found, IncompleteProfile)) == ("", "")
    assert [words.splitlines()[0] for words in found.warnings] == ["max_kernels: 5 > limit 4"]
    lost = judged(mlp(integrity=Integrity(problems=("lost",))), max_kernels=5)
    both = of(broken, lost, warn_only=True)
    assert "lost" in words_of(both, IncompleteProfile)
    assert [words.splitlines()[0] for words in both.warnings] == ["max_kernels: 5 > limit 4"]
