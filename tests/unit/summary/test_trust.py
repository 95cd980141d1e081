"""How far the profiles of a run can be trusted."""

from __future__ import annotations

import pytest
from records import CPU, mlp, profile

from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import Profile
from pytest_kernelprof.records.recording import Conditions, Integrity, Neighbour
from pytest_kernelprof.summary.run import summary_of


def integrity(*profiles: Profile) -> str:
    return summary_of(Run((Test("t.py::t", profiles),))).integrity


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (mlp(), "1 profile"),
        (mlp(integrity=Integrity(retakes=1)), "1 profile, 1 retried"),
        (mlp(integrity=Integrity(("lost",))), "1 profile, 1 incomplete"),
        (mlp(integrity=Integrity(cold=("loading",))), "1 profile, 1 cold"),
        (mlp(integrity=Integrity(settled=False)), "1 profile, 1 cold"),
        (
            mlp(integrity=Integrity(graph_replays="unproven")),
            "1 profile, 1 with unproven graph replays",
        ),
        (
            mlp(conditions=Conditions(1, contenders=(Neighbour(7, 9),))),
            "1 profile, 1 timed while other processes used the GPU",
        ),
        (
            mlp(conditions=Conditions(2, 1, 12)),
            "1 profile, 12 rounds discarded because the GPU throttled",
        ),
        (profile(environment=CPU), "1 profile"),
    ],
)
def test_one_line_says_how_far_the_profiles_can_be_trusted(of: Profile, words: str) -> None:
    assert integrity(of) == words


def test_several_profiles_are_counted() -> None:
    assert integrity(mlp(), mlp()) == "2 profiles"


def test_where_some_are_of_the_cpu_that_is_said() -> None:
    assert integrity(mlp(), profile(environment=CPU)) == (
        "2 profiles, 1 of CPU operators, not GPU kernels"
    )
