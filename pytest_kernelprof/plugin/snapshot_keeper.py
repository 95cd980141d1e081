"""Keeps what tests launch, in the process that reports, once, as the run ends; and says how tests
compared with what was kept."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.plugin.keys import QUIET, SNAPSHOT_KEEPER, SNAPSHOTS
from pytest_kernelprof.plugin.snapshot_census import SENT, Census
from pytest_kernelprof.plugin.snapshots import Snapshots

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.plugin.collect import Collector
    from pytest_kernelprof.plugin.settings import Settings
    from pytest_kernelprof.plugin.snapshot_census import Unused
    from pytest_kernelprof.schema.before import SnapshotsComparison
    from pytest_kernelprof.schema.run import Test
    from pytest_kernelprof.schema.snapshot import KeptTest, Taken, TestState


def begin(config: pytest.Config, settings: Settings, collector: Collector) -> None:
    """Have the tests of this process look for their snapshots, and have the process that reports
    keep and tell them."""
    reports = QUIET not in config.stash
    config.stash[SNAPSHOTS] = lookup = Snapshots(config, settings, reports=reports)
    census = Census(config, lookup)
    config.pluginmanager.register(census, "kernelprof-snapshot-census")
    if not hasattr(config, "workerinput") and reports:
        keeper = Keeper(config, settings, collector, census)
        config.pluginmanager.register(keeper, SNAPSHOT_KEEPER)


class Keeper:
    """Writes at the end, and tells; nothing of both in a run without snapshots."""

    def __init__(
        self, config: pytest.Config, settings: Settings, collector: Collector, census: Census
    ) -> None:
        self._lookup = config.stash[SNAPSHOTS]
        self._verbose = config.get_verbosity() > 0
        self._settings = settings
        self._collector = collector
        self._census = census
        self._told_by_workers: list[set[Unused]] = []
        self._states: Counter[TestState] | None = None
        self._not_used: list[Unused] = []
        self._lines: list[str] = []
        self._failures: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """A worker of pytest-xdist has ended, and says what it collected."""
        output = getattr(node, "workeroutput", None) or {}
        if SENT in output:
            unused = {tuple(one) for one in json.loads(output[SENT])}
            self._told_by_workers.append(unused)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write, and make the lines for the end; a run whose snapshots are lost has failed."""
        tests = [test for test in self._collector.tests() if test.snapshot is not None]
        if not tests:
            return
        devices = {test.snapshot.device for test in tests if test.snapshot}
        unused = [one for one in self._unused() if one[2] in devices]
        states = (test.snapshot.state for test in tests if test.snapshot)
        self._states = Counter(state for state in states if state is not None)
        self._not_used = unused
        if self._settings.update:
            self._update(tests, unused)
        else:
            self._compare(tests, unused)
        if self._failures and session.exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was written, or what does not hold."""
        for line in self._failures:
            terminalreporter.write_line(line, red=True)
        for line in self._lines:
            terminalreporter.write_line(line, yellow=True)

    def comparison(self) -> SnapshotsComparison | None:
        """How the tests compared, for the run's record; None in a run without snapshots, or one
        that writes all of them."""
        if self._states is None or self._settings.update:
            return None
        from pytest_kernelprof.schema.before import SnapshotsComparison

        unused = (
            f"{device}: {os.path.join(self._lookup.from_root(folder), file)}::{key}"
            for folder, file, device, key in self._not_used
        )
        return SnapshotsComparison(dict(self._states), tuple(unused))

    def _unused(self) -> list[Unused]:
        """What all workers say, or this process where there are none."""
        if not self._told_by_workers:
            return self._census.unused()
        return sorted(set.intersection(*self._told_by_workers))

    def _compare(self, tests: Iterable[Test], unused: list[Unused]) -> None:
        from pytest_kernelprof.report.snapshots import detail_lines, last_line

        ended: list[Taken] = [
            test.snapshot for test in tests if test.snapshot and test.outcome == "passed"
        ]
        line = last_line(ended, len(unused))
        self._lines += filter(None, [line])
        if line:
            self._lines += detail_lines(ended, verbose=self._verbose)

    def _update(self, tests: Iterable[Test], unused: Iterable[Unused]) -> None:
        from pytest_kernelprof.baseline.shelf import path_of
        from pytest_kernelprof.baseline.updating import Edit, update, why_failed
        from pytest_kernelprof.errors import SnapshotError
        from pytest_kernelprof.report.snapshots import looser_words, update_lines

        entries: defaultdict[str, dict[str, KeptTest]] = defaultdict(dict)
        removed: defaultdict[str, set[str]] = defaultdict(set)
        refused = []
        for test in tests:
            taken = test.snapshot
            assert taken is not None
            where = path_of(self._lookup.where(taken.folder), taken.device, taken.file)
            why = why_failed(test) or taken.refused
            if taken.entry is not None and not why:
                entries[where][taken.key] = taken.entry
            elif taken.state is None and why not in ("", "skipped", "rerun"):
                refused.append((taken.test, why))
        for folder, file, device, key in unused:
            removed[path_of(folder, device, file)].add(key)
        done = []
        looser: list[str] = []
        for path in sorted({*entries, *removed}):
            edit = Edit(entries[path], frozenset(removed[path]))
            try:
                done.append(update(path, edit))
            except SnapshotError as error:
                self._failures.append(f"snapshots: {error}")
            else:
                name = os.path.basename(path).removesuffix(".json")
                looser += [
                    looser_words(f"{name}::{key}", label, counts)
                    for key, label, counts in done[-1].looser
                ]
        self._lines += update_lines(done, looser, refused)
