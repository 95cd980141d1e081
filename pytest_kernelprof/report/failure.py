"""The message of a failed test: the verdicts, the line that made the call, the kernels."""

from __future__ import annotations

import linecache
import statistics
from typing import TYPE_CHECKING

from pytest_kernelprof.report.diff_text import changed_lines_of, diff_lines
from pytest_kernelprof.report.kernel_tables import (
    comparison_table,
    copy_table,
    kernel_table,
    lines_of_ranks,
    wait_table,
)
from pytest_kernelprof.report.tables import Style, plain, wrapped
from pytest_kernelprof.summary.kernels import guilty_kernels, new_kernels
from pytest_kernelprof.summary.verdicts import (
    broken_cells,
    comparison_line,
    footing,
    judged_words,
    turns_words,
    verdict_line,
)
from pytest_kernelprof.summary.words import (
    doubt_words,
    judged_rank,
    limits_of,
    line_words,
    pair_words,
)
from pytest_kernelprof.units import format_time, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.schema.comparison import ProfileComparison
    from pytest_kernelprof.schema.run import Comparison, Place, Profile, Verdict
    from pytest_kernelprof.summary.kernels import NewKernels

INDENT = "  "
"""Before each line that is no verdict."""
_WIDTH = 78 - len(INDENT)
_STYLE = Style(_WIDTH)


def failure_message(profile: Profile) -> str:
    """All violations of one profile, the line that made the call, and its kernels.

    The first line is a verdict, since that is what a summary shows.
    """
    told = [
        *(verdict for verdict in profile.verdicts if verdict.outcome == "failed"),
        *(verdict for verdict in profile.verdicts if verdict.outcome == "undecided"),
    ]
    doubt = doubt_words(profile.conditions)
    unjudged = judged_words(limits_of([profile]))
    new = new_kernels(profile)
    below = [
        *_origin(profile, told),
        *([] if new else _changes(told)),
        *(wrapped(unjudged, _WIDTH) if unjudged else ()),
        *([f"+ and - against {new.since}"] if new else []),
        *_tables(profile, new),
        *wrapped(footing(profile), _WIDTH),
    ]
    verdicts = [verdict_line(verdict, doubt) for verdict in told]
    over = sum(one.outcome == "failed" for one in told)
    if over > 1:  # a summary shows this line alone
        verdicts[0] += f" (+{over - 1} more {'limit' if over == 2 else 'limits'} exceeded)"
    return "\n".join([*verdicts, *(INDENT + line for line in below)])


def comparison_message(comparison: Comparison) -> str:
    """The assertions that do not hold, or may not hold; where; then the table of all callables."""
    told = [
        verdict
        for outcome in ("failed", "undecided")
        for verdict in comparison.verdicts
        if verdict.outcome == outcome
    ]
    places = dict.fromkeys(one.place for one in told if one.place is not None)
    code = [line for one in places for line in code_lines(one)]
    verdicts = [comparison_line(comparison, one) for one in told]
    below = [*code, *comparison_table(comparison)]
    return "\n".join([*verdicts, *(INDENT + line for line in below)])


def worse_message(found: Iterable[ProfileComparison], name: str) -> str:
    """What of a test is worse than a revision, by how much, and through which kernels.

    Args:
        name: the baseline's.
    """
    verdicts, below = [], []
    for one in found:
        of = f" [{one.label}]" if one.label else ""
        for delta in one.worse:
            if delta.current is not None and delta.baseline is not None:
                values = pair_words(delta.spec.unit, delta.current, delta.baseline)
                verdicts.append(f"{delta.name}: {' > '.join(values)} of {name}{of}")
        if one.paired is not None and one.paired.change == "worse":
            margin = f"margin {one.paired.margin * 100:.3g} %"
            verdicts.append(f"{turns_words(one)}, {margin}, against {name}{of}")
        below += [f"{INDENT}{line}" for line in diff_lines(one, _STYLE)]
    return "\n".join(map(printable, (*verdicts, *below)))


def _changes(told: Sequence[Verdict]) -> list[str]:
    """What came and went, where it cannot be told in the table which of its kernels came."""
    found = [one.comparison for one in told if one.comparison is not None]
    return [line for one in found for line in changed_lines_of(one, _STYLE)]


def _origin(profile: Profile, told: Sequence[Verdict]) -> list[str]:
    """Which profile of the test it is, and the line that took it with its code, where known."""
    what = ""
    if profile.label:
        what = f"in region {profile.label!r}" if profile.one_shot else f"in {profile.label}"
    places = dict.fromkeys(one.place or profile.place for one in told)
    lines = [line for place in places if place is not None for line in code_lines(place)]
    return [*([what] if what else []), *lines]


def code_lines(place: Place) -> list[str]:
    """The line of code, by its place and as it is written, where that is known."""
    code = linecache.getline(place.file, place.line).strip()
    return [f"at {line_words(place)}", *([f"> {printable(code)}"] if code else [])]


def _tables(profile: Profile, new: NewKernels | None) -> list[str]:
    """What ran, and what the violated limits are about: on the rank that the first is of."""
    broken = [verdict for verdict in profile.verdicts if verdict.outcome == "failed"]
    judged = judged_rank(profile, broken[0]) if broken else profile
    over = {verdict.limit for verdict in broken}
    lines = [f"kernels of rank {judged.rank}:"] if profile.other_ranks else []
    lines += (
        kernel_table(
            judged,
            _STYLE,
            new=new if judged is profile else None,
            guilty=guilty_kernels(profile, judged),
        )
        if judged.kernels
        else ["no kernels were launched"]
    )
    if over & {"max_memcpys", "max_memcpy_bytes"}:
        lines += copy_table(judged, _STYLE)
    if {"syncs", "would_wait"} & broken_cells(profile).keys():
        lines += wait_table(judged, _STYLE)
    if "max_launch_overhead" in over:
        lines += overhead_lines(judged)
    return [*lines, *map(plain, lines_of_ranks(profile, _STYLE))]


def overhead_lines(profile: Profile) -> list[str]:
    """Where the overhead lies, as far as the trace tells: the host's time, the device's gaps."""
    lines, shares = [], profile.host_shares
    one = profile.metrics.get("overhead_per_launch")
    if one is not None and one.value is not None:
        lines.append(f"overhead of each launch: {format_time(one.value)}")
    if shares is not None:
        lines.append(
            f"host, profiled: {shares.dispatch:.0%} operator dispatch, {shares.launch_calls:.0%} "
            f"launch calls, {shares.waiting:.0%} waiting"
        )
    rounds = profile.gaps.rounds
    if rounds:
        classes = {
            "waits for the host": [one.host_wait for one in rounds],
            "between queued kernels": [one.kernel_wait for one in rounds],
            "other": [one.other for one in rounds],
        }
        told = [f"{format_time(statistics.median(us))} {name}" for name, us in classes.items()]
        lines.append(f"device idle between activities, profiled: {', '.join(told)}")
    return lines
