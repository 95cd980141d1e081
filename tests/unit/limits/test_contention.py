"""What other work can explain of a time, and what is over its limit whatever else ran."""

from __future__ import annotations

import pytest
from records import comparison, mlp

from pytest_kernelprof.limits.evaluate import (
    beyond_contention,
    evaluate,
    evaluate_comparison,
    ratio_beyond_contention,
)
from pytest_kernelprof.limits.kinds import parse_assertion, parse_limit
from pytest_kernelprof.records.document import ComparedCallable
from pytest_kernelprof.records.profile import Metric, Verdict
from pytest_kernelprof.records.recording import Conditions, Neighbour
from pytest_kernelprof.stats.intervals import median_interval, paired_rounds
from pytest_kernelprof.summary import wording
from pytest_kernelprof.summary.verdicts import verdict_line

QUIET = Conditions(blocks=1)
CONTENDED = Conditions(blocks=1, contenders=(Neighbour(7, 60),))
NOT_ALONE = Conditions(blocks=1, not_alone="the GPU was not free")
THROTTLED = Conditions(blocks=3, discarded_rounds=36).keeping_throttled(12)
BOTH = Conditions(blocks=3, contenders=(Neighbour(7, 60),)).keeping_throttled(12)
CUPTI = 40.0


def timed(name: str, *rounds: float, tax: float = 0.0) -> Metric:
    middle = sorted(rounds)[len(rounds) // 2] if rounds else None
    found = median_interval(rounds) if rounds else None
    low, high = (found.low - tax, found.high) if found else (None, None)
    return Metric(name, "timed", "us", rounds=rounds, value=middle, low=low, high=high)


def spread(least: float) -> tuple[float, ...]:
    """Twelve rounds of which one is the fastest and the others took ten times as long."""
    return (*([least * 10] * 8), least, *([least * 10] * 3))


NOISE = (0, 5, 2, 7, 1, 6, 3, 8, 0, 5, 2, 7)


@pytest.mark.parametrize(
    ("conditions", "metric", "fastest", "beyond"),
    [
        (CONTENDED, "cuda_time", 201.0, True),
        (CONTENDED, "cuda_time", 200.0, False),  # exactly twice is explained
        (CONTENDED, "cuda_time", 150.0, False),
        (CONTENDED, "cuda_time", 30.0, False),
        (CONTENDED, "gpu_busy", 201.0, True),
        (CONTENDED, "latency", 201.0, True),
        (CONTENDED, "dispatch_time", 201.0, True),
        (CONTENDED, "launch_overhead", 1e6, False),
        (CONTENDED, "exposed_comm_time", 1e6, False),  # it waits for ranks, whatever slows those
        (CONTENDED, "comm_time", 1e6, False),
        (NOT_ALONE, "cuda_time", 201.0, True),
        (NOT_ALONE, "cuda_time", 199.0, False),
        (THROTTLED, "cuda_time", 1e6, False),
        (BOTH, "cuda_time", 1e6, False),
        (QUIET, "cuda_time", 1e6, False),
    ],
)
def test_the_fastest_round_is_what_counts(
    conditions: Conditions, metric: str, fastest: float, beyond: bool
) -> None:
    found = beyond_contention(conditions, timed(metric, *spread(fastest)), None, 100.0)
    assert found == (fastest if beyond else None)


def test_one_round_is_enough_and_none_is_not() -> None:
    assert beyond_contention(CONTENDED, timed("cuda_time", 201.0), None, 100.0) == 201.0
    assert beyond_contention(CONTENDED, timed("cuda_time"), None, 0.0) is None


def test_a_second_look_may_find_a_faster_round() -> None:
    first, second = timed("latency", *spread(300.0)), timed("latency", *spread(150.0))
    assert beyond_contention(CONTENDED, first, second, 100.0) is None
    assert beyond_contention(CONTENDED, first, first, 100.0) == 300.0


def test_what_an_attached_cupti_may_have_added_is_taken_off() -> None:
    rounds = [220.0] * 12
    plain = timed("latency", *rounds)
    taxed = timed("latency", *rounds, tax=CUPTI)
    assert beyond_contention(CONTENDED, plain, None, 100.0) == 220.0
    assert beyond_contention(CONTENDED, taxed, None, 100.0) is None
    assert beyond_contention(CONTENDED, taxed, None, 80.0) == 220.0 - CUPTI


@pytest.mark.parametrize(
    ("conditions", "candidate", "reference", "beyond"),
    [
        ([CONTENDED], 300.0, 100.0, 1 / 3),  # 0.67 at best
        ([CONTENDED], 200.0, 100.0, None),  # 1 at best, and 1 is asked for
        ([CONTENDED], 100.0, 100.0, None),
        ([CONTENDED, NOT_ALONE], 300.0, 100.0, 1 / 3),
        ([CONTENDED, THROTTLED], 300.0, 100.0, None),
        ([THROTTLED], 1e6, 1.0, None),
        ([CONTENDED], 0.0, 100.0, None),
    ],
)
def test_a_ratio_is_that_of_the_fastest_rounds(
    conditions: list[Conditions], candidate: float, reference: float, beyond: float | None
) -> None:
    slow = [reference * 9]
    found = ratio_beyond_contention(conditions, [candidate, *slow], [reference, *slow], 1.0)
    assert found == (None if beyond is None else pytest.approx(beyond))


def judged(conditions: Conditions, limit: str, *rounds: float, metric: str) -> Verdict:
    profile = mlp(timed(metric, *rounds), conditions=conditions)
    (verdict,) = evaluate(profile, [parse_limit(limit, ("100us",), {})])
    return verdict


@pytest.mark.parametrize(
    ("limit", "metric"), [("max_cuda_time", "cuda_time"), ("max_latency", "latency")]
)
def test_a_time_far_over_its_limit_fails_though_contended_and_says_why(
    limit: str, metric: str
) -> None:
    far = judged(CONTENDED, limit, *spread(470.0), metric=metric)
    assert (far.outcome, far.reason, far.fastest) == ("failed", "beyond", 470.0)
    assert verdict_line(far, wording.doubt(CONTENDED)).endswith(
        "; EXCEEDED THOUGH CONTENDED: the fastest rounds give 470.0us, which is off by more "
        "than a factor of 2; "
        "other work does not explain that"
    )
    near = judged(CONTENDED, limit, *spread(170.0), metric=metric)
    assert (near.outcome, near.reason, near.fastest) == ("undecided", "disturbed", None)
    plain = judged(QUIET, limit, *([470.0] * 12), metric=metric)
    assert (plain.outcome, plain.reason, plain.fastest) == ("failed", "", None)
    assert "CONTENDED" not in verdict_line(plain)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((THROTTLED,), ("undecided", "disturbed", None)),
        ((CONTENDED,), ("failed", "beyond", pytest.approx(0.3))),
        ((), ("failed", "", None)),
    ],
)
def test_a_comparison_fails_though_contended_and_says_why(
    conditions: tuple[Conditions, ...], expected: tuple[str, str, float | None]
) -> None:
    fused, eager = [300.0 + i for i in NOISE], [90.0] * 12
    one = ComparedCallable("fused", 1, 303.0, paired=paired_rounds(fused, eager))
    found = comparison(one, ComparedCallable("eager", 1, 90.0), conditions=conditions)
    limit = parse_assertion("min_speedup", 1.0)
    verdict = evaluate_comparison(limit, found, "fused", fused, eager)
    assert (verdict.outcome, verdict.reason, verdict.fastest) == expected
    if verdict.reason == "beyond":
        assert (
            "EXCEEDED THOUGH CONTENDED: the fastest rounds give 0.300 times, which is off by more "
            "than a factor of 2"
        ) in verdict_line(verdict)


def test_who_held_the_lock_is_told_beside_who_worked() -> None:
    seen = Conditions(blocks=1, contenders=(Neighbour(7, 60),), not_alone="held by pid 9 (it)")
    assert wording.doubt(seen) == (
        "CONTENDED: other processes worked on this GPU (pid 7 up to 60 %); held by pid 9 (it)"
    )
