"""The cache is emptied where it is wanted and known; torch is a double."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_kernelprof.gpu.inventory import Device, current_device
from pytest_kernelprof.profiler import unprofiled_rounds
from pytest_kernelprof.profiler.unprofiled_rounds import RepeatedCall

CPU = current_device("cpu")
H200 = Device("cuda", 0, "NVIDIA H200", "sm_90", 50 << 20, {})


class Buffer:
    """A tensor as far as its shape tells."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def new_empty(self, rows: int) -> Buffer:
        return Buffer(rows)


@pytest.fixture
def did(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What torch was asked to do."""
    done: list[tuple[Any, ...]] = []

    def zeros(shape: tuple[int, ...], device: str) -> Buffer:
        done.append(("zeros", *shape))
        return Buffer(*shape)

    def amax(buffer: Buffer, dim: int, out: Buffer) -> None:
        done.append(("amax", buffer.shape, dim, out.shape))

    monkeypatch.setattr(
        unprofiled_rounds, "load_torch", lambda: SimpleNamespace(zeros=zeros, amax=amax)
    )
    monkeypatch.setattr(unprofiled_rounds, "synchronize", lambda device: None)
    monkeypatch.setattr(unprofiled_rounds, "_l2_buffers", {})
    return done


def flush(device: Device, *, wanted: bool = True) -> None:
    RepeatedCall(device, lambda: lambda: None, wanted).begin()


def test_a_flush_reads_twice_the_cache(did: list[tuple[Any, ...]]) -> None:
    flush(H200)
    (_, rows, columns), read = did
    assert rows * columns * 4 == 2 * H200.l2_bytes
    assert read == ("amax", (rows, columns), 1, (rows,))


def test_the_buffers_are_allocated_once_in_a_process(did: list[tuple[Any, ...]]) -> None:
    for _ in range(3):
        flush(H200)
    assert [what for what, *_ in did] == ["zeros", "amax", "amax", "amax"]


@pytest.mark.parametrize(
    ("device", "wanted"),
    [(CPU, True), (CPU, False), (H200, False), (Device("cuda", 0, "a GPU", "", 0, {}), True)],
    ids=["cpu", "cpu, unwanted", "unwanted", "unknown size"],
)
def test_nothing_is_flushed_where_there_is_no_cache_or_nobody_wants_it(
    device: Device, wanted: bool, did: list[tuple[Any, ...]]
) -> None:
    flush(device, wanted=wanted)
    assert did == []
