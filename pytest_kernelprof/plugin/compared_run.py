"""The end of a run that was compared with a baseline: what fails it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.schema.run import Run
from pytest_kernelprof.summary.comparisons import BaselineSummary, baseline_summary

if TYPE_CHECKING:
    from pytest_kernelprof.plugin.collect import Collector
    from pytest_kernelprof.schema.run import RunComparison


class ComparedRun:
    """In the process that reports.

    Args:
        warn_only: whether what is worse fails nothing.
    """

    def __init__(self, collector: Collector, *, warn_only: bool) -> None:
        self._collector = collector
        self._warn_only = warn_only

    def comparison(self) -> RunComparison | None:
        """What the run was compared with; None where it was not."""
        raise NotImplementedError

    def summary(self) -> BaselineSummary | None:
        """How the run compares, as far as it has come."""
        found = self.comparison()
        if found is None:
            return None
        return baseline_summary(Run(tuple(self._collector.tests())), found)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A run of which nothing was compared, or not what was asked for, has failed."""
        if session.config.getoption("collectonly", False):
            return
        found = self.summary()
        fails = found is not None and found.fails(warn_only=self._warn_only)
        if fails and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
