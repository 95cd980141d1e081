"""How far the profiles of a run can be trusted."""

from __future__ import annotations

import pytest
from records import CPU, mlp, profile

from pytest_kernelprof.schema.run import Conditions, Integrity, Neighbour, Profile
from pytest_kernelprof.summary.totals import integrity_line, trust_of


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (mlp(), "1 profile"),
        (mlp(integrity=Integrity(retakes=1)), "1 profile, 1 taken again"),
        (mlp(integrity=Integrity(("lost",))), "1 profile, 1 incomplete"),
        (mlp(integrity=Integrity(cold=("loading",))), "1 profile, 1 cold"),
        (mlp(integrity=Integrity(settled=False)), "1 profile, 1 cold"),
        (
            mlp(integrity=Integrity(graph_replays="unproven")),
            "1 profile, 1 with unproven graph replays",
        ),
        (
            mlp(conditions=Conditions(1, contenders=(Neighbour(7, 9),))),
            "1 profile, 1 timed while other processes worked on the GPU",
        ),
        (
            mlp(conditions=Conditions(2, 1, 12)),
            "1 profile, 12 rounds discarded, since the GPU throttled",
        ),
        (profile(environment=CPU), "1 profile"),
    ],
)
def test_one_line_says_how_far_the_profiles_can_be_trusted(of: Profile, words: str) -> None:
    assert integrity_line(trust_of([of])) == words


def test_several_profiles_are_counted() -> None:
    assert integrity_line(trust_of([mlp(), mlp()])) == "2 profiles"


def test_where_some_are_of_the_cpu_that_is_said() -> None:
    assert integrity_line(trust_of([mlp(), profile(environment=CPU)])) == (
        "2 profiles, 1 of CPU operators, which are no kernels"
    )
