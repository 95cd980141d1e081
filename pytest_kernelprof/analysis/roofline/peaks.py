"""What common GPUs can do at most, from their makers' data sheets. An unknown GPU has no peaks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Peaks:
    """Peaks of one GPU model.

    Attributes:
        bandwidth: of the device's memory, in GB/s (10**9 bytes).
        tflops: dense matrix products (no sparsity, float32 accumulation), in TFLOP/s (10**12), by
            precision: "16" (float16, bfloat16), "tf32", "32" (float32 outside tensor cores), "8"
            (float8); only those that the GPU has.
        source: where the figures stand.
    """

    bandwidth: float
    tflops: Mapping[str, float]
    source: str


def _peaks(
    bandwidth: float, half: float, single: float, source: str, tf32: float = 0, eight: float = 0
) -> Peaks:
    figures = {"16": half, "tf32": tf32, "32": single, "8": eight}
    return Peaks(bandwidth, {name: value for name, value in figures.items() if value}, source)


_A100, _H100 = "NVIDIA A100 data sheet", "NVIDIA H100 data sheet"
_BLACKWELL = "NVIDIA Blackwell architecture technical brief (HGX B200, 1000 W)"
_V100, _ADA = "NVIDIA V100 data sheet", "NVIDIA Ada GPU architecture white paper, appendix A"

# By the whole name that the driver gives, but for "NVIDIA" and "Tesla" before it: a slice of a GPU
# (MIG) or a sister model (A10G) must not get its figures. Where a data sheet gives figures with
# sparsity, half of them stands here.
_BY_MODEL: dict[str, Peaks] = {
    r"V100-SXM\d.*": _peaks(900, 125, 15.7, _V100),
    r"V100-PCIE.*": _peaks(900, 112, 14, _V100),
    r"V100S-PCIE.*": _peaks(1134, 130, 16.4, _V100),
    r"T4": _peaks(320, 65, 8.1, "NVIDIA Turing GPU architecture white paper"),
    r"A10": _peaks(600, 125, 31.2, "NVIDIA A10 data sheet", tf32=62.5),
    r"A100-(SXM4|PCIE)-40GB": _peaks(1555, 312, 19.5, _A100, tf32=156),
    r"A100-SXM4-80GB": _peaks(2039, 312, 19.5, _A100, tf32=156),
    r"A100 80GB PCIe": _peaks(1935, 312, 19.5, _A100, tf32=156),
    r"L4": _peaks(300, 121, 30.3, "NVIDIA L4 data sheet", tf32=60, eight=242.5),
    r"L40S": _peaks(864, 362, 91.6, "NVIDIA L40S data sheet", tf32=183, eight=733),
    r"GeForce RTX 4090": _peaks(1008, 165.2, 82.6, _ADA, tf32=82.6, eight=330.3),
    r"H100 80GB HBM3": _peaks(3350, 989.5, 67, _H100, tf32=494.5, eight=1979),
    r"H100 PCIe": _peaks(2039, 756, 51, _H100, tf32=378, eight=1513),
    r"H200": _peaks(4800, 989.5, 67, "NVIDIA H200 data sheet", tf32=494.5, eight=1979),
    r"B200": _peaks(8000, 2250, 80, _BLACKWELL, tf32=1100, eight=4500),
}


def peaks_of(gpu: str) -> Peaks | None:
    """The peaks of a GPU by its full name, such as "NVIDIA H200"; None for an unknown one."""
    bare = re.sub(r"^(NVIDIA )?(Tesla )?", "", gpu)
    return next((found for model, found in _BY_MODEL.items() if re.fullmatch(model, bare)), None)
