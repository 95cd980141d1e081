"""All that a run says, in one record: its rows, problems and counts, the verdict, what to do."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.schema.run import Cause
from pytest_kernelprof.schema.snapshot import TEST_STATES
from pytest_kernelprof.summary.advice import hints_of, remedy_of, short_kernels_words, todo_of
from pytest_kernelprof.summary.comparisons import baseline_summaries, result_of, weight_of
from pytest_kernelprof.summary.kernels import hottest_kernels
from pytest_kernelprof.summary.records import (
    FAILED,
    FAILED_OTHERWISE,
    MARKS,
    NEEDS_A_LOOK,
    Counts,
    Entry,
    Problem,
    Row,
    severity,
    told_of,
    told_of_test,
)
from pytest_kernelprof.summary.verdicts import (
    beside_of,
    broken_cells,
    causes_of,
    causes_of_diff,
    comparison_line,
    found_by,
)
from pytest_kernelprof.summary.words import (
    count_words,
    first_of,
    gpu_us,
    line_words,
    natural,
    parameters_of,
    parts_of,
    place_words,
    value_of,
    with_label,
)
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_kernelprof.schema.run import Profile, ProfileComparison, Run, Test, Verdict
    from pytest_kernelprof.summary.comparisons import BaselineSummary
    from pytest_kernelprof.summary.records import Hint, HotKernel, Overall, Remedy, Told


Key = tuple[float | int | str | tuple[tuple[str, int], ...], ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """All that a run says.

    Attributes:
        run: the record that it is made of.
        overall: the verdict.
        sentence: the same in words, with the counts that are not zero.
        where: the lines to look at, in words; empty where nothing needs a look.
        todo: what to do about the problems, one remedy a kind; the first helps the worst of them.
        open: the tests and limits that were not judged, in words; empty if all were.
        problems: what needs a look, worst first, each test once.
        rows: each profile, worst first.
        folded: the same, those that agree as one.
        left_out: the tests without a row none of whose limits was judged.
        compared: how the run compares with a revision and with an earlier run.
        facts: what all profiles come to, in words, by what it is of.
        places: devices with their versions, in words.
        integrity: how many profiles there are, and how far they can be trusted, in words.
    """

    run: Run
    counts: Counts
    overall: Overall
    sentence: str
    where: str
    todo: tuple[Remedy, ...]
    open: str
    problems: tuple[Problem, ...]
    rows: tuple[Row, ...]
    folded: tuple[Row, ...]
    left_out: tuple[Test, ...]
    compared: tuple[BaselineSummary, ...]
    facts: dict[str, str]
    hottest: tuple[HotKernel, ...]
    hints: tuple[Hint, ...]
    places: tuple[str, ...]
    integrity: str


def summary_of(run: Run) -> Summary:
    """What a run says. Takes time in proportion to its profiles and their kernels."""
    rows = tuple(sorted((row for test in run.tests for row in _rows_of(test)), key=worst_first))
    last = [row for row in rows if row.told != "rerun"]  # a test tried again is no second test
    together = by_file(folded(rows))
    hints = hints_of(last, run.tests)
    counts, compared = _counts_of(rows, run.tests), baseline_summaries(run)
    left = _open_words(counts, hints)
    problems = problems_of(run, [*together, *_entries_of(run.tests, rows)])
    profiled = {row.test.id for row in rows}
    return Summary(
        run=run,
        counts=counts,
        overall=_overall_of(run, counts, left, compared),
        sentence=_sentence_of(counts, left, compared),
        where=_where(problems),
        todo=todo_of(run, problems),
        open=left,
        problems=problems,
        rows=rows,
        folded=together,
        left_out=tuple(
            one for one in run.tests if one.id not in profiled and told_of_test(one) == "not judged"
        ),
        compared=compared,
        facts=_facts_of(run, last, marked=counts.marked),
        hottest=hottest_kernels(last, _sum([row.profile for row in last], "cuda_time")),
        hints=hints,
        places=_places_of(row.profile for row in rows),
        integrity=_integrity_of([row.profile for row in rows]),
    )


# Rows.


def _rows_of(test: Test) -> Iterator[Row]:
    file, name = parts_of(test.id)
    for number, profile in enumerate(test.profiles):
        told = told_of(test, profile)
        compared = _comparison_of(profile)
        yield Row(
            test=test,
            file=file,
            name=with_label(name, profile.label),
            number=number,
            told=told,
            profile=profile,
            broken=broken_cells(profile),
            found=(tuple(found_by(profile.verdicts)) or (MARKS[told].word,))
            if told in NEEDS_A_LOOK
            else (),
            causes=_causes_of(test, profile, told, compared),
            comparison=compared,
        )


def _comparison_of(profile: Profile) -> ProfileComparison | None:
    """With a revision or an earlier run, else with the snapshot."""
    found = [one.comparison for one in profile.verdicts if one.comparison is not None]
    return min(found, key=lambda one: one.source == "snapshot", default=None)


def _causes_of(
    test: Test, profile: Profile, told: Told | None, compared: ProfileComparison | None
) -> tuple[Cause, ...]:
    """Why it is marked, or what changed."""
    if told in FAILED_OTHERWISE:
        words = "the test failed for another reason"
        return (Cause(f"{words}: {test.why}" if test.why else words),)
    found = causes_of(profile, told)
    if not found and compared is not None and compared.kernels is not None:
        found = causes_of_diff(compared.kernels)
    return (*found, *beside_of(profile, told))


def _entries_of(tests: Iterable[Test], rows: Iterable[Row]) -> Iterator[Entry]:
    """What no row says of tests: that they failed without a profile, and comparisons of callables
    that are not as asserted."""
    profiled = {row.test.id for row in rows}
    for test in tests:
        if test.outcome == "rerun":
            continue
        for one in test.comparisons:
            for verdict in one.verdicts:
                for found in found_by([verdict]):
                    cause = Cause(comparison_line(one, verdict), verdict.place or test.place)
                    yield _entry(test, verdict.outcome, found, cause)
        told = told_of_test(test)
        if test.id not in profiled and told in FAILED_OTHERWISE:
            word = MARKS[told].word
            yield _entry(test, told, word, Cause(test.why or word))


def _entry(test: Test, told: Told, found: str, cause: Cause) -> Entry:
    file, name = parts_of(test.id)
    return Entry(test=test, file=file, name=name, told=told, found=(found,), causes=(cause,))


def worst_first(row: Row) -> Key:
    """The key of rows by their mark, then by their GPU time; on the CPU, where there is none, by
    number of operators; then by name, 2 before 10."""
    operators = row.profile.kernel_count if row.profile.environment.kind == "cpu" else 0
    return severity(row.told), -gpu_us(row.profile), -operators, natural(row.name), row.number


def costliest_first(row: Row) -> Key:
    """The key of rows by cost alone."""
    return -gpu_us(row.profile), -row.profile.kernel_count, natural(row.name), row.number


def by_file(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows file by file: files by their worst row, then by their GPU time; inside of a file
    likewise."""
    files: dict[str, list[Row]] = {}
    for row in sorted(rows, key=worst_first):
        files.setdefault(row.file, []).append(row)
    return tuple(row for one in sorted(files.values(), key=_file_order) for row in one)


