"""torch.compile: no graph break, no recompilation, CUDA graphs, operators that keep the rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from fused_mlp import dispatch, functional, ops, problem
from fused_mlp.modules import FusedGatedMLP, FusedMLP
from torch import nn

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def model(kernelprof_device: str) -> nn.Module:
    torch.manual_seed(0)
    dtype = torch.bfloat16 if kernelprof_device == "cuda" else torch.float32
    layers = (FusedMLP(32, 64), nn.LayerNorm(32), FusedGatedMLP(32, 64, activation="silu"))
    return nn.Sequential(*layers).to(kernelprof_device, dtype)


def inputs(model: nn.Module, *leading: int) -> torch.Tensor:
    weight = model[0].up.weight
    return torch.randn(*leading, 32, device=weight.device, dtype=weight.dtype)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    tolerance = 1e-4 if a.dtype is torch.float32 else 3e-2
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("training", [False, True])
def test_a_model_is_one_graph(model: nn.Module, training: bool) -> None:
    x = inputs(model, 2, 7)
    # What is one graph is one for any back end; without a GPU Inductor's takes seconds to compile.
    backend = "inductor" if x.is_cuda else "aot_eager"
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    if not training:
        with torch.no_grad():
            return close(compiled(x), model(x))
    expected = torch.autograd.grad(model(x).sum(), tuple(model.parameters()))
    ours = torch.autograd.grad(compiled(x).sum(), tuple(model.parameters()))
    for mine, theirs in zip(ours, expected, strict=True):
        close(mine, theirs)
    return None


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the dispatch a Hopper; the kernels, for which there is none, refuse to be launched."""
    monkeypatch.setattr(functional, "_is_on_a_gpu", lambda x: True)
    monkeypatch.setattr(functional, "_ways", {})  # what is decided here holds here alone
    monkeypatch.setattr(dispatch, "_remembered", dispatch.choose)
    monkeypatch.setattr(problem, "capability_of", lambda device: (9, 0))
    monkeypatch.setattr(dispatch, "plan_for", lambda *call: None)
    monkeypatch.setattr(dispatch, "_launch", refuse)
    monkeypatch.setattr(dispatch, "ALIGNMENT", 1)


def refuse(*arguments: object, **options: object) -> torch.Tensor:
    raise RuntimeError("no GPU")


def operators(compiled_with: list[torch.fx.GraphModule]) -> list[set[str]]:
    """Those of ours in each graph."""
    return [
        {str(node.target) for node in graph.graph.nodes if "fused_mlp" in str(node.target)}
        for graph in compiled_with
    ]


@pytest.mark.usefixtures("a_gpu")
@pytest.mark.filterwarnings("ignore:fused_mlp goes to PyTorch:RuntimeWarning")
def test_what_no_kernel_takes_stays_open_to_inductor() -> None:
    """An opaque operator where a kernel is ahead; elsewhere PyTorch's, which Inductor may fuse.
    There is a graph for each regime, and none for each number of rows."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    torch.manual_seed(0)
    module = FusedGatedMLP(32, 512, activation="silu").bfloat16()
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=backend)
    with torch.no_grad():
        for rows in (3, 5, 16, 64, 100, 300):
            x = torch.randn(rows, 32).bfloat16()
            close(compiled(x), module(x))
    assert operators(graphs) == [{"fused_mlp.mlp.default"}, set()]


@pytest.mark.usefixtures("a_gpu")
@pytest.mark.filterwarnings("ignore:fused_mlp goes to PyTorch:RuntimeWarning")
def test_training_is_the_operator_that_keeps(
    kernelprof_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its backward, too: the slopes are opaque, the GEMMs PyTorch's."""
    pytest.importorskip("triton.experimental.gluon")
    monkeypatch.setattr(dispatch.specialised, "specialised", refuse)
    monkeypatch.setattr(dispatch.slopes, "slopes", refuse)
    monkeypatch.setattr(dispatch, "MANY_ROWS", 8)
    monkeypatch.setattr(dispatch, "MANY_ROWS_HIDDEN", (8, 64))
    monkeypatch.setattr(dispatch, "MANY_ROWS_WIDTH", (8, 64))
    torch.manual_seed(0)
    module = FusedGatedMLP(32, 64, activation="silu").to(kernelprof_device).half()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = torch.randn(9, 32, device=kernelprof_device).half().requires_grad_()
    wanted = (x, *module.parameters())
    expected = torch.autograd.grad(module(x).sum(), wanted)
    ours = torch.autograd.grad(compiled(x).sum(), wanted)
    for mine, theirs in zip(ours, expected, strict=True):
        close(mine, theirs)


