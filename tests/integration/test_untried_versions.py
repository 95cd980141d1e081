"""A run with a newer torch or pytest than what was tried says so once, and works on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_kernelprof.plugin.collector import END_NOTES
from pytest_kernelprof.system import TRIED

Run = Callable[..., pytest.RunResult]

TORCH = ".".join(torch.__version__.split(".")[:2])
PYTEST = ".".join(pytest.__version__.split(".")[:2])
BOTH = (
    f"kernelprof: torch {TORCH} is newer than what was tried (2.8); "
    f"pytest {PYTEST} is newer than what was tried (8.3)"
)


@pytest.fixture(autouse=True)
def tried_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRIED, "torch", ("2.8",))
    monkeypatch.setitem(TRIED, "pytest", ("8.3",))
    monkeypatch.setitem(TRIED, "python", ("3.999",))


PROJECT = """
@pytest.mark.max_kernels(3)
def test_kept(kernel_profile):
    kernel_profile(three)
def test_compared(kernel_profile):
    kernel_profile.compare(three, three, metric="latency")
@pytest.mark.max_kernels(2)
def test_broken():
    three()
"""


def test_it_is_said_once_and_all_is_judged(run: Run) -> None:
    result = run(PROJECT)
    result.assert_outcomes(passed=2, failed=1)
    assert [line for line in result.outlines if "newer than" in line] == [BOTH]


def test_it_comes_from_a_worker_of_xdist(run: Run) -> None:
    """Which has the torch; here the one that reports passes on what reports bring."""

    class Sent:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            serialised.append(report._to_json())

    serialised: list[dict[str, object]] = []
    run(PROJECT, plugins=[Sent()])
    assert [one[END_NOTES] for one in serialised if END_NOTES in one] == [[BOTH[12:]]] * 3


def test_a_run_that_measures_nothing_says_nothing(run: Run) -> None:
    run("def test_plain(): three()").stdout.no_fnmatch_line("*newer than*")


def test_of_what_was_tried_nothing_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRIED, "torch", ("2.8", TORCH))
    monkeypatch.setitem(TRIED, "pytest", (PYTEST,))
    result = run("def test_it(kernel_profile): kernel_profile(three)")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*newer than*")
