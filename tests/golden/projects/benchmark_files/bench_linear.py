import pytest
import torch
import triton
from model import eager, fused
from triton.testing import do_bench

PROVIDERS = {"fused": fused, "eager": eager}


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["M"],
        x_vals=[8, 16],
        line_arg="provider",
        line_vals=["fused", "eager", "cublas"],
        line_names=["Fused", "Eager", "cuBLAS"],
        plot_name="linear",
        args={},
    )
)
@pytest.mark.max_kernels(1)
def test_linear(M, provider):
    if provider not in PROVIDERS:
        return None
    x = torch.ones(M, M)
    ms, min_ms, max_ms = do_bench(lambda: PROVIDERS[provider](x), quantiles=[0.5, 0.2, 0.8])
    return 2 * M**3 / ms, 2 * M**3 / max_ms, 2 * M**3 / min_ms


if __name__ == "__main__":
    test_linear.run(print_data=True, show_plots=True)
