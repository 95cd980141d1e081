"""Compiled code on the CPU: its kernels are counted, or what ran unseen is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from compiled import fused, hidden

from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure, measure_once
from pytest_kernelprof.profiler import compiled_code
from pytest_kernelprof.profiler.compiled_code import (
    CompiledCode,
    WatchedCalls,
    code_of_graphs,
    code_of_source,
    watch_calls,
)
from pytest_kernelprof.profiler.operators import compute_operators
from pytest_kernelprof.records.profile import Profile

X = torch.ones(4, 4)

# As Inductor of torch 2.13 writes them, bodies left out; the last form is that of torch 2.9.
FUSED = """
cpp_fused_add_relu_0 = async_compile.cpp_pybinding(['float*'], r'''
extern "C"  void  kernel(float* in_out_ptr0)
{
    torch::aot_inductor::RAIIAtenRecordFunctionHandle record_graph_0_cpp_fused_add_relu_0_("graph_0_cpp_fused_add_relu_0", nullptr);
}
''')
"""  # noqa: E501
HIDDEN = FUSED.replace("torch::aot_inductor::RAIIAtenRecordFunctionHandle record_", "// ")
OLD = FUSED.replace(
    "torch::aot_inductor::RAIIAtenRecordFunctionHandle record_graph_0_cpp_fused_add_relu_0_(",
    "RECORD_FUNCTION(",
)
BATCHED = """
cpp_fused_bmm_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
void kernel_single_thread_mm(const float* W, float* Y, const int64_t ks_b_index)
{
    torch::aot_inductor::RAIIAtenRecordFunctionHandle record_graph_0_gemm_m64n64k64_kernel_("graph_0_gemm_m64n64k64_kernel", nullptr);
}
extern "C" void kernel(const float* W, float* Y) { kernel_single_thread_mm(W, Y, 0); }
''')
"""  # noqa: E501
WRAPPER = """
cpp_wrapper_src = (
r'''
extern "C"  void  cpp_fused_add_0(float* in_out_ptr0);
    RAIIAtenRecordFunctionHandle record_aoti_torch_cpu_mm_out_("aoti_torch_cpu_mm_out", nullptr);
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf0, arg0_1, arg1_1));
extern "C"  void  cpp_fused_add_0(float* in_out_ptr0)
{
    torch::aot_inductor::RAIIAtenRecordFunctionHandle record_graph_0_cpp_fused_add_0_("graph_0_cpp_fused_add_0", nullptr);
}
''')
"""  # noqa: E501
NO_KERNEL = "def call(self, args):\n    extern_kernels.mm(arg0_1, arg1_1, out=buf0)\n"


@pytest.mark.parametrize(
    ("source", "kernels", "unseen"),
    [
        (FUSED, {"graph_0_cpp_fused_add_relu_0"}, False),
        (OLD, {"graph_0_cpp_fused_add_relu_0"}, False),
        (HIDDEN, set(), True),
        (FUSED + HIDDEN, {"graph_0_cpp_fused_add_relu_0"}, True),
        (WRAPPER, {"aoti_torch_cpu_mm_out", "graph_0_cpp_fused_add_0"}, False),
        (WRAPPER.replace("RecordFunctionHandle", "None"), set(), True),
        ("cpp_wrapper_src = ( r'''return arg0_1;''')", set(), False),
        (NO_KERNEL, set(), False),
    ],
    ids=["on", "on in 2.9", "off", "half", "wrapper", "wrapper off", "wrapper alone", "operators"],
)
def test_the_source_of_a_graph_tells_its_kernels_and_whether_they_leave_events(
    source: str, kernels: set[str], unseen: bool
) -> None:
    code = code_of_source(source)
    assert code.kernels == kernels
    assert bool(code.unseen) is unseen
    assert all("enable_kernel_profile" in words for words in code.unseen)


@pytest.mark.parametrize(
    ("events", "unseen"), [(1, False), (4, True)], ids=["one matrix", "four matrices"]
)
def test_events_that_come_one_a_matrix_are_not_counted_as_kernels(
    events: int, unseen: bool
) -> None:
    code = code_of_source(BATCHED)
    repeated = {"aten::relu", *["graph_0_gemm_m64n64k64_kernel"] * (events > 1)}
    words = code.all_unseen(repeated)
    assert bool(words) is unseen
    assert all("graph_0_gemm_m64n64k64_kernel" in one for one in words)
    linear = code_of_source(BATCHED.replace("_single_thread_mm", ""))
    assert linear.all_unseen(repeated) == ()


def called(key: str) -> str:
    return f"## Call CompiledFxGraph {key} ##"


def test_only_the_graphs_that_ran_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    living = {"fon": FUSED, "foff": HIDDEN}

    def graphs(key: str) -> list[Any]:
        return [SimpleNamespace(source_code=living[key])] if key in living else []

    monkeypatch.setattr(compiled_code, "_graphs", graphs)
    assert code_of_graphs(["aten::mm"], []) == CompiledCode()
    assert code_of_graphs([called("fon")], []) == code_of_source(FUSED)
    assert code_of_graphs([], [called("fon")]) == code_of_source(FUSED)
    assert code_of_graphs([called("fon"), called("foff")], []).unseen
    assert "no longer exists" in code_of_graphs([called("fgone")], []).unseen[0]
    assert code_of_graphs([], [called("of the user")]) == CompiledCode()


@pytest.mark.parametrize(
    ("name", "computes"),
    [
        ("graph_0_cpp_fused_add_0", True),
        ("graph_0_gemm_m64n64k64_kernel", True),
        ("aoti_torch_cpu_mm_out", True),
        ("aoti_torch_cpu_mkldnn__linear_pointwise", True),
        ("aoti_torch_cpu_view_as_real", False),
        ("aoti_torch_cpu_detach", False),
    ],
)
def test_names_without_a_namespace_are_kernels_only_if_something_compiled_has_them(
    name: str, computes: bool
) -> None:
    assert compute_operators([name]) == []
    assert compute_operators([name], {name}) == ([name] if computes else [])


def library(folder: Path, *parts: bytes) -> str:
    path = folder / "model.wrapper.so"
    path.write_bytes(b"\0".join([b"ELF", *parts, b""]))
    return str(path)


PACKAGE = b"AOTInductorModelContainerRun"


@pytest.mark.parametrize(
    ("parts", "kernels", "unseen"),
    [
        ([b"PyInit_mine"], set(), "cannot be found"),
        ([PACKAGE, b"graph_0_cpp_fused_add_0"], set(), "enable_kernel_profile was off"),
        (
            [
                PACKAGE,
                b"aoti_record_RecordFunction",
                b"graph_0_cpp_fused_add_0",
                b"aoti_torch_cpu_mm",
            ],
            {"graph_0_cpp_fused_add_0", "aoti_torch_cpu_mm"},
            "",
        ),
    ],
    ids=["another library", "off", "on"],
)
def test_a_package_that_was_called_tells_its_kernels_and_whether_they_leave_events(
    tmp_path: Path,
    parts: list[bytes],
    kernels: set[str],
    unseen: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = library(tmp_path, *parts)
    monkeypatch.setattr(compiled_code, "_mapped_libraries", lambda: [path])
    found = WatchedCalls()
    assert found.code(()) == CompiledCode()
    found.look_at_package(None)
    assert found.code(()).kernels == kernels
    assert [unseen in words for words in found.code(()).unseen] == ([True] if unseen else [])


def test_calls_of_packages_are_watched_and_only_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    class Runner:
        def run(self, inputs: list[int], *, stream: int = 0) -> list[int]:
            return [*inputs, stream]

    monkeypatch.setattr(torch._C._aoti, "OneMore", Runner, raising=False)
    before = dict(vars(Runner))
    with watch_calls() as watched:
        assert not watched.package
        assert Runner().run([1], stream=2) == [1, 2]
    assert watched.package
    assert dict(vars(Runner)) == before


def profiled(call: Callable[[], object]) -> Profile:
    with torch.no_grad():
        _, measurement = measure(call, Plan("cpu"))
    return measurement.profile


def test_a_graph_without_events_harms_only_the_profiles_that_it_ran_in() -> None:
    with hidden() as call:
        call()
        with measure_once(Plan("cpu")) as found:
            call()
    compiled = fused()
    beside = profiled(lambda: compiled(X))
    call()  # it lives, and is hidden still
    assert "enable_kernel_profile" in found[0].profile.integrity.problems[0]
    assert beside.integrity.complete
    assert [kernel.name.partition("_cpp_")[2] for kernel in beside.kernels] == [
        "fused_add_mul_relu_0"
    ]


class Convolution(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.convolution(x)) + 1


IMAGE = torch.randn(1, 3, 8, 8)


def test_what_torchscript_runs_past_the_dispatcher_is_told_where_it_ran() -> None:
    script = torch.jit.script(Convolution().eval())
    optimised = torch.jit.optimize_for_inference(script)
    (problem,) = profiled(lambda: optimised(IMAGE)).integrity.problems
    assert "prim::mkldnn_convolution" in problem
    plain = profiled(lambda: script(IMAGE))
    assert plain.integrity.complete
    assert [kernel.name for kernel in plain.kernels] == [
        "aten::convolution", "aten::relu", "aten::add",
    ]  # fmt: skip


@pytest.fixture
def fuses_on_the_cpu() -> Iterator[None]:
    """Let TorchScript's fuser make kernels of its own, without LLVM."""
    c = torch._C
    before = c._jit_can_fuse_on_cpu(), c._jit_get_te_must_use_llvm_cpu()
    c._jit_override_can_fuse_on_cpu(True)
    c._jit_set_te_must_use_llvm_cpu(False)
    yield
    c._jit_override_can_fuse_on_cpu(before[0])
    c._jit_set_te_must_use_llvm_cpu(before[1])


@pytest.mark.usefixtures("fuses_on_the_cpu")
@pytest.mark.parametrize("made", ["script", "trace"])
def test_a_group_of_torchscripts_fuser_is_told(made: str) -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        return (x * x + x).relu() * 3.0

    call = torch.jit.script(chain) if made == "script" else torch.jit.trace(chain, IMAGE)
    for _ in range(5):
        call(IMAGE)
    (problem,) = profiled(lambda: call(IMAGE)).integrity.problems
    assert "fuser (NNC) ran a group of operators as one event" in problem


def test_a_script_that_is_called_fused_is_told_only_where_torchscript_fuses() -> None:
    def fused_relu(x: torch.Tensor) -> torch.Tensor:
        return x.relu()

    call = torch.jit.script(fused_relu)
    assert profiled(lambda: call(IMAGE)).integrity.complete


def test_a_partition_of_onednn_is_told() -> None:
    enabled = torch._C._jit_llga_enabled()
    torch.jit.enable_onednn_fusion(True)
    try:
        traced = torch.jit.freeze(torch.jit.trace(Convolution().eval(), IMAGE))
        problems = [profiled(lambda: traced(IMAGE)).integrity.problems for _ in range(2)][1]
    finally:
        torch.jit.enable_onednn_fusion(enabled)
    assert "oneDNN partition" in problems[0]
