"""The table of peaks: names that must hit, names that must not, figures that hang together."""

from __future__ import annotations

import pytest

from pytest_kernelprof.analysis import roofline
from pytest_kernelprof.analysis.roofline import peaks_of


@pytest.mark.parametrize(
    ("name", "bandwidth", "half"),
    [
        ("NVIDIA H200", 4800, 989.5),
        ("NVIDIA H100 80GB HBM3", 3350, 989.5),
        ("NVIDIA H100 PCIe", 2039, 756),
        ("NVIDIA A100-SXM4-40GB", 1555, 312),
        ("NVIDIA A100-PCIE-40GB", 1555, 312),
        ("NVIDIA A100-SXM4-80GB", 2039, 312),
        ("NVIDIA A100 80GB PCIe", 1935, 312),
        ("Tesla V100-SXM2-32GB", 900, 125),
        ("Tesla T4", 320, 65),
        ("NVIDIA T4", 320, 65),
        ("NVIDIA Tesla T4", 320, 65),
        ("NVIDIA A10", 600, 125),
        ("NVIDIA GeForce RTX 4090", 1008, 165.2),
    ],
)
def test_known_gpus(name: str, bandwidth: float, half: float) -> None:
    found = peaks_of(name)
    assert found is not None
    assert (found.bandwidth, found.tflops["16"]) == (bandwidth, half)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "CPU (x86_64)",
        "NVIDIA A10G",
        "NVIDIA H200 NVL",
        "NVIDIA L40",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
    ],
)
def test_an_unknown_gpu_gets_nobody_elses_figures(name: str) -> None:
    assert peaks_of(name) is None


def test_narrower_arithmetic_is_never_slower() -> None:
    for found in roofline._BY_MODEL.values():
        order = [found.tflops[key] for key in ("32", "tf32", "16", "8") if key in found.tflops]
        assert order == sorted(order)
