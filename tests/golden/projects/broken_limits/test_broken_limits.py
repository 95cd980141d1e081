import pytest
import torch
from model import forward

pytestmark = pytest.mark.kernelprof(device="cpu")


@pytest.mark.max_kernels(1)
def test_too_many(kernel_profile):
    kernel_profile(forward, torch.ones(8, 8))


@pytest.mark.forbid_kernels("gelu")
def test_forbidden(kernel_profile):
    kernel_profile(forward, torch.ones(8, 8))


@pytest.mark.expect_kernels("mm", "relu")
def test_unexpected(kernel_profile):
    kernel_profile(forward, torch.ones(8, 8))


@pytest.mark.max_kernels(2)
def test_kept(kernel_profile):
    kernel_profile(forward, torch.ones(8, 8))
