"""How one profile differs from another: the one diff that all comparisons of profiles are made of.

Kernels are the same by name and innermost operator. They are aligned in launch order; one that was
moved, or that another operator calls in its place, is no change. Everything is linear in the
kernels, but for the pairing inside of hunks, which is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.baseline.hunks import Sides
from pytest_kernelprof.baseline.keys import Keys
from pytest_kernelprof.baseline.paces import SLOWER_BY, SLOWER_US, paces_of
from pytest_kernelprof.schema.diff import Change, Hunk, MetricChange, ProfileDiff
from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.schema.run import Kernel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_kernelprof.baseline.keys import Numbered
    from pytest_kernelprof.schema.run import Environment, KernelGroup, Metric, Profile


def diff_profiles(
    old: Profile, new: Profile, *, noticed: tuple[float, float] = (SLOWER_BY, SLOWER_US)
) -> ProfileDiff:
    """What is another in ``new``.

    Takes time in proportion to the kernels (``benchmarks/alignment.py``).

    Args:
        noticed: from which fraction, and how many microseconds, on a kernel is slower or faster.
    """
    keys = Keys()
    before, old_steps = keys.of(old.kernels).one_step()
    after, new_steps = keys.of(new.kernels).one_step()
    ordered = not (old.variants or new.variants)
    sides = Sides.of(before, after, keys)
    hunks = sides.hunks(ordered=ordered)
    old_more, new_more = _beyond(old, old_steps), _beyond(new, new_steps)
    return ProfileDiff(
        old_kernels=len(before.keys) + sum(one.count for one in old_more.values()),
        new_kernels=len(after.keys) + sum(one.count for one in new_more.values()),
        old_us=_duration(before, old_more),
        new_us=_duration(after, new_more),
        hunks=(*hunks, *_other_groups(old_more, new_more)),
        paces=paces_of(before, after, sides.same_old, sides.same_new, noticed=noticed),
        metrics=_diff_metrics(old, new) if not (old_steps or new_steps) else (),
        ordered=ordered,
        other=_other(old.environment, new.environment),
        old_steps=old_steps,
        new_steps=new_steps,
        what="operators" if {old.environment.kind, new.environment.kind} == {"cpu"} else "kernels",
        problems=tuple(dict.fromkeys((*old.integrity.problems, *new.integrity.problems))),
    )


def without_times(diff: ProfileDiff) -> ProfileDiff:
    """The same of profiles whose times are no comparison."""
    return replace(
        diff,
        old_us=0.0,
        new_us=0.0,
        paces=(),
        metrics=tuple(change for change in diff.metrics if change.kind == "exact"),
    )


def _beyond(profile: Profile, steps: int) -> dict[str, KernelGroup]:
    """The kernels that a run document has by name alone."""
    return {} if steps else {one.name: one for one in profile.more_kernels}


def _duration(kernels: Numbered, more: Mapping[str, KernelGroup]) -> float:
    together = sum(one.duration_us for one in more.values())
    return float(sum(kernels.us.tolist())) + together


def _other_groups(old: Mapping[str, KernelGroup], new: Mapping[str, KernelGroup]) -> Iterator[Hunk]:
    """Of kernels without an order: what there is more and less of, by name."""
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        more = (after.count if after else 0) - (before.count if before else 0)
        if more < 0 and before:
            gone = before.duration_us * -more / before.count
            yield Hunk((Change("removed", old=_unplaced(name), old_us=gone),), -more)
        elif more > 0 and after:
            came = after.duration_us * more / after.count
            yield Hunk((Change("added", new=_unplaced(name), new_us=came),), more)


def _unplaced(name: str) -> Kernel:
    """A kernel of which only the name is kept."""
    return Kernel(name, 0.0, (0, 0, 0), (0, 0, 0), 0, 0, 0, 0, "unknown", ())


def _diff_metrics(old: Profile, new: Profile) -> tuple[MetricChange, ...]:
    """Exact metrics and times whose values differ, or that one side alone has."""
    found = []
    for name, spec in METRICS.items():
        one, other = old.metrics.get(name), new.metrics.get(name)
        before = one.value if one is not None else None
        after = other.value if other is not None else None
        if spec.kind == "shown" or before == after:
            continue
        why = next((m.why for m in (one, other) if m is not None and m.value is None), "")
        found.append(
            MetricChange(
                name, spec.kind, spec.unit, before, after, _interval(one), _interval(other), why
            )
        )
    return tuple(found)


def _interval(metric: Metric | None) -> tuple[float, float] | None:
    if metric is None or metric.low is None or metric.high is None:
        return None
    return metric.low, metric.high


def _other(old: Environment, new: Environment) -> tuple[str, ...]:
    names = sorted({*old.versions, *new.versions} - {"python"})
    told = [(name, old.versions.get(name), new.versions.get(name)) for name in names]
    told.insert(0, ("device", old.device, new.device))
    return tuple(f"{what} {a} -> {b}" for what, a, b in told if a and b and a != b)
