import pytest
import torch
from attention import attention


@pytest.mark.max_kernels(4)
@pytest.mark.parametrize("tokens", [16, 64])
def test_attention(kernel_benchmark, kernelprof_device, tokens):
    q, k, v = torch.randn(3, 4, tokens, 32, device=kernelprof_device)
    y = kernel_benchmark(attention, q, k, v)
    torch.testing.assert_close(y, torch.nn.functional.scaled_dot_product_attention(q, k, v))
