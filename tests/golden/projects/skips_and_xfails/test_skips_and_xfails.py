import pytest
import torch
from model import forward

pytestmark = pytest.mark.kernelprof(device="cpu")


@pytest.mark.max_kernels(2)
def test_kept(kernel_profile):
    kernel_profile(forward, torch.ones(8, 8))


@pytest.mark.skip(reason="not today")
@pytest.mark.max_kernels(2)
def test_later(kernel_profile):
    kernel_profile(forward, torch.ones(8, 8))


@pytest.mark.xfail(reason="launches two")
@pytest.mark.max_kernels(1)
def test_known(kernel_profile):
    kernel_profile(forward, torch.ones(8, 8))
