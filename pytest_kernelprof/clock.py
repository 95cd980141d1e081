"""The machine's clocks, taken before any test runs, where nothing that patches time finds them.

freezegun and its like replace what hangs in modules, whatever module has it; ``mock.patch``
replaces the names of ``time``. A ``partial`` is neither, and it costs no Python call.
"""

from __future__ import annotations

import functools
import time

now_ns = functools.partial(time.perf_counter_ns)
"""Nanoseconds on the clock that durations are measured with."""
unix_ns = functools.partial(time.time_ns)
"""Nanoseconds since 1970."""
sleep = functools.partial(time.sleep)
"""Wait for so many seconds."""


def now_s() -> float:
    """Seconds on the clock that durations are measured with."""
    return now_ns() / 1e9
