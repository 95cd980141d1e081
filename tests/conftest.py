"""Lets the tests run pytest on small projects of their own."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
import torch

import pytest_kernelprof

pytest_plugins = ["pytester"]

# Pytester forgets modules that an inner run loads. torch cannot be loaded twice, and our own state
# (the profiler is brought up once per process) must not be lost: so all are loaded before.
for _module in pkgutil.walk_packages(pytest_kernelprof.__path__, "pytest_kernelprof."):
    importlib.import_module(_module.name)

# So must what torch loads when it first profiles.
importlib.import_module("pytest_kernelprof.measure.runner").profile(
    torch.ones, 1, device="cpu", rounds=1
)

# And what it loads when it first compiles.
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
importlib.import_module("torch._inductor.compile_fx")


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """An inner run is no worker's: in a worker pytest-benchmark, for one, disables itself."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
