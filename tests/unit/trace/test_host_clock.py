"""The clock that times calls, held against the trace's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from built import profile_of, reading_of_events, round_of
from records import profile

from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.measure.policy import require_clock
from pytest_kernelprof.records.recording import Integrity
from pytest_kernelprof.trace.integrity import check_integrity

TIMINGS = {"latency_us": [0.0] * 2, "dispatch_us": [0.0] * 2, "floor_us": [0.0] * 2}


def clocked(folder: Path, *round_us: float, lengths: tuple[float, ...] = (100, 100)) -> str:
    """What is said of rounds of these lengths, clocked so."""
    rounds = [round_of(i, 1_000_000 * i, length) for i, length in enumerate(lengths)]
    noted = {"schema": 1, "device_kind": "cpu", "round_us": list(round_us)}
    return check_integrity(reading_of_events(folder, *rounds, kernelprof=noted)).clock


@pytest.mark.parametrize(
    "round_us",
    [
        (101, 103),
        (100, 99.5),
        (4_000, 130),  # the machine was busy in between
        (900, 1_500),
        (),  # of a trace from elsewhere, or from before rounds were clocked
        (0.0,),  # a round is missing, which is told by itself
    ],
)
def test_a_true_clock_is_believed(tmp_path: Path, round_us: tuple[float, ...]) -> None:
    assert clocked(tmp_path, *round_us) == ""


@pytest.mark.parametrize(
    "round_us",
    [
        (0, 0),  # it stands still
        (101, 0),
        (-1, -1),  # it goes backwards
        (101, -3),
        (50, 51),  # it is slow
        (1.5e7, 1.5e7),  # 15 s a reading
    ],
)
def test_a_clock_that_runs_otherwise_is_not(tmp_path: Path, round_us: tuple[float, ...]) -> None:
    words = clocked(tmp_path, *round_us)
    assert words.startswith("not available: the clock of this process does not run as the")
    assert "200.0us by the other" in words


def test_a_busy_machine_is_no_reason_for_doubt(tmp_path: Path) -> None:
    """As one was seen, where a block has one round."""
    assert clocked(tmp_path, 8_931.6, lengths=(763.2,)) == ""


def test_short_rounds_are_no_reason_for_doubt(tmp_path: Path) -> None:
    assert clocked(tmp_path, 1.2, 1.9, lengths=(2, 2)) == ""


def test_times_by_a_false_clock_are_not_given_and_counts_are(tmp_path: Path) -> None:
    noted = {
        "schema": 1,
        "device_kind": "cpu",
        "compute_operators": [],
        "round_us": [0, 0],
        "host_timings": TIMINGS,
        "second_look": TIMINGS,
    }
    rounds = [round_of(0, 0, 100), round_of(1, 1000, 100)]
    found = profile_of(tmp_path, *rounds, kernelprof=noted)
    for name in ("latency", "dispatch_time"):
        assert found.metrics[name].value is None
        assert "clock of this process" in found.metrics[name].why
    assert found.record.second_look == {}
    assert found.integrity.complete
    assert found.kernel_count == 0


def test_who_times_by_the_clock_asks_for_it() -> None:
    require_clock(profile())
    with pytest.raises(IncompleteProfile, match="times why"):
        require_clock(profile(integrity=Integrity(clock="why")))
