import pytest


@pytest.mark.parametrize("step", [3, 4])
@pytest.mark.expect_kernels(
    *("add_rms_norm.*fp8_quant", "gemm", "flash", "gemm"),
    *("add_rms_norm.*fp8_quant", "gemm", "act_and_mul_quant", "gemm"),
)
def test_each_step_runs_the_fused_kernels(kernel_profile, step):
    kernel_profile.load("engine.pt.trace.json", step=step)
