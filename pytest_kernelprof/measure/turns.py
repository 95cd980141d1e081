"""Several callables measured in turn, A B, B A, ..., so that a drift of the machine meets all."""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_kernelprof.device.conditions import unwatched
from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.measure.progress import silently
from pytest_kernelprof.measure.taking import TRIES, profile_rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_kernelprof.device.conditions import Quiet
    from pytest_kernelprof.device.inventory import Device
    from pytest_kernelprof.measure.clocks import Clock
    from pytest_kernelprof.measure.progress import Progress
    from pytest_kernelprof.measure.taking import Prepare

Series = dict[str, list[float]]


class Turns:
    """Takes rounds of several callables in turn.

    Attributes:
        kernels: how many kernels each callable launched in each of its profiled rounds.
        doubts: why no verdict can stand on the rounds (a contended GPU, one that throttled).
    """

    def __init__(
        self,
        device: Device,
        clock: Clock,
        prepares: Mapping[str, Prepare],
        flush_l2: bool,
        alone: Callable[[], contextlib.AbstractContextManager[Quiet]] = unwatched,
        measuring: Callable[[], contextlib.AbstractContextManager[Progress]] = silently,
    ) -> None:
        self._measuring = measuring
        self._alone = alone
        self._device = device
        self._clock = clock
        self._prepares = prepares
        self._flush_l2 = flush_l2
        self._turn = 0
        self.kernels: dict[str, list[int]] = defaultdict(list)
        self.doubts: set[str] = set()

    def take(self, turns: int) -> Series:
        """So many rounds of each callable: microseconds, of ``peak_memory`` bytes.

        Raises:
            IncompleteProfile: the profile was incomplete three times, or memory cannot be watched.
        """
        order = [name for _ in range(turns) for name in self._next_turn()]
        if self._clock == "peak_memory":
            values = [self._peak(name) for name in order]
        else:
            clock = self._device_times if self._clock == "cuda_time" else self._latencies
            with self._measuring() as progress, self._alone() as gpu:
                values = gpu.take(len(order), lambda: clock(order, progress))
            self.doubts |= {doubt for doubt in (gpu.conditions().doubt,) if doubt}
        series: Series = defaultdict(list)
        for name, value in zip(order, values, strict=True):
            series[name].append(value)
        return dict(series)

    def _next_turn(self) -> Iterator[str]:
        names = list(self._prepares)
        self._turn += 1
        return iter(names if self._turn % 2 else reversed(names))

    def _device_times(self, order: list[str], progress: Progress) -> list[float]:
        for attempt in range(TRIES):
            profile = profile_rounds(
                self._device, self._next_of(order, progress), len(order), flush_l2=self._flush_l2
            )
            if profile.integrity.complete:
                break
            if attempt == TRIES - 1:
                problems = "; ".join(profile.integrity.problems)
                raise IncompleteProfile(f"comparison: profile incomplete {TRIES} times: {problems}")
        for name, count in zip(order, profile.metrics["kernels"].rounds, strict=True):
            self.kernels[name].append(int(count))
        return list(profile.metrics["cuda_time"].rounds)

    def _next_of(self, order: list[str], progress: Progress) -> Prepare:
        """What hands back the next call in the order, and tells of it, outside the clock."""
        turn = itertools.count()

        def prepare() -> Callable[[], object]:
            i = next(turn)
            progress("comparing", i, len(order))
            return self._prepares[order[i]]()

        return prepare

    def _latencies(self, order: list[str], progress: Progress) -> list[float]:
        from pytest_kernelprof.capture.host_timing import L2Flush, time_calls

        flush = L2Flush(self._device) if self._flush_l2 else _nothing
        timings = time_calls(
            self._device,
            self._next_of(order, progress),
            len(order),
            flush=flush,
            fresh_arguments=True,  # calls in a row would mix the callables
        )
        return list(timings.latency_us)

    def _peak(self, name: str) -> float:
        from pytest_kernelprof.capture.host_timing import watch_memory

        memory = watch_memory(self._device, self._prepares[name], 1)
        if memory is None:
            raise IncompleteProfile(
                "comparison: peak_memory could not be had: the allocator keeps no history to read "
                "(the CPU, another allocator than the native one, a history being recorded)"
            )
        return float(memory.peak_bytes[0])


def _nothing() -> None:
    """No flush."""
