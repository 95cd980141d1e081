import pytest
import torch
from model import forward

pytestmark = pytest.mark.kernelprof(device="cpu")


@pytest.mark.max_kernels(2)
def test_kept(kernel_profile):
    kernel_profile(forward, torch.ones(8, 8))


@pytest.mark.max_syncs(0)
def test_waits(kernel_profile):
    kernel_profile(lambda x: forward(x).sum().item(), torch.ones(8, 8))


@pytest.mark.max_syncs(0)
@pytest.mark.max_kernels(2)
def test_both(kernel_profile):
    kernel_profile(forward, torch.ones(8, 8))


@pytest.mark.forbid_kernels("elementwise", "nvjet")
def test_kernels_of_a_gpu(kernel_profile):
    kernel_profile(forward, torch.ones(8, 8))
