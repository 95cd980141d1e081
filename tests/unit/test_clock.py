"""The clocks that tests cannot patch."""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

import pytest_kernelprof
from pytest_kernelprof import clock

ROOT = Path(pytest_kernelprof.__file__).parent
REAL = (time.perf_counter_ns, time.time_ns, time.sleep, time.perf_counter, time.monotonic)
READ = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns", "sleep"}


@pytest.mark.parametrize("name", ["perf_counter_ns", "time_ns", "perf_counter"])
@pytest.mark.parametrize("read", [clock.now_ns, clock.unix_ns, clock.now_s])
def test_a_patched_clock_is_not_ours(name: str, read: Callable[[], float]) -> None:
    with mock.patch(f"time.{name}", return_value=5):
        before = read()
        clock.sleep(0.001)
        assert before != 5
        assert read() > before


def test_our_sleep_is_not_patched() -> None:
    with mock.patch("time.sleep") as patched:
        clock.sleep(0)
    patched.assert_not_called()


def test_nothing_hangs_in_our_modules_that_replacers_of_clocks_look_for() -> None:
    """freezegun replaces the functions of ``time`` in all modules that have them by any name."""
    names = [name for name in sys.modules if name.split(".")[0] == "pytest_kernelprof"]
    assert "pytest_kernelprof.clock" in names
    found = [
        f"{name}.{attribute}"
        for name in names
        for attribute, value in vars(sys.modules[name]).items()
        if any(value is real for real in REAL)
    ]
    assert found == []


@pytest.mark.bulk
def test_only_one_file_reads_the_clocks_of_python() -> None:
    reading = {
        path.name
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr in READ) == ("time", True)
    }
    assert reading == {"clock.py"}


def test_the_clocks_are_taken_when_the_package_is_loaded() -> None:
    assert sys.modules["pytest_kernelprof.clock"] is clock
    assert any("clock" in name for name in vars(pytest_kernelprof))
