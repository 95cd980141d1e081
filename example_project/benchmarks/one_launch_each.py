"""Launch each kernel twice on a small ragged problem, for a checker of memory accesses.

compute-sanitizer --tool memcheck python example_project/benchmarks/one_launch_each.py
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    # Run as a script: import from example_project, not from this folder.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
from fused_mlp import dispatch
from fused_mlp.eager import SlopeOperands, eager
from fused_mlp.eager import slopes as eager_slopes

from benchmarks.shapes import Case, Shape

PROBLEMS: tuple[tuple[dispatch.Kernel, Shape], ...] = (
    ("few_rows", Shape("few rows", "silu", 1, 768, 3072)),
    ("few_rows", Shape("few rows", "silu", 3, 768, 3072)),
    ("few_rows", Shape("few rows", "silu", 16, 1024, 4096)),
    ("few_rows", Shape("few rows", "silu", 16, 4096, 1024)),
    ("narrow", Shape("narrow", "gelu_tanh", 20_000, 64, 64)),
    ("resident", Shape("narrow", "gelu_tanh", 20_001, 128, 128)),
    ("specialised", Shape("many rows", "silu", 1_100, 768, 1024)),
)
"""Rows that fill no tile, and both ways of parting a long hidden."""


def main() -> None:
    for kernel, shape in PROBLEMS:
        case = Case(shape, "cuda")
        weights = case.sets[0]
        with dispatch.forced(kernel):
            for _ in range(2):
                y = dispatch.run(kernel, case.x, weights, shape.activation)
        exact = eager(case.x, weights, shape.activation)
        error = (y.double() - exact.double()).norm() / exact.double().norm()
        print(f"{kernel} {shape.label}: {float(error):.1e} from eager", flush=True)
    rows, hidden, out = 1_100, 1_032, 776
    sizes = ((rows, out), (out, hidden), (rows, hidden), (rows, hidden))
    operands = SlopeOperands(
        *(torch.randn(size, device="cuda", dtype=torch.bfloat16) for size in sizes)
    )
    for _ in range(2):
        gradients = dispatch.run_slopes(operands, "silu")
    for found, exact in zip(gradients, eager_slopes(operands, "silu"), strict=True):
        error = (found.double() - exact.double()).norm() / exact.double().norm()
        print(f"slopes {rows} x {out} x {hidden}: {float(error):.1e} from eager", flush=True)


if __name__ == "__main__":
    main()
