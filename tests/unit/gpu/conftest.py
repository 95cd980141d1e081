"""The driver's double, installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from nvml_double import Driver, forget, installed

from pytest_kernelprof.gpu import conditions
from pytest_kernelprof.gpu.inventory import Device


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    made = installed(monkeypatch)
    monkeypatch.setattr(conditions, "_SAMPLED_WITHIN_US", 100_000)
    monkeypatch.setattr(conditions, "_POLL_S", 0.002)

    def pulse(device: Device) -> None:
        made.pulses += 1

    monkeypatch.setattr(conditions, "_pulse", pulse)
    forget()
    yield made
    forget()
