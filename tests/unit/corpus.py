"""The recorded traces, and edited copies of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_kernelprof.api import Profile
from pytest_kernelprof.records.profile import Profile as ProfileRecord
from pytest_kernelprof.trace.correlation import Reading, reading_of
from pytest_kernelprof.trace.reader import read_trace

FOLDER = Path(__file__).parents[1] / "traces"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))

Event = dict[str, Any]
Document = dict[str, Any]


def recorded(name: str) -> Profile:
    return Profile.from_trace(FOLDER / f"{name}.json.gz")


def record(name: str) -> ProfileRecord:
    """The profile of a recorded trace as reports and limits see it."""
    return recorded(name).record


def reading(name: str) -> Reading:
    """A recorded trace with its joins."""
    return reading_of(read_trace(FOLDER / f"{name}.json.gz", inputs="all"))


def document(name: str) -> Document:
    loaded: Document = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    return loaded


def edited(folder: Path, name: str, edit: Callable[[list[Event]], list[Event]]) -> Profile:
    """A recorded trace whose events went through ``edit``."""
    changed = document(name)
    changed["traceEvents"] = edit(changed["traceEvents"])
    path = folder / f"{name}.json"
    path.write_text(json.dumps(changed))
    return Profile.from_trace(path)


def of(events: list[Event], category: str) -> list[Event]:
    return [event for event in events if event.get("cat") == category and event["ph"] == "X"]


def kernels_of_rounds(events: list[Event]) -> list[Event]:
    return [event for event in of(events, "kernel") if "spin_kernel" not in event["name"]]


def two_ranks(folder: Path, first: str, second: str) -> Path:
    """Two recorded traces in one file, as tools that merge ranks write them."""
    whole = document(first)
    for event in document(second)["traceEvents"]:
        moved: dict[str, Any] = dict(event)
        if isinstance(moved.get("pid"), int):
            moved["pid"] += 100_000
        args = moved.get("args", {})
        if "correlation" in args:
            moved["args"] = {**args, "correlation": args["correlation"] + 500_000}
        if moved.get("cat") == "ac2g":
            moved["id"] += 500_000
        whole["traceEvents"].append(moved)
    for key in ("kernelprof", "pytest-kernelprof"):
        whole.pop(key, None)
    path = folder / "ranks.json"
    path.write_text(json.dumps(whole))
    return path
