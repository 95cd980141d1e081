"""The message of a failed test: the verdicts, the line that made the call, what to do, the
kernels. Also the lines of code of every report."""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from pytest_kernelprof.records.comparison import BASELINE_WORDS, RunComparison, Source
from pytest_kernelprof.records.document import Comparison, Run, Test
from pytest_kernelprof.records.profile import Place, Profile
from pytest_kernelprof.report import kernel_tables, tables
from pytest_kernelprof.report.tables import Line, Span, Style, Table, plain, width_of, wrapped
from pytest_kernelprof.summary import advice, verdicts, wording
from pytest_kernelprof.summary.comparisons import baseline_summaries
from pytest_kernelprof.summary.kernels import new_kernels
from pytest_kernelprof.summary.records import TO_DO, Remedy, Row, Task
from pytest_kernelprof.summary.run import failures_of
from pytest_kernelprof.units import format_time, printable

_OPEN = ("failed", "undecided")
Code = Callable[[Place], str]
"""A line of code as it is written; empty where that is not known."""
INDENT = "  "
"""Before each line that is no verdict and no row with a mark."""
BAR = " | "
"""Between the number of a line and its code, and before what stands below it."""
MARGINS = (INDENT, "> ", "+ ", "? ", "- ", "~ ")
"""How lines begin that are no verdicts: marks stand in the indent."""
_SIGNS = ("+ new", "? perhaps new", "- gone", "~ changed")
MOST_LINES = 3
"""The code of so many lines is shown."""
_STYLE = Style(80 - len(INDENT))


def failure_text(test: Test, baselines: Sequence[RunComparison] = ()) -> str:
    """Return why a test fails, or may fail: for each of its profiles the limits that are broken,
    the lines of code, what to do, and what ran.

    The first line is a verdict, since that is what a summary shows.

    Args:
        test: with the profiles that fail it; without an id no command is given.
        baselines: what it was compared with.
    """
    run = Run((test,), baselines=tuple(baselines))
    bases = {one.baseline.source: one.base for one in baseline_summaries(run)}
    told = (_lines_of(row, task, bases) for row, task in failures_of(run))
    return "\n".join(line for lines in told for line in lines)


def _lines_of(row: Row, task: Task, bases: Mapping[Source, str]) -> Iterator[str]:
    """Of one profile; the kernel that a comparison names stands below the call that launched it."""
    profile, shown, found = row.profile, row.shown, row.found
    yield from found
    said = {*found, "; ".join(found), *(one.partition(": ")[0] for one in found)}
    facts = [one for one in task.facts if one not in said]
    facts = facts if task.what.partition(": ")[0] in said else [task.what, *facts]
    labels = {**task.labels, **dict(zip([task.what], task.places[:1], strict=False))}
    sure, task = task.sure, task._replace(facts=tuple(facts), labels=labels, call=None, sure=())
    foot, rank = verdicts.reservations(shown), f"rank {shown.rank}: " * bool(profile.other_ranks)
    region = f"region {profile.label!r}" if profile.one_shot else profile.label
    unkept = (one for one in profile.verdicts if one.outcome in _OPEN)
    calls = dict.fromkeys(one.place or profile.place for one in unkept)
    where = f"in {region}" if profile.label else ""
    where = wording.compiled_for([profile.environment.capability]) if profile.compiled else where
    above = _wrapped([where, *sure, f"at {task.lines}" if task.places else ""])
    above += map(plain, task_lines(task, code_of, _STYLE))
    above += _wrapped([f"{rank}{foot}" if foot and foot not in facts else ""])
    others = (at for at in calls if at and at not in task.places)
    above += (code_line(at, "measured at") for at in others)
    todo = ["", *map(plain, step_lines(task.remedy, _STYLE))] if task.remedy.steps else []
    yield from _indented([*above, *todo, ""])
    yield from what_ran(profile, _STYLE, bases)


def task_lines(task: Task, code: Code, style: Style) -> Iterator[Line]:
    """Yield the lines of code to look at, each behind its number and with what is known of it below
    the call that it is about; then what else is known."""
    facts, colour, written = task.facts, style.sign(task.told)[1], written_at(task, code)
    is_one = len({at.file for at in task.places}) == 1
    numbers = {at: str(at.line) if is_one else wording.line_of(at) for at in written}
    width = max(map(len, numbers.values()), default=0)
    for place, text in written.items():
        own = [words for words in facts if task.labels.get(words) == place]
        facts = tuple(words for words in facts if words not in own)
        told = [style.say(wording.without_lines(words, wording.line_of(place))) for words in own]
        told += ["or here"] if not own and " or " in task.lines and place != task.places[0] else []
        inside = style.within(width + len(INDENT) + len(BAR))
        first, *below = _pointed(style.say(text), task.chains.get(place, ()), told, inside.width)
        yield Span(f"{INDENT}{numbers[place]:>{width}}{BAR}", "cyan"), Span(first)
        bar = Span(f"{INDENT}{'':{width}}{BAR}", "cyan")
        yield from ((bar, Span(one, colour)) for one in below)
    yield from (line for words in (*task.sure, *facts) for line in style.sentence(words))


