import pytest
import torch
from rms_norm import rms_norm


@pytest.mark.max_kernels(1)
@pytest.mark.max_syncs(0)
@pytest.mark.parametrize("width", [64, 100])
def test_rms_norm(kernel_profile, device, width):
    x, weight = torch.randn(8, width, device=device), torch.rand(width, device=device)
    y = kernel_profile(rms_norm, x, weight)
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(x, (width,), weight, 1e-6))
