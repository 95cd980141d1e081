"""Says once in a run that measures with what nobody has tried yet."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.plugin.keys import TEST
from pytest_kernelprof.units import printable
from pytest_kernelprof.versions import newer_than_tried

if TYPE_CHECKING:
    from collections.abc import Generator

ATTRIBUTE = "kernelprof_untried"
"""Where it stands on a test's report: it may be an xdist worker that has the torch."""


class Untried:
    """In the process that measures, and in the one that reports."""

    def __init__(self) -> None:
        self._told: dict[str, None] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note it beside a test that measures."""
        report = yield
        if call.when == "teardown" and TEST in item.stash:
            newer = newer_than_tried(_here())
            if newer:
                setattr(report, ATTRIBUTE, "; ".join(newer))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather it."""
        words = getattr(report, ATTRIBUTE, "")
        if words:
            self._told[words] = None

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say it."""
        for words in self._told:
            terminalreporter.write_line(printable(f"kernelprof: {words}"), yellow=True)


def _here() -> dict[str, str]:
    versions = {"pytest": pytest.__version__, "python": platform.python_version()}
    torch = str(getattr(sys.modules.get("torch"), "__version__", ""))
    return {"torch": torch, **versions}
