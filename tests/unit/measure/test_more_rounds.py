"""More rounds of a call, in a session that stays open between them."""

from __future__ import annotations

import pytest
import torch

from pytest_kernelprof.errors import ProfilerUnavailable
from pytest_kernelprof.gpu.conditions import no_times
from pytest_kernelprof.gpu.inventory import current_device
from pytest_kernelprof.measure import sessions
from pytest_kernelprof.measure.arguments import Arguments, preparer
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure
from pytest_kernelprof.measure.sessions import MoreRounds
from pytest_kernelprof.profiler.unprofiled_rounds import RepeatedCall

X = torch.ones(4)


def more(call: object = None) -> MoreRounds:
    prepare = preparer(call or torch.add, Arguments((X, X)))  # type: ignore[arg-type]
    return MoreRounds(RepeatedCall(current_device("cpu"), prepare, flush_l2=True))


@pytest.fixture
def _timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU a round takes what its number is."""
    monkeypatch.setattr(
        sessions,
        "times_of",
        lambda taken: tuple(map(float, range(1, taken.facts.profile.rounds + 1))),
    )


@pytest.mark.usefixtures("_timed")
def test_rounds_that_are_taken_now_and_then_are_of_one_session() -> None:
    series = more()
    series.open()
    for rounds in (2, 3):
        series.take(rounds)
    sampled = series.sample()
    assert sampled.us == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert sampled.problem == ""
    series.leave()  # nothing is open


def test_a_call_that_raises_closes_the_session() -> None:
    def fail(*_: object) -> None:
        raise ValueError("no")

    series = more(fail)
    series.open()
    with pytest.raises(ValueError, match="no"):
        series.take(1)
    assert is_free()


def test_a_session_that_nobody_wants_is_closed() -> None:
    series = more()
    series.open()
    other = more()
    with pytest.raises(ProfilerUnavailable):
        other.open()
    series.leave()
    assert is_free()


def is_free() -> bool:
    series = more()
    series.open()
    series.leave()
    return True


def test_rounds_of_other_kernels_each_are_no_ground() -> None:
    calls = []

    def grow(*_: object) -> None:
        calls.append(1)
        for _ in calls:
            torch.add(X, X)

    series = more(grow)
    series.open()
    series.take(2)
    assert series.sample().problem == "a call has 1 to 2 kernels"


def test_on_the_cpu_nothing_is_timed() -> None:
    assert "on the CPU" in more().why_untimed()


def test_under_mps_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda_double import GPU

    monkeypatch.setattr("pytest_kernelprof.gpu.conditions.is_shared", lambda index: True)
    on_gpu = MoreRounds(RepeatedCall(GPU, more().repeated.prepare))
    assert on_gpu.why_untimed() == no_times(GPU)["cuda_time"]


def test_a_measured_call_can_be_made_again_with_the_arguments_of_its_setup() -> None:
    arguments = Arguments((), {}, lambda: (torch.ones(3), torch.ones(3)))
    result, measured = measure(torch.add, Plan("cpu"), arguments)
    assert measured.more is not None
    assert measured.more.work(result) == (
        "argument 1: float32 3, strides (1,), cpu",
        "argument 2: float32 3, strides (1,), cpu",
        "the result: float32 3, strides (1,), cpu",
    )
