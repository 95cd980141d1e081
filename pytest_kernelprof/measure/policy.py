"""Sampling on: how many rounds a timed verdict gets, and what it still needs."""

from __future__ import annotations

from dataclasses import dataclass

MOST_ROUNDS = 96
"""Where sampling ends: after 12, 24 and 48 rounds the interval has been looked at three times."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What the verdicts on a profile still need to be reached.

    Attributes:
        device_rounds: more profiled rounds, for times of the device.
        host_rounds: more unprofiled calls, for times of the host.
        second_look: a second, separate measurement of the host's times, since a limit on one is
            about to fail: enqueue times differ by 40 % between one state of a machine and another.
    """

    device_rounds: bool = False
    host_rounds: bool = False
    second_look: bool = False


def next_rounds(taken: int) -> int:
    """How many more rounds to take after so many: as many again, up to `MOST_ROUNDS` in all."""
    return max(0, min(taken, MOST_ROUNDS - taken))
