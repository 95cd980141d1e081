"""Tests that need a real GPU; without one each is skipped with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_kernelprof.device.inventory import why_no_gpu

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_no_gpu()
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("gpu")
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))
