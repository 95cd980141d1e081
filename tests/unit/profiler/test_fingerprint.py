"""What a call works on, as two processes can compare it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from pytest_kernelprof.profiler.tensors import describe


@dataclass
class Pair:
    left: Any
    right: Any


def test_tensors_are_described_wherever_they_stand() -> None:
    x = torch.ones(2, 3)
    assert describe(
        (x, [x.t(), 4]), {"n": "a", "k": {"y": torch.ones(())}}, Pair(x.half(), 1.5)
    ) == (
        "argument 1: float32 2x3, strides (3, 1), cpu",
        "argument 2[0]: float32 3x2, strides (1, 3), cpu",
        "argument 2[1]: 4",
        "n: 'a'",
        "k['y']: float32 (), strides (), cpu",
        "the result.left: float16 2x3, strides (3, 1), cpu",
        "the result.right: float",
    )


def test_what_holds_addresses_is_told_by_its_kind() -> None:
    assert describe((torch.nn.Linear(2, 2), object()), {}, None) == (
        "argument 1: Linear",
        "argument 2: object",
        "the result: NoneType",
    )


def test_other_layouts_and_meta_tensors() -> None:
    sparse = torch.eye(2).to_sparse()
    assert describe((sparse,), {}, torch.ones(2, device="meta")) == (
        "argument 1: float32 2x2, sparse_coo, cpu",
        "the result: float32 2, strides (1,), meta",
    )


def test_it_is_bounded() -> None:
    x = torch.ones(1)
    assert len(describe(([x] * 500,), {}, [x] * 500)) == 200
    deep: Any = x
    for _ in range(100):
        deep = [deep]
    assert describe((), {}, deep) == ("the result[0][0][0][0]: list",)
