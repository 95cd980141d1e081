"""The message of a failed limit: verdict first, then the kernels, then where and how complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.report.kernel_tables import WIDTH, copy_table, kernel_table, wait_table
from pytest_kernelprof.report.ranks import ranks_told, texts_of
from pytest_kernelprof.report.snapshots import changed_lines_of
from pytest_kernelprof.report.words import footing, judged_words, overhead_words, verdict_line
from pytest_kernelprof.summary.findings import broken_cells
from pytest_kernelprof.summary.new_kernels import new_kernels
from pytest_kernelprof.summary.words import doubt_words, judged_rank, limits_of, line_words

if TYPE_CHECKING:
    from pytest_kernelprof.schema.run import Profile, Verdict
    from pytest_kernelprof.summary.new_kernels import NewKernels

_INDENT = "  "


def failure_message(profile: Profile) -> str:
    """All violations of one profile, its kernel table, device, versions and completeness.

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
        *filter(None, [unjudged]),
        *([f"+ and - against {new.since}"] if new else []),
        *_tables(profile, new),
    ]
    below.append(footing(profile))
    verdicts = [verdict_line(verdict, doubt) for verdict in told]
    over = sum(one.outcome == "failed" for one in told)
    if over > 1:  # a summary shows this line alone
        are = "is" if over == 2 else "are"
        verdicts[0] += f" ({over - 1} more {are} broken)"
    return "\n".join([*verdicts, *(_INDENT + line for line in below)])


def _changes(told: list[Verdict]) -> list[str]:
    """What came and went, where it cannot be told in the table which of its kernels came."""
    found = [one.comparison for one in told if one.comparison is not None]
    return [line for one in found for line in changed_lines_of(one)]


def _origin(profile: Profile, told: list[Verdict]) -> list[str]:
    """Which profile of the test it is, and the line that took it, as far as known."""
    parts = []
    if profile.label:
        parts.append(f"in region {profile.label!r}" if profile.one_shot else f"in {profile.label}")
    places = [verdict.place or profile.place for verdict in told]
    lines = dict.fromkeys(line_words(place) for place in places if place is not None)
    if lines:
        parts.append(f"at {', '.join(lines)}")
    return [", ".join(parts)] if parts else []


def _tables(profile: Profile, new: NewKernels | None) -> list[str]:
    """What ran, and what the violated limits are about: on the rank that the first is of."""
    width = WIDTH - len(_INDENT)
    broken = [verdict for verdict in profile.verdicts if verdict.outcome == "failed"]
    judged = judged_rank(profile, broken[0]) if broken else profile
    over = {verdict.limit for verdict in broken}
    lines = [f"kernels of rank {judged.rank}:"] if profile.other_ranks else []
    lines += (
        kernel_table(judged, width, new=new if judged is profile else None)
        if judged.kernels
        else ["no kernels were launched"]
    )
    if over & {"max_memcpys", "max_memcpy_bytes"}:
        lines += copy_table(judged, width)
    if {"syncs", "would_wait"} & broken_cells(profile).keys():
        lines += wait_table(judged, width)
    if "max_launch_overhead" in over:
        lines += overhead_words(judged)
    return lines + _ranks(profile)


def _ranks(profile: Profile) -> list[str]:
    """A row a rank, and who waits for whom; nothing of one rank."""
    told = ranks_told(profile)
    return [] if told is None else [*texts_of(told[0]), *told[1]]
