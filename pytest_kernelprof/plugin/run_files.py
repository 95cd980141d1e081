"""``--kernelprof-json`` and other files that are made of the run as it ends, however it ends."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pytest_kernelprof.plugin.keys import SETTINGS
from pytest_kernelprof.plugin.options import flag_of
from pytest_kernelprof.plugin.run_record import fail
from pytest_kernelprof.report.files import why_no_file, why_no_form, write_file
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from pytest_kernelprof.schema.run import Run


class _File(NamedTuple):
    form: str
    path: str


class RunFiles:
    """The files of a run, in the process that reports.

    Args:
        asked: the path for each option that asks for one, as it was given: relative to where
            pytest was started.

    Raises:
        pytest.UsageError: nothing can be written to one of them, two are the same, one is compared
            with, or what makes one is not installed.
    """

    def __init__(self, config: pytest.Config, asked: Mapping[str, str]) -> None:
        # Tests may change their directory.
        here = config.invocation_params.dir
        self._files = [_File(form, os.path.join(here, path)) for form, path in asked.items()]
        self._written: list[str] = []
        self._failures: list[str] = []
        self._unfinished: tuple[str, ...] = ()
        for form, path in asked.items():
            if why := why_no_form(form):
                raise pytest.UsageError(f"{flag_of(form)}: {why}")
            if why := why_no_file(os.path.join(here, path)):
                raise pytest.UsageError(f"{flag_of(form)}: {path!r} cannot be written ({why})")
        compared = filter(None, [config.stash[SETTINGS].run_document])
        _refuse_same([*(_File("against", str(here / one)) for one in compared), *self._files])

    @pytest.hookimpl(tryfirst=True)
    def pytest_kernelprof_run(self, run: Run) -> None:
        """Write them, each whatever becomes of the others."""
        self._unfinished = run.unfinished
        for file in self._files:
            self._write(file, run)

    def _write(self, file: _File, run: Run) -> None:
        form, path = file
        try:
            self._written.append(f"{path}: {write_file(path, form, run)}")
        except Exception as error:
            why = error.strerror if isinstance(error, OSError) else None
            why = why or f"{type(error).__name__}: {error}"
            self._failures.append(f"{flag_of(form)}: {path} cannot be written ({why})")

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """A run whose file is lost has failed: its tests have not."""
        try:
            yield
        finally:
            if self._failures:
                fail(session)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where they are, and whether they are whole."""
        for words in self._written:
            terminalreporter.write_line(printable(f"kernelprof: {words}"))
        for words in self._failures:
            terminalreporter.write_line(printable(f"kernelprof: {words}"), red=True)
        for words in self._unfinished if self._written else ():
            terminalreporter.write_line(
                printable(f"kernelprof: the run is not complete: {words}"), yellow=True
            )


def _refuse_same(files: Iterable[_File]) -> None:
    """One would replace the other, or what is compared with.

    Raises:
        pytest.UsageError: two options name one file.
    """
    seen: dict[str, str] = {}
    for form, path in files:
        first = seen.setdefault(os.path.realpath(path), form)
        if first != form:
            flags = f"{flag_of(first)}, {flag_of(form)}"
            raise pytest.UsageError(f"{flags}: both name {path!r}; give two different files")
