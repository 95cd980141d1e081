"""Lets the tests run pytest on small projects of their own."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil

import pytest

import pytest_kernelprof

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    """Load what inner runs need; xdist's controller runs none."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        load()
        # The processes that tests start import torch, which takes half as long again when it is
        # traced, and run what is measured here as well.
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)


def load() -> None:
    # Pytester forgets modules that an inner run loads. torch cannot be loaded twice, and our own
    # state (the profiler is brought up once per process) must not be lost: so all are loaded
    # before.
    for module in pkgutil.walk_packages(pytest_kernelprof.__path__, "pytest_kernelprof."):
        importlib.import_module(module.name)
    import torch

    # So must what torch loads when it first profiles.
    importlib.import_module("pytest_kernelprof.api").profile(torch.ones, 1, device="cpu", rounds=1)
    # And what it loads when it first compiles.
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    importlib.import_module("torch._inductor.compile_fx")
    # Each inner run collects garbage, and torch is a million objects to look through: they stay.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """An inner run is no worker's: in a worker pytest-benchmark, for one, disables itself."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
