"""One profile in detail: limits, ranks, what changed, kernels, metrics, what to do, how it was
measured. Timelines and plots are drawn by the script."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from pytest_kernelprof.kernel_names.short_names import short_name
from pytest_kernelprof.report.html.markup import (
    Html,
    cut,
    element,
    joined,
    mark,
    signed,
    table,
    text,
)
from pytest_kernelprof.report.kernel_tables import (
    NOUNS,
    change_table,
    copy_table,
    diff_words,
    kernel_table,
    metric_table,
    note_lines,
    nouns_of,
    rank_table,
    wait_table,
)
from pytest_kernelprof.summary.kernels import groups_of, new_kernels
from pytest_kernelprof.summary.ranks import ranks_of, waiting_words
from pytest_kernelprof.summary.verdicts import footing, guilty_kernels, verdict_line
from pytest_kernelprof.summary.words import count_words, doubt_words, shown_rank
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_kernelprof.records.comparison import ProfileComparison, Source
    from pytest_kernelprof.records.profile import Profile
    from pytest_kernelprof.report.html.script_data import ScriptData
    from pytest_kernelprof.report.tables import Table

_MOST_CHANGES, _LONGEST, _LONGEST_NAME = 200, 1_000, 2_000
WHOLE, COMPACT = 200, 8
"""So many rows a table of kernels has, on a page with few details and with many."""


class FullNames:
    """Gathers the full names of kernels: each stands once on the page."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def told(self, shown: str, full: str) -> Html:
        """What is shown for a kernel, with a link to the full name where that is another."""
        if not full or short_name(full) == full:
            return text(shown)
        place = self._places.setdefault(full, len(self._places) + 1)
        return Html(f'<a class="full" href="#n{place}">{text(shown)}</a>')

    def all(self) -> list[tuple[int, str]]:
        """Each with its number, the middle of very long ones cut out."""
        return [(number, cut(name, _LONGEST_NAME)) for name, number in self._places.items()]


@dataclass(frozen=True, slots=True)
class Detailer:
    """What the details of one page share: full names, what the script draws, what each kind of
    baseline is called."""

    names: FullNames
    data: ScriptData
    baselines: Mapping[Source, str]

    def whole(self, profile: Profile, place: str) -> tuple[Html, int]:
        """All of a profile, of several ranks that of the one that its first failed limit is about;
        and about so many bytes are kept for the script.

        Args:
            place: of the detail on the page.
        """
        shown = shown_rank(profile)
        drawn = shown if shown.timeline else profile
        ranks = (f" of rank {one.rank}" for one in (shown, drawn))
        of, of_drawn = ranks if profile.other_ranks else ("", "")
        guilty = guilty_kernels(profile, shown)
        shown, drawn = (structs.replace(one, verdicts=profile.verdicts) for one in (shown, drawn))
        kernels = kernel_table(shown, most=WHOLE, new=new_kernels(shown), guilty=guilty)
        waits = "Would wait for a GPU" if _on_cpu(profile) else "Waits for the GPU"
        parts = [
            _limits(profile),
            self._ranks(profile),
            *map(self._diff, _comparisons(profile)),
            Html(f'<div class="timeline-of js" data-rank="{of_drawn}"></div>'),
            _part(
                ("CPU operators" if _on_cpu(profile) else "Kernels") + of,
                self._table(kernels.whole, "kernels"),
                _sum_of_kernels(shown),
            ),
            _part(f"Metrics{of}", self._table(metric_table(shown)), "per call"),
            Html(f'<div class="plots-of js" data-rank="{of}"></div>'),
            _part(f"Memory copies{of}", self._table(copy_table(shown))),
            _part(waits + of, self._table(wait_table(shown))),
            _part(f"How {of.removeprefix(' of ') or 'it'} was measured", _measured(shown)),
        ]
        return joined(parts), self.data.add(place, drawn, shown)

    def compact(self, profile: Profile) -> Html:
        """Limits, metrics, and the costliest kernels: of a page with many details."""
        metrics = metric_table(profile).columns[:2]
        facts = [", ".join(map(" ".join, zip(*(one.cells for one in metrics), strict=True)))]
        if profile.timeline is not None and profile.timeline.kind:
            facts.append("No timeline: the page would be too large. The run document has it.")
        kernels = self._table(kernel_table(profile, most=COMPACT))
        return joined([_limits(profile), _facts(facts), kernels])

    def _table(self, made: Table, kind: str = "") -> Html:
        """A table with links to full names, and signs as marks of names."""
        columns = list(made.columns)
        for at, one in enumerate(columns):
            if any(one.full):
                named = zip(made.signs, one.cells, one.full, strict=True)
                cells = (signed(sign, self.names.told(shown, full)) for sign, shown, full in named)
                columns[at] = replace(one, cells=tuple(cells))
        return table(columns, kind)

    def _ranks(self, profile: Profile) -> Html:
        ranks = ranks_of(profile)
        body = [self._table(rank_table(ranks)), _facts(waiting_words(ranks))] if ranks else []
        return _part("Ranks", joined(body))

    def _diff(self, found: ProfileComparison) -> Html:
        """What changed against a baseline."""
        diff = found.kernels
        if diff is None or not (
            diff.came_or_went
            or (found.change != "same" and (found.source == "snapshot" or diff.retimed))
        ):
            return Html("")
        baseline = self.baselines.get(found.source, "the baseline")
        facts = [diff_words(diff), *note_lines(found)]
        facts += [f"{count_words(diff.left_out, 'more change')} not shown"] * bool(diff.left_out)
        made = change_table(diff.changes, nouns_of(diff), _MOST_CHANGES)
        named = f"{diff.what.capitalize()} against {baseline}"
        return _part(named, joined([self._table(made), _facts(facts)]))


