"""PTX of kernels' launches for sm_90, compiled without a GPU, in a process of its own.

Descriptors and plans are made from tensors, so the launch goes its usual way with tensors on the
CPU, and a stand-in for the driver says that the GPU is a Hopper.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

GATED = {
    "specialised": (1024, 768, 3072),
    "specialised, keeping": (1024, 768, 3072),
    "slopes": (1024, 768, 3072),
    "few_rows": (4, 768, 3072),
    "few_rows, split": (16, 2048, 8192),
}
PLAIN = {"resident": (1024, 128, 128), "resident, ragged": (1024, 120, 72), "narrow": (999, 24, 56)}
"""Rows, width and hidden."""


def compile_for_hopper(name: str) -> str:
    """PTX of a kernel's launch, on sizes that fill its tiles unless it says otherwise; of `narrow`
    Triton's own code, in which types still have names. In its own process."""
    import importlib
    from typing import Any

    import torch
    from fused_mlp.eager import SlopeOperands
    from fused_mlp.launch import described
    from fused_mlp.weights import Weights
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class Hopper:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: object = None) -> int:
            return 0

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cpu")

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.bfloat16)

    class Keep:
        """Compiles as a `Launcher` does, and launches nothing."""

        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel
            self.ptx = ""

        def __call__(
            self, key: object, programs: int, arguments: Any, constants: Any, options: Any
        ) -> None:
            usual = described(arguments)
            compiled = self.kernel.warmup(*usual, *constants, grid=(programs,), **options)
            self.ptx = compiled.asm["ttir" if name == "narrow" else "ptx"]

    driver.set_active(Hopper())
    kernel = name.partition(",")[0]
    module: Any = importlib.import_module(f"fused_mlp.{kernel}")
    module.sms = lambda index: 132
    plain = name in PLAIN
    workspace: Any = importlib.import_module("fused_mlp.workspace")
    workspace.slot = lambda device, ints, use=None: torch.zeros(ints, dtype=torch.int32)
    module._launcher = launcher = Keep(getattr(module, f"{kernel}_kernel"))
    rows, width, hidden = (PLAIN if plain else GATED)[name]
    first, down = zeros(hidden, width), zeros(width, hidden)
    if plain:
        weights = Weights(first, None, down, zeros(hidden), zeros(width))
    else:
        weights = Weights(first, zeros(hidden, width), down)
    if kernel == "slopes":
        pre = zeros(rows, hidden)
        module.slopes(SlopeOperands(zeros(rows, width), down, pre, pre), "gelu_tanh")
    elif name == "specialised, keeping":
        keep = zeros(rows, hidden), zeros(rows, hidden), zeros(rows, hidden)
        module.specialised(zeros(rows, width), weights, "gelu_tanh", keep=keep)
    else:
        getattr(module, kernel)(zeros(rows, width), weights, "gelu_tanh")
    return launcher.ptx


@functools.cache
def compiled() -> dict[str, str]:
    """PTX of each kernel, without the interpreter; all in one process, since loading torch and
    Triton takes longer than compiling a kernel."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, str(Path(__file__).resolve())],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, str] = json.loads(run.stdout)
    return found


def ptx(name: str) -> str:
    """PTX of a kernel; all are compiled at the first call."""
    return compiled()[name]


if __name__ == "__main__":
    json.dump({name: compile_for_hopper(name) for name in (*GATED, *PLAIN)}, sys.stdout)
