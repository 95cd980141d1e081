"""``--kernelprof-github``: the summary of the step, and annotations at lines of the code."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pytest_kernelprof.report.github import Annotation
    from pytest_kernelprof.schema.run import Run

_FLAG = "--kernelprof-github"
# pytest-github-actions-annotate-failures, and its part that tells of warnings.
_OTHER, _OTHERS_WARNINGS = "pytest_github_actions_annotate_failures", "annotate_warnings"


class GitHub:
    """Of a run, in the process that reports. What cannot be told here fails nothing."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._commands: list[str] = []
        self._problem = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_kernelprof_run(self, run: Run) -> None:
        """Append to the summary, and keep what is to be printed."""
        try:
            self._tell(run)
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"

    def _tell(self, run: Run) -> None:
        from pytest_kernelprof.report.github import (
            annotations_of,
            append_summary,
            commands,
            files_in_the_repository,
            notice_of,
        )

        self._problem = append_summary(run, os.environ)
        found = [one for one in annotations_of(run) if not self._another_tells(one)]
        file_of = files_in_the_repository(str(self._config.rootpath), os.environ)
        self._commands = list(filter(None, [*commands(found, file_of), notice_of(run)]))

    def _another_tells(self, found: Annotation) -> bool:
        plugins = self._config.pluginmanager
        if os.environ.get("GITHUB_ACTIONS") != "true" or not plugins.hasplugin(_OTHER):
            return False
        return found.failed or (found.warned and plugins.hasplugin(_OTHERS_WARNINGS))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what could not be told."""
        if self._problem:
            words = printable(f"kernelprof: {_FLAG}: {self._problem}")
            terminalreporter.write_line(words, yellow=True)

    def pytest_unconfigure(self) -> None:
        """After all that pytest prints: GitHub reads commands where a line begins with them."""
        if self._commands:
            with self._uncaptured():
                encoding = sys.stdout.encoding or "utf-8"
                told = "\n".join(["", *self._commands, ""])
                sys.stdout.write(told.encode(encoding, "backslashreplace").decode(encoding))
                sys.stdout.flush()

    def _uncaptured(self) -> AbstractContextManager[Any]:
        capture = self._config.pluginmanager.getplugin("capturemanager")
        return nullcontext() if capture is None else capture.global_and_fixture_disabled()
