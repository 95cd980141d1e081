"""Which snapshots no test has any more: known of files that were collected whole and without error.

A run that takes a part of the tests (``-k``, node ids, ``--lf``) says nothing of the others.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.errors import SnapshotError
from pytest_kernelprof.plugin.snapshots import key_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_kernelprof.plugin.snapshots import Snapshots

SENT = "kernelprof_unused_snapshots"
"""Where it stands in what a worker of pytest-xdist hands to its controller."""

Unused = tuple[str, str, str, str]
"""Folder, test file, device and key of an entry."""


class Census:
    """Takes note of what is collected, in each process that collects."""

    def __init__(self, config: pytest.Config, lookup: Snapshots) -> None:
        self._config = config
        self._lookup = lookup
        self._whole: dict[str, bool] = {}
        self._items: dict[str, set[str]] = {}

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
        keys = {path: set[str]() for path in self._whole if self._lookup.devices_with(path)}
        for item in items if keys else ():
            if str(item.path) in keys:
                keys[str(item.path)].add(key_of(item))
        self._items = keys
        return (yield)

    def pytest_sessionfinish(self) -> None:
        """A worker tells its controller."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[SENT] = json.dumps(self.unused())

    def unused(self) -> list[Unused]:
        """The entries that no test has, of all devices."""
        if self._config.getoption("lf", False):
            return []
        found = []
        named, anything = _named(self._config)
        for path, keys in self._items.items():
            if self._whole[path] and not anything and os.path.realpath(path) not in named:
                for device in self._lookup.devices_with(path):
                    found += self._of_file(path, device, keys)
        for folder in dict.fromkeys(map(os.path.dirname, self._whole)):
            for path, device in self._files_gone(folder):
                found += self._of_file(path, device, set())
        return found

    def _of_file(self, path: str, device: str, keys: set[str]) -> list[Unused]:
        try:
            kept = self._lookup.kept(path, device)
        except SnapshotError:  # an error of its tests
            return []
        folder, file = os.path.split(path)
        return [(folder, file, device, key) for key in kept if key not in keys]

    def _files_gone(self, folder: str) -> list[tuple[str, str]]:
        """Test files that there are no more, with the devices that have snapshots of them."""
        devices = self._lookup.files_in(folder)
        if not devices:
            return []
        from pytest_kernelprof.baseline.shelf import file_checked

        paths = (
            (os.path.join(folder, file_checked(name, folder)), device)
            for device, names in devices.items()
            for name in sorted(names)
        )
        return [(path, device) for path, device in paths if not os.path.exists(path)]


def _named(config: pytest.Config) -> tuple[set[str], bool]:
    """The files of which tests were named one by one; and whether there are some that cannot be
    told (``--pyargs``)."""
    where = config.invocation_params.dir
    files = {one.partition("::")[0] for one in config.args if "::" in one}
    paths = {os.path.realpath(os.path.join(where, file)) for file in files}
    return paths, not all(map(os.path.exists, paths))
