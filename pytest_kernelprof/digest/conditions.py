"""What the GPU was like while it was timed, in words, and why a time is undecided."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_kernelprof.schema.run import Conditions

REASONS = {
    "interval": "the interval holds the limit",
    "alike": "neighbouring rounds are too alike",
    "few": "too few rounds for an interval",
    "second look": "the second look does not confirm it",
    "disturbed": "the GPU was disturbed",
}
"""Of an undecided time, by the verdict's reason."""


def conditions_words(conditions: Conditions) -> str:
    """What the GPU was like while it was timed; empty where nothing was looked at."""
    if not conditions.blocks and not conditions.why_unknown:
        return ""
    parts = [_clock(conditions), _throttling(conditions), _power(conditions), _others(conditions)]
    return "; ".join(part for part in parts if part)


def doubt_words(conditions: Conditions) -> str:
    """Why no timed verdict can stand on these rounds; empty where one can."""
    if conditions.contended:
        return _others(conditions)
    if conditions.kept_throttled_rounds:
        return f"the GPU throttled ({', '.join(conditions.throttle_reasons)}) in three tries"
    return ""


def _clock(conditions: Conditions) -> str:
    if conditions.why_unknown:
        return f"clock and throttling unknown: {conditions.why_unknown}"
    low, high = conditions.sm_clock_mhz_low, conditions.sm_clock_mhz_high
    if low is None or high is None:
        return ""
    clock = f"SM clock {low} MHz" if low == high else f"SM clock {low} to {high} MHz"
    most = conditions.sm_clock_mhz_max
    return f"{clock} of {most}" if most else clock


def _throttling(conditions: Conditions) -> str:
    if not conditions.throttled_blocks:
        return ""
    return (
        f"THROTTLED ({', '.join(conditions.throttle_reasons)}) in {conditions.throttled_blocks} of "
        f"{conditions.blocks} blocks, {conditions.discarded_rounds} rounds discarded"
    )


def _power(conditions: Conditions) -> str:
    if not conditions.power_capped_blocks:
        return ""
    return f"at the power limit in {conditions.power_capped_blocks} of {conditions.blocks} blocks"


def _others(conditions: Conditions) -> str:
    told = []
    if conditions.contenders:
        named = ", ".join(f"pid {c.pid} up to {c.utilisation} %" for c in conditions.contenders)
        told.append(f"other processes worked on this GPU ({named})")
    if conditions.not_alone:
        told.append(conditions.not_alone)
    if told:
        return f"CONTENDED: {'; '.join(told)}"
    why = conditions.why_contention_unknown
    return f"other processes unknown: {why}" if why and why != conditions.why_unknown else ""
