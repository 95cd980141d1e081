"""What the timing proofs measure: a large MLP, a decode-sized one, an add of a microsecond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]


def large_mlp(torch: Any) -> Call:
    """GeGLU 8192 x 768 x 3072, bf16: some 240 us on an H200."""
    return _mlp(torch, 8192, 768, 3072)


def decode_mlp(torch: Any) -> Call:
    """One row, 1024 x 4096, bf16: some 20 us on an H200 with a cold L2."""
    return _mlp(torch, 1, 1024, 4096)


def tiny_add(torch: Any) -> Call:
    """1,024 floats: a microsecond of which most is the kernel's own start."""
    x = torch.randn(1024, device="cuda")
    return lambda: x + 1.0


WORKLOADS: dict[str, Callable[[Any], Call]] = {
    "large MLP": large_mlp,
    "decode MLP": decode_mlp,
    "tiny add": tiny_add,
}


def _mlp(torch: Any, rows: int, width: int, hidden: int) -> Call:
    options = {"device": "cuda", "dtype": torch.bfloat16}
    x = torch.randn(rows, width, **options)
    gate, up = (torch.randn(hidden, width, **options) * width**-0.5 for _ in range(2))
    down = torch.randn(width, hidden, **options) * hidden**-0.5
    linear, gelu = torch.nn.functional.linear, torch.nn.functional.gelu

    def mlp() -> Any:
        return linear(gelu(linear(x, gate), approximate="tanh") * linear(x, up), down)

    return mlp


def with_a_pause(torch: Any, call: Call, us: float, cycles_per_us: float) -> Call:
    """The call and one kernel more, which takes so long and does nothing."""
    cycles = max(1, round(us * cycles_per_us))

    def slower() -> Any:
        result = call()
        torch.cuda._sleep(cycles)
        return result

    return slower


def cycles_per_us(torch: Any) -> float:
    """What ``torch.cuda._sleep`` takes for its argument, measured by events."""
    cycles = 20_000_000
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(cycles)
    torch.cuda.synchronize()
    begin.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return float(cycles / (begin.elapsed_time(end) * 1e3))
