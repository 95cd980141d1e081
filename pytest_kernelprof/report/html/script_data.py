"""The data that the page's script draws, as one block of JSON: timelines as columns, rounds of
times as numbers, each name once."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from pytest_kernelprof.kernel_names.short_names import short_name
from pytest_kernelprof.records.document import LETTERS
from pytest_kernelprof.records.profile import Metric, Profile, Timeline, TimelineKind
from pytest_kernelprof.units import format_time, printable

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
    limits = {
        one.metric: one.allowed for one in profile.verdicts if one.of_limit and one.unit == "us"
    }
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
