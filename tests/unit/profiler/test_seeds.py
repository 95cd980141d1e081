"""Random numbers that are the same in two processes, and others in another test."""

from __future__ import annotations

import random

import numpy
import torch

from pytest_kernelprof.profiler.unprofiled_rounds import seed_by


def drawn(name: str) -> tuple[float, ...]:
    seed_by(name)
    return random.random(), float(numpy.random.random()), float(torch.rand(()))


def test_all_generators_are_seeded_by_the_tests_name() -> None:
    states = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    try:
        assert drawn("t.py::a") == drawn("t.py::a")
        assert all(a != b for a, b in zip(drawn("t.py::a"), drawn("t.py::b"), strict=True))
        assert drawn("t.py::\udcff")  # an odd file's name
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])
        torch.set_rng_state(states[2])
