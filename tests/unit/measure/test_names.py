"""What the measured code calls its annotations and operators changes no count, live on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.profiler import record_function

from pytest_kernelprof.measure.plan import Plan
from pytest_kernelprof.measure.runner import measure, measure_once
from pytest_kernelprof.schema.run import Profile

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


@pytest.mark.parametrize("name", NAMES)
def test_likewise_in_a_block_that_is_measured_once(name: str) -> None:
    with measure_once(Plan("cpu")) as found, record_function(name):
        X @ X
    assert [kernel.name for kernel in found[0].profile.kernels] == ["aten::mm"]
    assert found[0].profile.integrity.problems == ()


def test_the_names_of_our_rounds_are_others_each_time() -> None:
    nonces = {measure(lambda: None, Plan("cpu"))[1].recording.nonce for _ in range(2)}
    assert len(nonces) == 2
    assert "" not in nonces
