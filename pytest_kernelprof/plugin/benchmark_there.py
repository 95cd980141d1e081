"""Whether pytest-benchmark is there, and times a test; what bridges to it loads where it does."""

from __future__ import annotations

import pytest

BRIDGE = "kernelprof-benchmark"
"""The plugin that is registered where it is there."""
HAS_BENCHMARK = pytest.StashKey[bool]()
"""On a test that has got its fixture."""


def timed_by_benchmark(item: pytest.Item) -> bool:
    """Whether pytest-benchmark times a test, whose call phase must not be profiled as a whole."""
    active = item.config.pluginmanager.hasplugin(BRIDGE)
    return active and "benchmark" in getattr(item, "fixturenames", ())


def has_benchmark(item: pytest.Item) -> bool:
    """Whether the running test has got pytest-benchmark's fixture, by name or as it ran."""
    return item.stash.get(HAS_BENCHMARK, False)


def is_active(config: pytest.Config) -> bool:
    """Whether pytest-benchmark is there, whatever way it was loaded: its hooks are specified."""
    hook = getattr(config.hook, "pytest_benchmark_update_machine_info", None)
    return hook is not None and bool(hook.has_spec())
