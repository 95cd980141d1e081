"""A pytest plugin for `suite.py`: notes how each test fared and what was counted of it.

KERNELPROF_SUITE names the file that it writes. With KERNELPROF_SUITE_PROFILER it counts by hand:
the kernels that plain torch.profiler sees in each call phase. With KERNELPROF_SUITE_MARKS it puts
limits on every second test.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_FILE, _BY_HAND = "KERNELPROF_SUITE", "KERNELPROF_SUITE_PROFILER"
_MARKS = "KERNELPROF_SUITE_MARKS"

found: dict[str, dict[str, Any]] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(_MARKS):
        for item in items[::2]:
            item.add_marker(pytest.mark.max_kernels(0))
        for item in items[::4]:
            item.add_marker(pytest.mark.max_cuda_time("1us"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    one = found.setdefault(report.nodeid, {"outcomes": [], "kernels": None, "why": ""})
    expected = " (expected)" if hasattr(report, "wasxfail") else ""
    one["outcomes"].append(f"{report.when} {report.outcome}{expected}")
    if report.when == "call":
        one["seconds"] = report.duration
    row = report.__dict__.get("kernelprof")
    if row is not None:
        one["not_judged"] = json.loads(row).get("not_judged", "")
        _note_row(one, json.loads(row))


def _note_row(one: dict[str, Any], row: dict[str, Any]) -> None:
    """What our own row says; only tests with one profile can be compared."""
    profiles = row.get("profiles", [])
    if len(profiles) != 1:
        return
    integrity = profiles[0].get("integrity", {})
    problems = [*integrity.get("problems", []), *integrity.get("cold", [])]
    one["why"] = "; ".join(problem for problem in problems if "benched" in problem)
    if not integrity.get("problems"):
        one["kernels"] = profiles[0]["metrics"]["kernels"]["value"]


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    if not os.environ.get(_BY_HAND):
        yield
        return
    import torch

    torch.cuda.synchronize()
    profiler = torch.profiler.profile()
    profiler.start()
    yield
    torch.cuda.synchronize()
    profiler.stop()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    count = sum(event.get("cat") == "kernel" for event in events)
    found.setdefault(item.nodeid, {"outcomes": [], "why": ""})["kernels"] = count


def pytest_unconfigure(config: pytest.Config) -> None:
    result = {"root": str(config.rootpath), "tests": found}
    Path(os.environ[_FILE]).write_text(json.dumps(result))
