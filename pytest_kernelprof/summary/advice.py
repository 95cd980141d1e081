"""What to do: about the problems of a run, about limits that are near or loose, about a profile."""

from __future__ import annotations

import shlex
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.summary.kernels import groups_of
from pytest_kernelprof.summary.records import FAILED_OTHERWISE, Hint, Remedy, Row
from pytest_kernelprof.summary.words import (
    chain_words,
    count_words,
    gpu_us,
    is_judged,
    limits_of,
    line_words,
    lines_words,
    source_place,
    title,
    value_of,
    value_words,
)
from pytest_kernelprof.units import format_bytes, format_time, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_kernelprof.schema.comparison import KernelDiff
    from pytest_kernelprof.schema.run import Profile, Run, Test, Verdict
    from pytest_kernelprof.summary.records import Entry, Problem


_MOST_TESTS = 3
_TESTS = "{tests}"


def accept_remedy(test: str, device: str) -> Remedy:
    """The command that makes a snapshot of what a test launches now.

    Args:
        test: how pytest is told to run it. device: "cpu", or a GPU's kind or folder.
    """
    return _filled(_accepting(device), [test])


def remedy_of(run: Run, entries: Sequence[Entry]) -> Remedy | None:
    """What to do about tests with one cause, by the worst of them; None where only the failure
    itself tells more.

    Args:
        entries: the worst first.
    """
    plan = _plan(run, entries[0])
    return None if plan is None else _filled(plan, [one.test.id for one in entries])


def todo_of(run: Run, problems: Iterable[Problem]) -> tuple[Remedy, ...]:
    """The remedies of all problems, those of one kind as one command."""
    tests: defaultdict[Remedy, list[str]] = defaultdict(list)
    for problem in problems:
        plan = _plan(run, problem.rows[0])
        if plan is not None:
            tests[plan] += (one.test.id for one in problem.rows)
    return tuple(_filled(plan, several) for plan, several in tests.items())


def _filled(plan: Remedy, tests: Sequence[str]) -> Remedy:
    """With the tests in its command: by name where they are few, else by their files."""
    named = list(dict.fromkeys(tests))
    if len(named) > _MOST_TESTS:
        files = list(dict.fromkeys(one.partition("::")[0] for one in named))
        named = files if len(files) <= _MOST_TESTS else named[:1]
    return plan._replace(
        command=printable(plan.command.replace(_TESTS, " ".join(map(shlex.quote, named))))
    )


def _plan(run: Run, worst: Entry) -> Remedy | None:
    """What helps, its command without the tests."""
    snapshot = worst.test.snapshot
    if snapshot is not None and (snapshot.accepts or snapshot.state == "changed"):
        return _accepting(snapshot.device)
    rounds = [one.rounds for one in worst.test.verdicts if one.outcome == "undecided"]
    if worst.told == "undecided" and any(rounds):
        return Remedy("take more rounds", f"pytest {_TESTS} --kernelprof-rounds={2 * max(rounds)}")
    if worst.told == "incomplete":
        return Remedy("run these tests alone", f"pytest {_TESTS}")
    if worst.told in FAILED_OTHERWISE or not isinstance(worst, Row):
        return None
    profile, command = worst.profile, f"pytest {_TESTS}"
    if profile.other_ranks:
        ranks = f"torchrun --nproc-per-node {len(profile.ranks)} -m {command}"
        return Remedy("measure again on all ranks", ranks)
    command += _on(profile.environment.kind)
    sources = {one.comparison.source for one in profile.verdicts if one.comparison is not None}
    for baseline in run.baselines:
        if baseline.source != "snapshot" and baseline.source in sources:
            name = baseline.name.partition(" (")[0]
            against = shlex.quote(f"--kernelprof-against={name}")
            return Remedy(f"compare with {name} again", f"{command} {against}")
    return Remedy("see what the last commit changed", f"{command} --kernelprof-against=HEAD~1")


def _accepting(device: str) -> Remedy:
    command = f"pytest --kernelprof-update {_TESTS}{_on(device)}"
    return Remedy("accept this as the new snapshot", command)


def _on(device: str) -> str:
    return " --kernelprof-device=cpu" if device == "cpu" else ""


_NEAR = 0.03
_LOOSE = 2.0


def hints_of(rows: Sequence[Row], tests: Iterable[Test]) -> tuple[Hint, ...]:
    """Times that are nearly over their limits, nearest first; limits that allow more than is
    needed, loosest first; limits that say nothing of this device."""
    return (*_near(rows), *_loose(rows), *_unjudged(tests))


def _near(rows: Iterable[Row]) -> list[Hint]:
    """Times within 3 %, or one interval, of their limit."""
    found = []
    for row in rows:
        for one in row.profile.verdicts:
            left = _left(one)
            if left is not None:
                value, allowed = format_time(one.measured or 0.0), format_time(one.allowed or 0.0)
                words = f"{value} of {allowed}, {left:.1%} left"
                found.append((left, row.test.id, Hint("near", row.name, one.limit, words)))
    return [hint for *_, hint in sorted(found, key=lambda one: one[:2])]


