"""The ini key kernelprof_spread_workers: pytest-xdist workers are spread over the GPUs."""

from __future__ import annotations

import pytest

TESTS = """
import os, pathlib, time, pytest
@pytest.mark.parametrize("n", range(6))
def test_it(n):
    worker = os.environ.get("PYTEST_XDIST_WORKER", "none")
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
    pathlib.Path({folder!r}, f"{{worker}} {{gpu}}").touch()
    time.sleep(0.1)
"""


class Seen:
    """What each worker sees as its GPUs, in a run of its own."""

    def __init__(
        self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, python: str
    ) -> None:
        self._pytester, self._monkeypatch, self._python = pytester, monkeypatch, python
        self._folder = pytester.mkdir("seen")

    def __call__(self, variable: str, workers: int) -> set[str]:
        self._monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        self._pytester.makepyfile(test_it=TESTS.format(folder=str(self._folder)))
        with_workers = [f"--tx={workers}*popen//python={self._python}", "--dist=load"]
        result = self._pytester.runpytest_inprocess(
            *("-p", "no:cacheprovider"), *with_workers * bool(workers)
        )
        result.assert_outcomes(passed=6)
        return {path.name for path in self._folder.iterdir()}


@pytest.fixture
def seen(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, python: str) -> Seen:
    return Seen(pytester, monkeypatch, python)


def test_each_worker_sees_one_gpu(seen: Seen) -> None:
    assert seen("0,1", 2) == {"gw0 0", "gw1 1"}


def test_more_workers_than_gpus_share_them(seen: Seen) -> None:
    assert seen("GPU-a,GPU-b", 3) == {"gw0 GPU-a", "gw1 GPU-b", "gw2 GPU-a"}


def test_one_gpu_stays_as_it_is(seen: Seen) -> None:
    assert seen("1", 2) == {"gw0 1", "gw1 1"}


def test_without_workers_nothing_changes(seen: Seen) -> None:
    assert seen("0,1", 0) == {"none 0,1"}


def test_it_can_be_switched_off(seen: Seen, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkernelprof_spread_workers = false\n")
    assert seen("0,1", 2) == {"gw0 0,1", "gw1 0,1"}


def test_nonsense_is_a_usage_error_that_names_the_key(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkernelprof_spread_workers = evenly\n")
    result = pytester.runpytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: ini key kernelprof_spread_workers: got 'evenly'; expected true or false"]
    )
