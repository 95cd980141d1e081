import pytest
import torch


class KernelTesterMixin:
    """The kernels of a forward: a class of tests says how many its model may launch."""

    @pytest.fixture(autouse=True)
    def _measure(self, kernel_profile, kernelprof_device):
        self.kernel_profile, self.device = kernel_profile, kernelprof_device

    def test_kernels_of_a_forward(self):
        model = self.model_class().to(self.device).eval()
        x = torch.randn(4, 16, device=self.device)
        self.kernel_profile.limit(max_kernels=self.most_kernels)
        with torch.inference_mode():
            self.kernel_profile(model, x)