def arguments(device: str, gated: bool, grad: bool) -> tuple[torch.Tensor | None, ...]:
    x, gate, up, down = (
        torch.randn(s, device=device).mul(0.2).requires_grad_(grad)
        for s in ((5, 24), (40, 24), (40, 24), (16, 40))
    )
    if gated:
        return x, gate, up, down
    return x, gate, None, down, gate[:, 0].detach().clone(), None


def test_the_operators_keep_the_rules(kernelprof_device: str) -> None:
    """``opcheck``: schemas tell the truth, fakes agree with what is returned, autograd is
    registered where it must be, and AOTAutograd traces them, with symbolic shapes too."""
    device = kernelprof_device
    for_slopes = [torch.randn(s, device=device) for s in ((5, 16), (16, 40), (5, 40), (5, 40))]
    for operator, given in (
        (ops.mlp, (*arguments(device, True, False), None, None, "silu")),
        (ops.mlp, (*arguments(device, False, False), "relu")),
        (ops.gated_training, (*arguments(device, True, True), "gelu_tanh")),
        (ops.gated_slopes, (*for_slopes, "silu")),
    ):
        with dispatch.forced("pytorch"):
            torch.library.opcheck(operator, given)


def test_an_export_without_dynamo_launches_nothing(
    kernelprof_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It calls the module itself, with tensors that have no data."""
    launched: list[object] = []

    def launch(*call: object) -> torch.Tensor:
        launched.append(call)
        return refuse()

    monkeypatch.setattr(dispatch, "_launch", launch)
    module = FusedMLP(32, 64).to(kernelprof_device, torch.float16)
    x = torch.randn(7, 32, device=kernelprof_device, dtype=torch.float16)
    with torch.no_grad(), dispatch.forced("narrow"):
        exported = torch.export.export(module, (x,), strict=False)
    assert launched == []
    with torch.no_grad(), dispatch.forced("pytorch"):
        close(exported.module()(x), module(x))


@needs_gpu
@pytest.mark.parametrize("rows", [1, 16, 300])
def test_reduce_overhead_with_two_graphs(rows: int) -> None:
    """Two shapes, two graphs, replayed by turns, each with inputs of its own."""
    torch.manual_seed(0)
    module = FusedGatedMLP(768, 3072, device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(module, mode="reduce-overhead", fullgraph=True, dynamic=False)
    with torch.no_grad():
        for _ in range(8):
            for count in (rows, rows + 8):
                x = torch.randn(count, 768, device="cuda", dtype=torch.bfloat16)
                expected = module(x)
                torch.compiler.cudagraph_mark_step_begin()
                close(compiled(x), expected)


@needs_gpu
def test_reduce_overhead_trains() -> None:
    torch.manual_seed(0)
    module = FusedGatedMLP(768, 3072, device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(module, mode="reduce-overhead", fullgraph=True)
    for _ in range(5):
        x = torch.randn(4096, 768, device="cuda", dtype=torch.bfloat16)
        expected = torch.autograd.grad(module(x).square().mean(), tuple(module.parameters()))
        torch.compiler.cudagraph_mark_step_begin()
        ours = torch.autograd.grad(compiled(x).square().mean(), tuple(module.parameters()))
        for mine, theirs in zip(ours, expected, strict=True):
            close(mine, theirs)
