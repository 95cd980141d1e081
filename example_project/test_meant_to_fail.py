"""Limits that are meant to fail: run with ``--runxfail`` to read what the failures look like.

``strict`` makes a limit that holds after all a failure, and ``raises`` any error that is not an
exceeded limit. The first half runs everywhere, the second needs a GPU.
"""

from __future__ import annotations

import pytest
import torch
from reference_mlp import GatedMLP

from pytest_kernelprof import KernelProfile, LimitExceeded

pytestmark = pytest.mark.xfail(strict=True, raises=LimitExceeded)


@pytest.mark.max_kernels(1)
def test_eager_geglu_is_not_one_kernel(
    kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor
) -> None:
    kernel_profile(geglu, x)


@pytest.mark.max_kernels(2, match="aten::mm")
def test_geglu_has_more_than_two_gemms(
    kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor
) -> None:
    kernel_profile(geglu, x)


@pytest.mark.max_kernels(9)
def test_a_limit_set_at_run_time_replaces_the_marker(
    kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor
) -> None:
    kernel_profile.limit(max_kernels=4)
    kernel_profile(geglu, x)


@pytest.mark.expect_kernels("aten::mm", "aten::relu", ...)
def test_the_activation_is_not_relu(
    kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor
) -> None:
    kernel_profile(geglu, x)


@pytest.mark.forbid_kernels("gelu")
def test_there_is_an_activation(
    kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor
) -> None:
    kernel_profile(geglu, x)


@pytest.mark.max_latency("1ns")
def test_nothing_is_that_quick(
    kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor
) -> None:
    kernel_profile(geglu, x)


def test_the_backward_is_more_than_its_gemms(
    kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor
) -> None:
    loss = geglu(x).sum()
    with kernel_profile.region("backward", max_kernels=4):
        loss.backward()


def test_another_shape_compiles_again(
    kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor
) -> None:
    torch.compiler.reset()
    compiled = torch.compile(geglu, backend="eager", dynamic=False)
    compiled(x)
    with kernel_profile.region("one row less", max_recompiles=0):
        compiled(x[1:])


# From here on the limits need a GPU: a CPU has no launches, waits, copies or memory of its own.


@pytest.mark.max_syncs(0)
def test_a_hidden_item_makes_the_host_wait(
    kernel_profile: KernelProfile, kernelprof_device: str, x: torch.Tensor
) -> None:
    def clip(x: torch.Tensor) -> torch.Tensor:
        if x.abs().max().item() > 3.0:  # reads one number, waits for everything before it
            return x.clamp(-3.0, 3.0)
        return x

    kernel_profile(clip, x)


@pytest.mark.max_memcpys(0, direction="d2h")
def test_a_forgotten_cpu_copies_everything(
    kernel_profile: KernelProfile, kernelprof_device: str, x: torch.Tensor
) -> None:
    kernel_profile(lambda x: x.cpu().sum(), x)


@pytest.mark.max_memcpy_bytes("1 KB")
def test_a_forgotten_cpu_copies_many_bytes(
    kernel_profile: KernelProfile, kernelprof_device: str, x: torch.Tensor
) -> None:
    kernel_profile(lambda x: x.cpu().sum(), x)


@pytest.mark.max_launches(2)
@pytest.mark.max_cuda_time("1us")
@pytest.mark.max_launch_overhead(us=0.001)
@pytest.mark.max_peak_memory("1 MB")
def test_four_limits_in_one_failure(
    kernel_profile: KernelProfile, kernelprof_device: str, geglu: GatedMLP, x: torch.Tensor
) -> None:
    kernel_profile(geglu, x)


@pytest.mark.max_launch_overhead("1us")
def test_one_row_leaves_the_gpu_waiting_for_launches(
    kernel_profile: KernelProfile, kernelprof_device: str, geglu: GatedMLP, x: torch.Tensor
) -> None:
    with torch.no_grad():
        kernel_profile(geglu, x[:1])


@pytest.mark.max_allocations(0)
def test_emptying_the_cache_asks_the_device_again(
    kernel_profile: KernelProfile, kernelprof_device: str, x: torch.Tensor
) -> None:
    def wasteful(x: torch.Tensor) -> torch.Tensor:
        torch.cuda.empty_cache()
        return x.repeat(32, 1)  # 400 MB: more than fits between what other tests still hold

    kernel_profile(wasteful, x)
