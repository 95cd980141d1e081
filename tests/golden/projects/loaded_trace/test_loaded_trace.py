from pathlib import Path

import pytest
from model import write_trace


@pytest.fixture
def trace():
    return write_trace(Path("worker.json"))


@pytest.mark.max_latency("1ms")
@pytest.mark.expect_kernels("gemm", "gelu", "gemm")
def test_kept(kernel_profile, trace):
    kernel_profile.load(trace, step=3)


@pytest.mark.max_kernels(3)
def test_too_many(kernel_profile, trace):
    kernel_profile.load(trace, step=4)


@pytest.mark.max_kernels(3)
def test_no_step(kernel_profile, trace):
    kernel_profile.load(trace)


@pytest.mark.max_latency("1ms")
def test_latency(kernel_profile, trace):
    kernel_profile.load(trace, step=3)
