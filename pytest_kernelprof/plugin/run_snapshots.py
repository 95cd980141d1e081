"""The kernel snapshots of a run: looked up before tests, counted, and written at the end.

Where there are none, this is one look a folder, and no other module is loaded.
"""

from __future__ import annotations

import functools
import json
import os
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.errors import SnapshotError
from pytest_kernelprof.plugin.collector import Collector, fail

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from pytest_kernelprof.plugin.settings import Settings
    from pytest_kernelprof.plugin.snapshot_judge import SnapshotJudge
    from pytest_kernelprof.records.comparison import KeptTest, RunComparison, SnapshotReport
    from pytest_kernelprof.records.document import Test
    from pytest_kernelprof.records.recording import DeviceKind

    Told = tuple[Test, SnapshotReport]


Unused = tuple[str, str, str]
"""Test file, device and key of an entry that no test has."""
_FOLDER = "__kernelprof__"  # as baseline.snapshots has it, which is loaded where there is one
_SENT = "kernelprof_unused_snapshots"  # in what a worker of pytest-xdist hands to its controller
_ABOVE = (pytest.Session, pytest.Directory, pytest.File)


class Snapshots:
    """The snapshots beside the tests of a run, each file of them read once.

    Takes note of what is collected, so that those that no test has any more are known; in the
    process that reports, writes and tells at the end.

    A run that takes a part of the tests (``-k``, node ids, ``--lf``) says nothing of the others.

    Args:
        reports: whether it is the run that reports for all, as of several ranks one is.

    Attributes:
        updates: whether this run writes any.
        files_in: the devices that have snapshots of tests in a folder, each with the names of its
            files.
    """

    def __init__(
        self, config: pytest.Config, settings: Settings, collector: Collector, *, reports: bool
    ) -> None:
        self._config, self._collector = config, collector
        self._strict, self._reports = settings.require_snapshots, reports
        self.updates = settings.update
        self._whole: dict[str, bool] = {}
        self._items: dict[str, set[str]] = {}
        self._told_by_workers: list[set[Unused]] = []
        self._not_used: list[Unused] | None = None
        self.files_in = functools.cache(_files_in)
        self._read = functools.cache(_read)

    def devices_with(self, path: str) -> tuple[str, ...]:
        """The devices that have snapshots of a test file."""
        folder, file = os.path.split(path)
        found = self.files_in(folder)
        name = f"{file.removesuffix('.py')}.json"
        return tuple(device for device, names in found.items() if name in names)

    def kept(self, path: str, device: str) -> dict[str, KeptTest]:
        """What is kept of the tests of a file.

        Raises:
            SnapshotError: it cannot be read.
        """
        if isinstance(found := self._read(path, device), SnapshotError):
            raise SnapshotError(str(found))
        return found

    def has_any(self, item: pytest.Item) -> bool:
        """Whether a test has a snapshot for any device, or may have one in a file that cannot be
        read."""
        path = str(item.path)
        try:
            return any(key_of(item) in self.kept(path, one) for one in self.devices_with(path))
        except SnapshotError:
            return True

    def judge_of(
        self, item: pytest.Item, device: DeviceKind, name: str = ""
    ) -> SnapshotJudge | None:
        """What judges a test on a device; None where there is nothing to check and nothing to
        write.

        Args:
            name: the name of the device; by default of the one here.

        Raises:
            SnapshotError: its file of snapshots cannot be read, or not be written to.
        """
        path = str(item.path)
        others = self.devices_with(path)
        if not others and not self.updates and not self._strict:
            return None
        from pytest_kernelprof.baselines.snapshots import device_folder
        from pytest_kernelprof.gpu.inventory import current_device
        from pytest_kernelprof.plugin.snapshot_judge import SnapshotJudge
        from pytest_kernelprof.records.comparison import SnapshotReport

        here = device_folder(device, name or current_device(device).name)
        if self.updates:
            _refuse_unwritable(os.path.dirname(path))
        elsewhere = tuple(one for one in others if one != here)
        entry = SnapshotReport(
            file=self.from_root(path), device=here, key=key_of(item), elsewhere=elsewhere
        )
        return SnapshotJudge(
            entry,
            self.kept(path, here) if here in others else None,
            # Of a call on several ranks the one that reports compares all; calls of which it is no
            # part are in no snapshot.
            checks=not self.updates and self._reports,
            collects=self.updates,
            strict=self._strict,
        )

    def from_root(self, path: str) -> str:
        """A test file as seen from the root folder, where it is below it."""
        below = os.path.relpath(path, self._config.rootpath)
        outside = below.startswith(os.pardir) or os.path.isabs(below)
        return path if outside else below.replace(os.sep, "/")

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """One that fails leaves the tests of its file unknown."""
        report = yield
        if any(isinstance(node, pytest.File) for node in collector.listchain()):
            path = str(collector.path)
            self._whole[path] = self._whole.get(path, True) and report.passed
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Before anything is deselected."""
        keys = {path: set[str]() for path in self._whole if self.devices_with(path)}
        for item in items if keys else ():
            if str(item.path) in keys:
                keys[str(item.path)].add(key_of(item))
        self._items = keys
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """A worker of pytest-xdist has ended, and says what it collected."""
        output = getattr(node, "workeroutput", None) or {}
        if _SENT in output:
            self._told_by_workers.append({tuple(one) for one in json.loads(output[_SENT])})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write, and make the lines for the end; a run whose snapshots are lost has failed. A
        worker tells its controller."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_SENT] = json.dumps(self._unused())
            return
        tests = [(one, one.snapshot) for one in self._collector.tests() if one.snapshot is not None]
        if not tests or not self._reports:
            return
        from pytest_kernelprof.report.commands import snapshot_lines

        devices = {told.device for _, told in tests}
        self._not_used = unused = [one for one in self._unused() if one[1] in devices]
        if self.updates:
            lines = self._updated(session, tests, unused)
        else:
            lines = snapshot_lines(
                [(test.id, told) for test, told in tests if test.outcome == "passed"],
                len(unused),
                verbose=self._config.get_verbosity() > 0,
                reported=self._config.getoption("kernelprof_report"),
            )
        for line in lines:
            self._collector.say(line, yellow=True)

    def comparison(self) -> RunComparison | None:
        """How the tests compared, for the run's record; None in a run without snapshots, or one
        that writes all of them."""
        if self._not_used is None or self.updates:
            return None
        from pytest_kernelprof.records.comparison import RunComparison

        unused = (
            f"{device}: {self.from_root(path)}::{key}" for path, device, key in self._not_used
        )
        return RunComparison(source="snapshot", gone=tuple(unused))

    def _updated(
        self, session: pytest.Session, tests: Iterable[Told], unused: Iterable[Unused]
    ) -> list[str]:
        from pytest_kernelprof.baselines.snapshots import path_of, update, why_failed
        from pytest_kernelprof.report.commands import update_lines

        entries: defaultdict[str, dict[str, KeptTest]] = defaultdict(dict)
        removed: defaultdict[str, set[str]] = defaultdict(set)
        refused, edited = [], []
        for test, told in tests:
            why = why_failed(test) or told.refused
            if told.entry is not None and not why:
                where = path_of(os.path.join(self._config.rootpath, told.file), told.device)
                entries[where][told.key] = told.entry
            elif why not in ("", "skipped", "rerun"):
                refused.append((test.id, why))
        for path, device, key in unused:
            removed[path_of(path, device)].add(key)
        for path in sorted({*entries, *removed}):
            file = os.path.basename(path).removesuffix(".json")
            try:
                edited.append((file, update(path, entries[path], removed[path])))
            except SnapshotError as error:
                self._collector.say(f"snapshots: {error}", red=True)
                fail(session)
        return update_lines(edited, refused)

    def _unused(self) -> list[Unused]:
        """The entries that no test has, of all devices: as all workers say, or this process."""
        if self._told_by_workers:
            return sorted(set.intersection(*self._told_by_workers))
        if self._config.getoption("lf", False):
            return []
        found = []
        named, anything = _named(self._config)
        for path, keys in self._items.items():
            if self._whole[path] and not anything and os.path.realpath(path) not in named:
                for device in self.devices_with(path):
                    found += self._of_file(path, device, keys)
        for folder in dict.fromkeys(map(os.path.dirname, self._whole)):
            for device, names in self.files_in(folder).items():
                for path in _files_gone(folder, names):
                    found += self._of_file(path, device, set())
        return found

    def _of_file(self, path: str, device: str, keys: set[str]) -> list[Unused]:
        try:
            kept = self.kept(path, device)
        except SnapshotError:  # an error of its tests
            return []
        return [(path, device, key) for key in kept if key not in keys]


def _files_in(folder: str) -> dict[str, frozenset[str]]:
    if not os.path.isdir(os.path.join(folder, _FOLDER)):  # as nearly everywhere
        return {}
    from pytest_kernelprof.baselines.snapshots import devices_of

    return devices_of(folder)


def _read(path: str, device: str) -> dict[str, KeptTest] | SnapshotError:
    """The error as a value, so that a file that cannot be read is not read again for each test."""
    from pytest_kernelprof.baselines.snapshots import path_of, read

    try:
        return read(path_of(path, device))
    except SnapshotError as error:
        return error


def key_of(item: pytest.Item) -> str:
    """Class, function and parameters of a test, below its file."""
    from pytest_kernelprof.records.codec import text

    names = [node.name for node in item.listchain() if not isinstance(node, _ABOVE)]
    return text("::".join(names))


def _files_gone(folder: str, names: Iterable[str]) -> list[str]:
    """Test files that no longer exist, of files of snapshots with these names."""
    from pytest_kernelprof.baselines.snapshots import file_checked

    paths = [os.path.join(folder, file_checked(name, folder)) for name in sorted(names)]
    return [path for path in paths if not os.path.exists(path)]


def _named(config: pytest.Config) -> tuple[set[str], bool]:
    """The files of which tests were named one by one; and whether there are some that cannot be
    told (``--pyargs``)."""
    where = config.invocation_params.dir
    files = {one.partition("::")[0] for one in config.args if "::" in one}
    paths = {os.path.realpath(os.path.join(where, file)) for file in files}
    return paths, not all(map(os.path.exists, paths))


def _refuse_unwritable(tests: str) -> None:
    """Before the test runs: later nobody would notice that it is checked by nothing.

    Raises:
        SnapshotError: nothing can be written beside the tests in this folder.
    """
    folder = os.path.join(tests, _FOLDER)
    there = folder if os.path.lexists(folder) else tests
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        raise SnapshotError(f"{folder}: cannot be written: not a folder, or read-only")
