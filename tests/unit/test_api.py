"""Profiling without pytest: ``profile(fn)``, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from unfinished import leaving_work

from pytest_kernelprof import Profile, profile
from pytest_kernelprof.errors import IncompleteProfile, ProfilerUnavailable

X = torch.ones(4)


def test_without_pytest_a_profile_is_one_call() -> None:
    found = profile(torch.mm, torch.ones(4, 4), torch.ones(4, 4), device="cpu", rounds=2)
    assert found.kernel_count == 1
    assert found.latency is not None


def test_without_pytest_an_incomplete_profile_is_an_error() -> None:
    with leaving_work() as call, pytest.raises(IncompleteProfile, match="profile incomplete"):
        profile(call, device="cpu", rounds=1)


def test_without_a_gpu_asking_for_one_is_refused_before_the_code_runs() -> None:
    calls: list[int] = []
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ProfilerUnavailable, match="no CUDA device"):
        profile(lambda: calls.append(1), device="cuda")
    assert calls == []


@pytest.mark.parametrize("rounds", [0, -1, True, 1.5, float("nan"), "2", "many", None])
def test_nonsense_in_rounds_without_pytest(rounds: Any) -> None:
    with pytest.raises(ValueError, match=r"rounds=.*: expected a whole number of one or more"):
        profile(lambda: None, device="cpu", rounds=rounds)


@pytest.mark.parametrize("device", ["tpu", "", "auto", 3])
def test_nonsense_in_device_without_pytest(device: Any) -> None:
    with pytest.raises(ValueError, match=r'device=.*: expected "cuda", "cpu" or None'):
        profile(lambda: None, device=device)


def test_a_result_in_place_of_a_callable_without_pytest() -> None:
    with pytest.raises(TypeError, match="profile takes a callable, got Tensor; write profile"):
        profile(X + 1, device="cpu")


def test_keyword_arguments_reach_the_call_without_pytest() -> None:
    found = profile(torch.sum, X.reshape(2, 2), dim=1, device="cpu", rounds=1)
    assert [kernel.name for kernel in found.kernels] == ["aten::sum"]


def test_rounds_are_those_of_the_session_that_the_kernels_are_of() -> None:
    found = profile(torch.mm, torch.ones(4, 4), torch.ones(4, 4), device="cpu", rounds=5)
    assert found.rounds == len(found.kernels_of_rounds()) <= len(found.metrics["kernels"].rounds)


def test_a_number_of_rounds_is_taken_of_both_kinds() -> None:
    calls: list[int] = []
    found = profile(lambda: calls.append(1), device="cpu", rounds=3)
    assert found.rounds == len(found.metrics["latency"].rounds) == 3
    assert len(calls) == 1 + 3 + 3


def test_a_saved_trace_gives_the_profile_back(tmp_path: Path) -> None:
    found = profile(torch.mm, torch.ones(4, 4), torch.ones(4, 4), device="cpu", rounds=2)
    found.save_trace(tmp_path / "trace.json.gz")
    again = Profile.from_trace(tmp_path / "trace.json.gz")
    assert again.record == found.record


def test_a_metric_is_an_attribute_and_what_is_none_is_named() -> None:
    found = profile(torch.exp, X, device="cpu", rounds=1)
    assert found.launches is None
    assert found.recompiles == 0
    with pytest.raises(AttributeError, match="no attribute or metric 'speed'; metrics: kernels,"):
        _ = found.speed
