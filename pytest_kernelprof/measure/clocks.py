"""What two callables can be compared by."""

from __future__ import annotations

from typing import Literal

Clock = Literal["cuda_time", "latency", "peak_memory"]
CLOCKS: tuple[Clock, ...] = ("cuda_time", "latency", "peak_memory")
