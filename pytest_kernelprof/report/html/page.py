"""The page: what the summary says, each test once with its detail, style and script in one file.
The templates lay it out. What the script draws is one block of JSON: timelines as columns, rounds
of times as numbers, each name once."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup
from msgspec import structs

from pytest_kernelprof.kernel_names.short_names import short_name
from pytest_kernelprof.records.comparison import KernelDiff, ProfileComparison, Source
from pytest_kernelprof.records.document import LETTERS, Run
from pytest_kernelprof.records.profile import Cause, Metric, Profile, Timeline, TimelineKind
from pytest_kernelprof.report import kernel_tables as tables
from pytest_kernelprof.report import terminal
from pytest_kernelprof.report.failure import code_of, written_at
from pytest_kernelprof.report.markdown import Link
from pytest_kernelprof.report.tables import Column, Table
from pytest_kernelprof.summary import kernels, records, verdicts, wording
from pytest_kernelprof.summary.advice import commands_of, remedy_of, task_of
from pytest_kernelprof.summary.ranks import ranks_of, waiting_words
from pytest_kernelprof.summary.records import MARKS, Entry, Problem, Row, Told
from pytest_kernelprof.summary.run import Summary, listed, summary_of
from pytest_kernelprof.units import format_time, printable, time_unit

# What the script draws.

_LONGEST_NAME = 400
_PARTS = 100
"""Times are in hundredths of microseconds."""
_ESCAPED = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"})


class Drawn(NamedTuple):
    """A profile whose timeline is drawn.

    Attributes:
        of: which rank, in words.
        marks: its kernels, from 0, by their sign.
        calls: the waits and the copies, from 0, that broken limits count.
    """

    profile: Profile
    of: str
    marks: Mapping[str, Collection[int]]
    calls: tuple[Collection[int], Collection[int]] = ((), ())


class ScriptData:
    """Gathers what the details of a page draw."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._details: dict[str, str] = {}

    def add(self, place: str, drawn: Sequence[Drawn], timed: Profile) -> int:
        """Keep timelines and rounds. Returns how long that is as text.

        Args:
            place: of the detail on the page.
            drawn: whose timelines are drawn, the first at once.
            timed: has the rounds, perhaps of another rank.
        """
        found = {"drawn": list(map(self._drawn, drawn)), "plots": list(_plots(timed))}
        told = json.dumps(found, separators=(",", ":"))
        self._details[place] = told
        return len(told)

    def _drawn(self, one: Drawn) -> dict[str, Any]:
        timeline = one.profile.timeline
        has_events, (waits, copies) = timeline is not None and timeline.kind, one.calls
        guilty = [one.profile.waits[at] for at in sorted(waits)]
        calls = {
            "waits": [[wait.call, *wait.operators[:1]] for wait in guilty],
            "copies": [len(one.profile.copies), *sorted(copies)] if copies else [],
        }
        return {
            "of": one.of,
            "timeline": self._timeline(timeline) if timeline and has_events else None,
            "idle": _why_no_idle_time(one.profile),
            "marks": {sign: sorted(places) for sign, places in one.marks.items() if places},
            "kernels": one.profile.kernel_count,
            "counted": self._counted(one.profile) if has_events else [],
            **{what: told for what, told in calls.items() if told},
        }

    def block(self) -> Markup:
        """The text between the tags of a script: nothing in it ends that, or begins another."""
        names = json.dumps(list(map(printable, self._names)), separators=(",", ":"))
        details = ",".join(f"{json.dumps(place)}:{told}" for place, told in self._details.items())
        return Markup(f'{{"names":{names},"details":{{{details}}}}}'.translate(_ESCAPED))

    def _timeline(self, one: Timeline) -> dict[str, Any]:
        """Columns of whole numbers: times as parts of a microsecond, starts from the one before."""
        starts = [round(us * _PARTS) for us in one.start_us]
        lanes = {lane: at for at, lane in enumerate(dict.fromkeys(one.lane))}
        return {
            "parts": _PARTS,
            "lanes": [printable(lane[:_LONGEST_NAME]) for lane in lanes],
            "kind": "".join(LETTERS[kind] for kind in one.kind),
            "name": list(map(self._name, one.name, one.kind)),
            "lane": [lanes[lane] for lane in one.lane],
            "start": [now - before for before, now in zip((0, *starts), starts, strict=False)],
            "lasts": [round(us * _PARTS) for us in one.duration_us],
            "call": list(one.correlation),
            "left": one.left_out,
        }

    def _counted(self, profile: Profile) -> list[int]:
        """Of the CPU the operators that are counted."""
        if profile.environment.kind != "cpu":
            return []
        return sorted({self._name(one.name, "operator") for one in profile.kernels})

    def _name(self, name: str, kind: TimelineKind) -> int:
        """Its number: of a kernel that of the short name."""
        shown = short_name(name) if kind == "kernel" else name
        return self._names.setdefault(shown[:_LONGEST_NAME], len(self._names))


