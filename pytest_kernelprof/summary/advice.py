"""What to do: about the problems of a run, about limits that are near or loose, about a profile."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.summary.records import FAILED_OTHERWISE, Hint, Remedy, Row
from pytest_kernelprof.summary.words import (
    chain_words,
    count_words,
    first_of,
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

    from pytest_kernelprof.schema.comparison import TestState
    from pytest_kernelprof.schema.document import Run, Test
    from pytest_kernelprof.schema.profile import Profile, Verdict
    from pytest_kernelprof.summary.records import Entry, Problem


_MOST_TESTS = 3
_TESTS, _PLACES, _LIMITS = "{tests}", "{places}", "{limits}"
_ADVISED = re.compile(r"; ((?:profile|record) [^;]*)$")
"""How a problem ends that says what helps."""


def accept_words(test: str, device: str) -> str:
    """The command that makes a snapshot of what a test launches now, and what it does.

    Args:
        test: how pytest is told to run it. device: "cpu", or a GPU's kind or folder.
    """
    command = _accepting(device).replace(_TESTS, shlex.quote(test))
    return f"to accept this as the new snapshot: {printable(command)}"


def remedy_of(run: Run, entries: Sequence[Entry]) -> Remedy | None:
    """What to do about tests with one cause, by the worst of them; None where only the failure
    itself tells more.

    Args:
        entries: the worst first.
    """
    plan = _plan(run, entries[0])
    return None if plan is None else _filled(plan, entries)


def todo_of(run: Run, problems: Iterable[Problem]) -> tuple[Remedy, ...]:
    """The remedies of all problems, those of one kind together."""
    entries: defaultdict[Remedy, list[Entry]] = defaultdict(list)
    for problem in problems:
        plan = _plan(run, problem.rows[0])
        if plan is not None:
            entries[plan] += problem.rows
    return tuple(_filled(plan, several) for plan, several in entries.items())


def _filled(plan: Remedy, entries: Sequence[Entry]) -> Remedy:
    """With the lines and limits of the entries, and their tests: by name where they are few, else
    by their files."""
    tests = list(dict.fromkeys(each.test.id for one in entries for each in one.each))
    if len(tests) > _MOST_TESTS:
        files = list(dict.fromkeys(one.partition("::")[0] for one in tests))
        tests = files if len(files) <= _MOST_TESTS else tests[:1]
    places = [line_words(one.place) or one.file for one in entries]
    what = plan.what.replace(_PLACES, _first(places))
    what = what.replace(_LIMITS, _first([_limit(one) for one in entries]))
    command = plan.command.replace(_TESTS, " ".join(map(shlex.quote, tests)))
    return Remedy(what, printable(command))


def _first(words: Iterable[str]) -> str:
    """``model.py:17 and 2 more``."""
    return " and ".join(first_of(list(dict.fromkeys(filter(None, words))), 1))


def _limit(entry: Entry) -> str:
    """The first count that is beyond its limit, as a limit that would hold: ``max_kernels(5)``."""
    over = (one for one in entry.test.verdicts if one.of_limit and one.outcome == "failed")
    counts = (
        f"{one.limit}({one.measured:.0f})"
        for one in over
        if one.unit == "count" and not one.qualifier
    )
    return next(counts, "")


def _plan(run: Run, worst: Entry) -> Remedy | None:
    """What helps, without the tests, lines and limits."""
    test, snapshot, command = worst.test, worst.test.snapshot, f"pytest {_TESTS}"
    if snapshot is not None and (snapshot.accepts or snapshot.state == "changed"):
        added = any(one.sign == "+" for one in worst.causes)
        exceeded = f"{'remove the new kernels' if added else 'lower the counts'} at {_PLACES}"
        accept = _SNAPSHOTS.get(snapshot.state, f"{exceeded}; if they are intended, accept them")
        return Remedy(accept, _accepting(snapshot.device))
    conditions = [one.conditions for one in test.profiles]
    conditions += (one for of in test.comparisons for one in of.conditions)
    rounds = [one.rounds for one in test.verdicts if one.outcome == "undecided"]
    if worst.told == "undecided" and any(one.contended for one in conditions):
        pids = {str(process.pid) for one in conditions for process in one.contenders}
        others = f"process {' and '.join(sorted(pids))}" if pids else "other work on this GPU"
        return Remedy(f"stop {others}, then run again", command)
    if worst.told == "undecided" and any(rounds):
        return Remedy("take more rounds", f"{command} --kernelprof-rounds={2 * max(rounds)}")
    if worst.told in FAILED_OTHERWISE or not isinstance(worst, Row):
        return None
    profile = worst.profile
    if worst.told == "incomplete":
        advised = filter(None, map(_ADVISED.search, profile.integrity.problems))
        return Remedy(next((one[1] for one in advised), "run these tests alone"), command)
    command += _on(profile.environment.kind)
    change = "" if worst.told == "undecided" else f"change {_PLACES}, then "
    if profile.other_ranks:
        ranks = [rank for one in profile.verdicts for rank in one.ranks if one.outcome == "failed"]
        change = change.replace(",", f" on rank {ranks[0]},") if ranks else change
        command = f"torchrun --nproc-per-node {len(profile.ranks)} -m pytest {_TESTS}"
        return Remedy(f"{change}measure again on all ranks", command)
    sources = {one.comparison.source for one in profile.verdicts if one.comparison is not None}
    for baseline in run.baselines:
        if baseline.source != "snapshot" and baseline.source in sources:
            name = baseline.name.partition(" (")[0]
            against = shlex.quote(f"--kernelprof-against={name}")
            return Remedy(f"{change}compare with {name} again", f"{command} {against}")
    if run.commit:
        return Remedy("see what the last commit changed", f"{command} --kernelprof-against=HEAD~1")
    lower = f"lower the count at {_PLACES} or raise the limit: {_LIMITS}"
    return Remedy(lower, "") if _limit(worst) else None


_SNAPSHOTS: dict[TestState | None, str] = {
    "changed": "accept the outdated snapshots",
    "missing": "accept what the tests launch as their snapshots",
}
"""What an update of snapshots does where none is exceeded."""


def _accepting(device: str) -> str:
    return f"pytest --kernelprof-update {_TESTS}{_on(device)}"


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
                if one.outcome == "not judged":
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


_FEWER = "A CUDA graph makes them one launch, torch.compile fewer kernels."


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
            f"{overhead}. {_FEWER if several else 'Larger batches share the launch.'}",
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
