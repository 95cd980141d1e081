"""One profile in detail: limits, what was before, the round, the kernels, the operators, advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from pytest_kernelprof.digest.came import came_in, came_since
from pytest_kernelprof.digest.conditions import doubt_words
from pytest_kernelprof.digest.remedies import Remedy, remedies_of
from pytest_kernelprof.digest.words import chain_words, count_words, line_words, pair_words, title
from pytest_kernelprof.report.html import side_by_side
from pytest_kernelprof.report.html.drawing import Drawing, drawn
from pytest_kernelprof.report.html.families import WORDS
from pytest_kernelprof.report.html.full_names import FullNames, cut
from pytest_kernelprof.report.html.kernel_rows import (
    FEWER_KINDS,
    FEWER_ROWS,
    MOST_KINDS,
    MOST_ROWS,
    KernelTable,
    table_of,
)
from pytest_kernelprof.report.html.marks import Mark, mark_of
from pytest_kernelprof.report.html.nesting import longest_of
from pytest_kernelprof.report.html.operator_tree import Tree, tree_of
from pytest_kernelprof.report.html.pictures import Scale, scale_of
from pytest_kernelprof.report.html.plots import Plot, plots_of
from pytest_kernelprof.report.html.scene import Scene
from pytest_kernelprof.report.html.timeline import scene_of
from pytest_kernelprof.report.rank_table import ranks_told
from pytest_kernelprof.report.words import footing, verdict_line
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_kernelprof.digest.records import Row
    from pytest_kernelprof.report.html.script_data import ScriptData
    from pytest_kernelprof.report.html.side_by_side import SideBySide
    from pytest_kernelprof.report.rank_table import RankTable
    from pytest_kernelprof.schema.against import Compared
    from pytest_kernelprof.schema.diff import ProfileDiff
    from pytest_kernelprof.schema.run import Profile, Verdict

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


class Before(NamedTuple):
    """A revision's name, and how a profile compares with it, if it does."""

    name: str
    compared: Compared | None


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
    remedies: tuple[Remedy, ...]
    copies: tuple[Line, ...]
    waits: tuple[Line, ...]
    notes: tuple[str, ...]
    on_cpu: bool


def case_of(
    row: Row, place: str, before: Before, amount: Amount, names: FullNames, data: ScriptData
) -> Case:
    """The detail of a row.

    Args:
        before: how it compares with a revision.
        amount: how much is told of it.
        names, data: which get what is told elsewhere on the page.
    """
    compared = before.compared
    profile = row.profile
    if profile.timeline is not None:
        profile = replace(profile, timeline=longest_of(profile.timeline))
    diff = _diff_of(profile, compared)
    fresh = _fresh(profile, compared)
    scene = scene_of(profile, fresh)
    return Case(
        place=place,
        mark=mark_of(row.told),
        file=cut(row.file, _LONGEST),
        name=cut(row.name, _LONGEST),
        says=_says(row),
        causes=tuple(
            (cut(one.text, _LONGEST), line_words(one.place) if one.place else "")
            for one in row.causes
            if one.text
        ),
        limits=tuple(_limit_row(one, profile) for one in profile.verdicts if one.of_limit),
        ranks=ranks_told(profile),
        diffs=tuple(_diffs(profile, compared, before.name)),
        round=_round(profile, scene, place, data) if scene is not None else None,
        kernels=table_of(profile, names, fresh, amount.kernels, amount.kinds),
        plots=tuple(plots_of(profile, compared, before.name, amount.plots)),
        tree=tree_of(profile.timeline, amount.operators),
        remedies=remedies_of(profile, diff),
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
    measured = allowed = ""
    scale = None
    if verdict.measured is not None and verdict.allowed is not None and verdict.unit:
        if verdict.unit == "times":
            measured, allowed = f"{verdict.measured:.3f}x", f"{verdict.allowed:.3f}x"
        else:
            measured, allowed = pair_words(verdict.unit, verdict.measured, verdict.allowed)
            scale = scale_of(verdict.measured, verdict.allowed, verdict.low, verdict.high)
    return LimitRow(
        cut(name, _LONGEST),
        mark_of(verdict.outcome),
        measured,
        allowed,
        scale,
        verdict.outcome in ("over", "expected"),
        cut(line.removeprefix(f"{name}: "), _LONGEST),
    )


def _fresh(profile: Profile, compared: Compared | None) -> frozenset[int]:
    """The kernels that are new, by what is known of before."""
    if compared is not None:
        return came_in(profile, compared.diff)
    came = came_since(profile)
    return came.positions if came is not None else frozenset()


def _diff_of(profile: Profile, compared: Compared | None) -> ProfileDiff | None:
    """How its kernels differ from what they were before, by the first that knows."""
    if compared is not None:
        return compared.diff
    diffs = (one.comparison.diff for one in profile.verdicts if one.comparison is not None)
    return next((diff for diff in diffs if diff is not None), None)


def _diffs(profile: Profile, compared: Compared | None, before: str) -> Iterator[SideBySide]:
    if compared is not None and not compared.diff.same_kernels:
        yield side_by_side.of_diff(compared.diff, before)
    for verdict in profile.verdicts:
        if verdict.snapshot is not None and verdict.snapshot.state != "held":
            yield side_by_side.of_finding(verdict.snapshot)
        found = verdict.comparison.diff if verdict.comparison is not None else None
        if found is not None and not found.same_kernels:
            yield side_by_side.of_diff(found, "the earlier run")


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
