"""What the measured code calls its annotations and operators changes no count, live on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._C._profiler import _RecordFunctionFast
from torch.profiler import record_function

from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure, measure_once
from pytest_kernelprof.records.profile import Profile

X = torch.ones(4, 4)
NAMES = [
    *("aten::mm", "aten::native_layer_norm", "dynamo", "dynamo_timed", "entire_frame_compile"),
    *("cpp_fused_add_0", "graph_0_cpp_fused_add_0", "extern_kernel", "aoti_torch_cpu_mm_out"),
    *("LlgaPartition_0", "Torch-Compiled Region: 0/0", "## Call CompiledFxGraph fabc ##"),
    *("kernelprof::round#0", "kernelprof::sentinel#first", "kernelprof::sentinel#last"),
    "kernelprof::line#a.py:1",
]


def profiled(call: Callable[[], object]) -> Profile:
    _, measurement = measure(call, Plan("cpu"))
    return measurement.profile


@pytest.mark.parametrize("name", NAMES)
def test_an_annotation_is_no_operator_whatever_it_is_called(name: str) -> None:
    def call() -> None:
        with record_function(name):
            X @ X
            with record_function(name):
                pass

    profile = profiled(call)
    assert profile.integrity.problems == ()
    assert profile.metrics["kernels"].rounds == (1, 1)
    assert profile.kernels[0].operators == ("aten::mm", "aten::matmul", name)


@pytest.mark.parametrize("annotate", [record_function, _RecordFunctionFast])
@pytest.mark.parametrize("name", [name for name in NAMES if "CompiledFxGraph" not in name])
def test_likewise_in_a_block_that_is_measured_once(name: str, annotate: Any) -> None:
    with torch.no_grad(), measure_once(Plan("cpu")) as found, annotate(name):
        X @ X
    assert [kernel.name for kernel in found[0].profile.kernels] == ["aten::mm"]
    assert found[0].profile.integrity.problems == ()


def test_the_names_of_our_rounds_are_others_each_time() -> None:
    nonces = {measure(lambda: None, Plan("cpu"))[1].recording.nonce for _ in range(2)}
    assert len(nonces) == 2
    assert "" not in nonces


@pytest.mark.parametrize("name", [name for name in NAMES if "CompiledFxGraph" not in name])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
def test_a_range_is_no_operator_whatever_it_is_called(name: str, grad: bool) -> None:
    def call() -> None:
        with torch.set_grad_enabled(grad), _RecordFunctionFast(name):
            X @ X
            with _RecordFunctionFast(name, [X, X]):
                pass

    profile = profiled(call)
    assert profile.integrity.problems == ()
    assert profile.metrics["kernels"].rounds == (1, 1)
    assert profile.kernels[0].operators == ("aten::mm", "aten::matmul", name)


@pytest.mark.parametrize("name", ["dynamo", "Fused"])
def test_a_function_of_autograd_is_no_operator(name: str) -> None:
    profile = profiled(lambda: function(name).apply(X))
    assert profile.integrity.problems == ()
    assert [kernel.name for kernel in profile.kernels] == ["aten::mul", "aten::add"]


def test_a_function_of_autograd_with_an_operators_name_is_told() -> None:
    named = function("aten::mm")
    profile = profiled(lambda: named.apply(X))
    named.__name__ = "Fused"  # classes live on until they are collected
    assert profile.integrity.problems
    assert "an autograd.Function is named aten::mm" in profile.integrity.problems[0]


def function(name: str) -> Any:
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    return type(name, (torch.autograd.Function,), {"forward": staticmethod(forward)})


def test_ranges_among_operators_of_their_name_are_told_apart_one_by_one() -> None:
    def call() -> None:
        with torch.no_grad():
            X @ X
            with _RecordFunctionFast("aten::mm"):
                X + 1
            X @ X

    assert [kernel.name for kernel in profiled(call).kernels] == [
        "aten::mm", "aten::add", "aten::mm",
    ]  # fmt: skip


def test_what_is_profiled_for_kernelprof_all_alone_takes_names_at_their_word() -> None:
    with torch.no_grad(), measure_once(Plan("cpu", inputs=False)) as found:
        X @ X
    profile = found[0].profile
    assert profile.integrity.problems == ()
    assert [kernel.name for kernel in profile.kernels] == ["aten::mm"]
