"""The message of a failed test: the verdicts, the line that made the call, the kernels."""

from __future__ import annotations

import linecache
import statistics
from typing import TYPE_CHECKING

from pytest_kernelprof.report.kernel_tables import (
    callable_lines,
    copy_table,
    diff_lines,
    kernel_table,
    lines_of_ranks,
    wait_table,
)
from pytest_kernelprof.report.tables import Style, plain, wrapped
from pytest_kernelprof.summary.kernels import guilty_kernels, new_kernels
from pytest_kernelprof.summary.verdicts import (
    broken_cells,
    comparison_line,
    delta_words,
    footing,
    verdict_line,
)
from pytest_kernelprof.summary.words import (
    count_words,
    doubt_words,
    limits_of,
    line_words,
    shown_rank,
    value_of,
    with_label,
)
from pytest_kernelprof.units import format_time, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.schema.comparison import ProfileComparison
    from pytest_kernelprof.schema.document import Comparison
    from pytest_kernelprof.schema.profile import Place, Profile, Verdict

INDENT = "  "
"""Before each line that is no verdict."""
_STYLE = Style(80 - len(INDENT))


def failure_message(profile: Profile) -> str:
    """Return all violations of one profile, the line that made the call, and its kernels.

    The first line is a verdict, since that is what a summary shows.
    """
    told = _open_verdicts(profile.verdicts)
    doubt = doubt_words(profile.conditions)
    limits = limits_of([profile])
    unjudged = [verdict_line(one) for one in limits if one.outcome == "not judged"]
    shown = shown_rank(profile)
    of_rank = f"rank {shown.rank}: " if profile.other_ranks else ""
    below = [
        *_origin(profile, told),
        *(line for one in unjudged for line in wrapped(f"not judged: {one}", _STYLE.width)),
        *what_ran(profile, _STYLE),
        *map(plain, lines_of_ranks(profile, _STYLE)),
        *wrapped(f"{of_rank}{footing(shown)}", _STYLE.width),
    ]
    verdicts = [verdict_line(verdict, doubt) for verdict in told]
    over = sum(one.outcome == "failed" for one in told)
    if over > 1:  # a summary shows this line alone
        verdicts[0] += f" (+{count_words(over - 1, 'more limit')} exceeded)"
    return _message(verdicts, below)


def comparison_message(comparison: Comparison) -> str:
    """Return the assertions that do not hold, or may not hold; where; then the table of all
    callables."""
    told = _open_verdicts(comparison.verdicts)
    places = dict.fromkeys(one.place for one in told if one.place is not None)
    code = [line for one in places for line in code_lines(one)]
    verdicts = [comparison_line(comparison, one) for one in told]
    return _message(verdicts, [*code, *callable_lines(comparison)])


def worse_message(found: Iterable[tuple[Profile, ProfileComparison]], name: str) -> str:
    """Return what of a test is worse than a revision, by how much, and through which kernels.

    Args:
        found: the profiles that are worse. The message of one that fails by a limit, too, says
            where it was taken.
        name: the baseline's.
    """
    verdicts, below = [], []
    for profile, one in found:
        slower = one.paired is not None and one.paired.change == "worse"
        margin = f", margin {one.paired.margin * 100:.3g} %" if one.paired and slower else ""
        verdicts.append(f"{delta_words(one)}{margin}, {with_label(f'against {name}', one.label)}")
        if profile.place is not None and profile.outcome != "failed":
            below += code_lines(profile.place)
        below += diff_lines(one, _STYLE)
    return _message(map(printable, verdicts), map(printable, below))


def _open_verdicts(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those that failed, then those that are undecided."""
    return [v for outcome in ("failed", "undecided") for v in verdicts if v.outcome == outcome]


def _message(verdicts: Iterable[str], below: Iterable[str]) -> str:
    return "\n".join([*verdicts, *(INDENT + line for line in below)])


def _origin(profile: Profile, told: Sequence[Verdict]) -> list[str]:
    """Which profile of the test it is, and the line that took it with its code, where known."""
    what = []
    if profile.label:
        what = [f"in region {profile.label!r}" if profile.one_shot else f"in {profile.label}"]
    places = dict.fromkeys(one.place or profile.place for one in told)
    return [*what, *(line for place in places if place for line in code_lines(place))]


def code_lines(place: Place) -> list[str]:
    """Return the line of code, by its place and as it is written, where that is known."""
    code = linecache.getline(place.file, place.line).strip()
    return [f"at {line_words(place)}", *([f"> {printable(code)}"] if code else [])]


def what_ran(profile: Profile, style: Style) -> list[str]:
    """Return the kernels and how they differ from a baseline; the copies, waits or overhead that a
    limit fails by. They are of the rank that the first failed verdict is about."""
    failed = [verdict for verdict in profile.verdicts if verdict.outcome == "failed"]
    judged = shown_rank(profile)
    over, new = {verdict.limit for verdict in failed}, new_kernels(profile)
    lines = [f"against {new.since}: + new, - gone"] if new else _changes(profile, style)
    lines += [f"kernels of rank {judged.rank}:"] if profile.other_ranks else []
    if judged.kernels:
        guilty = guilty_kernels(profile, judged)
        marked = new if judged is profile else None
        lines += kernel_table(judged, new=marked, guilty=guilty).lines(style)
    else:
        kept = judged.kernels_kept
        lines.append("no kernels were launched" if kept else "the kernels were not kept")
    if over & {"max_memcpys", "max_memcpy_bytes"}:
        lines += copy_table(judged).lines(style)
    if {"syncs", "would_wait"} & broken_cells(profile).keys():
        lines += wait_table(judged).lines(style)
    if "max_launch_overhead" in over:
        lines += overhead_lines(judged)
    return lines


def _changes(profile: Profile, style: Style) -> list[str]:
    """What differs from baselines, where the table of kernels cannot mark it."""
    found = [one.comparison for one in profile.verdicts if one.comparison is not None]
    differ = [one for one in found if one.change in ("worse", "changed", "undecided")]
    return [line for one in differ for line in diff_lines(one, style)]


def overhead_lines(profile: Profile) -> list[str]:
    """Return where the overhead lies, as far as the trace shows: the host's time, the device's
    gaps."""
    lines, shares = [], profile.host_shares
    each = value_of(profile, "overhead_per_launch")
    if each is not None:
        lines.append(f"overhead of each launch: {format_time(each)}")
    if shares is not None:
        lines.append(
            f"host, profiled: {shares.dispatch:.0%} operator dispatch, {shares.launch_calls:.0%} "
            f"launch calls, {shares.waiting:.0%} waiting"
        )
    if rounds := profile.gaps.rounds:
        host, kernel, other = (
            format_time(statistics.median(getattr(one, wait) for one in rounds))
            for wait in ("host_wait", "kernel_wait", "other")
        )
        lines.append(
            f"device idle between activities, profiled: {host} waits for the host, {kernel} "
            f"between queued kernels, {other} other"
        )
    return lines
