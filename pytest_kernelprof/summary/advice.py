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
    is_judged,
    limits_of,
    line_words,
    note_of,
    overhead_words,
    source_place,
    title,
    value_of,
    value_words,
)
from pytest_kernelprof.units import format_bytes, format_time, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    if not run.commit:
        return None
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
            if one.outcome == "passed" and one.unit == "us" and one.allowed:
                value, allowed = one.measured or 0.0, one.allowed
                left = (allowed - value) / allowed
                if left <= max(_NEAR, ((one.high or 0.0) - (one.low or 0.0)) / allowed):
                    words = f"{format_time(value)} of {format_time(allowed)}, {left:.1%} left"
                    found.append((left, row.test.id, Hint("near", row.name, one.limit, words)))
    return [hint for *_, hint in sorted(found, key=lambda one: one[:2])]


def _loose(rows: Iterable[Row]) -> list[Hint]:
    """Exact limits above the largest value of their test, and times above twice theirs. Of one
    marker on a parametrised test the largest value of all counts."""
    seen: defaultdict[tuple[str, str, float], list[tuple[Row, Verdict]]] = defaultdict(list)
    for row in rows:
        for one in row.profile.verdicts:
            if one.measured is not None and one.allowed and one.of_limit and one.metric in METRICS:
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


_SHORT_US = 3.0
"""A kernel that is shorter takes less than its launch, by any measurement that we know of."""


def short_kernels_words(rows: Iterable[Row]) -> str:
    """Kernels too short for their launches, in tests that are launch-bound by a measured overhead;
    empty without.

    Args:
        rows: those on a GPU.
    """
    found = []
    for row in rows:
        overhead, latency = (value_of(row.profile, m) for m in ("launch_overhead", "latency"))
        if row.profile.bound.verdict == "overhead" and overhead and latency:
            # By the mean of the kernels of one name: of many kernels no more is known.
            groups = groups_of(row.profile).values()
            number = sum(number for number, us in groups if us < _SHORT_US * number)
            of = f"{row.name} (overhead {format_time(overhead)} of {format_time(latency)})"
            found += [(overhead / latency, number, row.test.id, of)] if number else []
    if not found:
        return ""
    number = sum(number for _, number, *_ in found)
    tests = count_words(len({test for *_, test, _ in found}), "test")
    *_, worst = max(found, key=lambda one: one[:2])
    return (
        f"{count_words(number, 'kernel')} in {tests} {'is' if number == 1 else 'are'} shorter than "
        f"{_SHORT_US:.0f}us: fuse them or use a CUDA graph, first in {worst}"
    )


_MUCH = 0.2
"""A share of a call's time below which it is not worth a word."""


class Advice(NamedTuple):
    """What to do about a profile, and what that rests on."""

    what: str
    why: str


def advice_on(profile: Profile) -> tuple[Advice, ...]:
    """What there is to do, first about broken limits, then the most telling; none where nothing
    stands out."""
    integrity, bound = profile.integrity, profile.bound.verdict
    if not integrity.complete:
        doctor = "kernelprof doctor says whether this machine can count kernels."
        return (Advice("Run the test alone.", doctor),)
    why = note_of(profile, "recompiles")
    because = f": {why}" if why else ""
    compilations = _number(profile, "recompiles")
    waits = profile.waits
    calls = {chain_words(one.operators, one.call) or one.call for one in waits}
    pageable = [one for one in profile.copies if "ageable" in one.name]
    copies = count_words(_number(profile, "memcpys_pageable"), "copy", "copies")
    size, cold = format_bytes(sum(one.bytes for one in pageable)), ", ".join(integrity.cold)
    overhead = overhead_words(profile) if bound == "overhead" else ""
    several = _number(profile, "launches") > 1
    late = statistics.median([one.host_wait for one in profile.gaps.rounds] or [0.0])
    span = value_of(profile, "gpu_span") or 0.0
    broken = {one.metric for one in profile.verdicts if one.outcome == "failed"}
    rules = (
        (
            "recompiles",
            compilations,
            "Find out why it compiles again.",
            f"{count_words(compilations, 'compilation')} in calls that were warm{because}. "
            "TORCH_LOGS=recompiles names the guard that failed.",
        ),
        (
            "syncs",
            waits and ("syncs" in broken or bound in ("sync", "overhead", "mixed")),
            "Keep values on the GPU.",
            f"The host waits {count_words(len(waits), 'time')} for the device in one call, in "
            f"{', '.join(sorted(calls)[:3])}{_places(one.source for one in waits)}.",
        ),
        (
            "memcpys",
            _number(profile, "memcpys_pageable"),
            "Pin the host's memory.",
            f"{copies} of {size} from or to pageable memory"
            f"{_places(one.source for one in pageable)}: each makes the host wait.",
        ),
        (
            "launch_overhead",
            overhead,
            "Launch less often." if several else "Give a call more to do.",
            f"{overhead}. A CUDA graph makes them one launch, torch.compile fewer kernels."
            if several
            else f"{overhead}. Larger batches share the launch.",
        ),
        (
            "latency",
            late > _MUCH * span > 0,
            "Let the host run ahead.",
            f"In profiled rounds the GPU waited {format_time(late)} of {format_time(span)} for the "
            "next launch; the profiler slows the host, so without it that is less.",
        ),
        (
            "",
            cold,
            "Profile a call that is warm.",
            f"{cold} in the round; kernel_profile(fn) warms up, a region does not.",
        ),
    )
    first = sorted(rules, key=lambda rule: rule[0] not in broken)
    return tuple(Advice(what, why) for _, applies, what, why in first if applies)


def _number(profile: Profile, metric: str) -> int:
    return int(value_of(profile, metric) or 0)


def _places(sources: Iterable[str]) -> str:
    found = [line_words(one) for one in map(source_place, dict.fromkeys(sources)) if one]
    return f" at {', '.join(found[:3])}" if found else ""
