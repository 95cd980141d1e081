"""Which tests and results are of any concern to this plugin, and to whom; and whether
pytest-benchmark times a test: what bridges to it loads where it is there."""

from __future__ import annotations

import pytest

from pytest_kernelprof.limits.marks import limit_names
from pytest_kernelprof.plugin.devices import asks_for_us
from pytest_kernelprof.plugin.keys import SETTINGS
from pytest_kernelprof.plugin.run_record import is_hooked
from pytest_kernelprof.plugin.snapshots import has_snapshot

BRIDGE = "kernelprof-benchmark"
"""The plugin that is registered where it is there."""
HAS_BENCHMARK = pytest.StashKey[bool]()
"""On a test that has got its fixture."""


def concerns_us(item: pytest.Item) -> bool:
    """Whether a test asks for us, by a fixture, a marker or its snapshot."""
    return asks_for_us(item) or has_snapshot(item)


def promises_of(item: pytest.Item) -> tuple[str, ...]:
    """What a test promises: the names of its limits, and ``snapshot`` if it has one."""
    return (*limit_names(item), *(("snapshot",) if has_snapshot(item) else ()))


def is_measured(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether a test is measured, because it asks for it or all are."""
    return config.stash[SETTINGS].all or concerns_us(item)


def is_reported(config: pytest.Config) -> bool:
    """Whether anybody reads what tests took, beyond their verdicts."""
    settings = config.stash[SETTINGS]
    bridged = config.pluginmanager.hasplugin(BRIDGE)
    compared = bool(settings.against)
    return is_shown(config) or compared or bridged or all_is_wanted(config)


def is_shown(config: pytest.Config) -> bool:
    """Whether the report at the end was asked for."""
    return config.stash[SETTINGS].report


def all_is_wanted(config: pytest.Config) -> bool:
    """Whether somebody reads all that tests took; a worker has no such reader itself."""
    settings = config.stash[SETTINGS]
    return bool(settings.run_files) or settings.github or is_hooked(config)


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
