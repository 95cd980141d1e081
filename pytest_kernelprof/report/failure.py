"""The message of a failed test: the verdicts, the line that made the call, the kernels."""

from __future__ import annotations

import linecache
import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.records.comparison import BASELINE_WORDS
from pytest_kernelprof.report import kernel_tables
from pytest_kernelprof.report.tables import Style, plain, width_of, wrapped
from pytest_kernelprof.summary import verdicts, wording
from pytest_kernelprof.summary.advice import COMPARED, TO_DO, cure_words, fix_words, intended_words
from pytest_kernelprof.summary.kernels import new_kernels
from pytest_kernelprof.units import format_time, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_kernelprof.records.comparison import Source
    from pytest_kernelprof.records.document import Comparison
    from pytest_kernelprof.records.profile import Place, Profile, Verdict

INDENT = "  "
"""Before each line that is no verdict."""
_STYLE = Style(80 - len(INDENT))


def failure_message(profile: Profile, base: str = "") -> str:
    """Return all violations of one profile, the line that made the call, and its kernels.

    The first line is a verdict, since that is what a summary shows.

    Args:
        base: the name of the revision that it is compared with, if it is.
    """
    told = _open_verdicts(profile.verdicts)
    doubt = wording.doubt(profile.conditions)
    limits = wording.limits_of([profile])
    unjudged = [verdicts.verdict_line(one) for one in limits if one.outcome == "not judged"]
    baselines = [one for one in told if one.comparison is not None and not one.of_snapshot]
    causes, on_cpu = verdicts.causes_of(profile, "failed"), profile.on_cpu
    fix = fix_words(causes, on_cpu=on_cpu) if baselines else cure_words(told, causes)
    todo = [f"{TO_DO}{fix}"] if fix else []
    if any(map(_of_revision, baselines)):
        todo.append(intended_words(told, base.partition(" (")[0]))
    shown = wording.shown_rank(profile)
    foot = verdicts.reservations(shown)
    of_rank = f"rank {shown.rank}: " if profile.other_ranks else ""
    excess = verdicts.excess_of(profile, told[0]) if told else verdicts.Excess()
    origin = _origin(profile, told, excess.place)
    heads, more = _heads(told, base, doubt, excess)
    below = [
        *(line for one in more for line in wrapped(one, _STYLE.width)),
        *(wrapped(f"{of_rank}{foot}", _STYLE.width) if foot else []),
        *origin,
        *([""] if origin else []),
        *(line for one in unjudged for line in wrapped(f"not judged: {one}", _STYLE.width)),
        *what_ran(profile, _STYLE, {"revision": base} if base else {}),
        *([""] if profile.other_ranks else []),
        *map(plain, kernel_tables.lines_of_ranks(profile, _STYLE)),
        "",
        *(line for one in todo for line in wrapped(one, _STYLE.width)),
    ]
    return _message(heads, below)


def _heads(
    told: Sequence[Verdict], base: str, doubt: str, excess: verdicts.Excess
) -> tuple[list[str], list[str]]:
    """A line for each verdict, the first with what exceeds it and where; and what has no room in
    them. Summaries show the first line alone, and cut its end."""
    heads, more = [], []
    for one in told:
        head = verdicts.verdict_line(one, doubt)
        if one.comparison is not None and _of_revision(one) and one.outcome == "failed":
            head = f"worse than {base}: {verdicts.delta_words(one.comparison)}"
            head, *pairs = head.split(" in ", 1)
            more += [f"in {words}" for words in pairs]
        heads.append(head)
    if not heads:
        return heads, more
    lines, words = f" at {excess.lines}" if excess.lines else "", excess.words
    beside = f"{lines}: {words}" if words else lines
    if width_of(heads[0] + beside) <= _STYLE.width:
        heads[0] += beside
    elif not words or width_of(heads[0] + lines) <= _STYLE.width:
        heads[0] += lines
        more += filter(None, [words])
    else:  # the line is below with its code, if that is known
        is_below = excess.place is not None and bool(code_of(excess.place))
        more.append(words if is_below else ", ".join(filter(None, [words, excess.lines])))
    over = sum(one.outcome == "failed" and not _of_revision(one) for one in told)
    also = f" (+{wording.count(over - 1, 'more limit')} exceeded)"
    if over > 1 and width_of(heads[0] + also) <= _STYLE.width:
        heads[0] += also
    return heads, more


def comparison_message(comparison: Comparison) -> str:
    """Return the assertions that do not hold, or may not hold; where; then the table of all
    callables."""
    told = _open_verdicts(comparison.verdicts)
    places = dict.fromkeys(filter(None, (one.place for one in told)))
    code = [line for one in places for line in code_lines(one)]
    heads = [verdicts.comparison_line(comparison, one) for one in told]
    todo = f"{TO_DO}{COMPARED}"
    return _message(heads, [*code, *kernel_tables.callable_lines(comparison), "", todo])


def worse_message(message: str, profiles: Iterable[Profile], base: str) -> str:
    """Return the message of a test that is worse than a revision.

    Args:
        message: that of the limits that it breaks; empty where it keeps all.
        profiles: those that are worse, with their verdicts.
        base: the revision's name.
    """
    for profile in profiles:
        told = failure_message(profile, base)
        limits = tuple(one for one in profile.verdicts if not _of_revision(one))
        before = failure_message(replace(profile, verdicts=limits))
        message = message.replace(before, told) if before in message else f"{message}\n{told}"
    return message.lstrip("\n")


