"""What the arrays of a trace hold: their types, and the codes that stand in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

KERNEL, MEMCPY, MEMSET = 0, 1, 2
"""Codes of ``Activities.kind``."""

NO_ID = -1
"""Stands for an absent correlation id, External id, call or operator."""
