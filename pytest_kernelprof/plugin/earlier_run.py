"""``--kernelprof-compare``: the run is judged against an earlier one, while it runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_kernelprof.baseline.allowance import allowances, parse_allowance
from pytest_kernelprof.baseline.runs import gather
from pytest_kernelprof.documents import read_run
from pytest_kernelprof.errors import RunFileError
from pytest_kernelprof.plugin.earlier import Earlier
from pytest_kernelprof.plugin.keys import COMPARE, EARLIER
from pytest_kernelprof.report.earlier import write_compared
from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.before import EarlierComparison
from pytest_kernelprof.schema.document import Document
from pytest_kernelprof.schema.packing import pack, unpack
from pytest_kernelprof.schema.run import Run, Test

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_kernelprof.baseline.allowance import Allowance
    from pytest_kernelprof.plugin.collect import Collector
    from pytest_kernelprof.plugin.settings import Settings
    from pytest_kernelprof.schema.run import Profile
    from pytest_kernelprof.schema.runs import RunsComparison

_SENT = "kernelprof_compare"
_FLAG = "--kernelprof-compare"


def begin(config: pytest.Config, settings: Settings, collector: Collector) -> None:
    """Have the tests of this process judged, and the process that reports tell of all.

    Raises:
        pytest.UsageError: there is nothing to compare with, or a margin is none.
    """
    allowed = _allowed(settings.compare_fail_on)
    sent = getattr(config, "workerinput", {}).get(_SENT)
    if sent is None:
        assert settings.compare, "it begins where a document is named"
        old = _read(config, settings.compare)
        teller = EarlierRun(config, settings, collector, old, allowed)
        config.pluginmanager.register(teller, COMPARE)
    else:
        old = unpack(codec.decode(sent.encode(), Document))
    config.stash[EARLIER] = Earlier(old, allowed)


def _allowed(written: Iterable[str]) -> dict[str, Allowance]:
    try:
        return allowances(tuple(map(parse_allowance, written)))
    except ValueError as error:
        raise pytest.UsageError(f"{_FLAG}-fail-on: {error}") from None


def _read(config: pytest.Config, path: str) -> Run:
    """What there is to compare with: of each test the last try, without what is only looked at."""
    try:
        run = read_run(os.path.join(config.invocation_params.dir, path))
    except RunFileError as error:
        raise pytest.UsageError(f"{_FLAG}: {error}") from None
    tests = {test.id: test for test in run.tests if test.profiles}
    if not tests:
        raise pytest.UsageError(f"{_FLAG}: {path}: it holds no profile to compare with")
    return replace(run, tests=tuple(map(_lean, tests.values())))


def _lean(test: Test) -> Test:
    return Test(test.id, tuple(map(_without_what_is_looked_at, test.profiles)))


def _without_what_is_looked_at(profile: Profile) -> Profile:
    return replace(profile, verdicts=(), copies=(), waits=(), second_look={}, timeline=None)


class EarlierRun:
    """In the process that reports: refuses another suite's document, hands the run to workers, and
    tells what came of all tests."""

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        collector: Collector,
        old: Run,
        allowed: Mapping[str, Allowance],
    ) -> None:
        self._path = settings.compare or ""
        self._warn_only = settings.warn_only
        self._collector = collector
        self._old = old
        self._allowed = allowed
        self._refused = bool(config.getoption("collectonly", False))
        self._session: pytest.Session | None = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Hand a worker of pytest-xdist the run, which may lie on another machine."""
        node.workerinput[_SENT] = codec.encode(pack(self._old)).decode()  # type: ignore[attr-defined]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Before any test runs."""
        self._refuse_another_suite([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """The same where workers collect."""
        self._refuse_another_suite(ids)

    def _refuse_another_suite(self, ids: list[str]) -> None:
        """Raises pytest.UsageError: no test of this run is in the document."""
        theirs = {test.id for test in self._old.tests}
        if not ids or theirs.intersection(ids):
            return
        self._refused = True
        raise pytest.UsageError(
            f"{_FLAG}: {self._path}: it has none of this run's {len(ids)} tests ({ids[0]}, ...); "
            f"it is of {self._old.tests[0].id} and others: name a document of this suite, taken in "
            "the same root folder"
        )

    def found(self) -> RunsComparison:
        """How the run compares, as far as it has come."""
        return gather(self._old, Run(tuple(self._collector.tests())), self._allowed)

    def comparison(self) -> EarlierComparison | None:
        """The same for the run's record, where each profile has its own."""
        if self._refused:
            return None
        return EarlierComparison(self._path, self._old.began, replace(self.found(), profiles=()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A run of which nothing was compared, or not what was asked for, has failed."""
        self._session = session
        if self._refused or self._warn_only:
            return
        if session.exitstatus == pytest.ExitCode.OK and not self.found().passed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The section at the end."""
        if not self._refused:
            write_compared(
                terminalreporter,
                self._path,
                self.found(),
                warn_only=self._warn_only,
                run_fails=bool(self._session and self._session.exitstatus),
            )