def _file_order(rows: Sequence[Row]) -> Key:
    time = sum(gpu_us(row.profile) for row in rows)
    worst, _, operators, *_ = worst_first(rows[0])
    return worst, -time, operators, natural(rows[0].file)


_ALIKE = 0.05
_LONGEST_SHARED = 24
_UNSTABLE = ("recompiles", "memsets")
"""Counts that keep no rows apart: of what ran before, and of what healthy traces miss some."""
_COUNTS = tuple(
    name
    for name, one in METRICS.items()
    if one.kind == "exact" and one.unit == "count" and name not in _UNSTABLE
)


def folded(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows with those of one parametrised test that agree in mark, causes and every count told
    as one: its cells are of the one with the most GPU time. Others stand alone."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(_what_agrees(row), []).append(row)
    return tuple(_as_one(group) for group in groups.values())


def _what_agrees(row: Row) -> Any:
    profile = row.profile
    stem, parameters = parameters_of(_bare(row))
    if not parameters:  # never across tests; several profiles or tries of one are no parameters
        return id(row)
    counts = tuple(value_of(profile, name) for name in _COUNTS)
    broken = tuple((one.metric, one.allowed) for one in row.broken.values())
    causes = tuple(one.text for one in row.causes)
    result = result_of(row.comparison) if row.comparison is not None else None
    paired = row.comparison.paired if row.comparison is not None else None
    timed = id(row) if paired is not None and result not in (None, "same") else None
    told = row.told, broken, causes, result, timed
    return row.file, stem, profile.label, counts, told, profile.environment.device


def _bare(row: Row) -> str:
    """The name without the label of the profile."""
    end = with_label("", row.profile.label)
    return row.name[: -len(end)] if end and row.name.endswith(end) else row.name


def _as_one(rows: Sequence[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    first, *others = sorted(rows, key=worst_first)
    most, least = gpu_us(first.profile), min(gpu_us(one.profile) for one in others)
    stem, _ = parameters_of(_bare(first))
    shared = _shared([parameters_of(_bare(one))[1] for one in rows])
    return replace(
        first,
        name=with_label(f"{stem}[{shared}x{len(rows)}]", first.profile.label),
        others=tuple(others),
        least_us=least if most - least > _ALIKE * most else None,
    )


def _shared(parameters: Sequence[str]) -> str:
    """What is one in all of them, with ``*`` for what differs: ``*-bf16 ``; empty without."""
    pieces = [one.split("-") for one in parameters]
    if len(set(map(len, pieces))) != 1:
        return ""
    columns = [set(column) for column in zip(*pieces, strict=True)]
    if all(len(column) > 1 for column in columns):
        return ""
    told = "-".join(next(iter(one)) if len(one) == 1 else "*" for one in columns)
    return f"{told} " if len(told) <= _LONGEST_SHARED else ""


# Problems: what needs a look, one cause told once.

_NUMBERS = re.compile(r" x\d+\b|(?<=: )[\d.]+ \w+: |, [\d.]+[mu]?s -> .*")
_MOST_PLACES, _LONGEST_CAUSE = 2, 60


def problems_of(run: Run, entries: Iterable[Entry]) -> tuple[Problem, ...]:
    """What needs a look, worst first, each test once: tests with one first cause together. Last
    come snapshots that have other kernels and fail nothing."""
    found: dict[Any, list[Entry]] = {}
    for one in sorted(entries, key=lambda one: severity(one.told)):
        if one.told in NEEDS_A_LOOK or is_outdated(one):
            found.setdefault(_cause_key(one), []).append(one)
    problems = [
        Problem(next(iter(several[0].causes), None), tuple(several), remedy_of(run, several))
        for several in found.values()
    ]
    return tuple(sorted(problems, key=lambda one: (severity(one.told), -one.tests)))


def is_outdated(entry: Entry) -> bool:
    """Whether its snapshot has other kernels, and does not fail it."""
    snapshot = entry.test.snapshot
    is_well = entry.told not in NEEDS_A_LOOK and entry.test.outcome == "passed"
    return is_well and snapshot is not None and snapshot.state == "changed"


def _cause_key(entry: Entry) -> Any:
    """What tests have in common: the first cause, whatever its numbers."""
    if not entry.causes or entry.told == "undecided":
        return id(entry)
    cause = entry.causes[0]
    return entry.told, cause.sign, _NUMBERS.sub("", cause.text), cause.place


def _where(problems: Sequence[Problem]) -> str:
    """The lines to look at: ``model.py:17: + elementwise [copy] (12 tests); test_mlp.py:31:
    max_kernels: 5 > 3 (test_it)``."""
    told = [
        f"{line_words(one.place) or one.rows[0].file}: {_what_of(one.rows[0])} "
        f"({one.rows[0].name if one.tests == 1 else count_words(one.tests, 'test')})"
        for one in problems
    ]
    return "; ".join(first_of(told, _MOST_PLACES, "{} more"))


def _what_of(worst: Entry) -> str:
    """What is wrong, shortly: the first cause where it is one thing, else the first limit."""
    for cause in worst.causes[:1]:
        words = cause.text.partition(", from ")[0]
        if len(words) <= _LONGEST_CAUSE and ";" not in cause.text:
            return f"{cause.sign} {words}".strip()
    return next(iter(worst.found), "") or (MARKS[worst.told].word if worst.told else "changed")


# Counts, and the sentence that says them.

_MOST_REASONS = 2
_OPEN: tuple[Told, ...] = ("failed", "incomplete", "undecided")
_JUDGED: tuple[Told, ...] = ("passed", "expected failure")
_LEFT_OUT: tuple[Told | None, ...] = ("expected failure", "xfailed", "rerun", "skipped")


def _counts_of(rows: Sequence[Row], tests: Sequence[Test]) -> Counts:
    """Each test once, by its worst row, or by how it ended."""
    worst: dict[str, Told | None] = {}
    by_kind: dict[str, set[str]] = {"limit": set(), "snapshot": set(), "baseline": set()}
    limited: set[str] = set()
    for row in rows:  # worst first
        worst.setdefault(row.test.id, row.told)
    profiled, unjudged, failed, outdated = len(worst), Counter[str](), 0, 0
    for test in tests:
        told = told_of_test(test) if test.comparisons or test.id not in worst else None
        if test.id not in worst or severity(told) < severity(worst[test.id]):
            worst[test.id] = told
        if test.limits or any(map(_is_limit, test.verdicts)):
            limited.add(test.id)
        if test.outcome != "rerun":
            for kind in _broken(test.verdicts):
                by_kind[kind].add(test.id)
            failed += test.outcome in FAILED
            outdated += test.snapshot is not None and test.snapshot.state == "changed"
            if worst[test.id] == "not judged" and test.not_judged:
                unjudged[test.not_judged] += 1
    return Counts(
        tests=len(worst),
        limited=len(limited),
        held=sum(worst[one] not in _LEFT_OUT for one in limited),
        passed=sum(worst[one] == "passed" for one in limited),
        told=dict(Counter(one for one in worst.values() if one is not None)),
        on_cpu=bool(rows) and all(row.profile.environment.kind == "cpu" for row in rows),
        profiled=profiled,
        breaking=len(by_kind["limit"]),
        exceeding=len(by_kind["snapshot"]),
        outdated=outdated,
        worse=len(by_kind["baseline"]),
        failed=failed,
        unjudged=dict(unjudged),
    )


def _is_limit(verdict: Verdict) -> bool:
    return verdict.of_limit or (verdict.of_snapshot and not verdict.is_uncompared)


def _broken(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """What a test is held to and exceeds."""
    for one in verdicts:
        if one.outcome == "failed":
            source = one.comparison.source if one.comparison is not None else ""
            yield "limit" if not source else "snapshot" if source == "snapshot" else "baseline"


def _overall_of(
    run: Run, counts: Counts, open_words: str, compared: Sequence[BaselineSummary]
) -> Overall:
    """The verdict of a run, the same in every format; see ``Overall``."""
    if counts.failed or any(one.lacking for one in compared):
        return "failed"
    found = sum((one.counts for one in compared), Counter[str]())
    if run.unfinished or found["undecided"] or any(counts.told.get(one) for one in _OPEN):
        return "undecided"
    judged = any(counts.told.get(one) for one in _JUDGED) or any(one.compared for one in compared)
    return "passed" if judged and not open_words and not found["not compared"] else "not judged"


def _sentence_of(counts: Counts, open_words: str, compared: Sequence[BaselineSummary]) -> str:
    """What happened, with the counts that are not zero: ``3 of 33 tests break a limit, 2 of 31
    tests are worse than main (abc1234); 1 incomplete, 1 undecided.``

    Args:
        open_words: what was not judged.
    """
    told = counts.told
    wrong = []
    if counts.breaking:
        breaks = "breaks" if counts.breaking == 1 else "break"
        wrong.append(f"{counts.breaking} of {count_words(counts.limited, 'test')} {breaks} a limit")
    if counts.exceeding:
        one, several = "test exceeds its snapshot", "tests exceed their snapshots"
        wrong.append(count_words(counts.exceeding, one, several))
    if not wrong and not counts.worse and (counts.limited or not compared):
        wrong.append(_well(counts))
    wrong += [one.sentence for one in compared]
    if counts.outdated:
        wrong.append(count_words(counts.outdated, "snapshot is", "snapshots are") + " outdated")
    expected = told.get("expected failure", 0) + told.get("xfailed", 0)
    failed_otherwise = told.get("failed otherwise", 0)
    after = [
        _number(told.get("incomplete", 0), "incomplete"),
        _number(failed_otherwise, "failed for another reason"),
        _number(told.get("error", 0), "error", "errors"),
        _number(told.get("undecided", 0), "undecided"),
        _number(expected, "expected failure", "expected failures"),
        _number(told.get("skipped", 0), "skipped"),
        open_words,
    ]
    words = "; ".join(filter(None, [", ".join(wrong), ", ".join(filter(None, after))]))
    words += "; CPU operators counted, not GPU kernels" if counts.on_cpu else ""
    return f"{words[:1].upper()}{words[1:]}."


def _well(counts: Counts) -> str:
    if not counts.tests:
        return "no test has a profile"
    if not counts.limited:
        have = count_words(counts.profiled, "test has a profile", "tests have a profile")
        return f"no test has a limit, {have}" if counts.profiled else "no test has a limit"
    if not counts.held:
        return "no limit applied"
    is_one = 1 in (counts.passed, counts.held)
    within = "is within its limits" if is_one else "are within their limits"
    return f"{counts.passed} of {count_words(counts.held, 'test')} {within}"


def _open_words(counts: Counts, hints: Iterable[Hint]) -> str:
    """The tests and limits that were not judged, and why: ``30 not judged (no CUDA device)``."""
    told, number = [], counts.told.get("not judged", 0)
    if number:
        told.append(f"{number} not judged{_reasons(counts.unjudged)}")
    unjudged = [one for one in hints if one.kind == "not judged"]
    told += [
        f"{one.limit} not judged in {one.test} ({one.words})" for one in unjudged[:_MOST_REASONS]
    ]
    return ", ".join(told)


def _reasons(found: Mapping[str, int]) -> str:
    """The most frequent reasons, with their numbers if there are several."""
    most = sorted(found.items(), key=lambda one: -one[1])
    told = [f"{number} {why}" if len(most) > 1 else why for why, number in most]
    return f" ({', '.join(first_of(told, _MOST_REASONS, '{} more reasons'))})" if told else ""


def _number(number: int, one: str, several: str = "") -> str:
    return count_words(number, one, several or one) if number else ""


# Facts: what all profiles come to.


def _facts_of(run: Run, rows: Sequence[Row], *, marked: bool) -> dict[str, str]:
    """Sums over all profiles, each as one call, in words; what there is nothing of is not there."""
    on_gpu = [row for row in rows if row.profile.environment.kind == "cuda"]
    profiles = [row.profile for row in on_gpu]
    operators = sum(one.profile.kernel_count for one in rows) - sum(
        one.kernel_count for one in profiles
    )
    states = Counter(one.snapshot.state for one in run.tests if one.snapshot)
    held = (f"{states[state]} {word}" for state, word in TEST_STATES.items() if states[state])
    found = {
        "suite": _suite_words(profiles, marked=marked),
        "CPU": f"{count_words(operators, 'operator')} on the CPU" if operators else "",
        "overhead": short_kernels_words(on_gpu),
        "waits": _waits_words(on_gpu),
        "copies": _copies_words(profiles),
        "idle": _idle_words(profiles),
        "snapshots": ", ".join(held) if run.baseline("snapshot") is not None else "",
    }
    return {what: words for what, words in found.items() if words}


def _suite_words(profiles: Sequence[Profile], *, marked: bool) -> str:
    kernels = sum(one.kernel_count for one in profiles)
    if not kernels:
        return ""
    words, gpu, comm = count_words(kernels, "kernel"), _sum(profiles, "cuda_time"), 0.0
    if gpu is not None:
        comm = _sum(profiles, "comm_time") or 0.0
        words += "" if marked else f" of {format_time((gpu + comm) / kernels)} on average"
        words += f", {format_time(gpu)} on the GPU"
        words += f" and {format_time(comm)} communicating" if comm else ""
    if any(one.other_ranks for one in profiles):
        words += ", of rank 0 where there are several"
    return "; ".join([words, *_alike_words(profiles)])


_FEWEST_ALIKE = 3
_ALIKE_WORDS = {"syncs": ("wait", "waits"), "memcpys": ("copy", "copies")}


def _alike_words(profiles: Sequence[Profile]) -> Iterator[str]:
    """What is the same in every profile: a table has no column of it."""
    if len(profiles) < _FEWEST_ALIKE:
        return
    for metric, words in _ALIKE_WORDS.items():
        values = {value_of(one, metric) for one in profiles}
        value = next(iter(values))
        if len(values) == 1 and value:
            yield f"{count_words(int(value), *words)} in each"
    bounds = {one.bound.verdict for one in profiles}
    if len(bounds) == 1 and "unknown" not in bounds:
        yield f"{bounds.pop()}-bound all"


def _waits_words(rows: Sequence[Row]) -> str:
    waits = [(int(value_of(row.profile, "syncs") or 0), row) for row in rows]
    number = sum(one for one, _ in waits)
    if not number:
        return ""
    tests = count_words(len({row.test.id for one, row in waits if one}), "test")
    most, row = max(waits, key=lambda one: one[0])
    return f"{number:,} in {tests}; most in {row.name} ({most})"


def _copies_words(profiles: Sequence[Profile]) -> str:
    copies, pageable = (int(_sum(profiles, n) or 0) for n in ("memcpys", "memcpys_pageable"))
    waits = f", {pageable:,} of them from or to pageable memory: the host waits for each"
    return f"{copies:,}{waits if pageable else ''}" if copies else ""


def _idle_words(profiles: Sequence[Profile]) -> str:
    """Under the profiler, and of code that ran once cold, the GPU waits longer than without."""
    idle, span = _sum(profiles, "gpu_idle"), _sum(profiles, "gpu_span")
    if not idle or not span:
        return ""
    cold = any(one.one_shot for one in profiles)
    how = "once and cold" if cold else "while the profiler slows the host"
    return (
        f"{format_time(idle)} of {format_time(span)} between first and last kernel; profiled "
        f"{how}, so this is an upper bound"
    )


def _sum(profiles: Iterable[Profile], metric: str) -> float | None:
    values = [one for one in (value_of(p, metric) for p in profiles) if one is not None]
    return sum(values) if values else None


def _integrity_of(profiles: Sequence[Profile]) -> str:
    """``412 profiles, 3 retried, 2 cold``; counts of zero are left out."""
    integrities = [profile.integrity for profile in profiles]
    conditions = [profile.conditions for profile in profiles]
    on_cpu = sum(profile.environment.kind == "cpu" for profile in profiles)  # all: the verdict's
    found = {
        "retried": sum(one.retakes > 0 for one in integrities),
        "incomplete": sum(not one.complete for one in integrities),
        "cold": sum(bool(one.cold) or not one.settled for one in integrities),
        "with unproven graph replays": sum(one.graph_replays == "unproven" for one in integrities),
        "timed while other processes used the GPU": sum(one.contended for one in conditions),
        "rounds discarded because the GPU throttled": sum(
            one.discarded_rounds for one in conditions
        ),
        "of CPU operators, not GPU kernels": 0 if on_cpu == len(profiles) else on_cpu,
    }
    told = [f"{number} {what}" for what, number in found.items() if number]
    return ", ".join([count_words(len(profiles), "profile"), *told])


def _places_of(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """Devices with their versions, each once; those with a GPU first."""
    environments = (profile.environment for profile in profiles)
    found = {(one.kind == "cpu", place_words(one)) for one in environments if one.device}
    return tuple(words for _, words in sorted(found))


# What a report lists.

MOST_KEPT, MOST_CHANGED, COSTLIEST = 50, 60, 10
_AS_EXPECTED: tuple[Told, ...] = ("expected failure", "xfailed")


@dataclass(frozen=True, slots=True)
class Listed:
    """The rows that a report lists beside the problems.

    Attributes:
        changed: that differ from their baseline and need no look, worst first.
        rows: the others, file by file.
        left: what is not listed, in words.
        costliest: whether the rows are those that cost the most, as nothing has a limit.
        more: how many more differ from their baseline, in words; empty if all are listed.
    """

    changed: tuple[Row, ...] = ()
    rows: tuple[Row, ...] = ()
    left: tuple[str, ...] = ()
    costliest: bool = False
    more: str = ""


def listed(summary: Summary, *, unfolded: bool = False) -> Listed:
    """Rows that pass, if none needs a look or differs, of very many the costliest; what differs
    from its baseline. Where nothing has a limit, those that cost the most.

    Args:
        unfolded: whether each row is listed.
    """
    problems = {id(one) for problem in summary.problems for one in problem.rows}
    rows = [row for row in summary.folded if id(row) not in problems]
    changed = sorted((row for row in rows if _is_changed(row)), key=_weight)
    rest, ordered = _without(rows, changed), tuple(changed[:MOST_CHANGED])
    number = len(changed) - len(ordered)
    more = f"{count_words(number, 'more profile')} changed" if number else ""
    if unfolded:
        among = {(id(one.test), one.number) for row in rest for one in row.each}
        each = (one for one in summary.rows if (id(one.test), one.number) in among)
        return Listed(ordered, by_file(each), more=more)
    if not summary.counts.marked:
        costly = sorted(rest, key=costliest_first)
        left = _unlimited_words(costly[COSTLIEST:])
        return Listed(ordered, by_file(costly[:COSTLIEST]), left, costliest=True)
    passed = [row for row in rest if row.told == "passed"]
    alone = not problems and not changed
    shown = sorted(passed, key=costliest_first)[:MOST_KEPT] if alone else []
    return Listed(
        ordered,
        by_file(shown),
        (
            *_passed_words(_without(passed, shown)),
            *_expected_words([row for row in rest if row.told in _AS_EXPECTED]),
            *_no_limit_words([row for row in rest if row.told is None]),
        ),
        more=more,
    )


def _is_changed(row: Row) -> bool:
    one = row.comparison
    return (
        one is not None
        and one.source != "snapshot"
        and result_of(one) not in ("same", "not compared")
        and row.told != "rerun"
    )


def _weight(row: Row) -> Any:
    assert row.comparison is not None  # it differs from something
    return weight_of(row.comparison)


def _without(rows: Iterable[Row], shown: Iterable[Row]) -> list[Row]:
    there = set(map(id, shown))  # a test that was tried again has several of one name
    return [row for row in rows if id(row) not in there]


def _tests_of(rows: Iterable[Row]) -> dict[str, str]:
    """The file of each test."""
    return {one.test.id: row.file for row in rows for one in row.each}


def _passed_words(rows: Sequence[Row]) -> Iterator[str]:
    tests = _tests_of(rows)
    if tests:
        files = count_words(len(set(tests.values())), "file")
        yield f"{count_words(len(tests), 'more test passes', 'more tests pass')}, in {files}"


def _expected_words(rows: Sequence[Row]) -> Iterator[str]:
    tests = _tests_of(rows)
    if tests:
        files = sorted(set(tests.values()))
        where = files[0] if len(files) == 1 else count_words(len(files), "file")
        yield f"{count_words(len(tests), 'expected failure')}, in {where}"


def _no_limit_words(rows: Sequence[Row]) -> Iterator[str]:
    tests = _tests_of(rows)
    if tests:
        have = count_words(len(tests), "more test has", "more tests have")
        yield f"{have} no limit: -v lists all"


def _unlimited_words(rows: Sequence[Row]) -> tuple[str, ...]:
    each = [one for row in rows for one in row.each]
    tests = _tests_of(rows)
    if not tests:
        return ()
    on_cpu = all(row.profile.environment.kind == "cpu" for row in each)
    number = sum(row.profile.kernel_count for row in each)
    told = f"{count_words(len(tests), 'more test')}: {count_words(number, _what(on_cpu))}"
    us = sum(gpu_us(row.profile) for row in each)
    silent = len(tests) - len({row.test.id for row in each if row.profile.kernel_count})
    told += f", {format_time(us)}" if us else ""
    told += f"; {silent} without any" if silent else ""
    return (f"{told}; -v lists all",)


def _what(on_cpu: bool) -> str:
    return "operator" if on_cpu else "kernel"
