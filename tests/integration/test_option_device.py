"""The option --kernelprof-device and the fixture kernelprof_device."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


DEVICE_FREE = """
@pytest.mark.max_kernels(2)
def test_it(kernel_profile, kernelprof_device):
    assert kernelprof_device == "cpu"
    kernel_profile(three)
"""
GPU_ONLY = """
@pytest.fixture
def expensive():
    raise RuntimeError("a fixture of a skipped test ran")
@pytest.mark.max_kernels(2)
def test_it(expensive, kernel_profile):
    kernel_profile(three)
"""


@pytest.mark.project(
    "@pytest.mark.max_kernels(2)\ndef test_it(kernel_profile): kernel_profile(three)\n"
)
def test_cpu_counts_compute_operators_of_any_test(result: pytest.RunResult) -> None:
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 3 > limit 2", "  at test_it.py:5", "    5 | *"])


@pytest.mark.parametrize("device", [None, "auto"])
def test_auto_runs_a_test_that_asks_for_the_device_on_the_cpu_where_there_is_no_gpu(
    run: Run, no_gpu: None, device: str | None
) -> None:
    result = run(DEVICE_FREE, device=device)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 3 > limit 2", "  at test_it.py:5", "    5 | *"])


def test_a_test_marked_for_cuda_is_skipped_before_its_fixtures_run(run: Run, no_gpu: None) -> None:
    marker = '@pytest.mark.kernelprof(device="cuda")'
    code = GPU_ONLY.replace("@pytest.mark.max", f"{marker}\n@pytest.mark.max")
    for options in ((), ("--kernelprof-disable",)):
        result = run(code, *options, device=None)
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines(["SKIPPED * test_it.py:*: no CUDA device: *"])


def test_the_ini_key_skips_all_such_tests_before_their_fixtures_run(
    run: Run, pytester: pytest.Pytester, no_gpu: None
) -> None:
    pytester.makeini("[pytest]\nkernelprof_device = cuda\n")
    run(GPU_ONLY, device=None).assert_outcomes(skipped=1)


def test_hidden_gpus_are_named_as_the_cause_where_torch_has_cuda(
    pytester: pytest.Pytester, run_apart: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    pytester.makepyfile(
        "def test_it(kernel_profile):\n    kernel_profile(lambda: None)\n    kernel_profile.last\n"
    )
    result = run_apart("-rs")
    result.assert_outcomes(skipped=1)
    built = "is built without CUDA" in result.stdout.str()
    assert built or "CUDA_VISIBLE_DEVICES='' leaves none visible to torch" in result.stdout.str()


def test_cuda_skips_every_test_where_there_is_no_gpu(run: Run, no_gpu: None) -> None:
    result = run(DEVICE_FREE, device="cuda")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * test_it.py:*: no CUDA device: *"])


def test_a_plain_test_runs_without_a_gpu(run: Run, no_gpu: None) -> None:
    run("def test_it(): pass\n", device=None).assert_outcomes(passed=1)


def test_the_device_can_be_had_without_profiling(run: Run, no_gpu: None) -> None:
    code = "def test_it(kernelprof_device): assert kernelprof_device == 'cpu'\n"
    run(code, device=None).assert_outcomes(passed=1)


def test_another_device_is_a_usage_error(run: Run) -> None:
    result = run("def test_it(): pass\n", device="tpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --kernelprof-device: got 'tpu'; expected one of auto, cuda, cpu"]
    )
