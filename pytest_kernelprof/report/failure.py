"""The message of a failed test: the verdicts, the line that made the call, the kernels."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from pytest_kernelprof.records.comparison import BASELINE_WORDS, IN_TURN, Source
from pytest_kernelprof.records.document import Comparison
from pytest_kernelprof.records.metrics import WITH_INTERVAL
from pytest_kernelprof.records.profile import Cause, Place, Profile, Verdict
from pytest_kernelprof.report import kernel_tables
from pytest_kernelprof.report.tables import Style, Table, plain, width_of, wrapped
from pytest_kernelprof.summary import advice, verdicts, wording
from pytest_kernelprof.summary.kernels import new_kernels
from pytest_kernelprof.summary.records import Task
from pytest_kernelprof.units import format_time, printable

INDENT = "  "
"""Before each line that is no verdict and no row with a mark."""
MARGINS = (INDENT, "> ", "+ ", "? ", "- ", "~ ")
"""How lines begin that are no verdicts: marks stand in the indent."""
_SIGNS = ("+ new", "? perhaps new", "- gone", "~ changed")
_AGAIN = re.compile(rf"\n{INDENT}{advice.AGAIN}:\n.*")
"""The command below what to do."""
_UPDATE = re.compile(r"\s+with\s+--kernelprof-update[^\n]*(?:\n +--kernelprof-device=cpu)?$")
"""What accepts in a snapshot, without the test."""
MOST_LINES = 3
"""The code of so many lines is shown."""
_STYLE, _HEAD = Style(80 - len(INDENT)), 80 - len("E   ")


def failure_message(profile: Profile, base: str = "", at: str = "") -> str:
    """Return all violations of one profile, the line that made the call, and its kernels.

    The first line is a verdict, since that is what a summary shows.

    Args:
        base: the name of the revision or environment that it is compared with, if it is.
        at: the line that has the limits, where that is not the call.
    """
    told = _open_verdicts(profile.verdicts)
    doubt = wording.doubt(profile.conditions)
    limits = wording.limits_of([profile])
    unjudged = [verdicts.verdict_line(one) for one in limits if one.outcome == "not judged"]
    baselines = [one for one in told if one.comparison is not None and not one.of_snapshot]
    causes, on_cpu = verdicts.causes_of(profile, "failed"), profile.on_cpu
    fix = (
        advice.fix_words(causes, on_cpu=on_cpu)
        if baselines
        else advice.cure_words(profile, told, causes)
    )
    todo = [f"{advice.TO_DO}{fix}"] if fix else []
    if fix and (base or not baselines):
        own = profile.one_shot and profile.label  # a region, which may have its own limits
        todo.append(advice.intended_words(told, base.partition(" (")[0], at="" if own else at))
    shown = wording.shown_rank(profile)
    foot = verdicts.reservations(shown)
    of_rank = f"rank {shown.rank}: " if profile.other_ranks else ""
    found = [verdicts.excess_of(profile, one) for one in told]
    places = [one for excess in found for one in wording.places_of(excess) if code_of(one)]
    guilty = list(dict.fromkeys(places))[:MOST_LINES]
    origin = _origin(profile, told, guilty)
    heads, more = _heads(told, base, doubt, found, guilty)
    above = _wrapped([*more, f"{of_rank}{foot}" if foot else ""])
    above += [*origin, ""] if origin else []
    above += _wrapped(f"not judged: {one}" for one in unjudged)
    tables = what_ran(profile, _STYLE, dict.fromkeys(IN_TURN, base) if base else {})
    return "\n".join([*heads, *_indented(above), *tables, *_indented(["", *_wrapped(todo)])])


def _heads(
    told: Sequence[Verdict], base: str, doubt: str, found: Sequence[Cause], shown: Collection[Place]
) -> tuple[list[str], list[str]]:
    """A line for each verdict with what exceeds it, and where unless that line is shown below with
    its code; and what has no room in them."""
    heads, more = [], []
    said: set[Cause] = set()
    was, base = verdicts.counts_before(told, *IN_TURN), base.partition(" (")[0]
    for one, excess in zip(told, found, strict=True):
        head, rest, between = verdicts.verdict_line(one, doubt), "", ""
        if one.comparison is not None and one.in_turn and one.outcome == "failed":
            if was:  # said beside the limits
                continue
            head = f"worse than {base}: {verdicts.delta_words(one.comparison)}"
            head, between, rest = head.partition(" in ")
            rest, _, margin = rest.partition("), ")
            head, rest = (f"{head}, {margin}", f"{rest})") if margin else (head, rest)
        elif not one.metric or one.apart:
            head, between, rest = head.partition("; ")
        elif one.unit in WITH_INTERVAL and one.outcome == "failed":
            sure = verdicts.how_sure(one)
            rest = f"{wording.title(one)}: {sure}" if len(told) > 1 else sure
            head = head.replace(f" ({sure})", "", 1)
        head += verdicts.was_words(one, was, base)
        more += [between.lstrip("; ") + rest] if rest else []
        excess = Cause("") if excess in said else excess
        said.add(excess)
        there, words = wording.cause_lines(excess), wording.signed(excess)
        words = "" if " takes " in words or words.startswith(wording.SLOWER) else words  # marked
        is_shown = all(one in shown for one in wording.places_of(excess))
        lines = f" at {there}" if there and not is_shown else ""
        beside = f"{lines}: {words}" if words else lines
        if width_of(head + beside) <= _HEAD:
            head += beside
        elif width_of(head + lines) <= _HEAD:
            head += lines
            more += filter(None, [words])
        else:
            more.append(words + lines)
        heads.append(head)
    over = sum(one.outcome == "failed" and not one.in_turn for one in told)
    also = wording.more_exceeded(over - 1)
    if also and width_of(heads[0] + also) <= _HEAD:
        heads[0] += also
    return heads, more


def comparison_message(comparison: Comparison) -> str:
    """Return the assertions that do not hold, or may not hold; where; then the table of all
    callables."""
    told = _open_verdicts(comparison.verdicts)
    places = dict.fromkeys(filter(None, (one.place for one in told)))
    code = [line for one in places for line in code_lines(one)]
    heads = [verdicts.comparison_line(comparison, one) for one in told]
    todo = f"{advice.TO_DO}{advice.COMPARED}"
    below = [*code, *kernel_tables.callable_lines(comparison), "", todo]
    return "\n".join([*heads, *_indented(below)])


def with_command(message: str, does: str, command: str) -> str:
    """Return a message of a failure with a command, and what it does, below what to do last."""
    told = f"\n{INDENT}{does}:\n{2 * INDENT}{command}"
    above, todo, last = message.rpartition(f"\n{INDENT}{advice.TO_DO}")
    last, intended, rest = last.partition(f"\n{INDENT}{advice.IF_INTENDED}")
    return f"{above}{todo}{last}{told}{intended}{rest}"


def worse_message(
    message: str,
    profiles: Iterable[Profile],
    base: str,
    command: str = "",
    at: str = "",
    python: str = "",
) -> str:
    """Return the message of a test that is worse than a revision or in another environment.

    Args:
        message: that of the limits that it breaks; empty where it keeps all.
        profiles: those that are worse, with their verdicts.
        base: the baseline's name. command: what runs the test again. at: the line that has the
            limits of the test. python: as of ``advice.against``.
    """
    message = _AGAIN.sub("", message)
    for profile in profiles:
        told = failure_message(profile, base, at)
        limits = tuple(one for one in profile.verdicts if not one.in_turn)
        before = failure_message(replace(profile, verdicts=limits), at=at)
        message = message.replace(before, told) if before in message else f"{message}\n{told}"
    name, message = base.partition(" (")[0], message.lstrip("\n")
    if not command:
        return message
    accept = f":\n{2 * INDENT}{command} --kernelprof-update"
    message = _UPDATE.sub(lambda _: accept, message)  # a test's id may have backslashes
    source = next((one.in_turn for one in profile.verdicts if one.in_turn), IN_TURN[0])
    again = command + advice.against(name, source, python)
    return with_command(message, f"then compare with {name} again", again)


def error_message(words: str, place: Place) -> str:
    """Return an error in words: its first sentence, the others below it, and the line; what to do
    comes last."""
    head, rest = advice.told_by(words)
    hint, told = advice.hint_of(words), [*_wrapped([rest]), *code_lines(place)]
    if hint:
        told = [*code_lines(place), "", *_wrapped([f"{advice.TO_DO}{hint}"])]
    return "\n".join([head, *_indented(told)])


def _open_verdicts(found: Sequence[Verdict]) -> list[Verdict]:
    """Those that failed, then those that are undecided."""
    return [one for outcome in ("failed", "undecided") for one in found if one.outcome == outcome]


def _wrapped(sentences: Iterable[str]) -> list[str]:
    """Those that have a word, in lines."""
    return [line for one in sentences if one for line in wrapped(one, _STYLE.width)]


def _indented(lines: Iterable[str]) -> list[str]:
    return [INDENT + line for line in lines]


def _origin(profile: Profile, told: Sequence[Verdict], guilty: Sequence[Place]) -> list[str]:
    """Which profile of the test it is; the lines that launch what exceeds limits, and the line that
    took the profile."""
    what = []
    if profile.label:
        what = [f"in region {profile.label!r}" if profile.one_shot else f"in {profile.label}"]
    places = dict.fromkeys([*guilty, *(one.place or profile.place for one in told)])
    return [*what, *(line for place in places if place for line in code_lines(place))]


def code_of(place: Place) -> str:
    """Return the line of code as it is written; empty where that is not known."""
    # Of a file that is not here, linecache would read one of that name on the path of imports.
    return printable(linecache.getline(os.path.abspath(place.file), place.line).strip())


def written_at(task: Task, code: Callable[[Place], str]) -> dict[Place, str]:
    """Return the code of a task's lines where it is known; without that of the call.

    Args:
        code: the code of a line; empty where it is not known.
    """
    lines = [(one, code(one)) for one in task.places if one != task.call]
    return dict([one for one in lines if one[1]][:MOST_LINES])


def code_lines(place: Place) -> list[str]:
    """Return the line of code, by its place and as it is written, where that is known."""
    told = ": ".join(filter(None, [f"at {wording.line_of(place)}", code_of(place)]))
    return wrapped(told, _STYLE.width)


def what_ran(profile: Profile, style: Style, bases: Mapping[Source, str]) -> list[str]:
    """Return the kernels and how they differ from a baseline; the copies, waits or overhead that a
    limit fails by, before the kernels if the first limit is about them; last the ranks, where more
    than a count is in question. They are of the rank that the first failed verdict is about. Marks
    stand in the indent.

    Args:
        style: of what is indented. bases: the names of baselines that have one.
    """
    judged = wording.shown_rank(profile)
    kernels = _kernel_lines(profile, judged, style, {**BASELINE_WORDS, **bases})
    over = list(verdicts.failed_metrics(profile))
    made = dict.fromkeys(filter(None, map(_BESIDE.get, over)))
    beside = [lines_of(profile, judged, style) for lines_of in made]
    tables = [*beside, kernels] if over and over[0] in _BESIDE else [kernels, *beside]
    # Of waits and copies no kernel tells.
    tables = beside if over and {*over} <= {*_BESIDE} - {"launch_overhead"} else tables
    if any(one.unit != "count" for one in _open_verdicts(profile.verdicts)):
        tables.append(_indented(map(plain, kernel_tables.lines_of_ranks(profile, style))))
    return [line for table in filter(None, tables) for line in (INDENT, *table)][1:]


def _copy_lines(profile: Profile, judged: Profile, style: Style) -> list[str]:
    """Those that the limit counts are marked, if it does not count all."""
    counted = verdicts.offending_calls(profile, judged)[1]
    if len(counted) == len(judged.copies):
        return _indented(kernel_tables.copy_table(judged).lines(style))
    limits = (one for one in profile.verdicts if one.metric.startswith("memcpy"))
    named = ", ".join(wording.title(one) for one in limits if one.outcome == "failed")
    table = kernel_tables.copy_table(judged, guilty=counted)
    return [f"{INDENT}copies (> counted by {named}):", *_marked(table, style)]


def _wait_lines(profile: Profile, judged: Profile, style: Style) -> list[str]:
    return _indented(kernel_tables.wait_table(judged).lines(style))


def _marked(table: Table, style: Style) -> list[str]:
    """A table whose marks, if it has any, stand in the indent."""
    if not any(table.signs):
        return _indented(table.lines(style))
    return table.lines(style.within(-len(INDENT)))


def _kernel_lines(
    profile: Profile, judged: Profile, style: Style, bases: Mapping[Source, str]
) -> list[str]:
    new = new_kernels(profile)
    lines = _changes(profile, style, bases)
    counted = kernel_tables.NOUNS[judged.environment.kind].kernel
    if new:
        lines = [_legend(bases[new.source], [*new.marks.values(), *("-" * bool(new.gone))])]
    if lines and not new:
        in_turn = verdicts.timed_in_turn(profile)
        broken = (one for one in profile.verdicts if one.of_limit and one.outcome == "failed")
        if in_turn and not any(broken):
            return lines[:-1]  # those of one call are others
        lines += [f"{INDENT}{counted}s of one call{', measured by itself' * in_turn}:"]
    if not judged.kernels:
        why = "no kernels were launched" if judged.kernels_kept else "the kernels were not kept"
        return [*lines, INDENT + why]
    guilty = verdicts.offending_kernels(profile, judged)
    of_rank = f" of rank {judged.rank}" if profile.other_ranks else ""
    legend = f" (> {', '.join(dict.fromkeys(guilty.values()))})" if guilty else ""
    lines += [f"{INDENT}{counted}s{of_rank}{legend}:"] if of_rank or legend else []
    marked = new if judged is profile else None
    table = kernel_tables.kernel_table(judged, new=marked, guilty=guilty)
    return [*lines, *_marked(table, style)]


def _changes(profile: Profile, style: Style, bases: Mapping[Source, str]) -> list[str]:
    """What differs from baselines, where the table of kernels cannot mark it."""
    found = (one.comparison for one in profile.verdicts if one.comparison is not None)
    lines = []
    for one in (one for one in found if one.change in ("worse", "changed", "undecided")):
        if told := kernel_tables.diff_lines(one, style.within(-len(INDENT))):
            base = _legend(bases[one.source], [line[:1] for line in told])
            told = [line if line.startswith(MARGINS) else INDENT + line for line in told]
            lines += [base, *told, INDENT]
    return lines


def _legend(base: str, signs: Collection[str]) -> str:
    """What is compared with, and what the signs say that occur."""
    there = (words for words in _SIGNS if words[0] in signs)
    return f"{INDENT}against {base}: {', '.join(there)}".rstrip()


def _overhead_lines(_: Profile, judged: Profile, style: Style) -> list[str]:
    """Where the overhead lies, as far as the trace shows."""
    lines, shares = [], judged.host_shares
    if (each := wording.value_of(judged, "overhead_per_launch")) is not None:
        lines.append(f"overhead of each launch: {format_time(each)}")
    if shares is not None:
        lines.append(
            f"host, profiled: {shares.dispatch:.0%} operator dispatch, {shares.launch_calls:.0%} "
            f"launch calls, {shares.waiting:.0%} waiting"
        )
    return _indented(part for line in lines for part in wrapped(line, style.width))


_BESIDE: Mapping[str, Callable[[Profile, Profile, Style], list[str]]] = {
    "memcpys": _copy_lines,
    "memcpy_bytes": _copy_lines,
    "syncs": _wait_lines,
    "would_wait": _wait_lines,
    "launch_overhead": _overhead_lines,
}
"""What shows more of a metric than the kernels do, of a profile and the rank that is judged."""
