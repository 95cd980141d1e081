"""One profile in detail: limits, what was before, the round, the kernels, the operators, advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from pytest_kernelprof.report.html.drawing import Drawing, Scene, drawn
from pytest_kernelprof.report.html.kernel_names import WORDS, FullNames, cut
from pytest_kernelprof.report.html.kernel_rows import (
    FEWER_KINDS,
    FEWER_ROWS,
    MOST_KINDS,
    MOST_ROWS,
    KernelTable,
    SideBySide,
    side_by_side_of,
    table_of,
)
from pytest_kernelprof.report.html.operator_tree import Tree, longest_of, tree_of
from pytest_kernelprof.report.html.plots import Plot, Scale, plots_of, scale_of
from pytest_kernelprof.report.html.timeline import scene_of
from pytest_kernelprof.report.ranks import ranks_told
from pytest_kernelprof.summary.advice import Advice, advice_on
from pytest_kernelprof.summary.new_kernels import positions_in
from pytest_kernelprof.summary.records import MARKS, Mark
from pytest_kernelprof.summary.verdicts import footing, verdict_line
from pytest_kernelprof.summary.words import (
    chain_words,
    count_words,
    doubt_words,
    line_words,
    measured_words,
    pair_words,
    title,
)
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_kernelprof.report.html.drawing import ScriptData
    from pytest_kernelprof.report.ranks import RankTable
    from pytest_kernelprof.schema.comparison import KernelDiff, ProfileComparison
    from pytest_kernelprof.schema.run import Profile, Verdict
    from pytest_kernelprof.summary.records import Row

_LONGEST = 1_000
_MOST_LINES = 50
_IDLE = (
    ("host", "idle: the host was late"),
    ("kernel", "idle: the next was queued"),
    ("other", "idle: launched before, begun late"),
)


class Amount(NamedTuple):
    """How much is told of a profile: kernels one by one, kinds of them, lines of operators, plots
    of times."""

    kernels: int
    kinds: int
    operators: int
    plots: int


ALL = Amount(MOST_ROWS, MOST_KINDS, 60, 2)
LESS = Amount(FEWER_ROWS, FEWER_KINDS, 24, 1)
"""Of a profile that is well, on a page with many: nobody looks for one kernel there."""


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit, how it fared, and where the value lies."""

    title: str
    mark: Mark
    measured: str
    allowed: str
    scale: Scale | None
    over: bool
    words: str


@dataclass(frozen=True, slots=True)
class Round:
    """The timeline: the picture, what is in it, what to know of it, and about how long its numbers
    for the script are."""

    drawing: Drawing
    said: str
    legend: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    data_bytes: int


@dataclass(frozen=True, slots=True)
class Line:
    """A copy or a wait: what, how large, who, where."""

    what: str
    size: str
    by: str
    line: str
    us: str


@dataclass(frozen=True, slots=True)
class Case:
    """A profile in detail.

    Attributes:
        place: on the page. says: the most telling number.
        causes: words and lines. on_cpu: whether its kernels are operators.
        ranks: a table of them and what is said of them, of several.
    """

    place: str
    mark: Mark
    file: str
    name: str
    says: str
    causes: tuple[tuple[str, str], ...]
    limits: tuple[LimitRow, ...]
    ranks: tuple[RankTable, tuple[str, ...]] | None
    diffs: tuple[SideBySide, ...]
    round: Round | None
    kernels: KernelTable
    plots: tuple[Plot, ...]
    tree: Tree | None
    remedies: tuple[Advice, ...]
    copies: tuple[Line, ...]
    waits: tuple[Line, ...]
    notes: tuple[str, ...]
    on_cpu: bool


def case_of(row: Row, place: str, amount: Amount, names: FullNames, data: ScriptData) -> Case:
    """The detail of a row.

    Args:
        amount: how much is told of it.
        names, data: which get what is told elsewhere on the page.
    """
    profile = row.profile
    if profile.timeline is not None:
        profile = replace(profile, timeline=longest_of(profile.timeline))
    diff = _diff_of(profile)
    fresh = (positions_in(diff) if diff is not None else None) or frozenset()
    scene = scene_of(profile, fresh)
    return Case(
        place=place,
        mark=MARKS[row.told],
        file=cut(row.file, _LONGEST),
        name=cut(row.name, _LONGEST),
        says=_says(row),
        causes=tuple(
            (cut(one.text, _LONGEST), line_words(one.place)) for one in row.causes if one.text
        ),
        limits=tuple(_limit_row(one, profile) for one in profile.verdicts if one.of_limit),
        ranks=ranks_told(profile),
        diffs=tuple(filter(None, map(side_by_side_of, _comparisons(profile)))),
        round=_round(profile, scene, place, data) if scene is not None else None,
        kernels=table_of(profile, names, fresh, amount.kernels, amount.kinds),
        plots=tuple(plots_of(profile, amount.plots)),
        tree=tree_of(profile.timeline, amount.operators),
        remedies=advice_on(profile, diff),
        copies=tuple(_copies(profile)),
        waits=tuple(_waits(profile)),
        notes=tuple(_notes(profile)),
        on_cpu=profile.environment.kind == "cpu",
    )


