"""Tests that need a real GPU; without one each is skipped with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import ReadWriteLock

from pytest_kernelprof.gpu import usage_lock
from pytest_kernelprof.gpu.inventory import current_device, why_no_gpu

_HERE = Path(__file__).parent


@pytest.fixture
def _disturbs_the_gpu(turns: ReadWriteLock) -> Iterator[None]:
    """This test starts a process that takes no part in the GPU's lock and never rests."""
    with turns.write_lock():
        yield


@pytest.fixture
def _minds_who_disturbs_the_gpu(turns: ReadWriteLock) -> Iterator[None]:
    """A process outside of the GPU's lock, which another worker's test starts, would spoil it."""
    with turns.read_lock():
        yield


@pytest.fixture
def turns(tmp_path_factory: pytest.TempPathFactory) -> ReadWriteLock:
    """Of all workers' tests: either one that disturbs, or any of those that mind."""
    of_all_workers = tmp_path_factory.getbasetemp().parent
    return ReadWriteLock(of_all_workers / "turns.db", is_singleton=False)


@pytest.fixture
def _shares_the_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test works on the GPU in this process; that waits for who times, as the work of all tests
    does in a run whose tests use the plugin. This run's do not: they run others that do."""
    with usage_lock.sharing(current_device("cuda"), 60, request.node.nodeid):
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_no_gpu()
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("gpu")
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))
