import pytest
import torch
from model import forward

pytestmark = pytest.mark.kernelprof(device="cpu")


@pytest.mark.max_kernels(2)
def test_kept(kernel_profile):
    kernel_profile(forward, torch.ones(8, 8))


@pytest.mark.max_kernels(2)
def test_crash(kernel_profile):
    kernel_profile(forward, torch.ones(8, 8))
    raise RuntimeError("the output is wrong")


@pytest.mark.max_kernels("two")
def test_bad_marker(kernel_profile):
    kernel_profile(forward, torch.ones(8, 8))


@pytest.mark.max_kernels(2)
def test_nothing(kernel_profile):
    forward(torch.ones(8, 8))