def _says(row: Row) -> str:
    """The broken value, else how much there is of it."""
    if row.broken:
        one = next(iter(row.broken.values()))
        value, allowed = pair_words(one.unit, one.measured, one.allowed)
        return f"{one.metric.replace('_', ' ')} {value} > {allowed}"
    profile = row.profile
    what = "operator" if profile.environment.kind == "cpu" else "kernel"
    words = count_words(profile.kernel_count, what)
    time = profile.metrics.get("cuda_time")
    known = time is not None and time.value is not None and profile.integrity.complete
    return f"{words}, {format_time(time.value)}" if known and time and time.value else words


def _limit_row(verdict: Verdict, profile: Profile) -> LimitRow:
    line = verdict_line(verdict, doubt_words(profile.conditions))
    name = title(verdict)
    measured, allowed = measured_words(verdict)
    scale = None
    if verdict.measured is not None and verdict.allowed is not None and verdict.unit != "times":
        scale = scale_of(verdict.measured, verdict.allowed, verdict.low, verdict.high)
    return LimitRow(
        cut(name, _LONGEST),
        MARKS[verdict.outcome],
        measured,
        allowed,
        scale,
        verdict.outcome in ("failed", "expected failure"),
        cut(line.removeprefix(f"{name}: "), _LONGEST),
    )


def _comparisons(profile: Profile) -> list[ProfileComparison]:
    return [one.comparison for one in profile.verdicts if one.comparison is not None]


def _diff_of(profile: Profile) -> KernelDiff | None:
    """How its kernels differ from a baseline, by the first that says so."""
    diffs = (
        one.kernels
        for one in _comparisons(profile)
        if one.changes and one.rank in (None, profile.rank)
    )
    return next(filter(None, diffs), None)


def _round(profile: Profile, scene: Scene, place: str, data: ScriptData) -> Round:
    drawing = drawn(scene)
    data_bytes = data.add(place, scene, drawing)
    what = "operators" if profile.environment.kind == "cpu" else "kernels"
    number = profile.kernel_count if what == "operators" else scene.kernels
    streams = f" on {count_words(scene.streams, 'stream')}" if scene.streams else ""
    said = (
        f"Timeline of one profiled round: {count_words(number, what[:-1])}{streams} in "
        f"{format_time(scene.length)}. The table of {what} has the same facts."
    )
    left = profile.timeline.left_out if profile.timeline else 0
    notes = list(scene.notes)
    if left:
        notes.append(f"{left:,} shorter events are not in the picture")
    if drawing.too_many:
        notes.append("too many kernels for arrows: they come when you zoom in")
    return Round(drawing, said, tuple(_legend(scene)), tuple(notes), data_bytes)


def _legend(scene: Scene) -> Iterator[tuple[str, str]]:
    """What colours mean, of what is in the picture; idle time with how much there is."""
    kinds = {box.kind for lane in scene.lanes for box in lane.boxes}
    for family, words in WORDS.items():
        if f"k-{family}" in kinds:
            yield f"k-{family}", words
    if "memory" in kinds:
        yield "memory", "copy, memset of memory"
    for cause, words in _IDLE:
        if scene.idle.get(cause):
            yield f"gap-{cause}", f"{words}, {format_time(scene.idle[cause])}"
    if any(box.marked for lane in scene.lanes for box in lane.boxes):
        yield "ring", "new"


def _copies(profile: Profile) -> Iterator[Line]:
    for one in profile.copies[:_MOST_LINES]:
        yield Line(
            cut(one.name, _LONGEST),
            format_bytes(one.bytes),
            cut(chain_words(one.operators), _LONGEST),
            one.source.rpartition("/")[2],
            format_time(one.duration_us),
        )


def _waits(profile: Profile) -> Iterator[Line]:
    for one in profile.waits[:_MOST_LINES]:
        by, source = cut(chain_words(one.operators), _LONGEST), one.source.rpartition("/")[2]
        yield Line(cut(one.call, _LONGEST), "", by, source, "")


def _notes(profile: Profile) -> Iterator[str]:
    """What else there is to know: where, how complete, what could not be had."""
    yield cut(footing(profile), 2 * _LONGEST)
    if profile.rounds:
        one_shot = ", as it stood: not warmed up, once" if profile.one_shot else ""
        yield f"{count_words(profile.rounds, 'profiled round')}{one_shot}"
    if profile.variants:
        kinds = count_words(len(profile.variants) + 1, "different sequence")
        yield f"UNSTABLE: rounds launch {kinds} of kernels; these are of the round with most"
    if not profile.kernels_kept:
        yield "its kernels were not kept: the test has very many profiles"
    if profile.trace:
        yield f"trace: {cut(profile.trace, _LONGEST)}"
