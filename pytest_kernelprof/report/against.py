"""How a run against a revision is told: the failure of a test, and the section at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.base import changes_against
from pytest_kernelprof.digest.cells import more_than_before
from pytest_kernelprof.digest.changes import UNCOMPARED
from pytest_kernelprof.digest.changes_verdict import (
    fails_nothing_words,
    is_failed,
    notes_of,
    turns_words,
    why_not_compared,
)
from pytest_kernelprof.digest.conditions import doubt_words
from pytest_kernelprof.digest.ids import shortened
from pytest_kernelprof.digest.words import count_words, pair_words
from pytest_kernelprof.report.changed_rows import changed_lines
from pytest_kernelprof.report.diff import diff_lines
from pytest_kernelprof.report.spans import Span, write_lines
from pytest_kernelprof.report.style import style_of
from pytest_kernelprof.report.widths import left, wrapped
from pytest_kernelprof.units import format_time, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

    from pytest_kernelprof.report.spans import Colour, Line
    from pytest_kernelprof.report.style import Style
    from pytest_kernelprof.schema.against import AgainstTest, Laid
    from pytest_kernelprof.schema.turns import Timing, TimingOutcome

_OUTCOMES: dict[TimingOutcome, str] = {"worse": "worse", "better": "better"}
_NOTHING_MEASURED = "No test of this run is measured (--kernelprof-all measures each)."
_LABEL = 14
_MOST_NAMED = 3


def failure_words(found: AgainstTest, name: str) -> str:
    """What is worse, by how much, and through which kernels."""
    lines: list[str] = []
    for one in found.profiles:
        if one.is_worse:
            of = f" [{one.label}]" if one.label else ""
            for more in more_than_before(one):
                values = pair_words(more.unit, more.measured, more.allowed)
                lines.append(f"{more.metric}: {' > '.join(values)} of {name}{of}")
            if one.timing is not None and one.timing.outcome == "worse":
                margin = f"margin {one.timing.margin * 100:.3g} %"
                lines.append(f"{timing_words(one.timing)} ({margin}), against {name}{of}")
            lines += [f"  {line}" for line in diff_lines(one.diff)]
    return "\n".join(map(printable, lines))


def timing_words(timing: Timing) -> str:
    """For example ``cuda_time 233.1 -> 251.0us, +7.7 % in 4 of 4 pairs``."""
    if not timing.pairs:
        return f"cuda_time is {timing.outcome}: {timing.why}" if timing.why else ""
    number = len(timing.pairs)
    agreeing = f"{timing.agreeing} of {number}" if timing.outcome in _OUTCOMES else str(number)
    pairs = "pair" if agreeing == "1" else "pairs"
    old, new = format_time(timing.old_us), format_time(timing.new_us)
    if old[-2:] == new[-2:] and old[-2].isalpha():
        old = old[:-2]
    words = f"cuda_time {old} -> {new}, {(timing.ratio - 1) * 100:+.1f} % in {agreeing} {pairs}"
    if timing.disturbed is not None:
        words += f"; {doubt_words(timing.disturbed)}"
    elif timing.why:
        words += f"; {timing.why}"
    if timing.old_latency_us:
        old, new = format_time(timing.old_latency_us), format_time(timing.new_latency_us)
        words += f"; latency {old} -> {new}, not judged"
    return words


def write_against(
    terminal: pytest.TerminalReporter,
    laid: Laid,
    tests: Sequence[AgainstTest],
    *,
    warn_only: bool,
    run_fails: bool,
) -> None:
    """Write what is not as it was, worst first, and what fails by it."""
    style = style_of(terminal)
    terminal.section(printable(f"against {laid.name}"))
    lines = against_lines(laid, tests, style, warn_only=warn_only, run_fails=run_fails)
    write_lines(terminal, lines)


def against_lines(
    laid: Laid,
    tests: Sequence[AgainstTest],
    style: Style,
    *,
    warn_only: bool = False,
    run_fails: bool = False,
) -> list[Line]:
    """The verdict, only the rows that changed, what was not compared and why, and last what fails
    by it.

    Args:
        warn_only: whether what is worse fails nothing.
        run_fails: whether the run fails, by this comparison or for another reason.
    """
    changes = changes_against(laid.name, tests)
    failed = is_failed(tests, warn_only=warn_only)
    colour: Colour = "red" if is_failed(tests) else "" if run_fails else "green"
    sentence = style.say(changes.sentence if tests else _NOTHING_MEASURED)
    lines: list[Line] = [(Span(one, colour),) for one in wrapped(sentence, style.width)]
    compared = [one for one in changes.rows if one.result not in UNCOMPARED]
    table = changed_lines(compared, style)
    lines += [(), *table, ()] if table else [()]
    lines += _listed("not compared", _with_tests(why_not_compared(tests)), style)
    lines += _listed("note", [*_with_tests(notes_of(tests)), *laid.notes], style)
    turns = turns_words(tests)
    if turns:
        lines += ((Span(one, "dim"),) for one in wrapped(style.say(turns), style.width))
    number = changes.counts["worse"]
    if number:
        told = f"{count_words(number, 'test is', 'tests are')} worse than {changes.short}"
        last = f"the run fails: {told}" if failed else f"warned of only: {told}"
    else:
        fails_nothing = fails_nothing_words(run_fails=run_fails)
        last = "the run fails: nothing could be compared" if failed else fails_nothing
    return [*lines, (Span(style.say(last), "red" if failed else ""),)]


def _with_tests(reasons: dict[str, tuple[str, ...]]) -> list[str]:
    return [f"{_named(ids)}: {words}" for words, ids in reasons.items()]


def _listed(label: str, texts: Sequence[str], style: Style) -> Iterator[Line]:
    """Sentences beside a label."""
    for at, text in enumerate(texts):
        for number, piece in enumerate(wrapped(style.say(text), style.width - _LABEL)):
            head = left(label if not at and not number else "", _LABEL)
            yield (Span(head, "dim"), Span(piece))


def _named(tests: Sequence[str]) -> str:
    """A few tests by name, more as a number."""
    if len(tests) > _MOST_NAMED:
        return count_words(len(tests), "test")
    return ", ".join(one.rpartition("::")[2] if "[" not in one else shortened(one) for one in tests)