def _part(named: str, body: Html, note: str = "") -> Html:
    """A part with its heading; nothing without a body."""
    if not body:
        return body
    small = joined([Html(" "), element("small", text(note))]) if note else Html("")
    head = element("h3", joined([text(named), small]))
    return element("section", joined([head, body]), "part")


def _facts(lines: Iterable[str]) -> Html:
    """Lines as a list: each is one item, also for screen readers."""
    items = joined(element("li", text(one, _LONGEST)) for one in lines if one)
    return element("ul", items)


def _on_cpu(profile: Profile) -> bool:
    return profile.environment.kind == "cpu"


def _sum_of_kernels(profile: Profile) -> str:
    """How many there are, and what they take."""
    groups = groups_of(profile).values()
    number = count_words(sum(n for n, _ in groups), NOUNS[profile.environment.kind].kernel)
    return f"{number} in one round, {format_time(sum(us for _, us in groups))}"


def _comparisons(profile: Profile) -> list[ProfileComparison]:
    return [one.comparison for one in profile.verdicts if one.comparison is not None]


def _limits(profile: Profile) -> Html:
    doubt = doubt_words(profile.conditions)
    told = (
        joined([mark(one.outcome), text(verdict_line(one, doubt), _LONGEST)], " ")
        for one in profile.verdicts
        if one.of_limit
    )
    return _part("Limits", _facts(told))


def _measured(profile: Profile) -> Html:
    """Where it ran, how complete it is, what is not available."""
    facts = [footing(profile)]
    if profile.rounds:
        one_shot = ", as it stood: not warmed up, once" if profile.one_shot else ""
        facts.append(f"{count_words(profile.rounds, 'profiled round')}{one_shot}")
    if profile.variants:
        kinds = count_words(len(profile.variants) + 1, "different sequence")
        facts.append(f"UNSTABLE: rounds launch {kinds} of kernels; shown is the longest")
    if not profile.kernels_kept:
        facts.append("its kernels were not kept: the test has very many profiles")
    if profile.trace:
        facts.append(f"trace: {profile.trace}")
    return _facts(facts)
