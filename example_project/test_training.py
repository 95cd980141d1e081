"""A training step: forward, loss, backward; and the backward by itself."""

from __future__ import annotations

import torch
from reference_mlp import GatedMLP

from pytest_kernelprof import KernelProfile


def test_a_training_step_launches_no_more_than_it_should(
    kernel_profile: KernelProfile, kernelprof_device: str, geglu: GatedMLP, x: torch.Tensor
) -> None:
    """Guess: 16 kernels. Forward 5, the loss 1, the gradient that starts the backward 1. Then for
    each linear layer one GEMM for its weight, and one more for the input of ``down`` (x needs no
    gradient): 4. Two for the product, one for the activation: 3. And on a GPU 2 copies: the
    gradient of ``sum`` is one number seen as a matrix, which each GEMM that reads it copies out
    first. The CPU's GEMM makes that copy inside itself: 14.

    ``setup`` clears the gradients before each call, outside the profile: a step that adds to old
    gradients launches one kernel more for each parameter.
    """

    def fresh() -> tuple[torch.Tensor]:
        geglu.zero_grad(set_to_none=True)
        return (x,)

    kernel_profile.limit(max_kernels={"cuda": 16, "cpu": 14}[kernelprof_device])
    kernel_profile.run(lambda x: geglu(x).sum().backward(), setup=fresh)
    chains = [name for kernel in kernel_profile.last.kernels for name in kernel.operators]
    assert "GeluBackward0" in chains


def test_the_backward_by_itself(
    kernel_profile: KernelProfile, kernelprof_device: str, geglu: GatedMLP, x: torch.Tensor
) -> None:
    """Guess: the step's kernels less 5 of the forward and 1 of the loss: 10, on the CPU 8. A region
    profiles a block as it stands, once; autograd's own thread launches most of it."""
    loss = geglu(x).sum()
    limit = {"cuda": 10, "cpu": 8}[kernelprof_device]
    with kernel_profile.region("backward", max_kernels=limit) as region:
        loss.backward()
    chains = [name for kernel in region.profile.kernels for name in kernel.operators]
    assert chains.count("MmBackward0") >= 4
