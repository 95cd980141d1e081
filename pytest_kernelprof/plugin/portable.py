"""Records that mean the same on another machine: files are told as seen from the root folder."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pytest_kernelprof.schema import comparison, kernels, run, snapshot, verdicts

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_SOURCED = (kernels.Kernel, kernels.Copy, kernels.Wait, comparison.KernelSide)
# Without any: most of what a profile holds, by number.
_WITHOUT_FILES = (run.MetricValues, run.Timeline, run.Environment, run.Integrity, run.Conditions)


def portable(found: T, root: str) -> T:
    """A run, or a record of one, with files below ``root`` relative to it, with forward slashes;
    others stay. What a test would be kept as is left out: its profiles say that."""
    return _record(partial(_from, root), found)


def _record(named: Callable[[str], str], one: T) -> T:
    """A record, or a tuple or table of some, with its files named otherwise."""
    if isinstance(one, tuple):
        return tuple(_record(named, part) for part in one)  # type: ignore[return-value]
    if not isinstance(one, msgspec.Struct) or isinstance(one, _WITHOUT_FILES):
        return one
    if isinstance(one, _SOURCED):
        source = named(one.source)
        return one if source == one.source else msgspec.structs.replace(one, source=source)
    changed: dict[str, Any] = {}
    for name in one.__struct_fields__:
        value = getattr(one, name)
        now = _record(named, value)
        if now is not value:
            changed[name] = now
    if isinstance(one, verdicts.Place):
        changed["file"] = named(one.file)
    elif isinstance(one, run.Profile):
        changed["trace"] = named(one.trace)
    elif isinstance(one, snapshot.SnapshotReport):
        changed["entry"] = None
    return msgspec.structs.replace(one, **changed) if changed else one


def _from(root: str, path: str) -> str:
    below = root.rstrip(os.sep) + os.sep
    return path[len(below) :].replace(os.sep, "/") if path.startswith(below) else path
