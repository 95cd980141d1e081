"""Which values of a column are among those of another; most traces that we read are tiny."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Bools, Ints

_MANY = 10_000


def among(values: Ints, wanted: Ints) -> Bools:
    """``np.isin``, which takes 15 us to begin: four times as long as a small trace needs."""
    if not len(values) or not len(wanted):
        return np.zeros(len(values), np.bool_)
    if len(values) + len(wanted) > _MANY:
        return np.isin(values, wanted)
    known = np.sort(wanted)
    at = np.searchsorted(known, values)
    at[at == len(known)] = 0
    found: Bools = known[at] == values
    return found
