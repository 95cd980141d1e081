"""All that a run says, in one record: its rows, problems and counts, the verdict, what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from pytest_kernelprof.records.comparison import ProfileComparison, Source, TestState
from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.metrics import METRICS
from pytest_kernelprof.records.profile import Cause, Profile
from pytest_kernelprof.summary import comparisons, records, verdicts, wording
from pytest_kernelprof.summary.advice import hints_of, remedy_of, task_of, tasks_of, unjudged_words
from pytest_kernelprof.summary.comparisons import BaselineSummary, baseline_summaries, result_of
from pytest_kernelprof.summary.kernels import hottest_kernels
from pytest_kernelprof.units import format_time

Key = tuple[float | int | str | tuple[tuple[str, int], ...], ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """All that a run says.

    Attributes:
        run: the record that it is made of.
        overall: the verdict.
        lead, beside: the same in words, with the counts that are not zero; and what fails nothing.
        tasks: where to look and what to do, the worst first; none where nothing needs a look.
        open: the tests and limits that were not judged, in words; empty if all were.
        problems: what needs a look, worst first, each test once.
        rows: each profile, worst first.
        folded: the same, those that agree as one.
        left_out: the tests without a row none of whose limits was judged.
        compared: how the run compares with a revision and with an earlier run.
        suite: what all profiles launch and take, in words; empty without profiles.
        places: devices with their versions, in words.
        integrity: how many profiles there are, and how far they can be trusted, in words.
    """

    run: Run
    counts: records.Counts
    overall: records.Overall
    lead: str
    beside: str
    tasks: tuple[records.Task, ...]
    open: str
    problems: tuple[records.Problem, ...]
    rows: tuple[records.Row, ...]
    folded: tuple[records.Row, ...]
    left_out: tuple[records.Entry, ...]
    compared: tuple[BaselineSummary, ...]
    suite: str
    hottest: tuple[records.HotKernel, ...]
    hints: tuple[records.Hint, ...]
    places: tuple[str, ...]
    integrity: str

    @property
    def told(self) -> records.Told:
        """The mark of the run: its verdict, or that snapshots are to be updated."""
        return "to update" if self.overall == "passed" and self.problems else self.overall

    @property
    def headline(self) -> tuple[str, str]:
        """The first line, and a sentence below it: the verdict with what was not judged, else what
        there is beside the verdict."""
        is_short = len(self.sentence) <= _LONGEST_TITLE
        if is_short or not self.beside or (self.open and self.told != "failed"):
            return self.sentence.removesuffix("."), ""
        return self.lead, f"{self.beside[:1].upper()}{self.beside[1:]}."

    @property
    def sentence(self) -> str:
        """The verdict in words, whole."""
        return f"{'; '.join(filter(None, [self.lead, self.beside]))}."


def summary_of(run: Run) -> Summary:
    """What a run says. Takes time in proportion to its profiles and their kernels."""
    compared = baseline_summaries(run)
    against = _against(run)
    found = [row for test in run.tests for row in _rows_of(test, against)]
    rows = tuple(sorted(found, key=worst_first))
    last = [row for row in rows if row.told != "rerun"]  # a test tried again is no second test
    together = by_file(folded(found))
    counts = _counts_of(run.tests)
    left = _open_words(counts, unjudged_words(run.tests))
    problems = problems_of(run, [*together, *_entries_of(run.tests)])
    lead, beside = _words_of(counts, left, compared)
    bare = [one for one in run.tests if not one.profiles]
    unjudged = (one for one in bare if records.told_of(one) == "not judged")
    whys = ((one, Cause(one.not_judged or records.MARKS["not run"].word)) for one in unjudged)
    return Summary(
        run=run,
        counts=counts,
        overall=_overall_of(run, counts, left, compared),
        lead=lead,
        beside=beside,
        tasks=tasks_of(problems),
        open=left,
        problems=problems,
        rows=rows,
        folded=together,
        left_out=tuple(_entry(one, "not judged", "", why) for one, why in whys),
        compared=compared,
        suite="; ".join(_suite_words([row.profile for row in last])),
        hottest=hottest_kernels([row for row in last if not row.profile.compiled]),
        hints=hints_of(last),
        places=_places_of(row.profile for row in rows),
        integrity=_integrity_of([row.profile for row in rows]),
    )


# Rows.


def _rows_of(test: Test, against: str) -> Iterator[records.Row]:
    """Yield the rows of a test.

    Args:
        against: the name of the revision or environment that it is compared with, if it is.
    """
    file, name = wording.parts_of(test.id)
    first = "profile 1" if any(one.label == "profile 2" for one in test.profiles) else ""
    for number, profile in enumerate(test.profiles):
        told = records.told_of(test, profile)
        is_outdated = _snapshot_of(test) in ("changed", "missing")
        if told in ("passed", None) and test.outcome == "passed" and is_outdated:
            told = "to update"
        found = [one.comparison for one in profile.verdicts if one.comparison is not None]
        # With a revision or an earlier run, else with the snapshot.
        compared = min(found, key=lambda one: one.source == "snapshot", default=None)
        if told is None and compared is not None and result_of(compared) == "not compared":
            told = "not compared"
        causes = _causes_of(test, profile, told, compared)
        of_causes = (one.place for one in causes if one.sign != "-")
        yield records.Row(
            test=test,
            file=file,
            name=wording.with_label(name, profile.label or first),
            number=number,
            told=told,
            profile=profile,
            broken=verdicts.broken_cells(profile),
            found=tuple(verdicts.found_by(profile.verdicts, against)) or (records.MARKS[told].word,)
            if told in records.NEEDS_A_LOOK
            else (),
            causes=causes,
            place=next(filter(None, (*of_causes, profile.place, test.place)), None),
            comparison=compared,
        )


def failures_of(run: Run) -> Iterator[tuple[records.Row, records.Task]]:
    """Yield the profiles by which a test fails, or may fail, each with where to look and what to
    do; with commands once, at the last.

    Args:
        run: of this test alone.
    """
    (test,) = run.tests
    rows = [one for one in _rows_of(test, _against(run)) if one.told in ("failed", "undecided")]
    for row in rows:
        alone = replace(row, test=structs.replace(test, profiles=(row.profile,)))
        remedy = remedy_of(run, [alone])
        if row is not rows[-1] or not test.id:
            remedy = remedy._replace(again="", command="", accept="")
        yield row, task_of(records.Problem(next(iter(row.causes), None), (alone,), remedy))


def _against(run: Run) -> str:
    """The name of the revision or environment that it is compared with, if it is."""
    return next((one.short for one in baseline_summaries(run) if one.what == "test"), "")


def _causes_of(
    test: Test, profile: Profile, told: records.Told | None, compared: ProfileComparison | None
) -> tuple[Cause, ...]:
    """Why it is marked, or what changed."""
    if told in records.FAILED_OTHERWISE:
        return (Cause(test.why or records.MARKS[told].word, test.place),)
    found = verdicts.causes_of(profile, told)
    if test.snapshot is not None and test.snapshot.state == "missing":
        found = (*found, Cause(f"no snapshot for {test.snapshot.device}"))
    # Of what failed by something else, slower kernels are no cause.
    if not (found or told == "failed") and compared is not None and compared.kernels is not None:
        found = verdicts.causes_of_diff(compared.kernels)
    return (*found, *verdicts.beside_of(profile, told))


def _entries_of(tests: Iterable[Test]) -> Iterator[records.Entry]:
    """What no row says of tests: that they failed without a profile, and comparisons of callables
    that are not as asserted."""
    for test in tests:
        if test.outcome == "rerun":
            continue
        judged = ((one, verdict) for one in test.comparisons for verdict in one.verdicts)
        for one, verdict in judged:
            for found in verdicts.found_by([verdict]):
                cause = Cause(verdicts.comparison_line(one, verdict), verdict.place or test.place)
                yield _entry(test, verdict.outcome, found, cause)
        told = records.told_of(test)
        if not test.profiles and told in records.FAILED_OTHERWISE:
            word = records.MARKS[told].word
            yield _entry(test, told, word, Cause(test.why or word, test.place))


def _entry(test: Test, told: records.Told, found: str, cause: Cause) -> records.Entry:
    place = cause.place or test.place
    return records.Entry(test, *wording.parts_of(test.id), told, (found,), (cause,), place)


def worst_first(row: records.Row) -> Key:
    """The key of rows by their mark, then by cost."""
    return records.severity(row.told), *costliest_first(row)


def costliest_first(row: records.Row) -> Key:
    """The key of rows by their GPU time, then by number of kernels, on the CPU of operators; then
    by name, 2 before 10."""
    one = row.profile
    return -wording.gpu_us(one), -one.kernel_count, wording.natural(row.name), row.number


def by_file(rows: Iterable[records.Row]) -> tuple[records.Row, ...]:
    """Rows file by file: files by their worst row, then by their GPU time; inside of a file
    likewise."""
    files = wording.grouped(sorted(rows, key=worst_first), lambda row: row.file)
    return tuple(row for one in sorted(files.values(), key=_file_order) for row in one)


def _file_order(rows: Sequence[records.Row]) -> Key:
    worst, time = rows[0], sum(wording.gpu_us(row.profile) for row in rows)
    number, name = worst.profile.kernel_count, wording.natural(worst.file)
    return records.severity(worst.told), -time, -number, name


_UNSTABLE = ("recompiles", "jit_compiles", "autotunes", "memsets")
"""Counts that keep no rows apart: of what ran before, and of what healthy traces miss some."""
_EXACT = [name for name, one in METRICS.items() if (one.kind, one.unit) == ("exact", "count")]
_COUNTS = tuple(name for name in _EXACT if name not in _UNSTABLE)


def folded(rows: Iterable[records.Row]) -> Iterator[records.Row]:
    """The rows with those of one parametrised test that agree in mark, causes and every count told
    as one, ``test_it[fp16] and 2 more``: the one with the most GPU time; of those that fail the
    first, whose failure says all. Others stand alone.

    Args:
        rows: in the order of the run.
    """
    for several in wording.grouped(rows, _what_agrees).values():
        is_told = several[0].failed
        first, *others = several if is_told else sorted(several, key=worst_first)
        name = f"{first.name} and {len(others)} more"
        yield replace(first, name=name, folded=(first, *others)) if others else first


def _what_agrees(row: records.Row) -> Any:
    profile = row.profile
    stem, bracket, _ = row.test.id.partition("[")
    compared = row.comparison
    result = result_of(compared) if compared is not None else None
    is_timed = compared is not None and compared.paired is not None and result != "same"
    if not bracket or is_timed:  # several profiles or tries of one test are no parameters
        return id(row)
    counts = tuple(wording.value_of(profile, name) for name in _COUNTS)
    broken = tuple((one.metric, one.allowed) for one in row.broken.values())
    told = row.told, broken, tuple(one.text for one in row.causes), result
    return stem, profile.label, counts, told, profile.environment.device


# Problems: what needs a look, one cause told once.

_NUMBERS = re.compile(
    r" x\d+\b|(?<=copied) [\d.,]+ \w+(?=:)|, [\d.]+[mu]?s -> .*| at \S+:\d[\d, ]*"
)


def problems_of(run: Run, entries: Iterable[records.Entry]) -> tuple[records.Problem, ...]:
    """What needs a look, worst first, each test once, as they stand in their files: tests with one
    first cause together. Last come snapshots that are outdated or missing and fail nothing."""
    wanted = (one for one in entries if one.told in (*records.NEEDS_A_LOOK, "to update"))
    ordered = sorted(wanted, key=_worst_by_line)
    groups = wording.grouped(ordered, _cause_key).values()
    problems = [records.Problem(_common_cause(of), tuple(of), remedy_of(run, of)) for of in groups]
    return tuple(sorted(problems, key=lambda one: (records.severity(one.rows[0].told), -one.tests)))


def _worst_by_line(one: records.Entry) -> Key:
    line = one.test.place.line if one.test.place is not None else 0
    return records.severity(one.told), wording.natural(one.file), line, wording.natural(one.name)


def _common_cause(entries: Sequence[records.Entry]) -> Cause | None:
    """The first cause of tests that have it in common, without numbers in which they differ."""
    causes = [one for entry in entries for one in entry.causes[:1]]
    if len({one.text for one in causes}) < 2:
        return next(iter(causes), None)
    return structs.replace(causes[0], text=_NUMBERS.sub("", causes[0].text))


def _snapshot_of(test: Test) -> TestState | None:
    return test.snapshot.state if test.snapshot is not None else None


def _cause_key(entry: records.Entry) -> Any:
    """What tests have in common: the kind of device, and the first cause, whatever its numbers, at
    one line. Of kernels of which no one knows which are too many, that is no line but the file of
    the call."""
    if not entry.causes or entry.told == "undecided":
        return id(entry)
    cause, profile = entry.causes[0], entry.profile if isinstance(entry, records.Row) else None
    is_call = profile is not None and not cause.sign and cause.place == profile.place
    place = cause.place.file if is_call and cause.place else cause.place
    otherwise = entry.told in records.FAILED_OTHERWISE  # with a profile or without
    on_cpu = profile is not None and profile.on_cpu and not otherwise
    return entry.told, cause.sign, _NUMBERS.sub("", cause.text), place, on_cpu


# Counts, and the sentence that says them.

_MOST_REASONS, _LONGEST_TITLE = 2, 72
_OTHERWISE = "failed for another reason"
_OPEN: tuple[records.Told, ...] = ("failed", "incomplete", "undecided")
_JUDGED: tuple[records.Told, ...] = ("passed", "expected failure")
_LEFT_OUT: tuple[records.Told | None, ...] = ("expected failure", "xfailed", "rerun", "skipped")
_BROKEN: dict[Source | None, records.Kind] = {None: "breaking", "snapshot": "exceeding"}


def _counts_of(tests: Sequence[Test]) -> records.Counts:
    worst: dict[str, records.Told | None] = {}
    for test in tests:
        worst[test.id] = min(records.worst_of(test), worst.get(test.id), key=records.severity)
    kinds = {(test.id, kind) for test in tests for kind in _kinds_of(test, worst[test.id])}
    left = (one for one in tests if one.outcome != "rerun" and worst[one.id] == "not judged")
    return records.Counts(
        tests=len(worst),
        kinds=Counter(kind for _, kind in kinds),
        told=Counter(one for one in worst.values() if one is not None),
        unjudged=Counter(one.not_judged for one in left if one.not_judged),
    )


def _kinds_of(test: Test, told: records.Told | None) -> Iterator[records.Kind]:
    """What a test counts as, by its worst mark. An attempt that was repeated has not failed."""
    if test.profiles:
        yield "profiled"
    kept = (one for one in test.verdicts if one.of_snapshot and not one.is_uncompared)
    if test.limits or any(kept) or any(one.of_limit for one in test.verdicts):
        yield "limited"
        if told not in _LEFT_OUT:
            yield "held"
        if told == "passed":
            yield "passed"
    if test.outcome == "rerun":
        yield "retried"
        return
    if test.outcome in records.FAILED:
        yield "failed"
    state = _snapshot_of(test)
    if state == "changed" or state == "missing":
        yield state
    failed = [one.source for one in test.verdicts if one.outcome == "failed"]
    broken: set[records.Kind] = {_BROKEN.get(one, "worse") for one in failed}
    yield from broken
    if {"breaking", "worse"} <= broken:
        yield "breaking and worse"


def _overall_of(
    run: Run, counts: records.Counts, open_words: str, compared: Sequence[BaselineSummary]
) -> records.Overall:
    """The verdict of a run, the same in every format; see ``Overall``."""
    if counts.kinds["failed"] or any(one.lacking for one in compared):
        return "failed"
    found = sum((one.counts for one in compared), Counter[str]())
    if run.unfinished or found["undecided"] or any(counts.told[one] for one in _OPEN):
        return "undecided"
    judged = any(counts.told[one] for one in _JUDGED) or any(one.compared for one in compared)
    return "passed" if judged and not open_words and not found["not compared"] else "not judged"


def _words_of(
    counts: records.Counts, open_words: str, compared: Sequence[BaselineSummary]
) -> tuple[str, str]:
    """What happened, with the counts that are not zero: ``3 of 33 tests break a limit; 1
    incomplete``, and what fails nothing, ``1 undecided (not failing), 2 skipped``.

    Args:
        open_words: what was not judged.
    """
    kinds, told = counts.kinds, counts.told
    limited, their = wording.count(kinds["limited"], "test"), "their snapshots"
    broken = _counted(
        (kinds["breaking"], f"of {limited} breaks a limit", f"of {limited} break a limit"),
        (kinds["exceeding"], f"of {limited} exceeds its snapshot", f"of {limited} exceed {their}"),
    )
    is_well = not broken and not kinds["worse"] and (kinds["limited"] or not compared)
    failed, errors = told["failed otherwise"], told["error"]
    only_crashed = is_well and kinds["held"] and (failed or errors)
    open_alone = is_well and not kinds["passed"] and told["undecided"] and not only_crashed
    how = f"of {wording.count(counts.tests, 'test')} failed" if only_crashed else _OTHERWISE
    crashed = _counted((failed, how, how), (errors, "error", "errors"))
    lost = _counted((told["incomplete"], "incomplete", "incomplete"))
    happened, also, aside = broken, [*crashed, *lost], list[str]()
    if only_crashed:
        happened, also = crashed, lost
    elif open_alone:
        is_one, are_all = f"of {limited} is undecided", f"of {limited} are undecided"
        happened = _counted((told["undecided"], is_one, are_all))
    elif is_well:
        happened, also = [*lost, _well(counts)], crashed
    are_same = 0 < kinds["breaking and worse"] == kinds["breaking"] == kinds["worse"]
    for one in compared:
        if are_same and len(happened) == 1 and wording.WORSE in one.sentence:
            breaks = "breaks" if kinds["worse"] == 1 else "break"
            happened = [f"{one.sentence} and {breaks} a limit"]
        else:
            (aside if broken and not one.failure else happened).append(one.sentence)
    lacks = ("missing",) * 2 if kinds["changed"] else ("snapshot missing", "snapshots missing")
    calm = _counted(
        (0 if open_alone else told["undecided"], "undecided", "undecided"),
        (kinds["changed"], "snapshot outdated", "snapshots outdated"),
        (kinds["missing"], *lacks),
    )
    aside += _counted(
        (told["expected failure"] + told["xfailed"], "expected failure", "expected failures"),
        (told["skipped"], "skipped", "skipped"),
        (kinds["retried"], "retried", "retried"),
    )
    aside += [open_words] if open_words else []
    several = [f"not failing: {', '.join(calm)}"] if calm[1:] else []
    aside = aside if several else [*(f"{one} (not failing)" for one in calm), *aside]
    lead, beside = (
        "; ".join(", ".join(part) for part in parts if part)
        for parts in ((happened, also), (several, aside))
    )
    return f"{lead[:1].upper()}{lead[1:]}", beside


def _counted(*phrases: tuple[int, str, str]) -> list[str]:
    """Return those with a number: how many, and the words for one and for several."""
    return [wording.count(*one) for one in phrases if one[0]]


def _well(counts: records.Counts) -> str:
    kinds = counts.kinds
    if not counts.tests:
        return "no test has a profile"
    if not kinds["limited"]:
        have = wording.count(kinds["profiled"], "test has a profile", "tests have a profile")
        return f"no test has a limit, {have}" if kinds["profiled"] else "no test has a limit"
    if not kinds["held"]:
        return "no limit applied"
    is_one = 1 in (kinds["passed"], kinds["held"])
    within = "is within its limits" if is_one else "are within their limits"
    return f"{kinds['passed']} of {wording.count(kinds['held'], 'test')} {within}"


def _open_words(counts: records.Counts, limits: Sequence[str]) -> str:
    """The tests and limits that were not judged, and why: ``30 not judged (no CUDA device)``."""
    reasons = counts.unjudged.most_common()
    whys = [f"{number} {why}" if len(reasons) > 1 else why for why, number in reasons]
    named = ", ".join(wording.first_of(whys, _MOST_REASONS, "{} more reasons"))
    why = f" ({named})" if named else ""
    if limits and all(one.endswith(why) for one in limits):  # which say it, too
        why = ""
    tests = _counted((counts.told["not judged"], f"not judged{why}", f"not judged{why}"))
    return ", ".join([*tests, *limits[:_MOST_REASONS]])


# What all profiles come to.


def _suite_words(profiles: Sequence[Profile]) -> Iterator[str]:
    """What all of them launch and take: on GPUs, on the CPU."""
    on_gpu = [one for one in profiles if one.environment.kind == "cuda"]
    kernels = sum(one.kernel_count for one in on_gpu)
    operators = sum(one.kernel_count for one in profiles) - kernels
    if kernels:
        gpu, comm = _sum(on_gpu, "cuda_time"), _sum(on_gpu, "comm_time")
        words = wording.count(kernels, "kernel")
        words += "" if gpu is None else f", {format_time(gpu)} on the GPU"
        words += f" and {format_time(comm)} communicating" if comm else ""
        several = any(one.other_ranks for one in on_gpu)
        yield f"rank 0: {words}" if several else words
    if operators:
        yield f"{wording.count(operators, 'operator')} on the CPU"


def _sum(profiles: Iterable[Profile], metric: str) -> float | None:
    values = [one for one in (wording.value_of(p, metric) for p in profiles) if one is not None]
    return sum(values) if values else None


def _integrity_of(profiles: Sequence[Profile]) -> str:
    """``412 profiles, 3 retried, 2 cold``; counts of zero are left out."""
    integrities = [profile.integrity for profile in profiles]
    conditions = [profile.conditions for profile in profiles]
    on_cpu = sum(profile.on_cpu for profile in profiles)  # all: their place says it
    found = {
        "retried": sum(one.retakes > 0 for one in integrities),
        "incomplete": sum(not one.complete for one in integrities),
        "cold": sum(bool(one.cold) or not one.settled for one in integrities),
        "with unproven graph replays": sum(one.graph_replays == "unproven" for one in integrities),
        "timed while other processes used the GPU": sum(one.contended for one in conditions),
        "rounds discarded because the GPU throttled": sum(c.discarded_rounds for c in conditions),
        "of CPU operators, not GPU kernels": 0 if on_cpu == len(profiles) else on_cpu,
        "compiled and not run": sum(profile.compiled for profile in profiles),
    }
    told = [f"{number} {what}" for what, number in found.items() if number]
    return ", ".join([wording.count(len(profiles), "profile"), *told])


def _places_of(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """Devices with their versions, each once; those with a GPU first."""
    environments = (profile.environment for profile in profiles)
    found = {(one.kind == "cpu", wording.machine(one)) for one in environments if one.device}
    counted = ": operators counted, not GPU kernels"
    return tuple(f"{words}{counted * on_cpu}" for on_cpu, words in sorted(found))


# What a report lists.

_MOST_PASSED, _COSTLIEST = 50, 10


@dataclass(frozen=True, slots=True)
class Listed:
    """The rows that a report lists beside the problems.

    Attributes:
        changed: that differ from their baseline and need no look, worst first.
        rows: the others, file by file.
        left: how many tests are not listed, in words; empty if all are.
    """

    changed: tuple[records.Row, ...]
    rows: tuple[records.Row, ...]
    left: str


def listed(summary: Summary, *, unfolded: bool = False) -> Listed:
    """Return what differs from its baseline; rows that pass, if none needs a look or differs, of
    very many the costliest; where nothing has a limit, those that cost the most.

    Args:
        unfolded: whether each row is listed.
    """
    problems = [one for problem in summary.problems for one in problem.rows]
    told = {id(each) for one in problems for each in one.each}
    left = (row for row in summary.folded if id(row.each[0]) not in told)
    compared = [(one, row) for row in left if (one := _change_of(row)) is not None]
    changed = [row for _, row in sorted(compared, key=lambda one: comparisons.weight_of(one[0]))]
    told |= {id(each) for one in changed for each in one.each}
    rows = summary.rows if unfolded else summary.folded
    rest = sorted((one for one in rows if id(one.each[0]) not in told), key=costliest_first)
    if unfolded:
        shown = rest
    elif not summary.counts.marked:
        shown = [] if problems else rest[:_COSTLIEST]
    else:
        shown = [] if told else [row for row in rest if row.told == "passed"][:_MOST_PASSED]
    tests = {each.test.id for one in (*problems, *changed, *shown) for each in one.each}
    return Listed(tuple(changed), by_file(shown), _left_words(rest, tests))


def _change_of(row: records.Row) -> ProfileComparison | None:
    """How a row differs from its baseline, other than its snapshot; None where it does not."""
    one = row.comparison
    if one is None or one.source == "snapshot" or row.told == "rerun":
        return None
    return None if result_of(one) in ("same", "not compared") else one


def _left_words(rows: Sequence[records.Row], shown: Collection[str]) -> str:
    """``12 more tests are fine, 1 expected failure: -v lists all``.

    Args:
        shown: the tests that are listed.
    """
    names = ((row.told, each.test.id) for row in rows for each in row.each)
    left = {(told, test) for told, test in names if test not in shown}
    tests = Counter(told for told, _ in left)
    words = _counted(
        (tests["passed"], "more test is fine", "more tests are fine"),
        (tests["expected failure"] + tests["xfailed"], "expected failure", "expected failures"),
        (tests[None], "more test has no limit", "more tests have no limit"),
    )
    return f"{', '.join(words)}: -v lists all" if words else ""
