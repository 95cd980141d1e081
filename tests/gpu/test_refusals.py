"""What cannot be measured says so, with cause and remedy; nothing is left running after it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch

from pytest_kernelprof.errors import IncompleteProfile, ProfilerUnavailable
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure, measure_once
from pytest_kernelprof.profiler.torch_profiler import canary_seen


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300
    )
    return done.stdout + done.stderr


def test_the_canary_is_seen_on_a_working_machine() -> None:
    measure(lambda: None, Plan("cuda"))
    assert canary_seen()


def test_a_running_profiler_is_refused_with_the_remedy() -> None:
    with torch.profiler.profile(), pytest.raises(ProfilerUnavailable, match="cannot nest"):
        measure(lambda: None, Plan("cuda"))


def test_a_profiler_inside_the_measured_code_is_an_error_and_the_next_profile_is_sound() -> None:
    x = torch.randn(16, device="cuda")

    def profiles_itself() -> None:
        with torch.profiler.profile():
            x + 1

    with pytest.raises(IncompleteProfile, match="another profiler"):
        measure(profiles_itself, Plan("cuda"))
    _, measurement = measure(lambda: x + 1, Plan("cuda"))
    assert measurement.profile.kernel_count == 1


def test_an_exception_of_the_measured_code_passes_through_and_closes_the_profiler() -> None:
    calls = []

    def fails_later() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        measure(fails_later, Plan("cuda"))
    assert not torch.autograd.profiler._is_profiler_enabled
    with pytest.raises(KeyError, match="block"), measure_once(Plan("cuda")):
        raise KeyError("block")
    assert not torch.autograd.profiler._is_profiler_enabled


def test_another_cupti_subscriber_is_named_as_the_cause() -> None:
    printed = run_python(
        """
        import ctypes, torch
        torch.zeros(1, device="cuda")
        path = [l.split()[-1] for l in open("/proc/self/maps") if "libcupti.so" in l][0]
        callback = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p
        )(lambda *_: None)
        handle = ctypes.c_void_p()
        assert ctypes.CDLL(path).cuptiSubscribe(ctypes.byref(handle), callback, None) == 0
        from pytest_kernelprof import profile
        try:
            profile(lambda: torch.zeros(1, device="cuda"))
        except Exception as error:
            print(type(error).__name__, error)
        """
    )
    assert "ProfilerUnavailable" in printed
    assert "Another CUPTI subscriber" in printed


def test_a_fork_after_cuda_is_named_as_the_cause() -> None:
    printed = run_python(
        """
        import os, torch
        torch.zeros(1, device="cuda")
        if os.fork() == 0:
            from pytest_kernelprof import profile
            try:
                profile(lambda: None, device="cuda")
            except Exception as error:
                print(type(error).__name__, error, flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert "ProfilerUnavailable" in printed
    assert "forked after CUDA" in printed


def test_hidden_gpus_are_named_as_the_cause() -> None:
    printed = run_python(
        """
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        from pytest_kernelprof import profile
        try:
            profile(lambda: None, device="cuda")
        except Exception as error:
            print(type(error).__name__, error)
        """
    )
    assert "CUDA_VISIBLE_DEVICES" in printed


def test_a_profiler_of_the_cpu_only_that_came_first_does_not_blind_the_plugin() -> None:
    printed = run_python(
        """
        import torch
        x = torch.zeros(10, device="cuda")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            x + 1
        from pytest_kernelprof import profile
        try:
            print("kernels", profile(lambda: x + 1).kernel_count)
        except Exception as error:
            print(type(error).__name__, error)
        """
    )
    assert "kernels 1" in printed or "ProfilerUnavailable" in printed
