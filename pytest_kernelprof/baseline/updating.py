"""An update of one file of kernel snapshots: what it writes, what it removes, what it loosens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_kernelprof.baseline.shelf import change
from pytest_kernelprof.baseline.snapshots import loosened
from pytest_kernelprof.schema.snapshot import Edited

if TYPE_CHECKING:
    from pytest_kernelprof.schema.snapshot import KeptTest


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to become of a file.

    Attributes:
        entries: of tests that ran. removed: the keys of tests that there are no more.
        only_new: whether entries that are there stay as they are.
    """

    entries: dict[str, KeptTest] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    only_new: bool = False


def update(path: str, edit: Edit) -> Edited:
    """Bring a file up to date. Entries that the edit does not name stay.

    Raises:
        SnapshotError: it cannot be read, or not be written.
    """
    old, new = change(path, lambda tests: _edited(tests, edit))
    looser = tuple(
        (key, label, counts)
        for key in sorted(edit.entries)
        if key in old
        for label, counts in loosened(old[key], new[key]).items()
    )
    written = sum(new[key] != old.get(key) for key in edit.entries)
    return Edited(written, len(edit.entries) - written, len(set(old) - set(new)), looser)


def _edited(tests: dict[str, KeptTest], edit: Edit) -> dict[str, KeptTest]:
    kept = {key: test for key, test in tests.items() if key not in edit.removed}
    return {**edit.entries, **kept} if edit.only_new else {**kept, **edit.entries}
