"""Limits on the CPU count what ran, whatever annotations and ranges around it are called."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

NAMES = """
import torch
from torch._C._profiler import _RecordFunctionFast
from torch.profiler import record_function

def below(annotate, name):
    with annotate(name):
        torch.relu(x)
        torch.exp(x)
"""


@pytest.mark.project(
    NAMES
    + """
@pytest.mark.parametrize("annotate", [record_function, _RecordFunctionFast])
@pytest.mark.parametrize("name", ["aten::mm", "dynamo", "cpp_fused_0", "kernelprof::round#0"])
@pytest.mark.max_kernels(1)
def test_broken(kernel_profile, annotate, name):
    kernel_profile(below, annotate, name)

@pytest.mark.parametrize("annotate", [record_function, _RecordFunctionFast])
@pytest.mark.max_kernels(1)
def test_broken_once(kernelprof_device, annotate):
    below(annotate, "aten::mm")

@pytest.mark.expect_kernels("aten::relu", "aten::exp")
def test_kept(kernel_profile):
    kernel_profile(below, _RecordFunctionFast, "aten::mm")

@pytest.mark.max_kernels(0)
def test_views_in_place(kernel_profile):
    kernel_profile(lambda: x.unsqueeze_(0).squeeze_(0).t_().t_().detach_())
"""
)
def test_names_change_no_count(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=2, failed=10)
    result.stdout.fnmatch_lines(["*max_kernels: 2 > limit 1*"])
    result.stdout.no_fnmatch_line("*incomplete*")


def test_the_name_of_a_callable_begins_no_line_and_reaches_no_terminal_as_it_is(run: Run) -> None:
    result = run(
        r"""
NAME = "f\n::error file=x::boo\n\x1b[31mred"
def named(call):
    call.__name__ = NAME
    return call
@pytest.mark.min_speedup(1000, over=named(lambda: 1))
def test_slow(kernel_profile, kernelprof_device):
    kernel_profile(named(three))
def test_slow_in_a_comparison(kernel_profile, kernelprof_device):
    kernel_profile.compare_all({NAME: three, "g": lambda: 1}, reference="g")[NAME].min_speedup(1000)
def test_generator(kernel_profile, kernelprof_device):
    kernel_profile(named(lambda: (three() for _ in range(9))))
"""
    )
    result.assert_outcomes(failed=2, errors=1)
    result.stdout.fnmatch_lines([r"*f\n::error file=x::boo\n\x1b[[]31mred returned a generator*"])
    told = [line for line in result.outlines if line.startswith(("::error", "E   ::error"))]
    assert not told
    assert "\x1b" not in result.stdout.str()
