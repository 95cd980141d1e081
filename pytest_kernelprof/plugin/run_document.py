"""``--kernelprof-json``: the run as a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.report.traces import why_unwritable
from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.packing import pack
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from pytest_kernelprof.schema.run import Run, Test

_FLAG = "--kernelprof-json"


class RunDocument:
    """The file of a run, in the process that reports.

    Args:
        path: as it was given, relative to where pytest was started.

    Raises:
        pytest.UsageError: nothing can be written there.
    """

    def __init__(self, config: pytest.Config, path: str) -> None:
        # Tests may change their directory.
        self._path = os.path.join(config.invocation_params.dir, path)
        self._told = ""
        self._unfinished: tuple[str, ...] = ()
        folder = os.path.dirname(self._path)
        why = codec.why_no_target(self._path) or why_unwritable(folder)
        if why:
            raise pytest.UsageError(f"{_FLAG}: {path!r} cannot be written ({why})")

    @pytest.hookimpl(tryfirst=True)
    def pytest_kernelprof_run(self, run: Run) -> None:
        """Write it.

        Raises:
            OSError: it cannot be written: a run whose document is lost has failed.
        """
        try:
            codec.write_atomically(self._path, codec.encode(pack(run)))
        except OSError as error:
            why = f"{_FLAG}: {self._path} cannot be written ({error.strerror or error})"
            raise OSError(why) from None
        counts = f"tests {len(run.tests)}, profiles {sum(map(_profiles, run.tests))}"
        self._told, self._unfinished = f"{self._path}: {counts}", run.unfinished

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where it is, and whether it is whole."""
        if self._told:
            terminalreporter.write_line(printable(f"kernelprof: {self._told}"))
        for words in self._unfinished:
            terminalreporter.write_line(
                printable(f"kernelprof: that is not the whole run: {words}"), yellow=True
            )


def _profiles(test: Test) -> int:
    return len(test.profiles)
