"""What unprofiled calls told: plain numbers that capture hands to the profile."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class HostTimings:
    """Host-side measurements of calls that were not profiled; one value a round.

    Attributes:
        latency_us: from the call until the device is done.
        dispatch_us: from the call until it returns.
        floor_us: a call that does nothing, plus the synchronisation, in the same loop.
        back_to_back_us: time per call of calls in a row with one synchronisation at the end;
            None where arguments have to be made fresh for each call.
        cupti_us_per_launch: what an attached CUPTI adds to each launch in this process.
        cupti_ratio: the same as a ratio; 1.0 where no CUPTI is attached.
    """

    latency_us: tuple[float, ...]
    dispatch_us: tuple[float, ...]
    floor_us: tuple[float, ...]
    back_to_back_us: float | None = None
    cupti_us_per_launch: float = 0.0
    cupti_ratio: float = 1.0

    def followed_by(self, more: HostTimings) -> HostTimings:
        """These rounds and those of ``more``, as one series."""
        return replace(
            self,
            latency_us=self.latency_us + more.latency_us,
            dispatch_us=self.dispatch_us + more.dispatch_us,
            floor_us=self.floor_us + more.floor_us,
        )


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of warmed-up calls that were not profiled; one value a round.

    Attributes:
        peak_bytes: peak of requested bytes above the call's start.
        device_allocations: device allocations and frees of the caching allocator.
    """

    peak_bytes: tuple[int, ...]
    device_allocations: tuple[int, ...]
