"""Notes on tests that a run prints once at its end, also for tests of xdist workers: versions newer
than those that were tried, markers that probably mean a limit, tests that could not be profiled
without being disturbed."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.limits.marks import meant_by_strays
from pytest_kernelprof.plugin.keys import TEST
from pytest_kernelprof.units import printable
from pytest_kernelprof.versions import newer_than_tried

if TYPE_CHECKING:
    from collections.abc import Generator

ATTRIBUTE = "kernelprof_end_notes"
"""Where they stand on a test's report: it may be an xdist worker that has the torch."""

_TESTS = "{tests}"
_STRAY = (
    "@pytest.mark.{0}(...) limits nothing in {tests}: did you mean {1}? If {0} is your own "
    "marker, register it"
)


class EndNotes:
    """Puts notes on the reports of tests, and prints them in the process that reports."""

    def __init__(self) -> None:
        self._tests: dict[str, dict[str, None]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the notes of a test on its last report."""
        report = yield
        if call.when == "teardown":
            notes = [_STRAY.format(*pair, tests=_TESTS) for pair in meant_by_strays(item).items()]
            if TEST in item.stash:
                notes += item.stash[TEST].ledger.end_notes
                notes += filter(None, ["; ".join(newer_than_tried(_here()))])
            if notes:
                setattr(report, ATTRIBUTE, notes)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the notes of a test."""
        for note in getattr(report, ATTRIBUTE, ()):
            self._tests.setdefault(note, {})[report.nodeid] = None

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print each note once; none with ``-qq``."""
        for note, tests in self._tests.items() if terminalreporter.verbosity > -2 else ():
            more = ", ..." if len(tests) > 1 else ""
            told = f"{len(tests)} test{'s' if more else ''} ({next(iter(tests))}{more})"
            line = printable(f"kernelprof: {note.replace(_TESTS, told)}")
            terminalreporter.write_line(line, yellow=True)


def _here() -> dict[str, str]:
    versions = {"pytest": pytest.__version__, "python": platform.python_version()}
    torch = str(getattr(sys.modules.get("torch"), "__version__", ""))
    return {"torch": torch, **versions}
