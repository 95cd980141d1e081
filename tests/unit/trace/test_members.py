"""Membership in short and long columns is NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_kernelprof.trace.columns import among

CHANCE = np.random.default_rng(0)


@pytest.mark.parametrize("values", [0, 1, 30, 6_000])
@pytest.mark.parametrize("wanted", [0, 1, 2, 30, 6_000])
def test_values_are_found_as_numpy_finds_them(values: int, wanted: int) -> None:
    one, other = CHANCE.integers(-5, 40, values), CHANCE.integers(-1, 60, wanted)
    found = among(one, other)
    assert found.dtype == np.bool_
    assert found.tolist() == np.isin(one, other).tolist()
