"""What a GPU was like while it was timed: throttled, shared, and at which clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Contender:
    """Another process that worked on the GPU while it was timed.

    Attributes:
        pid: the process, as the driver numbers it: in a container possibly the host's number.
        utilisation: the largest share of time in which its kernels ran, in percent.
    """

    pid: int
    utilisation: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of timed rounds, gathered around blocks of them.

    Attributes:
        blocks: blocks of rounds that were looked at.
        throttled_blocks: those during which the GPU throttled.
        discarded_rounds: the rounds of the throttled blocks, but for those that were kept.
        throttle_reasons: why it throttled, in words, each once.
        kept_throttled_rounds: rounds that were kept although it throttled, since it did so again
            and again.
        power_capped_blocks: blocks at the power limit. That is how heavy work runs on this GPU:
            told, not discarded.
        contenders: other processes that worked on the GPU during the blocks.
        sm_clock_mhz_low: lowest SM clock seen, in MHz; None where it could not be read.
        sm_clock_mhz_high: highest SM clock seen, in MHz.
        sm_clock_mhz_max: the highest SM clock that this GPU has, in MHz.
        why_unknown: why clock and throttling could not be read; empty where they were.
        why_contention_unknown: why the work of other processes could not be seen; empty where
            it was looked for.
    """

    blocks: int = 0
    throttled_blocks: int = 0
    discarded_rounds: int = 0
    throttle_reasons: tuple[str, ...] = ()
    power_capped_blocks: int = 0
    kept_throttled_rounds: int = 0
    contenders: tuple[Contender, ...] = ()
    sm_clock_mhz_low: int | None = None
    sm_clock_mhz_high: int | None = None
    sm_clock_mhz_max: int | None = None
    why_unknown: str = ""
    why_contention_unknown: str = ""

    @property
    def contended(self) -> bool:
        """Whether other work was seen on the GPU: a timed verdict is then INCONCLUSIVE."""
        return bool(self.contenders)

    @property
    def doubt(self) -> str:
        """Why no timed verdict can stand on these rounds, in words; empty where one can."""
        if self.contended:
            return self._contention()
        if self.kept_throttled_rounds:
            return f"the GPU throttled ({', '.join(self.throttle_reasons)}) in three tries"
        return ""

    def keeping_throttled(self, rounds: int) -> Conditions:
        """The same, where so many rounds were kept, not discarded, although the GPU throttled."""
        discarded = self.discarded_rounds - rounds
        return replace(self, kept_throttled_rounds=rounds, discarded_rounds=discarded)

    def plain(self) -> dict[str, Any]:
        """The same as builtins, for a profile's recording and for JSON."""
        return {**asdict(self), "throttle_reasons": list(self.throttle_reasons)} | {
            "contenders": [asdict(contender) for contender in self.contenders]
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Conditions:
        """Read back what ``plain`` wrote.

        Raises:
            TypeError: the mapping holds other keys.
        """
        contenders = tuple(Contender(**contender) for contender in plain["contenders"])
        reasons = tuple(plain["throttle_reasons"])
        return cls(**{**plain, "contenders": contenders, "throttle_reasons": reasons})

    def words(self) -> str:
        """One line for a report or a failure's footing; empty where nothing was looked at."""
        if not self.blocks and not self.why_unknown:
            return ""
        parts = [self._clock(), self._throttling(), self._power(), self._contention()]
        return "; ".join(part for part in parts if part)

    def _clock(self) -> str:
        if self.why_unknown:
            return f"clock and throttling unknown: {self.why_unknown}"
        low, high = self.sm_clock_mhz_low, self.sm_clock_mhz_high
        if low is None or high is None:
            return ""
        clock = f"SM clock {low} MHz" if low == high else f"SM clock {low} to {high} MHz"
        return f"{clock} of {self.sm_clock_mhz_max}" if self.sm_clock_mhz_max else clock

    def _throttling(self) -> str:
        if not self.throttled_blocks:
            return ""
        return (
            f"THROTTLED ({', '.join(self.throttle_reasons)}) in {self.throttled_blocks} of "
            f"{self.blocks} blocks, {self.discarded_rounds} rounds discarded"
        )

    def _power(self) -> str:
        if not self.power_capped_blocks:
            return ""
        return f"at the power limit in {self.power_capped_blocks} of {self.blocks} blocks"

    def _contention(self) -> str:
        if self.contenders:
            named = ", ".join(f"pid {c.pid} up to {c.utilisation} %" for c in self.contenders)
            return f"CONTENDED: other processes worked on this GPU ({named})"
        if self.why_contention_unknown and self.why_contention_unknown != self.why_unknown:
            return f"other processes unknown: {self.why_contention_unknown}"
        return ""
