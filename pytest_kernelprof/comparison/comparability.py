"""What of two profiles may be judged, metric by metric, and why not: one answer for all sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pytest_kernelprof.records.environment import Environment
from pytest_kernelprof.records.metrics import MetricSpec
from pytest_kernelprof.records.profile import Profile

DISTURBED = "the GPU was disturbed while it was timed"
"""Why times do not compare where other work was on the GPU, or it throttled."""
_OF_THE_CPU = ("python", "torch", "mkldnn")
_OF_TIMES = ("power limit", "python")
"""What says nothing of which kernels run."""


class Difference(NamedTuple):
    """What of device or software is another: its name, before and now."""

    what: str
    baseline: str
    current: str

    @property
    def words(self) -> str:
        """``torch 2.10.0 -> 2.11.0``."""
        lacking = "unknown" if self.what == "power limit" else "none"
        return f"{self.what} {self.baseline or lacking} -> {self.current or lacking}"


def facts_of(environment: Environment) -> dict[str, str]:
    """What numbers depend on beside the code; on the CPU not whether this torch has CUDA as
    well."""
    versions = environment.versions
    if environment.kind == "cpu":
        versions = {k: v.partition("+")[0] for k, v in versions.items() if k in _OF_THE_CPU}
    watts = environment.power_limit_w
    power = {} if watts is None else {"power limit": f"{watts} W"}
    return {"device": environment.device, **power, **versions}


def made_with(environment: Environment) -> dict[str, str]:
    """The facts that counts depend on: those that a snapshot keeps."""
    return {k: v for k, v in facts_of(environment).items() if k not in _OF_TIMES}


def differences(
    baseline: Environment | Mapping[str, str], current: Environment
) -> tuple[Difference, ...]:
    """What is another.

    Args:
        baseline: of a snapshot the facts that it was made with.
    """
    if isinstance(baseline, Environment):
        before, now = facts_of(baseline), facts_of(current)
    else:
        before, now = dict(baseline), made_with(current)
    names = dict.fromkeys(("device", "power limit", *sorted({*before, *now})))
    sides = (Difference(name, before.get(name, ""), now.get(name, "")) for name in names)
    return tuple(one for one in sides if one.baseline != one.current)


def known(found: Iterable[Difference]) -> tuple[Difference, ...]:
    """Those of which both sides are known: a trace from elsewhere names no software."""
    return tuple(one for one in found if one.baseline and one.current)


def forbidding(found: Iterable[Difference], spec: MetricSpec) -> tuple[str, ...]:
    """The differences for which a metric says nothing of the code, in words: another device or
    library for all, another power limit for times, another Python for times and compilations."""
    return tuple(one.words for one in found if one.what not in _OF_TIMES or _is_moved(one, spec))


def _is_moved(one: Difference, spec: MetricSpec) -> bool:
    return spec.kind == "timed" or (one.what == "python" and "compiler" in spec.sources)


def why_uncompared(baseline: Profile, current: Profile) -> str:
    """Why not even the counts of two profiles compare; empty where they do."""
    if not current.integrity.complete:
        return "incomplete"
    if not baseline.integrity.complete:
        return "it was incomplete"
    if baseline.environment.kind != current.environment.kind:
        return f"it ran on {baseline.environment.device}, and runs on {current.environment.device}"
    if baseline.one_shot != current.one_shot:
        before, now = ("a block", "a call") if baseline.one_shot else ("a call", "a block")
        return f"it was {before} and is {now}"
    return ""


def why_untimed(baseline: Profile, current: Profile) -> str:
    """Why the times of two profiles do not compare; empty where they do."""
    if other := differences(baseline.environment, current.environment):
        return ", ".join(one.words for one in other)
    if baseline.one_shot or current.one_shot:
        return "it ran only once"
    if baseline.conditions.disturbed or current.conditions.disturbed:
        return DISTURBED
    return ""
