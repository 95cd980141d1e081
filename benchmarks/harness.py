"""What the benchmark scripts share: the place, the call that is measured, spread and tables."""

from __future__ import annotations

import os
import platform
import statistics
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_kernelprof.gpu.inventory import DeviceKind

Item = TypeVar("Item")

MLP_KERNELS = 5


def version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def place(*distributions: str) -> str:
    """CPU and versions, for scripts that need no device."""
    named = ", ".join(f"{name} {version(name)}" for name in distributions)
    return (
        f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, {named}"
    )


def device_and_place(kind: DeviceKind, *distributions: str) -> str:
    from pytest_kernelprof.gpu.inventory import current_device

    return f"{current_device(kind).name}, {place('torch', *distributions)}"


def device_kind(wanted: str) -> DeviceKind:
    """The device to run on: what was asked for, else a GPU where there is one."""
    from pytest_kernelprof.gpu.inventory import why_no_gpu

    if wanted == "auto":
        wanted = "cpu" if why_no_gpu() else "cuda"
    return "cuda" if wanted == "cuda" else "cpu"


def geglu_mlp(kind: DeviceKind) -> tuple[Callable[[Any], Any], Any]:
    """A gated MLP and its input: five kernels on the GPU, five operators on the CPU."""
    from pytest_kernelprof.gpu.inventory import load_torch

    torch = load_torch()
    torch.manual_seed(0)
    dtype = torch.bfloat16 if kind == "cuda" else torch.float32
    rows, width, hidden = (8192, 768, 3072) if kind == "cuda" else (32, 64, 256)
    options = {"device": kind, "dtype": dtype}
    gate = torch.nn.Linear(width, hidden, bias=False, **options)
    up = torch.nn.Linear(width, hidden, bias=False, **options)
    down = torch.nn.Linear(hidden, width, bias=False, **options)
    x = torch.randn(rows, width, **options)

    def mlp(x: Any) -> Any:
        with torch.no_grad():
            return down(torch.nn.functional.gelu(gate(x), approximate="tanh") * up(x))

    return mlp, x


def peak_bytes() -> int:
    """The most memory that this process held. ``ru_maxrss`` would include the parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def in_turn(items: Sequence[Item], rounds: int) -> list[Item]:
    """A B, B A, A B, ...: a drift of the machine touches all alike."""
    order: list[Item] = []
    for i in range(rounds):
        order.extend(items if i % 2 == 0 else reversed(items))
    return order


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median with its quartiles: ``12.30 [12.10, 12.80]``."""
    low, middle, high = quartiles(values)
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def met(ok: bool) -> str:
    return "met" if ok else "MISSED"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))]  # noqa: B905
        return "  " + "  ".join(cells).rstrip()

    return "\n".join([line(header), line(["-" * w for w in widths]), *map(line, rows)])
