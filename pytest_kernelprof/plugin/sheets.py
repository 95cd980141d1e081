"""The sheet of each test: where it comes from, and whether the test is measured for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pytest_kernelprof.plugin.keys import KEPT, SHEET, SNAPSHOTS
from pytest_kernelprof.plugin.marks import known_marks

if TYPE_CHECKING:
    import pytest

    from pytest_kernelprof.plugin.sheet import Sheet
    from pytest_kernelprof.schema.recording import DeviceKind


def has_snapshot(item: pytest.Item) -> bool:
    """Whether a test has a snapshot, of any device; of a reference, whether its candidate has."""
    stash = item.config.stash
    if KEPT in item.stash:
        return True
    return SNAPSHOTS in stash and stash[SNAPSHOTS].has_any(item)


def lay_out(item: pytest.Item, device: DeviceKind) -> None:
    """Have the test's snapshots at hand, from its set-up or its first measurement on. None are
    where nothing is profiled, and none judge the reference of a run against a revision.

    Raises:
        SnapshotError: their file cannot be read, or not be written to.
    """
    if SHEET in item.stash or SNAPSHOTS not in item.config.stash:
        return
    sheet = item.config.stash[SNAPSHOTS].lay_out(item, device)
    if sheet is not None:
        item.stash[SHEET] = sheet


def sheet_of(item: pytest.Item, device: DeviceKind, *, asked: bool) -> Sheet | None:
    """The sheet of a test that is to be measured.

    Args:
        asked: whether it asks for numbers. Of another one (--kernelprof-all) a snapshot is made,
            but nothing is brought up for it.
    """
    stash = item.config.stash
    if SNAPSHOTS in stash and (asked or (stash[SNAPSHOTS].updates and _is_up(device))):
        lay_out(item, device)
    return item.stash.get(SHEET, None)


def is_judged(item: pytest.Item) -> bool:
    """Whether the whole call is to keep to anything: limits, or a snapshot."""
    sheet = item.stash.get(SHEET, None)
    kept = KEPT in item.stash or (sheet is not None and sheet.profiles)
    return bool(known_marks(item).limits) or kept


def _is_up(device: DeviceKind) -> bool:
    from pytest_kernelprof.device.inventory import cuda_is_up

    try:
        return "torch" in sys.modules and (device == "cpu" or cuda_is_up())
    except Exception:  # a fixture has put something in place of torch's functions
        return False
