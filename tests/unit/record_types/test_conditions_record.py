"""Conditions of timed rounds: what of them disturbs, and what is kept of throttled rounds."""

from __future__ import annotations

import pytest

from pytest_kernelprof.records.codec import decode, encode
from pytest_kernelprof.records.recording import Conditions, Neighbour

ROUGH = Conditions(
    blocks=4,
    throttled_blocks=2,
    discarded_rounds=36,
    throttle_reasons=("power brake",),
    contenders=(Neighbour(17, 60),),
)


def test_rounds_that_were_kept_were_not_discarded() -> None:
    kept = ROUGH.keeping_throttled(12)
    assert (kept.discarded_rounds, kept.kept_throttled_rounds) == (24, 12)


def test_contended_is_what_has_contenders() -> None:
    assert ROUGH.contended
    assert not Conditions(blocks=1).contended


@pytest.mark.parametrize(
    ("conditions", "disturbed"),
    [
        (Conditions(blocks=1), False),
        (Conditions(blocks=1, throttled_blocks=1, discarded_rounds=12), False),
        (Conditions(blocks=1, discarded_rounds=12).keeping_throttled(12), True),
        (Conditions(blocks=1, contenders=(Neighbour(17, 60),)), True),
    ],
    ids=["quiet", "discarded", "kept", "contended"],
)
def test_disturbed_is_what_is_contended_or_keeps_throttled_rounds(
    conditions: Conditions, disturbed: bool
) -> None:
    assert conditions.disturbed == disturbed


@pytest.mark.parametrize("conditions", [ROUGH, Conditions()])
def test_conditions_survive_json(conditions: Conditions) -> None:
    assert decode(encode(conditions), Conditions) == conditions
