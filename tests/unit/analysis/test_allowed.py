"""Which waits, copies and kernels lie in a block of ``allow``: what its thread did in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from built import (
    annotation,
    call,
    copy,
    kernel,
    launched,
    marks_of,
    operator,
    profile_of,
    reading_of_events,
    span,
)
from corpus import Event, edited, recorded
from msgspec.structs import replace
from records import kernel as kernel_at
from records import profile

from pytest_kernelprof.analysis.metric_values import extended, metric_of, with_allowed
from pytest_kernelprof.analysis.round_events import allowed_spans
from pytest_kernelprof.api import Profile
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_limit
from pytest_kernelprof.records.profile import Verdict

WHY = "logging (logger.py:12)"
ROUND = "kernelprof::round#"
TO_HOST = "Memcpy DtoH (Device -> Pageable)"
TO_DEVICE = "Memcpy HtoD (Pinned -> Device)"


def block(kinds: str, ts: float, dur: float, why: str = WHY, tid: int = 1) -> Event:
    return annotation(f"kernelprof::allow#{kinds}#{why}", ts, dur, tid)


def judged(profile: Profile, name: str, *args: Any, **kwargs: Any) -> Verdict:
    (verdict,) = evaluate(profile.record, [parse_limit(name, args, kwargs)])
    return verdict


def test_a_wait_in_a_block_is_counted_by_the_metric_and_not_by_the_limit(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        *marks_of(0, 0, 100),
        call("cudaStreamSynchronize", 10, 1),
        block("syncs", 20, 20),
        call("cudaStreamSynchronize", 30, 2),
        call("cudaStreamSynchronize", 39.999, 3),
        call("cudaStreamSynchronize", 40, 4),
    )
    assert profile.syncs == 4
    assert [one.allowed for one in profile.waits] == ["", WHY, WHY, ""]
    verdict = judged(profile, "max_syncs", 1)
    assert (verdict.outcome, verdict.measured) == ("failed", 2)
    assert verdict.apart == f"2 more allowed: {WHY} x2"
    assert judged(profile, "max_syncs", 2).outcome == "passed"


def test_a_wait_of_another_thread_is_not_in_the_block(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        *marks_of(0, 0, 100),
        block("syncs", 20, 60),
        operator("aten::item", 25, 20, tid=2),
        call("cudaStreamSynchronize", 30, 1, tid=2),
        call("cudaStreamSynchronize", 50, 2, tid=3),  # of a thread without operators
    )
    assert [one.allowed for one in profile.waits] == ["", ""]
    assert judged(profile, "max_syncs", 1).outcome == "failed"


def test_waits_inside_of_an_operator_are_one_and_allowed_only_together(tmp_path: Path) -> None:
    """An operator written in Python has a block around one of its two waits, or around both."""

    def profile(dur: float) -> Profile:
        return profile_of(
            tmp_path,
            *marks_of(0, 0, 100),
            operator("library::log", 10, 60),
            block("syncs", 12, dur),
            call("cudaStreamSynchronize", 20, 1),
            call("cudaStreamSynchronize", 40, 2),
        )

    partly, both = profile(20), profile(50)
    assert (partly.syncs, both.syncs) == (1, 1)
    assert judged(partly, "max_syncs", 0).outcome == "failed"
    assert judged(both, "max_syncs", 0).outcome == "passed"


def test_a_wait_whose_call_is_not_recorded_is_never_allowed(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        *marks_of(0, 0, 100),
        block("syncs", 10, 50),
        launched("a", 12, 1),
        span("cuda_sync", "Stream Synchronize", 20, 1, correlation=77),
    )
    assert profile.syncs == 1
    assert judged(profile, "max_syncs", 0).outcome == "failed"


def test_copies_are_taken_out_by_direction_and_with_their_bytes(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        *marks_of(0, 0, 100),
        block("copies", 10, 20),
        call("cudaMemcpyAsync", 15, 1),
        copy(TO_HOST, 18, 1, size=1000),
        call("cudaMemcpyAsync", 20, 2),
        copy(TO_DEVICE, 23, 2, size=30),
        call("cudaMemcpyAsync", 50, 3),
        copy(TO_HOST, 53, 3, size=500),
    )
    assert [one.allowed for one in profile.copies] == [WHY, WHY, ""]
    for direction, total, left in ((None, 3, 1), ("d2h", 2, 1), ("h2d", 1, 0)):
        verdict = judged(profile, "max_memcpys", left, direction=direction)
        assert (verdict.outcome, verdict.measured) == ("passed", left)
        assert verdict.apart.startswith(f"{total - left} more allowed: {WHY}")
    verdict = judged(profile, "max_memcpy_bytes", "500 B", direction="d2h")
    assert (verdict.outcome, verdict.apart) == ("passed", f"1 KB more allowed: {WHY}")
    # A copy to pageable memory waits as well, which this block does not allow.
    assert judged(profile, "max_syncs", 1).outcome == "failed"


def test_the_launch_decides_for_a_kernel_and_not_when_it_runs(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        *marks_of(0, 0, 100),
        block("kernels", 10, 20),
        call("cudaLaunchKernel", 15, 1),
        kernel("inside", 60, 1),
        call("cudaLaunchKernel", 40, 2),
        kernel("outside", 75, 2),
    )
    assert {one.name: one.allowed for one in profile.kernels} == {
        "inside": WHY,
        "outside": "",
    }
    verdict = judged(profile, "max_kernels", 1)
    assert (verdict.outcome, verdict.measured) == ("passed", 1)
    assert judged(profile, "forbid_kernels", "inside").outcome == "passed"
    assert judged(profile, "max_launches", 1).outcome == "failed"  # these are no kernels


def test_each_round_is_judged_by_what_it_allows(tmp_path: Path) -> None:
    """The second has fewer waits, and more of them count."""
    profile = profile_of(
        tmp_path,
        *marks_of(0, 0, 100),
        block("syncs", 10, 50),
        *(call("cudaStreamSynchronize", 20 + 10 * i, 1 + i) for i in range(3)),
        *marks_of(1, 200, 100),
        call("cudaStreamSynchronize", 220, 8),
        call("cudaStreamSynchronize", 240, 9),
    )
    verdict = judged(profile, "max_syncs", 1)
    assert (verdict.outcome, verdict.measured, verdict.values) == ("failed", 2, (0, 2))


def test_rounds_of_equal_kernels_that_allow_other_ones_are_told_apart(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        *marks_of(0, 0, 100),
        block("kernels", 9, 5),
        launched("a", 10, 1),
        launched("b", 40, 2),
        *marks_of(1, 200, 100),
        launched("a", 210, 3),
        block("kernels", 239, 5),
        launched("b", 240, 4),
    )
    assert judged(profile, "max_kernels", 0, match="a").outcome == "failed"
    assert judged(profile, "max_kernels", 0, match="b").outcome == "failed"
    assert judged(profile, "forbid_kernels", "a").outcome == "failed"
    assert judged(profile, "max_kernels", 1).outcome == "passed"


def test_a_block_that_does_not_end_in_its_round_allows_nothing(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        *marks_of(0, 0, 100),
        block("syncs", 10, 250),
        call("cudaStreamSynchronize", 20, 1),
        *marks_of(1, 200, 100),
        call("cudaStreamSynchronize", 220, 2),
    )
    assert judged(profile, "max_syncs", 0).measured == 1


@pytest.mark.parametrize("kinds", ["copies", "", "all", "sync"])
def test_a_block_of_other_kinds_allows_no_wait(tmp_path: Path, kinds: str) -> None:
    profile = profile_of(
        tmp_path,
        *marks_of(0, 0, 100),
        block(kinds, 10, 50),
        call("cudaStreamSynchronize", 20, 1),
    )
    assert judged(profile, "max_syncs", 0).outcome == "failed"


def test_a_lost_event_leaves_a_count_with_blocks_incomplete(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        *marks_of(0, 0, 100),
        block("kernels", 9, 20),
        launched("a", 10, 1),
        call("cudaLaunchKernel", 40, 2),
    )
    assert judged(profile, "max_kernels", 0).outcome == "incomplete"


def test_the_waits_of_a_recorded_call_are_those_that_it_had(tmp_path: Path) -> None:
    """Of a call that ran on an H200, with a block around all that each round does."""

    def with_blocks(events: list[Event]) -> list[Event]:
        rounds = [one for one in events if str(one.get("name", "")).startswith(ROUND)]
        return [*events, *({**one, "name": f"kernelprof::allow#syncs#{WHY}"} for one in rounds)]

    before, after = recorded("syncs"), edited(tmp_path, "syncs", with_blocks)
    assert after.syncs == before.syncs == 7
    told = [[(one.call, one.operators) for one in each.waits] for each in (before, after)]
    assert told[0] == told[1]
    assert [one.allowed for one in after.waits] == [WHY] * 7
    assert judged(before, "max_syncs", 0).measured == 7
    assert judged(after, "max_syncs", 0).outcome == "passed"
    assert judged(after, "max_kernels", 0).measured == before.kernel_count


def test_rounds_of_further_sessions_are_judged_by_what_they_allow() -> None:
    first = with_allowed(metric_of("syncs", [2, 2]), [1, 1])
    assert extended(first, [2, 2], [2, 0]).allowed == (1, 1, 2, 0)
    assert extended(first, [3]).allowed == (1, 1, 0)
    assert extended(metric_of("syncs", [1]), [2], [1]).allowed == (0, 1)
    assert extended(metric_of("syncs", [1]), [2]).allowed == ()


@pytest.mark.parametrize(("second", "outcome"), [(1, "passed"), (2, "failed")])
def test_lines_are_those_of_all_rounds_only_if_these_agree(
    tmp_path: Path, second: int, outcome: str
) -> None:
    taken = profile_of(
        tmp_path,
        *marks_of(0, 0, 100),
        call("cudaStreamSynchronize", 10, 1),
        *marks_of(1, 200, 100),
        *(call("cudaStreamSynchronize", 220 + 10 * i, 2 + i) for i in range(second)),
    ).record
    lined = replace(taken, waits=tuple(replace(one, source="logger.py:3") for one in taken.waits))
    (verdict,) = evaluate(lined, [parse_limit("max_syncs", (0,), {"allow": "logger.py"})])
    assert verdict.outcome == outcome


@pytest.mark.parametrize(("other", "outcome"), [("logged", "passed"), ("mul", "failed")])
def test_lines_are_not_those_of_rounds_with_other_kernels(other: str, outcome: str) -> None:
    ran, odd = kernel_at("logged", source="logger.py:3"), kernel_at(other)
    taken = profile([ran], variants=() if other == "logged" else ((odd,),))
    (verdict,) = evaluate(taken, [parse_limit("max_kernels", (0,), {"allow": "logger.py"})])
    assert verdict.outcome == outcome


def test_what_is_allowed_is_looked_up_once_for_all_rounds(tmp_path: Path) -> None:
    reading = reading_of_events(tmp_path, marks_of(0, 0, 100), launched("gemm", 10, 1))
    assert allowed_spans(reading, "kernels") is allowed_spans(reading, "kernels")
    assert allowed_spans(reading, "kernels") is not allowed_spans(reading, "copies")
