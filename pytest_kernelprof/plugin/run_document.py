"""``--kernelprof-json``: what the run took, written as it ends, however it ends."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.plugin.portable import portable
from pytest_kernelprof.report.traces import why_unwritable
from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.document import pack
from pytest_kernelprof.schema.run import Run, Test
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from pytest_kernelprof.plugin.collect import Collector

_FLAG = "--kernelprof-json"


class RunDocument:
    """The file of a run, in the process that reports.

    Args:
        path: as it was given, relative to where pytest was started.

    Raises:
        pytest.UsageError: nothing can be written there.
    """

    def __init__(self, config: pytest.Config, path: str, collector: Collector) -> None:
        # Tests may change their directory.
        self._path = os.path.join(config.invocation_params.dir, path)
        self._root = str(config.rootpath)
        self._collector = collector
        self._began = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._unfinished: list[str] = []
        self._told = self._failure = ""
        folder = os.path.dirname(self._path)
        why = "it is a folder" if os.path.isdir(self._path) else why_unwritable(folder)
        if why:
            raise pytest.UsageError(f"{_FLAG}: {path!r} cannot be written ({why})")

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Ctrl-C, ``pytest.exit``, errors of collection, a plugin that stops the run."""
        words = str(excinfo.value)
        self._unfinished.append(f"interrupted: {words}" if words else "interrupted")

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """A plugin has failed."""
        self._unfinished.append(f"internal error of pytest: {excinfo.exconly(tryshort=True)}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """A worker of pytest-xdist is gone; what its running test took went with it."""
        if error:
            name = getattr(getattr(node, "gateway", None), "id", "?")
            self._unfinished.append(f"worker {name} ended early: {error}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write it; a run whose document is lost has failed."""
        if session.shouldfail:  # --maxfail
            self._unfinished.append(str(session.shouldfail))
        tests = tuple(portable(test, self._root) for test in self._collector.tests())
        run = Run(
            tests,
            began=self._began,
            versions={name: version(name) for name in ("pytest", "pytest-kernelprof")},
            unfinished=tuple(dict.fromkeys(self._unfinished)),
        )
        try:
            codec.write_atomically(self._path, codec.encode(pack(run)))
        except OSError as error:
            self._failure = f"{self._path} cannot be written ({error.strerror or error})"
            if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        else:
            self._told = f"{self._path}: tests {len(tests)}, profiles {sum(map(_profiles, tests))}"

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where it is, and whether it is whole."""
        if self._failure:
            terminalreporter.write_line(printable(f"{_FLAG}: {self._failure}"), red=True)
            return
        terminalreporter.write_line(printable(f"kernelprof: {self._told}"))
        for words in self._unfinished:
            terminalreporter.write_line(
                printable(f"kernelprof: that is not the whole run: {words}"), yellow=True
            )


def _profiles(test: Test) -> int:
    return len(test.profiles)
