"""Where a profile was taken, how complete it is and where its overhead lies, in words."""

from __future__ import annotations

import pytest
from records import CPU, H200, counted, mlp, profile

from pytest_kernelprof.records.profile import Bound, Place, Profile
from pytest_kernelprof.records.recording import Conditions, Environment, Integrity, Neighbour
from pytest_kernelprof.summary import wording
from pytest_kernelprof.summary.verdicts import footing, integrity_words


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (H200, "NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0"),
        (CPU, "CPU (x86_64), torch 2.11.0+cu130"),
        (Environment("cuda", "NVIDIA H200"), "NVIDIA H200"),
    ],
)
def test_a_place_is_device_and_versions(environment: Environment, words: str) -> None:
    assert wording.machine(environment) == words


def test_a_line_is_named_without_its_folders() -> None:
    assert wording.line_of(Place("tests/unit/test_mlp.py", 31)) == "test_mlp.py:31"


@pytest.mark.parametrize(
    ("integrity", "words"),
    [
        (Integrity(("a", "b")), "INCOMPLETE: a, b"),
        (Integrity(launches=10, matched=10), "complete: 10/10 launches matched in 2 rounds"),
        (Integrity(graph_replays="proved"), ", graph replay proved"),
        (Integrity(unknown_launches=2), ", 2 kernels without a recorded launch call"),
        (Integrity(leaked=3), ", 3 activities of earlier work left out"),
        (Integrity(forks=2), ", forked 2 times: what children do is not counted"),
        (Integrity(cold=("Lazy Function Loading",)), ", COLD (Lazy Function Loading)"),
    ],
)
def test_completeness_is_told_in_words(integrity: Integrity, words: str) -> None:
    assert integrity_words(mlp(integrity=integrity)).endswith(words)


def test_one_round_is_not_called_rounds() -> None:
    assert integrity_words(mlp(rounds=1)) == "complete: 10/10 launches matched"


def test_compilations_of_the_profiled_calls_are_told() -> None:
    words = integrity_words(mlp(counted("recompiles", 3)))
    assert words.endswith(", compilations during the profiled calls: 3")


def test_a_compiler_that_gave_up_is_told() -> None:
    words = integrity_words(mlp(counted("recompiles", 3, why="it gave up")))
    assert words.endswith(", compilations during the profiled calls: 3 (it gave up)")


def test_on_the_cpu_it_is_said_what_is_counted() -> None:
    words = integrity_words(profile(environment=CPU))
    assert words == "complete: CPU operators counted, not GPU kernels"


BUSY = Conditions(blocks=1, contenders=(Neighbour(7, 60),))


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (
            mlp(),
            "complete: 10/10 launches matched in 2 rounds",
        ),
        (
            mlp(bound=Bound("overhead", "300us a call")),
            "rounds; overhead-bound (300us a call)",
        ),
        (mlp(bound=Bound("memory", "busy")), "rounds; memory-bound (busy)"),
        (
            mlp(conditions=BUSY),
            "; CONTENDED: other processes worked on this GPU (pid 7 up to 60 %)",
        ),
        (mlp(conditions=Conditions(blocks=1, sm_clock_mhz_low=9, sm_clock_mhz_high=9)), "2 rounds"),
        (
            mlp(conditions=Conditions(2, 1, 12, ("heat",))),
            "; THROTTLED (heat) in 1 of 2 blocks, 12 rounds discarded",
        ),
        (
            profile(environment=CPU, integrity=Integrity(("a round is missing",))),
            "INCOMPLETE: a round is missing",
        ),
    ],
    ids=["usual", "overhead", "no overhead", "contended", "quiet", "throttled", "CPU"],
)
def test_a_footing_says_where_how_complete_and_what_was_odd(of: Profile, words: str) -> None:
    assert footing(of).endswith(words)
