"""The marker max_autotunes, with Triton's autotuner over kernels that Triton interprets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

TUNED = """
import pytest, torch
triton = pytest.importorskip("triton")
import triton.language as tl

def timed(kernel_call, quantiles):
    kernel_call()
    return [1.0, 1.0, 1.0]

@triton.autotune(
    [triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})], key=["n"], do_bench=timed
)
@triton.jit
def twice(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def call(n):
    x = torch.ones(8)
    twice[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, n)
    return x
"""


Run = Callable[..., pytest.RunResult]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In processes of their own: Triton decides once whether it interprets kernels."""
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")


CODE = """
import itertools
sizes = itertools.count(1)

@pytest.mark.max_autotunes(0)
def test_of_a_new_key_at_every_call(kernel_profile):
    kernel_profile(lambda: call(next(sizes) % 8))

@pytest.mark.max_autotunes(1)
def test_of_two_keys_in_a_block(kernel_profile):
    twice.cache.clear()
    with kernel_profile.region():
        call(3)
        call(4)

@pytest.mark.max_autotunes(1)
def test_of_a_cache_that_is_cleared(kernel_profile):
    with kernel_profile.region():
        for _ in range(3):
            twice.cache.clear()
            call(5)
"""


def test_each_run_of_the_autotuner_counts_once_and_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TUNED + CODE)
    # Triton is loaded when this package is there already, not before as in the tests below.
    result = pytester.runpytest_subprocess("--kernelprof-device=cpu")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "E   max_autotunes: * > limit 0",
            "*warm up with these arguments, or choose the configuration yourself",
            "E   max_autotunes: 2 > limit 1*",
            "E   max_autotunes: 3 > limit 1*",
        ]
    )


def test_a_key_that_is_tuned_in_the_warm_up_passes(
    pytester: pytest.Pytester, run_apart: Run
) -> None:
    pytester.makepyfile(
        test_it=TUNED
        + """
@pytest.mark.max_autotunes(0)
def test_it(kernel_profile):
    kernel_profile(call, 8)

@pytest.mark.max_autotunes(1)
def test_block(kernel_profile):
    with kernel_profile.region():
        call(7)
"""
    )
    result = run_apart("--kernelprof-device=cpu")
    result.assert_outcomes(passed=2)


def test_an_autotuner_that_cannot_be_watched_is_no_pass(
    pytester: pytest.Pytester, run_apart: Run
) -> None:
    pytester.makeconftest(
        """
from triton.runtime.autotuner import Autotuner
Autotuner.bench_otherwise = Autotuner._bench
del Autotuner._bench
"""
    )
    pytester.makepyfile(
        test_it=TUNED
        + """
@pytest.mark.max_autotunes(0)
def test_it(kernel_profile):
    kernel_profile(lambda: torch.ones(8) * 2)
"""
    )
    result = run_apart("--kernelprof-device=cpu")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E   max_autotunes: not available: an autotuner cannot be *"])


STOOD_IN = """
import sys, types
from unittest.mock import MagicMock
for name in "triton", "triton.runtime", "triton.runtime.jit", "triton.runtime.autotuner":
    sys.modules[name] = {value}
import pytest, torch

@pytest.mark.max_autotunes(0)
def test_call(kernel_profile):
    kernel_profile(torch.ones, 8)

@pytest.mark.max_kernels(1)
def test_block(kernel_profile):
    with kernel_profile.region():
        torch.ones(8)
"""

WITHOUT_TRITON = """
import sys
for name in [one for one in sys.modules if one.partition(".")[0] == "triton"]:
    del sys.modules[name]
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "value", ["MagicMock()", "types.SimpleNamespace()", "types.ModuleType('other')", "None"]
)
def test_what_stands_for_triton_is_not_watched(
    pytester: pytest.Pytester, python: str, value: str
) -> None:
    pytester.makepyfile(test_it=STOOD_IN.format(value=value))
    if value == "MagicMock()":  # it stands there already when torch is loaded
        result = pytester.runpytest_subprocess("--kernelprof-device=cpu")
    else:
        result = pytester.run(python, "-c", WITHOUT_TRITON, "--kernelprof-device=cpu")
    result.assert_outcomes(passed=2)
