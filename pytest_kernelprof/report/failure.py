"""The message of a failed limit: verdict first, then the kernels, then where and how complete."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_kernelprof.analysis.profile import copy_table, kernel_table, wait_table
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.analysis.profile import Profile
    from pytest_kernelprof.limits.evaluate import Verdict

_WIDTH = 100


def failure_message(profile: Profile, verdicts: Sequence[Verdict]) -> str:
    """All violations of one profile, its kernel table, device, versions and completeness."""
    bad = [verdict.text for verdict in verdicts if verdict.outcome == "fail"]
    unsure = [verdict.text for verdict in verdicts if verdict.outcome == "inconclusive"]
    one_shot = profile.recording.get("one_shot")
    name = f"region {profile.label!r}" if one_shot else profile.label
    heading = [f"in {name}:"] if profile.label else []
    failed = {verdict.limit.name for verdict in verdicts if verdict.outcome == "fail"}
    width = _WIDTH - 2
    table = kernel_table(profile, width) if profile.kernels else ["no kernels were launched"]
    if failed & {"max_memcpys", "max_memcpy_bytes"}:
        table += copy_table(profile, width)
    if "max_syncs" in failed:
        table += wait_table(profile, width)
    if "max_launch_overhead" in failed:
        table += overhead_words(profile)
    return "\n".join(
        [*heading, *bad, *unsure, *(f"  {line}" for line in table), f"  {footing(profile)}"]
    )


def overhead_words(profile: Profile) -> list[str]:
    """Where the overhead lies, as far as the trace tells: the host's time, the device's gaps."""
    lines, shares = [], profile.host_shares
    one = profile.metrics["overhead_per_launch"].value
    if one is not None:
        lines.append(f"overhead of each launch: {format_time(one)}")
    if shares is not None:
        lines.append(
            f"host, profiled: {shares.dispatch:.0%} operator dispatch, {shares.launch_calls:.0%} "
            f"launch calls, {shares.waiting:.0%} waiting"
        )
    rounds = profile.gaps.rounds
    if rounds:
        classes = {
            "waits for the host": [one.host_wait for one in rounds],
            "between queued kernels": [one.kernel_wait for one in rounds],
            "other": [one.other for one in rounds],
        }
        told = [f"{format_time(statistics.median(us))} {name}" for name, us in classes.items()]
        lines.append(f"device idle between activities, profiled: {', '.join(told)}")
    return lines


def footing(profile: Profile) -> str:
    """Device, versions, completeness and bound, in one line."""
    parts = [profile.place, integrity_words(profile)]
    if profile.bound.verdict != "unknown":
        overhead = "yes" if profile.bound.verdict == "overhead" else "no"
        parts.append(f"overhead-bound: {overhead} ({profile.bound.reason})")
    conditions = profile.conditions
    if conditions.doubt or conditions.throttled_blocks:
        parts.append(conditions.words())
    return "; ".join(parts)


def integrity_words(profile: Profile) -> str:
    """What is known of the profile's completeness, in words."""
    integrity = profile.integrity
    if not integrity.complete:
        return "INCOMPLETE: " + ", ".join(integrity.problems)
    if profile.device_kind == "cpu":
        words = "complete: compute operators of the CPU, no kernels"
    else:
        words = f"complete: {integrity.matched}/{integrity.launches} launches matched"
        if profile.rounds > 1:
            words += f" in {profile.rounds} rounds"
    if integrity.graph_replays != "none":
        words += f", graph replay {integrity.graph_replays}"
    if integrity.unknown_launches:
        words += f", {integrity.unknown_launches} kernels without a recorded launch call"
    if integrity.leaked:
        words += f", {integrity.leaked} activities of earlier work left out"
    if integrity.cold:
        words += f", COLD ({', '.join(integrity.cold)})"
    recompiles = profile.recording.get("recompiles")
    if recompiles:
        words += f", compilations during the profiled calls: {recompiles}"
    return words
