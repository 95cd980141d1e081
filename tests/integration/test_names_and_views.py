"""Limits on the CPU count what ran, whatever annotations and ranges around it are called."""

from __future__ import annotations

import pytest

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
    result.stdout.fnmatch_lines(["*max_kernels: 2 > 1*"])
    result.stdout.no_fnmatch_line("*incomplete*")
