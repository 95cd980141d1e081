"""A few real pieces of work, from tiny to large, on which the noise of a machine is measured."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.device.inventory import DeviceKind, load_torch

if TYPE_CHECKING:
    from collections.abc import Callable


def workloads(kind: DeviceKind) -> dict[str, Callable[[], Any]]:
    """Callables by name. On the GPU a kernel of a microsecond, a gated MLP for one token (many
    short kernels) and one for 8192 rows (few long ones); on the CPU a small MLP.

    Raises:
        ProfilerUnavailable: torch is not installed.
    """
    torch = load_torch()
    if kind == "cpu":
        return {"small MLP": _gated_mlp(torch.float32, "cpu", 32, 256, 1024)}
    x = torch.ones(1024, device="cuda")
    return {
        "tiny add": functools.partial(torch.add, x, 1),
        "decode MLP": _gated_mlp(torch.float16, "cuda", 1, 1024, 4096),
        "large MLP": _gated_mlp(torch.float16, "cuda", 8192, 768, 3072),
    }


def _gated_mlp(dtype: Any, device: str, rows: int, width: int, hidden: int) -> Callable[[], Any]:
    torch = load_torch()
    make = functools.partial(torch.randn, device=device, dtype=dtype)
    x = make(rows, width)
    gate, up, down = (make(a, b) for a, b in ((width, hidden), (width, hidden), (hidden, width)))

    def gated_mlp() -> Any:
        with torch.no_grad():
            return (torch.nn.functional.gelu(x @ gate) * (x @ up)) @ down

    return gated_mlp
