"""Compute operators agree with what the dispatcher itself ran, case by case, live on the CPU."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_kernelprof.measure.arguments import Arguments
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure
from pytest_kernelprof.profiler.operators import compute_operators, registered_operators, unclear

X, Y = torch.randn(8, 16), torch.randn(8, 16)
HEADS, IMAGE = torch.randn(2, 4, 8, 16), torch.randn(2, 3, 8, 8)
MASK, ROWS = X > 0, torch.tensor([0, 2])
INDICES = torch.eye(2).long()
COMPLEX = torch.randn(4, 4, dtype=torch.complex64)
LINEAR, BARE = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16, bias=False)
ATTENTION = torch.nn.MultiheadAttention(16, 4, batch_first=True)
ENCODER = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
LSTM = torch.nn.LSTM(16, 16, batch_first=True)
BATCH_NORM = torch.nn.BatchNorm2d(3)
# What neither computes nor is a view: allocation, metadata and moving a scalar to the host.
IDLE = {"empty", "empty_like", "empty_strided", "detach", "_unsafe_view", "_local_scalar_dense"}
IDLE |= {"new_empty", "new_empty_strided", "resize_", "lift_fresh", "_reshape_alias", "set_"}


class Dispatched(TorchDispatchMode):
    """Notes each operator that reaches the dispatcher's back end and computes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func._schema.name.removeprefix("aten::")
        returns = func._schema.returns
        view = bool(returns) and all(r.alias_info and not r.alias_info.is_write for r in returns)
        if not view and name not in IDLE:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


CASES: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "view": lambda: X.t().view(16, 8)[1:].unsqueeze(0),
    "expand": lambda: X.expand(2, 8, 16),
    "chunk": lambda: X.chunk(2),
    "empty": lambda: torch.empty(3),
    "detach": lambda: X.detach(),
    "numpy": lambda: X.numpy(),
    "to the same": lambda: X.to(torch.float32).contiguous(),
    "dropout when evaluating": lambda: F.dropout(X, training=False),
    "item": lambda: X.sum().item(),
    "list": lambda: X.tolist(),
    "truth": lambda: bool((X > 0).any()),
    "all close": lambda: torch.allclose(X, X),
    "pointwise": lambda: X * 2 + Y,
    "in place": lambda: X.clone().mul_(2),
    "out": lambda: torch.add(X, 1, out=torch.empty(8, 16)),
    "conversion": lambda: X.to(torch.float64),
    "fill": lambda: torch.zeros(3).fill_(1),
    "random": lambda: torch.rand(3),
    "where": lambda: torch.where(MASK, X, Y),
    "mask": lambda: X[MASK],
    "rows": lambda: X[ROWS],
    "gather": lambda: X.gather(0, torch.zeros(1, 16, dtype=torch.long)),
    "embedding": lambda: F.embedding(ROWS, X),
    "one hot": lambda: F.one_hot(ROWS, 4),
    "cat": lambda: torch.cat([X, X]),
    "stack": lambda: torch.stack([X, X]),
    "repeat": lambda: X.repeat(2, 1),
    "pad": lambda: F.pad(X, (1, 1)),
    "sum": lambda: X.sum(0),
    "mean": lambda: X.mean(),
    "max": lambda: X.max(1),
    "std": lambda: X.std(),
    "var": lambda: X.var(0),
    "var and mean": lambda: torch.var_mean(X),
    "norm": lambda: torch.linalg.norm(X),
    "normalize": lambda: F.normalize(X),
    "sort": lambda: X.sort(),
    "top k": lambda: X.topk(2),
    "cumulative": lambda: X.cumsum(0),
    "linear": lambda: LINEAR(X),
    "linear without bias": lambda: BARE(X),
    "geglu": lambda: BARE(F.gelu(BARE(X)) * BARE(X)),
    "matrix product": lambda: X @ X.t(),
    "batched product": lambda: HEADS @ HEADS.mT,
    "einsum": lambda: torch.einsum("ij,kj->ik", X, X),
    "complex product": lambda: COMPLEX.conj() @ COMPLEX,
    "conjugated view": lambda: COMPLEX.conj(),
    "fft": lambda: torch.fft.fft(X),
    "solve": lambda: torch.linalg.solve(torch.eye(4), torch.ones(4)),
    "convolution": lambda: F.conv2d(IMAGE, torch.ones(4, 3, 3, 3)),
    "pooling": lambda: F.max_pool2d(IMAGE, 2),
    "interpolate": lambda: F.interpolate(IMAGE, scale_factor=2.0),
    "batch norm": lambda: BATCH_NORM(IMAGE),
    "layer norm": lambda: F.layer_norm(X, (16,)),
    "group norm": lambda: F.group_norm(IMAGE, 3),
    "rms norm": lambda: F.rms_norm(X, (16,)),
    "softmax": lambda: F.softmax(X, -1),
    "cross entropy": lambda: F.cross_entropy(X, torch.zeros(8, dtype=torch.long)),
    "dropout": lambda: F.dropout(X),
    "attention": lambda: F.scaled_dot_product_attention(HEADS, HEADS, HEADS),
    "causal": lambda: F.scaled_dot_product_attention(HEADS, HEADS, HEADS, is_causal=True),
    "many heads": lambda: ATTENTION(X[None], X[None], X[None], need_weights=False),
    "encoder": lambda: ENCODER(X[None]),
    "lstm": lambda: LSTM(X[None]),
    "many tensors": lambda: torch._foreach_add([X, Y], 1.0),
}


