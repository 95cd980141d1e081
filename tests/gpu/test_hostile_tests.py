"""Tests that patch torch.cuda or break CUDA: right or refused, and the next test is as if alone."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch._subclasses import FakeTensorMode

from pytest_kernelprof.gpu.inventory import current_device
from pytest_kernelprof.measure.policy import EVERYTHING, Plan, plan_of
from pytest_kernelprof.measure.runner import measure, measure_once
from pytest_kernelprof.profiler.unprofiled_rounds import flush_l2
from pytest_kernelprof.records.profile import Profile

PATCHED = [
    "torch.cuda.is_available",
    "torch.cuda.is_initialized",
    "torch.cuda.synchronize",
    "torch.cuda.current_device",
    "torch.cuda.current_stream",
    "torch.cuda.device_count",
    "torch.cuda.get_device_properties",
    "torch.cuda.is_current_stream_capturing",
    "torch.cuda._sleep",
    "torch.cuda.device",
    "torch.cuda._lazy_init",
    "torch.cuda.memory_stats",
    "torch.cuda.memory._record_memory_history",
    "torch.cuda.memory._snapshot",
    "torch.profiler.record_function",
    "torch.autograd.profiler._disable_profiler",
]


def count(fn: Callable[[], object]) -> Profile:
    return measure(fn, Plan("cuda"))[1].profile


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(64, 64, device="cuda")


@pytest.fixture(autouse=True)
def next_is_sound(x: torch.Tensor) -> Iterator[None]:
    yield
    assert not torch.autograd.profiler._is_profiler_enabled
    profile = count(lambda: x + 1)
    assert (profile.kernel_count, profile.integrity.complete) == (1, True)


@pytest.mark.parametrize("when", ["before", "inside"])
@pytest.mark.parametrize("name", PATCHED)
@pytest.mark.parametrize(
    "answer", [mock.Mock(side_effect=ValueError), mock.Mock(return_value=False)]
)
def test_a_count_is_right_whatever_is_patched(
    name: str, when: str, answer: mock.Mock, x: torch.Tensor
) -> None:
    with contextlib.ExitStack() as patches:
        if when == "before":
            patches.enter_context(mock.patch(name, answer))
        with measure_once(Plan("cuda")) as found:
            if when == "inside":
                patches.enter_context(mock.patch(name, answer))
            x + 1
    assert found[0].profile.kernel_count == 1
    assert found[0].profile.integrity.complete


@pytest.mark.parametrize("name", PATCHED)
def test_a_whole_measurement_is_right_whatever_is_patched(name: str, x: torch.Tensor) -> None:
    with mock.patch(name, mock.Mock(side_effect=ValueError)):
        profile = measure(lambda: x + 1, plan_of("cuda", EVERYTHING, rounds=12))[1].profile
    assert profile.kernel_count == 1
    assert profile.metrics["peak_memory"].value == x.numel() * x.element_size()


def test_the_memory_history_is_off_again_although_it_is_patched(x: torch.Tensor) -> None:
    with mock.patch("torch.cuda.memory._record_memory_history"):
        measure(lambda: x + 1, plan_of("cuda", EVERYTHING, rounds=2))
    assert not torch._C._cuda_isHistoryEnabled()


@pytest.mark.parametrize("mode", [torch.inference_mode, FakeTensorMode, torch.no_grad])
def test_the_flush_of_the_next_test_is_whole_whatever_mode_the_first_is_in(
    mode: Callable[[], contextlib.AbstractContextManager[object]],
    x: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_kernelprof.profiler.unprofiled_rounds._l2_buffers", {})
    flush = partial(flush_l2, current_device("cuda"))
    with mode():
        flush()
    flush()
    kernels = [kernel.name for kernel in count(flush).kernels]
    assert len(kernels) >= 1


def test_a_session_that_raises_does_not_wait_for_a_kernel_that_takes_long(
    x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_kernelprof.profiler.session._PATIENCE_S", 0.2)

    def takes_long() -> None:
        torch.cuda._sleep(4_000_000_000)  # some two seconds
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), measure_once(Plan("cuda")):
        takes_long()


def test_a_block_that_is_never_left_is_ended() -> None:
    from pytest_kernelprof.profiler.torch_profiler import end_left_open

    block = measure_once(Plan("cuda"))
    block.__enter__()
    assert end_left_open()


def test_a_block_that_a_thread_never_left_keeps_no_next_one_from_being_right() -> None:
    from pytest_kernelprof.profiler.torch_profiler import end_left_open

    block = measure_once(Plan("cuda"))
    thread = threading.Thread(target=block.__enter__)
    thread.start()
    thread.join()
    end_left_open()


ASSERT = """
import pytest, torch
x = torch.randn(64, device="cuda")
@pytest.mark.max_kernels(1)
def test_before(kernel_profile):
    kernel_profile(torch.add, x, 1)
def test_culprit(kernel_profile):
    kernel_profile(lambda: x[torch.tensor([10**6], device="cuda")])
@pytest.mark.xfail
@pytest.mark.max_kernels(1)
def test_gpu(kernel_profile):
    kernel_profile(torch.add, x, 1)
@pytest.mark.max_kernels(1)
@pytest.mark.kernelprof(device="cpu")
def test_cpu(kernel_profile):
    kernel_profile(torch.add, torch.ones(4), 1)
def test_plain():
    pass
"""


@pytest.mark.parametrize("option", [[], ["--kernelprof-all"]])
@pytest.mark.parametrize("profiled", [True, False])
def test_a_broken_context_is_an_error_of_the_later_gpu_tests_which_names_the_culprit(
    tmp_path: Path, option: list[str], profiled: bool
) -> None:
    code = textwrap.dedent(ASSERT)
    if not profiled:
        code = code.replace("def test_culprit(kernel_profile)", "def test_culprit()")
        code = code.replace("kernel_profile(lambda: x[", "print((lambda: x[").replace(
            'device="cuda")])\n@', 'device="cuda")])())\n@'
        )
    (tmp_path / "test_it.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *option, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "3 passed" in done.stdout
    # The culprit fails, or, profiled, its number could not be had: what breaks in a warm-up shows
    # there or, since a device is asynchronous, when the rounds begin.
    of_the_culprit = ("1 failed", "2 errors") if profiled else ("1 failed",)
    assert any(words in done.stdout for words in of_the_culprit)
    assert "2 errors" in done.stdout or "1 error" in done.stdout
    assert "test_culprit broke CUDA in this process" in done.stdout