def _of_revision(verdict: Verdict) -> bool:
    return verdict.comparison is not None and verdict.comparison.source == "revision"


def _open_verdicts(found: Sequence[Verdict]) -> list[Verdict]:
    """Those that failed, then those that are undecided."""
    return [one for outcome in ("failed", "undecided") for one in found if one.outcome == outcome]


def _message(heads: Iterable[str], below: Iterable[str]) -> str:
    return "\n".join([*heads, *(INDENT + line for line in below)])


def _origin(profile: Profile, told: Sequence[Verdict], guilty: Place | None) -> list[str]:
    """Which profile of the test it is; the line that launches what exceeds a limit, where its code
    is known, and the line that took the profile."""
    what = []
    if profile.label:
        what = [f"in region {profile.label!r}" if profile.one_shot else f"in {profile.label}"]
    known = [guilty] if guilty is not None and code_of(guilty) else []
    places = dict.fromkeys([*known, *(one.place or profile.place for one in told)])
    return [*what, *(line for place in places if place for line in code_lines(place))]


def code_of(place: Place) -> str:
    """Return the line of code as it is written; empty where that is not known."""
    # Of a file that is not here, linecache would read one of that name on the path of imports.
    return printable(linecache.getline(os.path.abspath(place.file), place.line).strip())


def code_lines(place: Place) -> list[str]:
    """Return the line of code, by its place and as it is written, where that is known."""
    told = ": ".join(filter(None, [f"at {wording.line_of(place)}", code_of(place)]))
    return wrapped(told, _STYLE.width)


def what_ran(profile: Profile, style: Style, bases: Mapping[Source, str]) -> list[str]:
    """Return the kernels and how they differ from a baseline; the copies, waits or overhead that a
    limit fails by, before the kernels if the first limit is about them. They are of the rank that
    the first failed verdict is about.

    Args:
        bases: the names of baselines that have one.
    """
    judged = wording.shown_rank(profile)
    kernels = _kernel_lines(profile, judged, style, {**BASELINE_WORDS, **bases})
    over = list(verdicts.failed_metrics(profile))
    made = dict.fromkeys(filter(None, map(_BESIDE.get, over)))
    beside = [lines_of(judged, style) for lines_of in made]
    tables = [*beside, kernels] if over and over[0] in _BESIDE else [kernels, *beside]
    return [line for table in filter(None, tables) for line in ("", *table)][1:]


def _copy_lines(profile: Profile, style: Style) -> list[str]:
    return kernel_tables.copy_table(profile).lines(style)


def _wait_lines(profile: Profile, style: Style) -> list[str]:
    return kernel_tables.wait_table(profile).lines(style)


def _kernel_lines(
    profile: Profile, judged: Profile, style: Style, bases: Mapping[Source, str]
) -> list[str]:
    new = new_kernels(profile)
    lines = _changes(profile, style, bases)
    if new:
        marks = ["+ new"] * bool(new.positions) + ["- gone"] * bool(new.gone)
        lines = [f"against {bases[new.source]}: {', '.join(marks)}"]
    if lines and not new:
        if not any(one.of_limit and one.outcome == "failed" for one in profile.verdicts):
            return lines[:-1]  # of times that were taken in turn: those of one call are others
        lines += ["kernels of one call, measured by itself:"]
    lines += [f"kernels of rank {judged.rank}:"] if profile.other_ranks else []
    if not judged.kernels:
        why = "no kernels were launched" if judged.kernels_kept else "the kernels were not kept"
        return [*lines, why]
    guilty = verdicts.guilty_kernels(profile, judged)
    lines += ["> breaks a limit"] if guilty else []
    marked = new if judged is profile else None
    table = kernel_tables.kernel_table(judged, new=marked, guilty=guilty)
    return [*lines, *table.lines(style)]


def _changes(profile: Profile, style: Style, bases: Mapping[Source, str]) -> list[str]:
    """What differs from baselines, where the table of kernels cannot mark it."""
    found = (one.comparison for one in profile.verdicts if one.comparison is not None)
    lines = []
    for one in (one for one in found if one.change in ("worse", "changed", "undecided")):
        if told := kernel_tables.diff_lines(one, style):
            there = {line[:1] for line in told}
            marks = [words for words in ("+ new", "- gone", "~ changed") if words[0] in there]
            lines += [f"against {bases[one.source]}: {', '.join(marks)}".rstrip(), *told, ""]
    return lines


def _overhead_lines(profile: Profile, style: Style) -> list[str]:
    """Where the overhead lies, as far as the trace shows."""
    lines, shares = [], profile.host_shares
    each = wording.value_of(profile, "overhead_per_launch")
    if each is not None:
        lines.append(f"overhead of each launch: {format_time(each)}")
    if shares is not None:
        lines.append(
            f"host, profiled: {shares.dispatch:.0%} operator dispatch, {shares.launch_calls:.0%} "
            f"launch calls, {shares.waiting:.0%} waiting"
        )
    return [part for line in lines for part in wrapped(line, style.width)]


_BESIDE: Mapping[str, Callable[[Profile, Style], list[str]]] = {
    "memcpys": _copy_lines,
    "memcpy_bytes": _copy_lines,
    "syncs": _wait_lines,
    "would_wait": _wait_lines,
    "launch_overhead": _overhead_lines,
}
"""What shows more of a metric than the kernels do."""