def _left(verdict: Verdict) -> float | None:
    """What is left of a timed limit, as a share of it; None where that is not near, or no time."""
    if verdict.outcome != "passed" or verdict.unit != "us" or not verdict.allowed:
        return None
    if verdict.measured is None:
        return None
    left = (verdict.allowed - verdict.measured) / verdict.allowed
    known = verdict.low is not None and verdict.high is not None
    wide = ((verdict.high or 0.0) - (verdict.low or 0.0)) / verdict.allowed if known else 0.0
    return left if left <= max(_NEAR, wide) else None


def _loose(rows: Iterable[Row]) -> list[Hint]:
    """Exact limits above the largest value of their test, and times above twice theirs. Of one
    marker on a parametrised test the largest value of all counts."""
    seen: defaultdict[tuple[str, str, float], list[tuple[Row, Verdict]]] = defaultdict(list)
    for row in rows:
        for one in row.profile.verdicts:
            known = one.measured is not None and one.allowed
            if known and one.allowed and one.of_limit and one.metric in METRICS:
                stem = row.test.id.partition("[")[0]
                seen[stem, title(one), one.allowed].append((row, one))
    found = []
    for (stem, limit, allowed), several in seen.items():
        verdicts = [verdict for _, verdict in several]
        most, spec = max(one.measured or 0.0 for one in verdicts), METRICS[verdicts[0].metric]
        passed = all(one.outcome == "passed" and one.share is None for one in verdicts)
        tight = allowed <= (_LOOSE * most if spec.kind == "timed" else most)
        # Of a test that ends otherwise nobody knows what its code takes as it should be.
        if passed and not tight and all(row.told == "passed" for row, _ in several):
            needs = value_words(spec.unit, most)
            words = f"allows {value_words(spec.unit, allowed)}, needs {needs}"
            name = several[0][0].name.partition("[")[0]
            found.append((most / allowed, stem, Hint("tighten", name, limit, words)))
    return [hint for *_, hint in sorted(found, key=lambda one: one[:2])]


def _unjudged(tests: Iterable[Test]) -> list[Hint]:
    """Limits that say nothing of the device that was measured, beside others of their test that
    were judged; by the reason."""
    found: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for test in tests:
        if not test.not_judged and test.outcome != "rerun":
            for one in limits_of(test.profiles):
                if not is_judged(one):
                    found[one.why].append((test.id, title(one)))
    return [
        Hint(
            "not judged",
            count_words(len({test for test, _ in several}), "test"),
            ", ".join(dict.fromkeys(limit for _, limit in several)),
            why,
        )
        for why, several in found.items()
    ]


SHORT_US = 3.0
"""A kernel that is shorter takes less than its launch, by any measurement that we know of."""


def short_kernels_words(rows: Iterable[Row]) -> str:
    """Kernels too short for their launches, in tests that are launch-bound by a measured overhead;
    empty without."""
    found = []
    for row in rows:
        overhead, latency = (
            value_of(row.profile, "launch_overhead"),
            value_of(row.profile, "latency"),
        )
        number = _short_of(row.profile)
        if number and overhead and latency:
            found.append((overhead / latency, number, row, overhead, latency))
    if not found:
        return ""
    _, _, worst, overhead, latency = max(found, key=lambda one: one[:2])
    number = sum(number for _, number, *_ in found)
    tests = count_words(len({row.test.id for _, _, row, _, _ in found}), "test")
    return (
        f"{count_words(number, 'kernel')} in {tests} {'is' if number == 1 else 'are'} shorter than "
        f"{SHORT_US:.0f}us: fuse them or use a CUDA graph, first in {worst.name} (overhead "
        f"{format_time(overhead)} of {format_time(latency)})"
    )


def _short_of(profile: Profile) -> int:
    """By the mean of the kernels of one name, since that is what is known of many."""
    if profile.bound.verdict != "overhead" or profile.environment.kind != "cuda":
        return 0
    groups = groups_of(profile).values()
    return sum(number for number, us in groups if number and us / number < SHORT_US)


_MUCH = 0.2
"""A share of a call's time below which it is not worth a word."""


class Advice(NamedTuple):
    """What to do about a profile, and what that rests on."""

    what: str
    why: str


def advice_on(profile: Profile, diff: KernelDiff | None = None) -> tuple[Advice, ...]:
    """What there is to do, the most telling first; none where nothing stands out.

    Args:
        diff: how its kernels differ from what they were before, where that is known.
    """
    if not profile.integrity.complete:
        return tuple(_about_incomplete(profile))
    about = (_about_compilations, _about_waits, _about_pageable, _about_overhead)
    more = (_about_host_waits, _about_cold, _about_undecided)
    new = _about_new_kernels(profile, diff) if diff is not None else ()
    return (*new, *(one for tell in (*about, *more) for one in tell(profile)))


