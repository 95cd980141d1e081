"""The end of a run that was compared with a baseline: what fails it, and the last section."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.report.baselines import baseline_lines
from pytest_kernelprof.report.style import style_of, write_lines
from pytest_kernelprof.schema.run import Run
from pytest_kernelprof.summary.comparisons import BaselineDigest, digest_against
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from pytest_kernelprof.plugin.collect import Collector
    from pytest_kernelprof.schema.run import RunComparison


class ComparedRun:
    """In the process that reports.

    Args:
        heading: of the section.
        warn_only: whether what is worse fails nothing.
    """

    def __init__(self, collector: Collector, heading: str, *, warn_only: bool) -> None:
        self._collector = collector
        self._heading = heading
        self._warn_only = warn_only
        self._session: pytest.Session | None = None

    def comparison(self) -> RunComparison | None:
        """What the run was compared with; None where it was not."""
        raise NotImplementedError

    def digest(self) -> BaselineDigest | None:
        """How the run compares, as far as it has come."""
        found = self.comparison()
        if found is None:
            return None
        return digest_against(Run(tuple(self._collector.tests())), found)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A run of which nothing was compared, or not what was asked for, has failed."""
        self._session = session
        if session.config.getoption("collectonly", False):
            return
        found = self.digest()
        fails = found is not None and found.fails(warn_only=self._warn_only)
        if fails and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The section at the end."""
        found = self.digest()
        if found is None:
            return
        terminalreporter.section(printable(self._heading))
        lines = baseline_lines(
            found,
            style_of(terminalreporter),
            warn_only=self._warn_only,
            run_fails=bool(self._session and self._session.exitstatus),
        )
        write_lines(terminalreporter, lines)
