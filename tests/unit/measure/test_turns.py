"""Callables in turn: the order of rounds, and whose value each is. The session is a stand-in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_kernelprof.device.inventory import Device
from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.measure import turns
from pytest_kernelprof.measure.turns import Turns

GPU = Device("cuda", 0, "a GPU", "sm_90", 0, {})
TIMES = {"a": 10.0, "b": 20.0, "c": 30.0}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was called, in order; a session's rounds take what `TIMES` says."""
    called: list[str] = []

    def session(device: Device, prepare: Any, rounds: int, *, flush_l2: bool) -> Any:
        begin = len(called)
        for _ in range(rounds):
            prepare()()
        names = called[begin:]
        metrics = {
            "cuda_time": SimpleNamespace(rounds=[TIMES[name] for name in names]),
            "kernels": SimpleNamespace(rounds=[len(called)] * len(names)),
        }
        return SimpleNamespace(
            integrity=SimpleNamespace(complete=True, problems=()), metrics=metrics
        )

    monkeypatch.setattr(turns, "profile_rounds", session)
    return called


def prepares(ran: list[str], *names: str) -> dict[str, Callable[[], Callable[[], Any]]]:
    return {name: lambda name=name: lambda: ran.append(name) for name in names}


def test_the_order_turns_round_each_time_also_from_one_look_to_the_next(ran: list[str]) -> None:
    two = Turns(GPU, "cuda_time", prepares(ran, "a", "b"), flush_l2=True)
    two.take(3)
    two.take(2)
    assert "".join(ran) == "abbaab" + "baab"


def test_each_value_goes_to_its_callable(ran: list[str]) -> None:
    three = Turns(GPU, "cuda_time", prepares(ran, "a", "b", "c"), flush_l2=True)
    assert three.take(4) == {"a": [10.0] * 4, "b": [20.0] * 4, "c": [30.0] * 4}
    assert {name: len(counts) for name, counts in three.kernels.items()} == {"a": 4, "b": 4, "c": 4}


def test_progress_is_told_of_each_round(ran: list[str]) -> None:
    told: list[tuple[str, int, int]] = []
    two = Turns(
        GPU,
        "cuda_time",
        prepares(ran, "a", "b"),
        flush_l2=True,
        measuring=lambda: contextlib.nullcontext(
            lambda what, done, of, reason="": told.append((what, done, of))
        ),
    )
    two.take(2)
    assert told == [("comparing", i, 4) for i in range(4)]


def test_three_incomplete_sessions_are_an_error(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = SimpleNamespace(
        integrity=SimpleNamespace(complete=False, problems=("a kernel is missing",)), metrics={}
    )
    monkeypatch.setattr(turns, "profile_rounds", lambda *args, **kwargs: lost)
    with pytest.raises(IncompleteProfile, match="incomplete 3 times: a kernel is missing"):
        Turns(GPU, "cuda_time", prepares(ran, "a", "b"), flush_l2=True).take(2)
