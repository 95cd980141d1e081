"""Compute operators, counted live on the CPU through the real profiler."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure

X = torch.randn(8, 16)
Q = torch.randn(2, 4, 8, 16)
LINEAR, BARE = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16, bias=False)
ATTENTION = torch.nn.MultiheadAttention(16, 4, batch_first=True)


def geglu() -> torch.Tensor:
    return BARE(F.gelu(BARE(X)) * BARE(X))


def names(call: Callable[[], object]) -> list[str]:
    with torch.no_grad():
        _, measurement = measure(call, Plan("cpu"))
    return [kernel.name.removeprefix("aten::") for kernel in measurement.profile.kernels]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: None, []),
        (lambda: X.t().view(16, 8)[1:].unsqueeze(0), []),
        (lambda: torch.empty(3), []),
        (lambda: X.detach(), []),
        (lambda: X.sum().item(), ["sum"]),
        (lambda: X + 1, ["add"]),
        (lambda: X.clone().add_(1), ["clone", "add_"]),
        (lambda: X @ X.t(), ["mm"]),
        (lambda: X.reshape(16, 8), []),
        (lambda: X.t().reshape(-1), ["clone"]),
        (lambda: X.to(torch.float64), ["_to_copy"]),
        (lambda: X.contiguous(), []),
        (lambda: LINEAR(X), ["addmm"]),
        (lambda: BARE(X), ["mm"]),
        (geglu, ["mm", "gelu", "mm", "mul", "mm"]),
        (lambda: F.softmax(X, -1), ["_softmax"]),
        (lambda: F.layer_norm(X, (16,)), ["native_layer_norm"]),
        (lambda: F.relu(X), ["relu"]),
        (lambda: F.silu(X), ["silu"]),
        (lambda: torch.cat([X, X]), ["cat"]),
        (lambda: F.conv1d(X[None], torch.ones(3, 8, 3)), 2),
        (lambda: F.embedding(torch.tensor([1, 2]), X), ["embedding"]),
        (lambda: F.scaled_dot_product_attention(Q, Q, Q), 1),
        (lambda: ATTENTION(X[None], X[None], X[None], need_weights=False), 5),
        (lambda: F.dropout(X), 3),
        (lambda: F.rms_norm(X, (16,)), 5),
        (lambda: F.cross_entropy(X, torch.zeros(8, dtype=torch.long)), 3),
    ],
)
def test_the_outermost_computing_operator_of_each_chain_counts(
    call: Callable[[], object], expected: list[str] | int
) -> None:
    found = names(call)
    assert (len(found) if isinstance(expected, int) else found) == expected


def test_a_backward_counts_its_operators() -> None:
    def step() -> None:
        LINEAR.zero_grad(set_to_none=True)
        F.gelu(LINEAR(X)).sum().backward()

    _, measurement = measure(step, Plan("cpu"))
    found = [kernel.name.removeprefix("aten::") for kernel in measurement.profile.kernels]
    assert found == ["addmm", "gelu", "sum", "ones_like", "gelu_backward", "mm", "sum"]


def test_a_custom_operator_counts_once_whatever_it_calls() -> None:
    @torch.library.custom_op("kernelprof_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return (x + x).relu()

    assert names(lambda: twice(X)) == ["kernelprof_tests::twice"]


def test_work_of_python_threads_counts() -> None:
    import threading

    def work() -> None:
        worker = threading.Thread(target=lambda: X + 1)
        worker.start()
        worker.join()

    assert names(work) == ["add"]