def _about_incomplete(profile: Profile) -> Iterator[Advice]:
    tries = profile.integrity.retakes + 1
    yield Advice(
        "Run the test alone.",
        f"{'; '.join(profile.integrity.problems)}, by {count_words(tries, 'try', 'tries')}. "
        "kernelprof doctor says whether this machine can count kernels.",
    )


def _about_new_kernels(profile: Profile, diff: KernelDiff) -> Iterator[Advice]:
    come = diff.of("added")
    if not come or diff.current_kernels <= diff.baseline_kernels:
        return
    us, all_us = sum(one.us(one.current) * one.times for one in come), gpu_us(profile)
    number = sum(one.times for one in come)
    share = f", {us / all_us:.1%} of the call's" if all_us else ""
    takes = f" of {format_time(us)}{share}" if us else ""
    kernel, unsure = come[0].side, lines_words(come[0].lines)
    place, chain = source_place(kernel.source), chain_words(kernel.operators, kernel.name)
    where = f" at {line_words(place)}{unsure}" if place else ""
    by = f", launched by {chain}{where}" if chain else where
    what = "kernel" if diff.what == "kernels" else "operator"
    yield Advice(
        f"Look at what is new{where}.",
        f"{count_words(number, f'new {what}')}{takes}: {kernel.short_name}{by}.",
    )


def _about_compilations(profile: Profile) -> Iterator[Advice]:
    number = value_of(profile, "recompiles")
    if number:
        metric = profile.metrics["recompiles"]
        why = f": {metric.why}" if metric.why else ""
        yield Advice(
            "Find out why it compiles again.",
            f"{count_words(int(number), 'compilation')} in calls that were warm{why}. "
            "TORCH_LOGS=recompiles names the guard that failed.",
        )


def _about_waits(profile: Profile) -> Iterator[Advice]:
    if not profile.waits or profile.bound.verdict not in ("sync", "overhead", "mixed"):
        return
    places = _places([one.source for one in profile.waits])
    calls = sorted({one.operators[0] if one.operators else one.call for one in profile.waits})
    yield Advice(
        "Keep values on the GPU.",
        f"The host waits {count_words(len(profile.waits), 'time')} for the device in one call, in "
        f"{', '.join(calls[:3])}{places}.",
    )


def _about_pageable(profile: Profile) -> Iterator[Advice]:
    number = value_of(profile, "memcpys_pageable")
    if not number:
        return
    pageable = [one for one in profile.copies if "ageable" in one.name]
    size = format_bytes(sum(one.bytes for one in pageable))
    yield Advice(
        "Pin the host's memory.",
        f"{count_words(int(number), 'copy', 'copies')} of {size} from or to pageable memory"
        f"{_places([one.source for one in pageable])}: each makes the host wait.",
    )


def _places(sources: Sequence[str]) -> str:
    found = [line_words(one) for one in map(source_place, dict.fromkeys(sources)) if one]
    return f" at {', '.join(found[:3])}" if found else ""


def _about_overhead(profile: Profile) -> Iterator[Advice]:
    launches, each = value_of(profile, "launches"), value_of(profile, "overhead_per_launch")
    if profile.bound.verdict != "overhead" or not launches or each is None:
        return
    kernels = max(1, profile.kernel_count)
    words = (
        f"{count_words(int(launches), 'launch', 'launches')} with {format_time(each)} of overhead "
        f"each, for kernels of {format_time(gpu_us(profile) / kernels)}."
    )
    if launches > 1:
        yield Advice(
            "Launch less often.",
            f"{words} A CUDA graph makes them one launch, torch.compile fewer kernels.",
        )
    else:
        yield Advice("Give a call more to do.", f"{words} Larger batches share the launch.")


def _about_host_waits(profile: Profile) -> Iterator[Advice]:
    span, rounds = value_of(profile, "gpu_span"), profile.gaps.rounds
    if not span or not rounds:
        return
    late = statistics.median(one.host_wait for one in rounds)
    if late / span > _MUCH:
        yield Advice(
            "Let the host run ahead.",
            f"In profiled rounds the GPU waited {format_time(late)} of {format_time(span)} for the "
            "next launch; the profiler slows the host, so without it that is less.",
        )


def _about_cold(profile: Profile) -> Iterator[Advice]:
    if profile.integrity.cold:
        yield Advice(
            "Profile a call that is warm.",
            f"{', '.join(profile.integrity.cold)} in the round; kernel_profile(fn) warms up, a "
            "region does not.",
        )


def _about_undecided(profile: Profile) -> Iterator[Advice]:
    for verdict in profile.verdicts:
        if verdict.outcome == "undecided" and verdict.reason in ("interval", "few"):
            rounds = max(verdict.rounds, 1)
            yield Advice(
                "Take more rounds, or move the limit.",
                f"{count_words(rounds, 'round')} do not tell {verdict.limit} from its limit; "
                f"--kernelprof-rounds={rounds * 2} takes twice as many.",
            )
