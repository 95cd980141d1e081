"""The run as a record, for whoever wants all of it: gathered until it ends, however it ends."""

from __future__ import annotations

import contextlib
import re
from datetime import datetime, timezone
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest
from _pytest.outcomes import OutcomeException

from pytest_kernelprof.plugin.keys import AGAINST, RUN_BASELINE, SETTINGS, SNAPSHOT_UPDATE
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path

    from pytest_kernelprof.plugin.collect import Collector
    from pytest_kernelprof.schema.run import Run, RunComparison, Test


_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def is_hooked(config: pytest.Config) -> bool:
    """Whether anybody implements ``pytest_kernelprof_run``."""
    return bool(config.hook.pytest_kernelprof_run.get_hookimpls())


def fail(session: pytest.Session) -> None:
    """Have a run fail that would have passed: its tests have not."""
    if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def commit_of(folder: Path) -> str:
    """The full name of the commit that is checked out in a folder's repository, read from files of
    git; empty where there is none, or where it is kept in another way."""
    places = (one / ".git" for one in (folder, *folder.parents))
    found = next((one for one in places if one.exists()), None)
    if found is None:
        return ""
    with contextlib.suppress(OSError, ValueError):
        if found.is_file():  # of a worktree or a submodule
            found = found.parent / found.read_text().partition("gitdir: ")[2].strip()
        head = (found / "HEAD").read_text().strip()
        ref = head.removeprefix("ref: ")
        named = head if ref == head else _named_commit(found, ref)
        return named if _COMMIT.fullmatch(named) else ""
    return ""


def _named_commit(git: Path, ref: str) -> str:
    """The commit of a branch, which has a file of its own or a line among the packed ones."""
    common = git / "commondir"
    shared = git / common.read_text().strip() if common.is_file() else git
    for folder in (git, shared):
        if (folder / ref).is_file():
            return (folder / ref).read_text().strip()
    lines = (shared / "packed-refs").read_text().splitlines()
    return next((one.partition(" ")[0] for one in lines if one.endswith(f" {ref}")), "")


class RunRecord:
    """What ended the run, beside what its tests took; in the process that reports."""

    def __init__(self, config: pytest.Config, collector: Collector) -> None:
        self._config = config
        self._collector = collector
        self._began = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._unfinished: list[str] = []
        self._failure = ""

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

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that could not be collected: its tests are missing."""
        if report.failed:
            self._unfinished.append(f"{report.nodeid} could not be collected")

    @pytest.hookimpl(wrapper=True, trylast=True)  # before the terminal's last lines
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, None, None]:
        """All reports are in: hand the record to those who wait for it, whatever other plugins do
        as the run ends."""
        try:
            yield
        finally:
            if not session.config.getoption("collectonly", False):
                self._note_end(session, exitstatus)
                self._hand_over(session)

    def _note_end(self, session: pytest.Session, exitstatus: int) -> None:
        stopped = str(session.shouldfail or "")  # --maxfail
        if stopped and not any(one.endswith(stopped) for one in self._unfinished):
            self._unfinished.append(stopped)
        if exitstatus == pytest.ExitCode.USAGE_ERROR:
            self._unfinished.append("pytest reported a usage error")
        if self._config.stash[SETTINGS].disable:
            self._unfinished.append("--kernelprof-disable: nothing was measured")

    def _hand_over(self, session: pytest.Session) -> None:
        try:
            self._config.hook.pytest_kernelprof_run(config=self._config, run=self._record())
        except (Exception, OutcomeException) as error:
            self._failure = f"{type(error).__name__}: {error}"
            fail(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """A reader of the run has failed: not the tests', but not nothing."""
        if self._failure:
            words = printable(f"kernelprof: a hook pytest_kernelprof_run raised {self._failure}")
            terminalreporter.write_line(words, red=True)

    def _record(self) -> Run:
        from pytest_kernelprof.plugin.portable import portable

        return portable(self.run_of(self._collector.tests()), str(self._config.rootpath))

    def run_of(self, tests: Iterable[Test]) -> Run:
        """The run, of these tests."""
        from pytest_kernelprof.schema.run import Run

        return Run(
            tuple(tests),
            began=self._began,
            versions={name: version(name) for name in ("pytest", "pytest-kernelprof")},
            unfinished=tuple(dict.fromkeys(self._unfinished)),
            baselines=tuple(self._baselines()),
            project=self._config.rootpath.name,
            commit=commit_of(self._config.rootpath),
        )

    def _baselines(self) -> Iterator[RunComparison]:
        """What the run was compared with, by the plugins that know."""
        plugins = map(
            self._config.pluginmanager.getplugin, (AGAINST, SNAPSHOT_UPDATE, RUN_BASELINE)
        )
        found = (one.comparison() for one in plugins if one is not None)
        yield from (one for one in found if one is not None)