def _pointed(
    text: str, chains: Iterable[tuple[str, ...]], told: Sequence[str], room: int
) -> Iterator[str]:
    """A line of code; marks under the call, where it is known; what is known of it."""
    spans = {call_in(text, one) for one in chains}
    start, end = spans.pop() if len(spans) == 1 else (0, 0)
    if width_of(text) > room and width_of(text[:end]) > room - 3:
        text, start, end = f"...{text[start:]}", 3, 3 + end - start
    yield _cut(text, room)
    at, marks = width_of(text[:start]), "^" * min(width_of(text[start:end]), room)
    lines = list(told)
    if marks and lines and at + width_of(f"{marks} {lines[0]}") <= room:
        marks, lines = f"{marks} {lines[0]}", lines[1:]
    yield from [" " * at + marks] if marks else []
    at = at if room - at >= min(30, *map(width_of, lines), room) else 0
    yield from (" " * at + one for words in lines for one in wrapped(words, room - at))


def call_in(code: str, operators: Sequence[str]) -> tuple[int, int]:
    """Find what a line calls, or computes by a sign, that led to these operators.

    Args:
        code: the line. operators: of PyTorch, the innermost first, as ``aten::copy_``.

    Returns:
        Where it begins and ends, in characters; zeros where it is not known or there are several.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    for node in ast.walk(_parsed(code)):
        if isinstance(node, (ast.Call, ast.BinOp, ast.AugAssign)):
            of = getattr(node, "func", None)
            name = getattr(of, "attr", getattr(of, "id", type(getattr(node, "op", None)).__name__))
            start, end = node.col_offset, node.end_col_offset or 0
            if isinstance(of, ast.Attribute) and not _is_dotted(of):
                start = (of.end_col_offset or 0) - len(name.encode())
            start, end = (len(code.encode()[:at].decode()) for at in (start, end))
            found.setdefault(_plain_name(name), []).append((start, end))
    # What runs backward is called by none of the names that ran forward.
    names = ["backward"] if any("Backward" in one for one in operators) else reversed(operators)
    several = next(filter(None, (found.get(_plain_name(one)) for one in names)), [])
    return several[0] if len(several) == 1 else (0, 0)


def _is_dotted(node: ast.AST) -> bool:
    """Whether it is only names: ``torch.nn.functional``."""
    return all(isinstance(one, (ast.Name, ast.Attribute, ast.Load)) for one in ast.walk(node))


def _plain_name(name: str) -> str:
    """``mul`` of ``aten::mul_`` and of ``Mult``, ``matmul`` of ``MatMult``."""
    word = re.split("::?", name)[-1].replace("_", "").lower()
    return word.removesuffix("t") if word.endswith("mult") else word


def _parsed(code: str) -> ast.AST:
    """A line of code by itself, also the head of a block; nothing where it is part of a longer
    statement."""
    for text in (code, f"{code} pass"):
        with contextlib.suppress(SyntaxError, ValueError):
            return ast.parse(text)
    return ast.Module([], [])


def step_lines(remedy: Remedy, style: Style) -> Iterator[Line]:
    """Yield what to do, each thing with the command for it, below where it does not
    fit beside it."""
    for does, command in remedy.steps:
        tone: tables.Colour = "light" if does is remedy.steps[-1][0] and remedy.intended else ""
        whole = style.say(f"{does}: {command}" if command else does)
        fits = not command or width_of(whole) <= style.width
        for line in wrapped(whole if fits else style.say(f"{does}:"), style.width):
            label, colon, rest = line.rpartition(TO_DO)
            yield Span(label + colon, "bold"), Span(rest, tone)
        pasted = [] if fits else tables.command_lines(style.say(command), style.width - 2)
        yield from ((Span(INDENT), Span(line)) for line in pasted)


def comparison_message(comparison: Comparison) -> str:
    """Return the assertions that do not hold, or may not hold; where; then the table of all
    callables."""
    told = [one for of in _OPEN for one in comparison.verdicts if one.outcome == of]
    code = [code_line(at) for at in dict.fromkeys(v.place for v in told) if at]
    heads = [verdicts.comparison_line(comparison, one) for one in told]
    below = [*code, *kernel_tables.callable_lines(comparison), "", f"{TO_DO}{advice.COMPARED}"]
    return "\n".join([*heads, *_indented(below)])


def error_message(words: str, place: Place) -> str:
    """Return an error in words: its first sentence, the others below it, and the line; what to do
    comes last."""
    (head, rest), hint, code = advice.told_by(words), advice.hint_of(words), code_line(place)
    told = [code, "", *_wrapped([f"{TO_DO}{hint}"])] if hint else [*_wrapped([rest]), code]
    return "\n".join([head, *_indented(told)])


def _wrapped(sentences: Iterable[str]) -> list[str]:
    """Those that have a word, in lines."""
    return [line for one in sentences if one for line in wrapped(one, _STYLE.width)]


def _indented(lines: Iterable[str]) -> list[str]:
    return [INDENT + line for line in lines]


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


def code_line(place: Place, lead: str = "at") -> str:
    """Return the line of code, by its place and as it is written, where that is known."""
    told = ": ".join(filter(None, [f"{lead} {wording.line_of(place)}", code_of(place)]))
    return _cut(told, _STYLE.width)


def _cut(text: str, room: int) -> str:
    return text if width_of(text) <= room else f"{tables.head_of(text, room - 3)}..."


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
    if any(one.unit != "count" for one in profile.verdicts if one.outcome in _OPEN):
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


def _wait_lines(_: Profile, judged: Profile, style: Style) -> list[str]:
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
