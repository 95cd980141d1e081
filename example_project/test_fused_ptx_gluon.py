"""The same for the kernels in Gluon: barrier and proxy fences around what their warps publish.

See `test_fused_ptx`. Gluon's descriptors carry layouts, so the arguments are real tensors, on the
CPU, and a stand-in for the driver says that the GPU is a Hopper.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_fused_ptx import events, since

pytest.importorskip("triton.experimental.gluon")

PUBLISHING = ("specialised", "streaming")
KERNELS = (*PUBLISHING, "resident")


def compile_for_hopper(name: str) -> str:
    """PTX of a kernel's launch on sizes that fill its tiles. In its own process."""
    import importlib
    from typing import Any

    import torch
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

    class Keep:
        """Compiles as a `Launcher` does, and launches nothing."""

        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel
            self.ptx = ""

        def __call__(
            self, key: object, programs: int, arguments: Any, constants: Any, options: Any
        ) -> None:
            compiled = self.kernel.warmup(*arguments, *constants, grid=(programs,), **options)
            self.ptx = compiled.asm["ptx"]

    driver.set_active(Hopper())
    module: Any = importlib.import_module(f"fused_mlp.{name}")
    module.sms = lambda index: 132
    if name in PUBLISHING:
        module.workspace.slot = lambda device, ints: torch.zeros(ints, dtype=torch.int32)
    module._launcher = launcher = Keep(getattr(module, f"{name}_kernel"))
    if name == "resident":
        shapes = ((1024, 128), (128, 128), (128,), (128, 128), (128,))
        module.plain(*(torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes), "gelu_tanh")
        return launcher.ptx
    rows = 1024 if name == "specialised" else 16
    shapes = ((rows, 768), (3072, 768), (3072, 768), (768, 3072))
    module.gated(*(torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes), "gelu_tanh")
    return launcher.ptx


@functools.cache
def ptx(name: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), name],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("name", PUBLISHING)
def test_stores_of_h_are_fenced_then_a_barrier_then_the_release(name: str) -> None:
    """Without the barrier, one thread's release would cover that thread's stores alone; without
    the fence, TMA could read around them."""
    seen = events(ptx(name))
    releases = [i for i, event in enumerate(seen) if event == "release"]
    assert len(releases) == {"specialised": 2, "streaming": 1}[name]
    for place in releases:
        assert since(seen[:place], "store") == ["proxy fence", "barrier"]


@pytest.mark.parametrize("name", PUBLISHING)
def test_after_the_acquire_a_proxy_fence_comes_before_tma(name: str) -> None:
    seen = events(ptx(name))
    (place,) = (i for i, event in enumerate(seen) if event == "acquire")
    reader = seen.index("tma", place)
    assert "proxy fence" in seen[place:reader]


def test_a_piece_of_a_sum_is_stored_before_the_barrier_before_its_count() -> None:
    seen = events(ptx("streaming"))
    counts = [i for i, event in enumerate(seen) if event == "both"]
    assert "barrier" in since(seen[: counts[0]], "store")


def test_a_buffer_is_fenced_before_tma_stores_from_it_and_given_back_after() -> None:
    """y leaves from the buffer that x came in: all threads' numbers must be in it before TMA reads
    them, and TMA must have read them before the next block may land there."""
    text = ptx("resident")
    store = text.index("cp.async.bulk.tensor.2d.global.shared")
    written = text.rindex("stmatrix", 0, store)
    assert "fence.proxy.async.shared::cta" in text[written:store]
    assert "bar.sync" in text[text.index("fence.proxy", written) : store]
    waited = text.index("cp.async.bulk.wait_group.read")
    given_back = text.index("mbarrier.arrive.shared", waited)
    assert "bar.sync" in text[waited:given_back]


@pytest.mark.parametrize("name", KERNELS)
def test_each_group_of_warps_multiplies_by_wgmma_and_spills_nothing(name: str) -> None:
    text = ptx(name)
    assert "wgmma.mma_async" in text
    assert ".local" not in text


if __name__ == "__main__":
    sys.stdout.write(compile_for_hopper(sys.argv[1]))
