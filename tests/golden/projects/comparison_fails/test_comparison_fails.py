import torch


def fused(x):
    for _ in range(50):
        x = x + 1
    return x


def eager(x):
    return x + 50


def test_fused(kernel_profile, kernelprof_device):
    kernel_profile.compare(fused, eager, torch.ones(8), metric="latency").min_speedup(10)
