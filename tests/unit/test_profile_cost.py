"""The benchmark of a profile's cost puts its clock around steps that there are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import pytest_kernelprof

ROOT = Path(pytest_kernelprof.__file__).parents[1]
if not (ROOT / "benchmarks" / "profile_cost.py").exists():
    pytest.skip("the package does not lie in its repository", allow_module_level=True)
sys.path.insert(0, str(ROOT / "benchmarks"))
import profile_cost  # noqa: E402

from pytest_kernelprof.measure import arguments  # noqa: E402


def test_each_step_has_a_clock_and_is_as_before_afterwards() -> None:
    before = arguments.first_call
    with profile_cost.every_step(profile_cost.Clock()):
        assert arguments.first_call is not before
    assert arguments.first_call is before
