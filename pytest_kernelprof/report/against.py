"""How a run against a revision is told: the failure of a test, and the section at the end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_kernelprof.report.diff import diff_lines
from pytest_kernelprof.report.tables import Column, render
from pytest_kernelprof.report.words import doubt_words
from pytest_kernelprof.schema.against import RESULTS
from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.units import format_bytes, format_time, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

    from pytest_kernelprof.schema.against import AgainstTest, Compared, Laid, Result
    from pytest_kernelprof.schema.turns import Timing, TimingOutcome

_COLUMNS = (
    Column("test", shrinks=True, keeps="end"),
    Column("kernels", number=True),
    Column("verdict"),
    Column("what", shrinks=True),
)
_COLOURS: dict[Result, str] = {
    "worse": "red",
    "cannot run": "yellow",
    "not compared": "yellow",
    "another work": "yellow",
    "undecided": "yellow",
    "accepted": "yellow",
    "better": "green",
}
_WORDS: dict[Result, str] = {
    "worse": "worse",
    "accepted": "accepted by their snapshots",
    "better": "better",
    "undecided": "undecided",
    "cannot run": "that {name} cannot run",
    "not compared": "not compared",
    "another work": "not the same work",
}
_COMPARED: tuple[Result, ...] = ("worse", "undecided", "accepted", "better", "same")
_OUTCOMES: dict[TimingOutcome, str] = {"worse": "worse", "better": "better"}


def failure_words(found: AgainstTest, name: str) -> str:
    """What is worse, by how much, and through which kernels."""
    lines: list[str] = []
    for one in found.profiles:
        if one.is_worse:
            of = f" [{one.label}]" if one.label else ""
            lines += [f"{_more(one, metric)} of {name}{of}" for metric in one.worse]
            if one.timing is not None and one.timing.outcome == "worse":
                margin = f"margin {one.timing.margin * 100:.3g} %"
                lines.append(f"{timing_words(one.timing)} ({margin}), against {name}{of}")
            lines += [f"  {line}" for line in diff_lines(one.diff)]
    return "\n".join(map(printable, lines))


def _more(one: Compared, metric: str) -> str:
    """For example ``kernels: 5 > 4``."""
    old, new = _values(one, metric)
    return f"{metric}: {new} > {old}"


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


def _values(one: Compared, metric: str) -> tuple[str, str]:
    change = next(change for change in one.diff.metrics if change.name == metric)
    form = format_bytes if METRICS[metric].unit == "bytes" else "{:.0f}".format
    return form(change.old or 0), form(change.new or 0)


def write_against(
    terminal: pytest.TerminalReporter, laid: Laid, tests: Sequence[AgainstTest]
) -> None:
    """Write what is not as it was, worst first, and one line of all."""
    told = sorted(
        (test for test in tests if test.result != "same"),
        key=lambda test: (RESULTS.index(test.result), test.id),
    )
    terminal.section(printable(f"against {laid.name}"))
    if told:
        lines = render(_COLUMNS, [_cells(test) for test in told], terminal._tw.fullwidth)
        terminal.write_line(lines[0], bold=True)
        for test, line in zip(told, lines[1:], strict=True):
            terminal.write_line(line, **{_COLOURS[test.result]: True})
    for note in laid.notes:
        terminal.write_line(printable(note), yellow=True)
    for why, count in {**_reasons(tests), **_notes(tests)}.items():
        terminal.write_line(printable(f"{count}: {why}"), yellow=True)
    colour = "red" if is_failed(tests) else "green"
    terminal.write_line(printable(against_line(laid, tests)), **{colour: True})


def _reasons(tests: Sequence[AgainstTest]) -> dict[str, str]:
    """Each reason why tests were not compared, whole, and how many it holds for."""
    found = Counter(test.why for test in tests if test.result in ("cannot run", "not compared"))
    found.pop("", None)
    return _counted(found)


def _notes(tests: Sequence[AgainstTest]) -> dict[str, str]:
    """What else is to be said, and of how many tests."""
    return _counted(Counter(note for test in tests for note in test.notes))


def _counted(found: Counter[str]) -> dict[str, str]:
    return {why: f"{n} test{'s' if n > 1 else ''}" for why, n in found.most_common()}


def against_line(laid: Laid, tests: Sequence[AgainstTest]) -> str:
    """``against main (abc1234): 212 compared, 1 worse, 3 better, 4 that main cannot run``."""
    counts = Counter(test.result for test in tests)
    short = laid.name.partition(" (")[0]
    told = [f"{sum(counts[one] for one in _COMPARED)} compared"]
    if not tests:
        told.append("no test of this run is measured (--kernelprof-all measures each)")
    for result, words in _WORDS.items():
        if counts[result]:
            told.append(f"{counts[result]} {words.format(name=short)}")
    return f"against {laid.name}: {', '.join(told)}"


def is_failed(tests: Sequence[AgainstTest], *, warn_only: bool = False) -> bool:
    """Whether the run has failed by it: something is worse, unless that is only warned of, or
    nothing could be compared."""
    results = {test.result for test in tests}
    return ("worse" in results and not warn_only) or not results & set(_COMPARED)


def _what(test: AgainstTest) -> Iterator[str]:
    """What is another, in words."""
    for one in test.profiles:
        for metric in (*one.worse, *one.accepted, *one.better):
            yield f"{metric} {' -> '.join(_values(one, metric))}"
        if one.timing is not None and one.timing.outcome in ("worse", "undecided", "better"):
            yield timing_words(one.timing)


def _cells(test: AgainstTest) -> list[str]:
    file, separator, rest = test.id.partition("::")
    counts = {(one.diff.old_kernels, one.diff.new_kernels) for one in test.profiles}
    kernels = " ".join(str(new) if old == new else f"{old} -> {new}" for old, new in sorted(counts))
    what = ", ".join(dict.fromkeys(_what(test)))
    if test.why:
        what = f"{what}; {test.why}" if test.result == "accepted" else test.why
    return [file.rpartition("/")[2] + separator + rest, kernels or "-", test.result, what]
