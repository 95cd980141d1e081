"""The option --kernelprof-disable: wrapped code runs plainly, once; nothing is limited."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


@pytest.mark.project(
    """
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    calls = []
    assert kernel_profile(lambda: calls.append(1) or 7) == 7
    assert calls == [1]
""",
    "--kernelprof-disable",
)
def test_code_runs_once_and_hands_back_its_result(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=1)


def test_setup_runs_once_and_makes_the_arguments(run: Run) -> None:
    result = run(
        """
def test_it(kernel_profile):
    made = []
    assert kernel_profile.run(lambda n: n + 1, setup=lambda: made.append(1) or (6,)) == 7
    assert made == [1]
""",
        "--kernelprof-disable",
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "code",
    [
        "@pytest.mark.max_kernels(0)\ndef test_it(kernel_profile): kernel_profile(three)\n",
        "@pytest.mark.max_kernels(0)\ndef test_it(): three()\n",
        "def test_it(kernel_profile):\n"
        "    kernel_profile.limit(max_kernels=0)\n    kernel_profile(three)\n",
        "def test_it(kernel_profile):\n"
        "    with kernel_profile.region('it', max_kernels=0): three()\n",
    ],
    ids=["marker", "whole call", "limit", "region"],
)
def test_nothing_is_limited(run: Run, code: str) -> None:
    run(code, "--kernelprof-disable").assert_outcomes(passed=1)


def test_no_profiler_runs_so_that_one_can_be_used_by_hand(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    def by_hand():
        with torch.profiler.profile() as mine:
            three()
        return len(mine.events())
    assert kernel_profile(by_hand) > 0
""",
        "--kernelprof-disable",
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "look",
    [
        "kernel_profile(three)\n    kernel_profile.last.kernel_count",
        "kernel_profile(three)\n    kernel_profile.profiles[0].kernel_count",
        "with kernel_profile.region('it') as region: three()\n    region.profile.kernel_count",
    ],
    ids=["last", "profiles", "region"],
)
def test_a_test_that_looks_at_a_profile_skips(run: Run, look: str) -> None:
    result = run(f"def test_it(kernel_profile):\n    {look}\n", "--kernelprof-disable")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        ["SKIPPED *: --kernelprof-disable: *; there is no profile to look at"]
    )


def test_a_gpu_limit_does_not_skip_the_test(run: Run, no_gpu: None) -> None:
    result = run(
        "@pytest.mark.max_syncs(0)\ndef test_it(kernel_profile): kernel_profile(three)\n",
        "--kernelprof-disable",
        device=None,
    )
    result.assert_outcomes(passed=1)


def test_all_profiles_nothing(run: Run) -> None:
    result = run(
        "def test_it(): three()\n",
        "--kernelprof-disable",
        "--kernelprof-all",
        "--kernelprof-report",
    )
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*kernel profiles*")


def test_a_test_marked_for_the_cpu_stays_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_kernelprof.gpu import inventory as devices

    monkeypatch.setattr(devices, "why_no_gpu", lambda: "")  # a machine with a GPU
    result = run(
        """
@pytest.mark.kernelprof(device="cpu")
def test_it(kernel_profile, kernelprof_device):
    assert kernel_profile(lambda: kernelprof_device) == "cpu"
""",
        "--kernelprof-disable",
        device=None,
    )
    result.assert_outcomes(passed=1)
