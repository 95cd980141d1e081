"""Looks up the snapshots of tests: one look a folder, and no module more where there are none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.errors import SnapshotError

if TYPE_CHECKING:
    from pytest_kernelprof.plugin.settings import Settings
    from pytest_kernelprof.plugin.sheet import Sheet
    from pytest_kernelprof.schema.recording import DeviceKind
    from pytest_kernelprof.schema.snapshot import KeptTest

_FOLDER = "__kernelprof__"  # as the shelf has it, which is loaded where there is one


class Snapshots:
    """The snapshots beside the tests of a run, each file of them read once.

    Args:
        reports: whether it is the run that tells of all, as of several ranks one is.

    Attributes:
        updates: whether this run is to write any.
    """

    def __init__(self, config: pytest.Config, settings: Settings, *, reports: bool = True) -> None:
        self._root = str(config.rootpath)
        self._settings, self._reports = settings, reports
        self.updates = settings.update
        self._folders: dict[str, dict[str, frozenset[str]]] = {}
        self._files: dict[str, dict[str, KeptTest] | SnapshotError] = {}

    def files_in(self, folder: str) -> dict[str, frozenset[str]]:
        """The devices that have snapshots of tests in a folder, each with the names of its
        files."""
        found = self._folders.get(folder)
        if found is None:
            found = {}
            if os.path.isdir(os.path.join(folder, _FOLDER)):
                from pytest_kernelprof.baseline.shelf import devices_of

                found = devices_of(folder)
            self._folders[folder] = found
        return found

    def devices_with(self, path: str) -> tuple[str, ...]:
        """The devices that have snapshots of a test file."""
        folder, file = os.path.split(path)
        found = self.files_in(folder)
        if not found:  # as nearly everywhere
            return ()
        name = f"{file.removesuffix('.py')}.json"
        return tuple(device for device, names in found.items() if name in names)

    def kept(self, path: str, device: str) -> dict[str, KeptTest]:
        """What is kept of the tests of a file.

        Raises:
            SnapshotError: it cannot be read.
        """
        from pytest_kernelprof.baseline.shelf import path_of, read

        folder, file = os.path.split(path)
        where = path_of(folder, device, file)
        if where not in self._files:
            try:
                self._files[where] = read(where)
            except SnapshotError as error:
                self._files[where] = error
        found = self._files[where]
        if isinstance(found, SnapshotError):
            raise SnapshotError(str(found))
        return found

    def has_any(self, item: pytest.Item) -> bool:
        """Whether a test has a snapshot for any device, or may have one in a file that cannot be
        read."""
        path = str(item.path)
        return any(self._has(item, path, device) for device in self.devices_with(path))

    def _has(self, item: pytest.Item, path: str, device: str) -> bool:
        try:
            return key_of(item) in self.kept(path, device)
        except SnapshotError:
            return True

    def lay_out(self, item: pytest.Item, device: DeviceKind) -> Sheet | None:
        """A sheet for a test on a device; None where there is nothing to
        check and nothing to write.

        Raises:
            SnapshotError: its file of snapshots cannot be read, or not be written to.
        """
        settings, path = self._settings, str(item.path)
        others = self.devices_with(path)
        if not others and not self.updates and not settings.require_snapshots:
            return None
        from pytest_kernelprof.baseline.shelf import device_folder
        from pytest_kernelprof.device.inventory import current_device
        from pytest_kernelprof.plugin.sheet import Entry, Sheet, Wish

        here = device_folder(device, current_device(device).name)
        if self.updates:
            self._refuse_unwritable(path)
        kept = self.kept(path, here) if here in others else {}
        key = key_of(item)
        entry = Entry(
            folder=self.from_root(os.path.dirname(path)),
            file=os.path.basename(path),
            device=here,
            key=key,
            kept=kept.get(key),
            exists=here in others,
            elsewhere=tuple(one for one in others if one != here),
        )
        wish = Wish(
            # Of a call on several ranks the one that reports compares all; calls of which it is no
            # part are in no snapshot.
            checks=not self.updates and self._reports,
            collects=self.updates,
            strict=settings.require_snapshots,
        )
        return Sheet(entry, wish)

    def where(self, folder: str) -> str:
        """A folder as ``Taken`` names it, on this machine."""
        return os.path.join(self._root, folder)

    def _refuse_unwritable(self, path: str) -> None:
        """Before the test runs: later nobody would notice that it is checked by nothing.

        Raises:
            SnapshotError: nothing can be written there.
        """
        folder = os.path.join(os.path.dirname(path), _FOLDER)
        there = folder if os.path.lexists(folder) else os.path.dirname(path)
        if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
            raise SnapshotError(f"{folder}: cannot be written: no folder, or a read-only one")

    def from_root(self, folder: str) -> str:
        """A folder as ``Taken`` names it."""
        below = os.path.relpath(folder, self._root)
        outside = below.startswith(os.pardir) or os.path.isabs(below)
        return folder if outside else below.replace(os.sep, "/")


def key_of(item: pytest.Item) -> str:
    """Class, function and parameters of a test, below its file."""
    from pytest_kernelprof.schema.codec import text

    names = [node.name for node in item.listchain() if not isinstance(node, _ABOVE)]
    return text("::".join(names))


_ABOVE = (pytest.Session, pytest.Directory, pytest.File)
