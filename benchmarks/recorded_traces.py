"""Record traces of real work on a GPU, in the shapes that users hand to the reader.

    python benchmarks/recorded_traces.py FOLDER
    python benchmarks/trace_growth.py --recorded FOLDER/*.json --hta-folder ...

- ``training``: forward, backward and optimizer steps of a small transformer, one kernel a launch.
- ``compiled``: the same through ``torch.compile``.
- ``graphs``: a CUDA graph of many kernels, replayed: each kernel has the id of its replay's call.
- ``leaked_graphs``: the same, with replays that began before the profiler did.
- ``stacks``: decoding with waits and copies, with Python's stacks in the file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS, LAYERS, REPLAYS = 24, 6, 400


def model() -> Any:
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).cuda()


def training(made: Any) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(made.parameters(), foreach=False)
    x = torch.randn(8, 64, 256, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        made(x).square().mean().backward()
        optimizer.step()

    return step


def graph() -> Callable[[], None]:
    x = torch.randn(64, 256, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            y = x
            for _ in range(100):
                y = (y * 1.01).relu()
    return captured.replay


def decoding() -> Callable[[], None]:
    made, x = model().eval(), torch.randn(1, 16, 256, device="cuda")

    @torch.no_grad()
    def step() -> None:
        if made(x).sum().item() > 1e9:
            x.copy_(torch.zeros_like(x, device="cpu"))

    return step


def record(
    path: Path, step: Callable[[], None], times: int, *, before: int = 0, **how: Any
) -> None:
    """Write the trace of some calls, after ``before`` that are not waited for."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    for _ in range(before):
        step()
    with torch.profiler.profile(**how) as profiler:
        for _ in range(times):
            step()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(path))
    print(f"{path.name}: {path.stat().st_size / 1e6:.0f} MB", flush=True)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    record(folder / "training.json", training(model()), STEPS)
    record(folder / "compiled.json", training(torch.compile(model())), 4 * STEPS)
    record(folder / "graphs.json", graph(), REPLAYS)
    record(folder / "leaked_graphs.json", graph(), REPLAYS, before=REPLAYS // 2)
    record(folder / "stacks.json", decoding(), STEPS, with_stack=True)


if __name__ == "__main__":
    main()
