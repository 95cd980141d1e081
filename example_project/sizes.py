"""How large the inputs are: full size on a GPU, small on a CPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Size:
    """Rows of the input, width of a row, hidden width, and the type of the numbers."""

    rows: int
    width: int
    hidden: int
    dtype: torch.dtype


SIZES = {
    "cuda": Size(8192, 768, 3072, torch.bfloat16),
    "cpu": Size(32, 48, 96, torch.float32),
}