def _why_no_idle_time(profile: Profile) -> str:
    """Why it is not known when the GPU was idle; empty if it is."""
    if profile.gaps.why:
        return profile.gaps.why
    if profile.integrity.clock_skew:
        return "the clocks of host and device do not agree"
    if profile.timeline is not None and profile.timeline.left_out:
        return "with events left out, it would be too much"
    return ""


# Rounds: what was measured, what it is compared with, what is allowed.

_MOST_ROUNDS, _MOST_BASELINES = 400, 5
_MEASURED = {"cuda_time", "latency", "launch_overhead", "dispatch_time", "gpu_busy"}


def _plots(profile: Profile) -> Iterator[dict[str, Any]]:
    """GPU time and latency, the times that have a limit, and pairs with a revision."""
    timed = (one for one in profile.verdicts if one.of_limit and one.unit == "us")
    limits = {one.metric: one.allowed for one in timed}
    for name in dict.fromkeys(("cuda_time", "latency", *limits)):
        metric, allowed = profile.metrics.get(name), limits.get(name)
        if metric is not None and len(metric.rounds) > 1 and name in _MEASURED:
            rows = [_rounds(metric), *_baselines(profile, name)]
            words = f"limit {format_time(allowed)}" if allowed is not None else ""
            yield {"title": name, "rows": rows, "limit": allowed, "words": words}
    for paired in (one.comparison.paired for one in profile.verdicts if one.comparison):
        if paired and paired.pairs:  # in percent of the baseline's GPU time
            values = [(one.ratio - 1) * 100 for one in paired.pairs]
            row = _row("% slower", values, (paired.ratio - 1) * 100)
            margin = paired.margin * 100
            words = f"margin {margin:.3g} %"
            yield {"title": "pairs", "rows": [row], "limit": margin, "words": words}


