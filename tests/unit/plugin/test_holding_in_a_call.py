"""The reference's side of turns: it holds in a call, and is at rest on the GPU as it does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from records import profile

from pytest_kernelprof.baselines.protocol import (
    At,
    FromWorker,
    Go,
    RunTest,
    ToWorker,
    Wire,
)
from pytest_kernelprof.gpu import usage_lock
from pytest_kernelprof.gpu.file_lock import can_lock_bytes
from pytest_kernelprof.gpu.usage_lock import SharedGpuLock, lock_of
from pytest_kernelprof.plugin.baseline_pytest import Served

pytestmark = pytest.mark.skipif(not can_lock_bytes(), reason="needs locks that can be shared")

UUID = "8d5e5e2a-7f0f-4a57-9b46-0c2f6b6f3a11"


@pytest.fixture
def seat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedGpuLock]:
    """A GPU's lock that this process shares, as in the call phase of a test."""
    monkeypatch.setattr(usage_lock, "TEMPORARY_FOLDER", str(tmp_path))
    shared = lock_of(UUID)
    assert isinstance(shared, SharedGpuLock)
    shared.join(10, "a test")
    stretch = usage_lock._Stretch("a test", 10)
    stretch.locks[0] = shared
    monkeypatch.setattr(usage_lock, "_stretches", [stretch])
    yield shared
    shared.leave()


def test_who_holds_in_a_call_leaves_the_gpu_to_others_until_it_goes_on(seat: SharedGpuLock) -> None:
    (inward, to_it), (from_it, outward) = os.pipe(), os.pipe()
    candidate = Wire(from_it, to_it, FromWorker)
    served = Served(Wire(inward, outward, ToWorker), SimpleNamespace(), None)  # type: ignore[arg-type]
    served._asked = RunTest(holds=True)
    more = SimpleNamespace(
        work=lambda result: ("argument 1: float32 8, strides (1,), cuda:0",),
        why_untimed=lambda: "",
        leave=lambda: None,
    )
    call: Any = SimpleNamespace(more=more, result=None, profile=profile(label="a\udcff"))
    assert seat.shares
    with ThreadPoolExecutor(1) as thread:
        held = thread.submit(served._after_call, SimpleNamespace(), call)  # type: ignore[arg-type]
        at, sits = candidate.receive(10), seat.shares
        candidate.send(Go(), 10)
        held.result(10)
    assert isinstance(at, At)
    assert at.profile is not None
    assert at.profile.label == "a\\udcff"
    assert (sits, seat.shares) == (False, True)


def test_a_fresh_worker_holds_only_in_the_call_that_is_timed(seat: SharedGpuLock) -> None:
    served = Served(SimpleNamespace(), SimpleNamespace(), None)  # type: ignore[arg-type]
    served._asked = RunTest(holds=True, call="profile 2")
    served._after_call(SimpleNamespace(), SimpleNamespace(profile=profile()))  # type: ignore[arg-type]
    assert seat.shares
