"""Conditions in words and as plain data."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_kernelprof.schema.conditions import Conditions, Contender

ROUGH = Conditions(
    blocks=4,
    throttled_blocks=2,
    discarded_rounds=24,
    throttle_reasons=("power brake", "thermal slowdown"),
    power_capped_blocks=1,
    contenders=(Contender(17, 60), Contender(99, 5)),
    sm_clock_mhz_low=1410,
    sm_clock_mhz_high=1980,
    sm_clock_mhz_max=1980,
)


def test_words_say_clock_throttling_power_and_other_processes() -> None:
    assert ROUGH.words() == (
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
            Conditions(1, contenders=(Contender(7, 50),), why_contention_unknown="refused later"),
            "CONTENDED: other processes worked on this GPU (pid 7 up to 50 %)",
        ),
    ],
)
def test_words_say_only_what_there_is_to_say(conditions: Conditions, words: str) -> None:
    assert conditions.words() == words


def test_rounds_that_were_kept_were_not_discarded() -> None:
    kept = replace(ROUGH, discarded_rounds=36).keeping_throttled(12)
    assert (kept.discarded_rounds, kept.kept_throttled_rounds) == (24, 12)


def test_contended_is_what_has_contenders() -> None:
    assert ROUGH.contended
    assert not Conditions(blocks=1).contended


@pytest.mark.parametrize("conditions", [ROUGH, Conditions()])
def test_plain_data_survives_json_and_comes_back(conditions: Conditions) -> None:
    assert Conditions.from_plain(json.loads(json.dumps(conditions.plain()))) == conditions
