"""Tests that need a real GPU; without one each is skipped with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from pytest_kernelprof.device.inventory import why_no_gpu

_HERE = Path(__file__).parent


@pytest.fixture
def _gpu_in_turn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests of other workers that ask for this, too, wait: some never leave a GPU alone while they
    run, others look whether anybody was disturbed."""
    of_all_workers = tmp_path_factory.getbasetemp().parent
    with FileLock(of_all_workers / "gpu_in_turn.lock"):
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_no_gpu()
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("gpu")
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))