@pytest.mark.parametrize("case", CASES)
def test_counted_operators_are_those_that_the_dispatcher_ran(case: str) -> None:
    call = CASES[case]
    with torch.no_grad():
        call()
        with Dispatched() as dispatched:
            call()
        _, measurement = measure(call, Plan("cpu"))
    counted = [one.name.removeprefix("aten::") for one in measurement.profile.kernels]
    assert counted == dispatched.names
    assert measurement.profile.integrity.complete


def steps(call: Callable[[], torch.Tensor]) -> Callable[[], None]:
    def step() -> None:
        for parameter in (W, *LINEAR.parameters()):
            parameter.grad = None
        call().sum().backward()

    return step


W = torch.randn(16, 16, requires_grad=True)
STEPS: dict[str, Callable[[], torch.Tensor]] = {
    "gelu": lambda: F.gelu(LINEAR(X)),
    "silu": lambda: F.silu(X @ W) * (X @ W),
    "layer norm": lambda: F.layer_norm(X @ W, (16,)),
    "rms norm": lambda: F.rms_norm(X @ W, (16,)),
    "softmax": lambda: F.softmax(X @ W, -1),
    "cross entropy": lambda: F.cross_entropy(X @ W, torch.zeros(8, dtype=torch.long)),
    "embedding": lambda: F.embedding(ROWS, W),
    "std": lambda: (X @ W).std(0),
}


@pytest.mark.parametrize("case", STEPS)
def test_operators_of_a_training_step_are_those_that_the_dispatcher_ran(case: str) -> None:
    step = steps(STEPS[case])
    step()
    with Dispatched() as dispatched:
        step()
    _, measurement = measure(step, Plan("cpu"))
    counted = [one.name.removeprefix("aten::") for one in measurement.profile.kernels]
    # Under a dispatch mode autograd does not add gradients in place, else it may.
    assert [n.rstrip("_") for n in counted] == [n.rstrip("_") for n in dispatched.names]


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.where(MASK, X, 0.0),
        lambda: torch.where(MASK, 1.0, X),
        lambda: torch.where(MASK),
    ],
    ids=["number right", "number left", "indices"],
)
def test_no_form_of_an_operator_with_many_is_overlooked(call: Callable[[], object]) -> None:
    _, measurement = measure(call, Plan("cpu"))
    last = measurement.profile.kernels[-1]
    assert last.name in ("aten::where", "aten::nonzero")


@pytest.mark.parametrize(
    ("name", "computes"),
    [
        ("aten::mm", True),
        ("aten::add_", True),
        ("aten::where", True),
        ("aten::std", True),
        ("aten::var_mean", True),
        ("aten::silu_backward", True),
        ("aten::linear", False),
        ("aten::reshape", False),
        ("aten::t", False),
        ("aten::empty_strided", False),
        ("aten::detach", False),
        ("aten::detach_", False),
        ("aten::rename_", False),  # gone in torch 2.13
        ("aten::item", False),
        ("aten::sparse_compressed_tensor", False),
        ("aten::no_such_operator", False),
        ("MulBackward0", False),
        ("my annotation", False),
        ("Torch-Compiled Region: 0/0", False),
    ],
)
def test_the_dispatcher_knows_what_computes(name: str, computes: bool) -> None:
    assert compute_operators([name]) == ([name] if computes else [])


