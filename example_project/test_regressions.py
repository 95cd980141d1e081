"""Regressions that give the right answer: waits, copies, memory, time. Most need a GPU to exist."""

from __future__ import annotations

import pytest
import torch
from reference_mlp import GatedMLP

from pytest_kernelprof import KernelProfile


@pytest.mark.max_syncs(0)
@pytest.mark.max_memcpys(0)
def test_the_host_never_waits_and_nothing_is_copied(
    kernel_profile: KernelProfile, kernelprof_device: str, geglu: GatedMLP, x: torch.Tensor
) -> None:
    """Guess: none. The host hands over five kernels and goes on; one ``.item()`` or ``.cpu()``
    anywhere inside would stop it."""
    with torch.no_grad():
        kernel_profile(geglu, x)


@pytest.mark.max_allocations(0)
@pytest.mark.max_peak_memory("160 MB")
def test_memory_is_what_the_hidden_layers_take(
    kernel_profile: KernelProfile, kernelprof_device: str, geglu: GatedMLP, x: torch.Tensor
) -> None:
    """Guess: three hidden layers of 8192 x 3072 bf16 numbers are alive at once, 151 MB; and a warm
    caching allocator asks the device for nothing."""
    with torch.no_grad():
        kernel_profile(geglu, x)


@pytest.mark.max_cuda_time("2ms")
@pytest.mark.max_launch_overhead("1ms")
@pytest.mark.max_launches(5)
def test_time_stays_within_its_budget(
    kernel_profile: KernelProfile, kernelprof_device: str, geglu: GatedMLP, x: torch.Tensor
) -> None:
    """Guess: 116 GFLOP at a few hundred TFLOP/s are well below 2 ms, and five launches cost tens
    of microseconds."""
    with torch.no_grad():
        kernel_profile(geglu, x)


@pytest.mark.max_latency("100ms")
@pytest.mark.max_recompiles(0)
def test_compiled_code_does_not_compile_again(
    kernel_profile: KernelProfile, kernelprof_device: str, geglu: GatedMLP, x: torch.Tensor
) -> None:
    """Guess: no compilation once warm; a shape or a flag that changes from call to call would
    bring one."""
    torch.compiler.reset()
    with torch.no_grad():
        kernel_profile(torch.compile(geglu), x)


@pytest.mark.max_kernels(0, match="layer_norm|softmax")
@pytest.mark.forbid_kernels("aten::copy_", "aten::clone")
def test_no_copies_and_no_strangers_among_the_kernels(
    kernel_profile: KernelProfile, geglu: GatedMLP, x: torch.Tensor
) -> None:
    """Guess: an MLP normalises nothing, and a transposed weight needs no copy."""
    with torch.no_grad():
        kernel_profile(geglu, x)
