"""A training step: forward, loss, backward; and the backward by itself."""

from __future__ import annotations

import torch
from conftest import Size
from reference_mlp import GatedMLP


def test_a_training_step_launches_no_more_than_it_should(
    kernel_profile, kernelprof_device: str, size: Size, x: torch.Tensor
) -> None:
    """Guess: 5 kernels forward; one for the loss; backward two GEMMs for each of the three linear
    layers but one for the input, which needs no gradient, two for each product and one for the
    activation, and a few copies around the loss. On an H200 that makes 16.

    ``setup`` clears the gradients before each call, outside the profile: a step that adds to old
    gradients launches one kernel more for each parameter.
    """
    mlp = GatedMLP(size.width, size.hidden).to(kernelprof_device, size.dtype)

    def fresh() -> tuple[torch.Tensor]:
        mlp.zero_grad(set_to_none=True)
        return (x,)

    kernel_profile.limit(max_kernels=16)
    kernel_profile.run(lambda x: mlp(x).sum().backward(), setup=fresh)
    chains = [name for kernel in kernel_profile.last.kernels for name in kernel.operators]
    assert "GeluBackward0" in chains


def test_the_backward_by_itself(
    kernel_profile, kernelprof_device: str, size: Size, x: torch.Tensor
) -> None:
    """Guess: at most 11: the step's 16 less the 5 of the forward. A region profiles a block as it
    stands, once; autograd's own thread launches most of it."""
    mlp = GatedMLP(size.width, size.hidden).to(kernelprof_device, size.dtype)
    loss = mlp(x).sum()
    with kernel_profile.region("backward", max_kernels=11) as region:
        loss.backward()
    assert region.profile.kernel_count >= 6