def test_all_registered_operators_are_known_by_name_without_overloads() -> None:
    with torch.library._scoped_library("mine_for_names", "DEF") as library:
        library.define("twice.out(Tensor x) -> Tensor")
        names = registered_operators()
    assert {"aten::mm", "aten::add", "mine_for_names::twice"} <= names
    assert not any("." in name or "elementwise" in name for name in names)


@pytest.mark.parametrize("key", ["aten/mul/CPU", "aten/mul.Tensor/CPU"])
def test_an_operator_whose_kernel_a_library_took_back_is_not_clear(key: str) -> None:
    names = ["aten::mul", "aten::mm"]
    assert unclear(names, (), [set()]) == []
    (told,) = unclear(names, (), [{key}])
    assert "aten::mul" in told


def test_each_name_is_given_once_and_in_order() -> None:
    assert compute_operators(["aten::mm", "aten::add", "aten::mm"]) == ["aten::add", "aten::mm"]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.unsqueeze_(0).squeeze_(0),
        lambda x: x.t_().t_(),
        lambda x: x.transpose_(0, 1).swapaxes_(0, 1).swapdims_(0, 1).swapdims_(0, 1),
        lambda x: x.as_strided_((16, 8), (1, 16)).as_strided_((8, 16), (16, 1)),
        lambda x: x.detach_(),
        lambda x: x.resize_(2, 64).resize_(8, 16),
        lambda x: x.unsafe_split(4),
        lambda x: x.unsafe_split_with_sizes([4, 4]),
        lambda x: torch.ops.aten.lift(x),
        lambda x: x.is_same_size(x),
        lambda x: torch.sparse_coo_tensor(INDICES, x[0, :2], (2, 2), check_invariants=False),
    ],
    ids=lambda view: "",
)
def test_what_changes_or_asks_for_metadata_alone_computes_nothing(
    view: Callable[[torch.Tensor], object],
) -> None:
    _, measurement = measure(lambda x: view(x), Plan("cpu"), Arguments((torch.ones(8, 16),)))
    assert [kernel.name for kernel in measurement.profile.kernels] == []


def in_place_overloads() -> Iterator[tuple[str, str]]:
    """Every in-place operator of the installed torch, as (name, overload)."""
    names = {schema.name for schema in torch._C._jit_get_all_schemas()}
    for name in sorted(name for name in names if re.fullmatch(r"aten::[a-z]\w*_", name)):
        _, overloads = torch._C._jit_get_operation(name)
        yield from ((name, overload) for overload in overloads or () if "out" not in overload)


SAMPLES: dict[str, Callable[[int], object]] = {
    "Tensor": lambda position: torch.arange(6.0).reshape(2, 3).t(),
    "int": lambda position: position - 1,
    "SymInt": lambda position: position - 1,
    "number": lambda position: 1,
    "float": lambda position: 0.5,
    "bool": lambda position: False,
    "List[int]": lambda position: [1, 1],
}


def called_with_samples(name: str, overload: str) -> tuple[torch.Tensor, object]:
    """The changed tensor, and what it was like before; an error where it wants other arguments."""
    wanted = [
        argument
        for argument in torch._C._get_schema(name, overload).arguments
        if argument.default_value is None and not argument.kwarg_only
    ]
    given = [SAMPLES[str(argument.type)](position) for position, argument in enumerate(wanted)]
    changed = given[0]
    assert isinstance(changed, torch.Tensor)
    before = like(changed)
    torch._C._get_operation_overload(name, overload)[0](*given)
    return changed, before


def like(x: torch.Tensor) -> object:
    return x.shape, x.stride(), x.storage_offset(), x.dtype


def test_no_operator_in_place_that_changes_metadata_is_taken_for_one_that_computes() -> None:
    tried, views = 0, set()
    for name, overload in in_place_overloads():
        with contextlib.suppress(KeyError, TypeError, RuntimeError, IndexError, AssertionError):
            changed, before = called_with_samples(name, overload)
            tried += 1
            if like(changed) != before:
                views.add(name)
    assert tried > 150
    assert {"aten::unsqueeze_", "aten::t_", "aten::transpose_"} <= views
    assert compute_operators(views) == []