def _rounds(metric: Metric) -> dict[str, Any]:
    kept = metric.rounds[:: max(1, -(-len(metric.rounds) // _MOST_ROUNDS))]
    interval = [metric.low, metric.high] if metric.low is not None else None
    return {**_row("this run", kept, metric.value), "interval": interval}


def _baselines(profile: Profile, name: str) -> Iterator[dict[str, Any]]:
    """The values of earlier runs, the newest last."""
    compared = (one.comparison for one in profile.verdicts if one.comparison is not None)
    for delta in (delta for one in compared for delta in one.metrics if delta.name == name):
        number = len(delta.baselines)
        for at, us in list(enumerate(delta.baselines, 1))[-_MOST_BASELINES:]:
            if us is not None:
                yield _row(f"baseline {at} of {number}" if number > 1 else "baseline", [us], us)


def _row(name: str, values: Iterable[float], middle: float | None) -> dict[str, Any]:
    finite = [round(one, 2) for one in values if math.isfinite(one)]
    return {"name": name, "values": finite, "middle": middle, "interval": None}


# The page.

WHOLE_BYTES, MOST_BYTES = 390_000, 1_600_000
"""The details of the worst profiles are whole, in so many bytes; those of others compact, in so
many in all. The rest are rows of the table alone."""
_MOST_ROWS, _MOST_CHANGES = 40, 200
"""Rows of a group that are seen at once, where it has no number of its own: the script has a button
for the others. Changes in a detail."""
WHOLE, COMPACT = 200, 8
"""So many rows a table of kernels has, in a whole detail and in a compact one."""
LONGEST, _LONGEST_OF_ALL = 400, 2_000


def cut(words: str, longest: int = LONGEST) -> str:
    """Both ends of what is longer, and how much is missing between."""
    if len(words) <= longest:
        return words
    half = longest // 2
    return f"{words[:half]} … {len(words) - 2 * half:,} characters … {words[-half:]}"


def html_of(run: Run, link: Link = lambda _: "") -> str:
    """Return the run as one HTML page, which loads nothing from anywhere.

    Args:
        link: where lines of code lead to.
    """
    summary = summary_of(run)
    detailer = Detailer({one.baseline.source: one.short for one in summary.compared})
    page = _templates().get_template("page.html.j2")
    return page.render(
        summary=summary,
        run=run,
        tests=_Tests(summary, detailer),
        most_rows=_MOST_ROWS,
        whole_bytes=WHOLE_BYTES,
        most_causes=terminal.MOST_CAUSES,
        code=lambda one: written_at(one, lambda place: code_of(place) if link(place) else ""),
        detailer=detailer,
        link=link,
        **_assets(),
    )


@functools.cache
def _templates() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_kernelprof.report.html", ""),
        autoescape=True,
        finalize=_harmless,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    compared = (verdicts.comparison_line, tables.comparison_notes, tables.comparison_table)
    for one in (*compared, verdicts.verdict_line, task_of, cut, format_time):
        found.globals[one.__name__] = one
    looks = (*records.NEEDS_A_LOOK, "to update")
    found.globals |= {"MARKS": MARKS, "commands": commands_of, "looks": looks, "wording": wording}
    return found


def _harmless(value: Any) -> Any:
    """Cut text, and escape control characters and marks that turn the direction of writing. The
    template escapes the rest. A number stays beside its per cent and its limit."""
    if type(value) is not str:
        return value
    return _APART.sub("\N{NO-BREAK SPACE}", printable(cut(value, _LONGEST_OF_ALL)))


_APART = re.compile(
    r"(?<=\w) (?=%)|(?<=\d) (?=> \d)|(?<=\d >) (?=\d)|(?<=\w) (?=> limit)|(?<=>) (?=limit)"
    r"|(?<=> limit) (?=\d)|(?<=margin) (?=\d)"
)
"""Spaces at which no number is broken."""


@functools.cache
def _assets() -> dict[str, str]:
    """Style and script, and what the page's policy knows them by."""
    found: dict[str, str] = {}
    for what, name in {"style": "style.css", "script": "script.js"}.items():
        file = resources.files("pytest_kernelprof.report.html") / name
        found[what] = "\n".join(map(str.strip, file.read_text(encoding="utf-8").splitlines()))
        digest = base64.b64encode(hashlib.sha256(found[what].encode()).digest()).decode()
        found[f"{what}_hash"] = f"'sha256-{digest}'"
    return found


# The tables of tests: what needs a look, what changed, the others; each test once.


def _groups(summary: Summary) -> Iterator[terminal.Group]:
    """All that ran and all that is wrong, in the order of the page: each profile by itself, where
    the terminal folds those that agree."""
    found, told = listed(summary, unfolded=True), iter(summary.problems)
    problems = tuple(
        replace(problem, rows=tuple(each for row in problem.rows for each in row.each))
        for problem in summary.problems
    )
    changed = [each for row in found.changed for each in row.each]
    summary = replace(summary, problems=problems)
    for group in terminal.groups_of(summary, changed, found.rows, summary.left_out):
        yield group._replace(problem=next(told)) if group.problem else group


_OF_FEW = ("launch_overhead", "bound")
"""Columns that are for comparing rows: of one row its detail has the value."""


class _Table:
    """The tests on one kind of device.

    Attributes:
        on_cpu: whether that is the CPU.
        groups: their headings, each with its rows.
        problems: those that they have.
        columns: after the name of the test.
    """

    def __init__(self, kind: str, groups: Sequence[terminal.Group]) -> None:
        self.on_cpu, self.groups = kind == "cpu", groups
        self.problems = [one.problem for one in groups if one.problem is not None]
        entries = [one for group in groups for one, _ in group.entries]
        found = terminal.columns_of(entries, verbose=False)
        self.columns = [c for c in found if c.key not in _OF_FEW or sum(map(bool, c.cells)) > 1]
        known = (one.shown if isinstance(one, Row) else None for one in entries)
        times = [wording.value_of(one, "comm_time") if one else None for one in known]
        if any(times):  # what the GPU time leaves out
            unit = time_unit(us or 0.0 for us in times)
            at = sum(one.key in ("kernels", "launches", "cuda_time") for one in self.columns)
            self.columns.insert(at, tables.time_column(f"comm {unit.name}", times, unit))
        self._places = {id(one): at for at, one in enumerate(entries)}

    def cells(self, one: Entry) -> Iterator[tuple[Column, str, bool]]:
        """The columns with the cells of a row, and whether each is bad."""
        for column in self.columns:
            words = column.cells[self._places[id(one)]]
            is_change = terminal.ARROW in words or column.key == "change"
            is_bad = " > " in words or (is_change and one.told == "failed")
            yield column, words.replace(terminal.ARROW, " → "), is_bad

    def more(self, one: Entry, causes: Sequence[Cause]) -> str:
        """What is wrong or changed in a row and is not in its cells or first causes."""
        return terminal.more_words(one, causes, {column.key for column in self.columns})


class _Tests:
    """The tables of tests, for the template.

    Attributes:
        titles: the headings of sections, by the kind of their groups.
        worst: the worst mark of all rows of a test, by its id: it is filtered and counted by it.
        marks: how many tests are marked so. number: of rows. without: how
            many have no detail. size: of all details so far, in bytes.
    """

    def __init__(self, summary: Summary, detailer: Detailer) -> None:
        self._marked, self._detailer, self._run = summary.counts.marked, detailer, summary.run
        self.size = self.without = 0
        self.tables = list(itertools.starmap(_Table, terminal.by_device(_groups(summary))))
        groups = [group for table in self.tables for group in table.groups]
        entries = [one for group in groups for one, _ in group.entries]
        self._places = {id(one): f"p{at}" for at, one in enumerate(entries, 1)}
        self.worst: dict[str, Told | None] = {}
        for one in sorted(entries, key=lambda one: records.severity(self.mark_of(one))):
            self.worst.setdefault(one.test.id, self.mark_of(one))
        marks = Counter(self.worst.values())
        self.marks = [(told, marks[told]) for told in MARKS if marks[told]]
        self.number = len(entries)
        self.titles = {
            "look": "What needs a look",
            "changed": f"What changed against {' and '.join(detailer.baselines.values())}",
            "other": "All other profiles" if groups and groups[0].kind != "other" else "Tests",
            "not judged": "Not judged",
        }

    def problem_of(self, one: Row) -> Problem:
        """A row alone, whose problem others may have, too."""
        return Problem(next(iter(one.causes), None), (one,), remedy_of(self._run, [one]))

    def mark_of(self, one: Entry) -> Told | None:
        """The mark of a row: none where no test has a limit, unless it needs a look."""
        return one.told if self._marked or one.told in records.NEEDS_A_LOOK else None

    def detail(self, one: Entry) -> tuple[str, Markup | str]:
        """The place of a row's detail and the detail, as large as the page has room for: whole,
        then compact, then none. The template asks for them in the order of the page."""
        if not isinstance(one, Row):
            return "", ""
        if self.size > MOST_BYTES:
            self.without += 1
            return "", ""
        place = self._places[id(one)]
        if self.size > WHOLE_BYTES:
            found, drawn = self._detailer.compact(one.profile), 0
        else:
            found, drawn = self._detailer.whole(one.profile, place)
        self.size += len(found) + drawn
        return place, found


# One profile in detail: limits, ranks, what changed, kernels, metrics, how it was measured.


class Part(NamedTuple):
    """A part of a detail: a table, and facts; nothing where there are neither.

    Attributes:
        title: its heading; of what the script draws, which rank it is of.
        note: beside the heading.
        kind: what it is, where the style asks. drawn: the class of what the script draws here.
    """

    title: str
    table: Table = Table(())
    facts: Sequence[str] = ()
    note: str = ""
    kind: str = ""
    drawn: str = ""


@dataclass(frozen=True, slots=True)
class Detailer:
    """Makes the details of one page.

    Attributes:
        baselines: what a revision and an earlier run are called.
        names: the full names of kernels with their numbers: each stands once on the page.
        data: what the script draws.
    """

    baselines: Mapping[Source, str]
    names: dict[str, int] = field(default_factory=dict)
    data: ScriptData = field(default_factory=ScriptData)

    def whole(self, profile: Profile, place: str) -> tuple[Markup, int]:
        """All of a profile, of several ranks that of the one that its first failed limit is about;
        and about so many bytes are kept for the script.

        Args:
            place: of the detail on the page.
        """
        timed, of, marks, broken = shown = drawn_of(profile, wording.shown_rank(profile))
        ranks = (drawn_of(profile, one) for one in profile.ranks if one.timeline)
        drawn = sorted(ranks, key=lambda one: one.of != of) or [shown]
        lacking = [f"{of[4:]} left no timeline"] if drawn[0].of != of else []
        lacking += verdicts.unprofiled_words(profile)
        apart = [_SEPARATE] if verdicts.timed_in_turn(profile) else []
        per_call = "; ".join(["per call", *apart])
        whys = verdicts.offending_kernels(profile, wording.shown_rank(profile))
        new, guilty, slower = kernels.new_kernels(timed), marks[">"], marks["~"]
        launched = tables.kernel_table(timed, most=WHOLE, new=new, guilty=guilty, slower=slower)
        on_cpu, peers = profile.on_cpu, ranks_of(profile)
        what = "CPU operators" if on_cpu else "Kernels"
        waiting = "Would wait for a GPU" if on_cpu else "Waits for the GPU"
        waits = Part(waiting + of, tables.wait_table(timed, guilty=broken[0]))
        copied = tables.copy_table(timed, guilty=broken[1])
        copies = Part(f"Memory copies{of}", copied, kind="copies")
        calls = [(waits, bool(broken[0])), (copies, bool(broken[1]))]
        parts = list(self._changes(profile))
        if peers:
            waited = list(waiting_words(peers))
            parts.insert(0, Part("Ranks", tables.rank_table(peers), waited, kind="peers"))
        parts += [
            Part("", note="; ".join([*lacking, *apart]), drawn="timeline-of"),
            *(one for one, is_broken in calls if is_broken),
            Part(what + of, launched.whole, note=_sum_of_kernels(timed, whys), kind="kernels"),
            Part(of, drawn="tree-of"),
            Part(f"Metrics{of}", tables.metric_table(timed), note=per_call, kind="metrics"),
            Part(of, drawn="plots-of"),
            *(one for one, is_broken in calls if not is_broken),
            Part(f"How {of[4:] or 'it'} was measured", kind="how", facts=_measured(timed)),
        ]
        return self._told(profile, parts), self.data.add(place, drawn, timed)

    def compact(self, profile: Profile) -> Markup:
        """Limits, metrics, and the costliest kernels: of a page with many details."""
        metrics = tables.metric_table(profile).columns[:2]
        facts = [", ".join(map(" ".join, zip(*(one.cells for one in metrics), strict=True)))]
        if profile.timeline is not None and profile.timeline.kind:
            facts.append("No timeline: the page would be too large. The run document has it.")
        costliest = Part("", tables.kernel_table(profile, most=COMPACT))
        return self._told(profile, [Part("", facts=facts), costliest])

    def number_of(self, full: str) -> int:
        """The number of a full name; 0 where it is no other than the short one."""
        is_other = full and short_name(full) != full
        return self.names.setdefault(full, len(self.names) + 1) if is_other else 0

    def _told(self, profile: Profile, parts: Sequence[Part]) -> Markup:
        macros: Any = _templates().get_template("detail.html.j2").module
        told: Markup = macros.detail(profile, parts, self)
        return told

    def _changes(self, profile: Profile) -> Iterator[Part]:
        """What changed against each baseline."""
        for found in (one.comparison for one in profile.verdicts if one.comparison is not None):
            diff = found.kernels
            if diff is not None and _has_news(found, diff):
                if found.paired is not None and found.paired.pairs:  # whose times say more
                    diff = structs.replace(diff, baseline_us=None, current_us=None)
                facts = [tables.diff_words(diff), *tables.note_lines(found)]
                left = f"{wording.count(diff.left_out, 'more change')} not shown"
                facts += [left] if diff.left_out else []
                made = tables.change_table(diff.changes, tables.nouns_of(diff), _MOST_CHANGES)
                baseline = self.baselines.get(found.source, "the kernel snapshot")
                yield Part(f"{diff.what.capitalize()} against {baseline}", made, facts)


def drawn_of(profile: Profile, one: Profile) -> Drawn:
    """A rank of a profile, with the verdicts of all, and its kernels that are marked."""
    of = f" of rank {one.rank}" if profile.other_ranks else ""
    judged = structs.replace(one, verdicts=profile.verdicts)
    new = getattr(kernels.new_kernels(judged), "marks", {})
    marks = {
        **wording.grouped(new, new.__getitem__),
        ">": verdicts.offending_kernels(profile, one),
        "~": () if verdicts.timed_in_turn(judged) else kernels.slower_kernels(judged),
    }
    return Drawn(judged, of, marks, verdicts.offending_calls(profile, one))


_SEPARATE = "a separate run, not the pairs that are judged"


def _has_news(found: ProfileComparison, diff: KernelDiff) -> bool:
    """Whether kernels differ; where it is not the same, whether their order or times do."""
    differs = found.change != "same" and (found.source == "snapshot" or diff.retimed)
    return bool(diff.added_or_removed or differs)


def _sum_of_kernels(profile: Profile, guilty: Mapping[int, str]) -> str:
    """How many there are, what they take, and why some are marked."""
    groups = kernels.groups_of(profile)
    nouns, us = (tables.NOUNS[profile.environment.kind], sum(one.duration_us for one in groups))
    number = wording.count(sum(one.count for one in groups), nouns.kernel)
    talking = {one.kernel for one in profile.collectives}
    comm = sum(one.duration_us for at, one in enumerate(profile.kernels) if at in talking)
    apart = f" and {format_time(comm)} of communication" if comm else ""
    beside = f" ({_SEPARATE})" if verdicts.timed_in_turn(profile) else ""
    marked = "".join(f"; > {why}" for why in dict.fromkeys(guilty.values()))
    return f"{number} in one round, {format_time(us - comm)}{apart}{beside}{marked}"


def _measured(profile: Profile) -> list[str]:
    """Where it ran, how complete it is, what is not available."""
    facts = [verdicts.footing(profile)]
    if profile.rounds:
        one_shot = ", as it stood: not warmed up, once" if profile.one_shot else ""
        facts.append(f"{wording.count(profile.rounds, 'profiled round')}{one_shot}")
    if profile.variants:
        kinds = wording.count(len(profile.variants) + 1, "different sequence")
        facts.append(f"UNSTABLE: rounds launch {kinds} of kernels; shown is the longest")
    if not profile.kernels_kept:
        facts.append("its kernels were not kept: the test has very many profiles")
    if profile.trace:
        facts.append(f"trace: {profile.trace}")
    return facts
