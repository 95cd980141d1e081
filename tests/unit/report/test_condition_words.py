"""The conditions of timed rounds in words."""

from __future__ import annotations

import pytest

from pytest_kernelprof.records.recording import Conditions, Neighbour
from pytest_kernelprof.summary import wording

ROUGH = Conditions(
    blocks=4,
    throttled_blocks=2,
    discarded_rounds=24,
    throttle_reasons=("power brake", "thermal slowdown"),
    power_capped_blocks=1,
    contenders=(Neighbour(17, 60), Neighbour(99, 5)),
    sm_clock_mhz_low=1410,
    sm_clock_mhz_high=1980,
    sm_clock_mhz_max=1980,
)


def test_words_say_clock_throttling_power_and_other_processes() -> None:
    assert wording.conditions(ROUGH) == (
        "SM clock 1410 to 1980 MHz of 1980; THROTTLED (power brake, thermal slowdown) in 2 of 4 "
        "blocks, 24 rounds discarded; at the power limit in 1 of 4 blocks; CONTENDED: other "
        "processes worked on this GPU (pid 17 up to 60 %, pid 99 up to 5 %)"
    )


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        (Conditions(), ""),
        (Conditions(blocks=3), ""),
        (
            Conditions(1, sm_clock_mhz_low=1980, sm_clock_mhz_high=1980, sm_clock_mhz_max=1980),
            "SM clock 1980 MHz of 1980",
        ),
        (
            Conditions(why_unknown="no driver", why_contention_unknown="no driver"),
            "clock and throttling unknown: no driver",
        ),
        (Conditions(1, why_contention_unknown="refused"), "other processes unknown: refused"),
        (
            Conditions(1, contenders=(Neighbour(7, 50),), why_contention_unknown="refused later"),
            "CONTENDED: other processes worked on this GPU (pid 7 up to 50 %)",
        ),
    ],
)
def test_words_say_only_what_there_is_to_say(conditions: Conditions, words: str) -> None:
    assert wording.conditions(conditions) == words


THROTTLED = Conditions(blocks=3, discarded_rounds=36, throttle_reasons=("power brake", "heat"))


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        (Conditions(blocks=3), ""),
        (THROTTLED, ""),
        (THROTTLED.keeping_throttled(12), "the GPU throttled (power brake, heat) in three tries"),
        (
            ROUGH,
            "CONTENDED: other processes worked on this GPU (pid 17 up to 60 %, pid 99 up to 5 %)",
        ),
    ],
    ids=["quiet", "throttled rounds discarded", "throttled rounds kept", "contended"],
)
def test_a_doubt_is_what_keeps_times_from_being_judged(conditions: Conditions, words: str) -> None:
    assert wording.doubt(conditions) == words
