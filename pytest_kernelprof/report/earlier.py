"""How a run that was judged against an earlier one is told: a test's failure, the section at the
end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.words import value_words
from pytest_kernelprof.report.runs import change_words, run_lines
from pytest_kernelprof.report.spans import write_lines
from pytest_kernelprof.report.style import style_of
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    import pytest

    from pytest_kernelprof.schema.runs import MetricComparison, ProfileComparison, RunsComparison


def comparison_words(found: ProfileComparison) -> str:
    """What is another, and judged: ``kernels 5 > 4, cuda_time 234.9us > 200.0us (+17.5 %)``."""
    judged = [one for one in found.metrics if one.judged and one.verdict != "better"]
    worse = [one for one in judged if one.verdict == "worse"]
    told = worse or judged
    usual = "its times" if found.untimed else "no more than before"
    return ", ".join(map(_more_words, told)) or usual


def _more_words(one: MetricComparison) -> str:
    form = partial(value_words, one.unit)
    old = next(value for value in reversed(one.olds) if value is not None)
    words = f"{one.name} {form(one.new)} > {form(old)}"
    if one.unit == "count":
        return words
    sure = ""
    if one.low is not None and one.high is not None and one.kind == "timed":
        sure = f", 99 % CI {form(one.low)}..{form(one.high)}"
    return f"{words} ({change_words(one)}{sure})"


def write_compared(
    terminal: pytest.TerminalReporter,
    path: str,
    found: RunsComparison,
    *,
    warn_only: bool,
    run_fails: bool,
) -> None:
    """Write what is another than in an earlier run, worst first, and what fails by it."""
    terminal.section(printable(f"compared with {path}"))
    ends = "warned of only" if warn_only else "the run fails"
    lines = run_lines(found, path, style_of(terminal), ends=ends, run_fails=run_fails)
    write_lines(terminal, lines)
