"""Limits that are meant to fail: take an ``xfail`` off to read what a failure looks like."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from conftest import Size
from reference_mlp import GatedMLP

from pytest_kernelprof import LimitExceeded

pytestmark = pytest.mark.xfail(strict=True, raises=LimitExceeded)


@pytest.fixture
def geglu(kernelprof_device: str, size: Size) -> GatedMLP:
    return GatedMLP(size.width, size.hidden).to(kernelprof_device, size.dtype).requires_grad_(False)


@pytest.mark.max_kernels(1)
def test_eager_geglu_is_not_one_kernel(kernel_profile, geglu: GatedMLP, x: torch.Tensor) -> None:
    kernel_profile(geglu, x)


@pytest.mark.expect_kernels("aten::mm", "aten::relu", ...)
def test_the_activation_is_not_relu(kernel_profile, geglu: GatedMLP, x: torch.Tensor) -> None:
    kernel_profile(geglu, x)


@pytest.mark.forbid_kernels("gelu")
def test_there_is_an_activation(kernel_profile, geglu: GatedMLP, x: torch.Tensor) -> None:
    kernel_profile(geglu, x)


@pytest.mark.max_latency("1ns")
def test_nothing_is_that_quick(kernel_profile, geglu: GatedMLP, x: torch.Tensor) -> None:
    kernel_profile(geglu, x)


@pytest.mark.max_syncs(0)
def test_a_hidden_item_makes_the_host_wait(
    kernel_profile, kernelprof_device: str, x: torch.Tensor
) -> None:
    def clip(x: torch.Tensor) -> torch.Tensor:
        if x.abs().max().item() > 3.0:  # reads one number, waits for everything before it
            return x.clamp(-3.0, 3.0)
        return x

    kernel_profile(clip, x)


@pytest.mark.max_memcpys(0, direction="d2h")
def test_a_forgotten_cpu_copies_everything(
    kernel_profile, kernelprof_device: str, x: torch.Tensor
) -> None:
    kernel_profile(lambda x: x.cpu().sum(), x)


@pytest.mark.max_memcpy_bytes("1 KB")
def test_a_forgotten_cpu_copies_many_bytes(
    kernel_profile, kernelprof_device: str, x: torch.Tensor
) -> None:
    kernel_profile(lambda x: x.cpu().sum(), x)


@pytest.mark.max_launches(2)
@pytest.mark.max_cuda_time("1us")
@pytest.mark.max_launch_overhead(us=0.001)
@pytest.mark.max_peak_memory("1 MB")
def test_four_limits_in_one_failure(
    kernel_profile, kernelprof_device: str, geglu: GatedMLP, x: torch.Tensor
) -> None:
    kernel_profile(geglu, x)


@pytest.mark.max_allocations(0)
def test_emptying_the_cache_asks_the_device_again(
    kernel_profile, kernelprof_device: str, x: torch.Tensor
) -> None:
    def wasteful(x: torch.Tensor) -> torch.Tensor:
        torch.cuda.empty_cache()
        return F.gelu(x)

    kernel_profile(wasteful, x)
