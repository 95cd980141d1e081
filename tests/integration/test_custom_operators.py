"""On the CPU an operator of a library counts by what it is while its library lives; what cannot be
told is incomplete."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

Run = Callable[..., pytest.RunResult]

LIBRARIES = """
import numpy as np
pytestmark = [pytest.mark.usefixtures("kernelprof_device"), pytest.mark.max_kernels(0)]
x = torch.ones(4)
def twice(t): return torch.from_numpy(t.numpy() * 2)
def library(space="mine"):
    return torch.library._scoped_library(space, "FRAGMENT")
def define(lib, schema, call, key="CPU"):
    lib.define(schema)
    lib.impl(schema.partition("(")[0], call, key)
"""

COMPUTES = """
def test_no_inputs(kernel_profile):
    with library() as lib:
        define(lib, "make() -> Tensor", lambda: twice(x), "CompositeExplicitAutograd")
        kernel_profile(torch.ops.mine.make)
@pytest.mark.parametrize("kind", ["view", "computes"])
def test_same_name(kernel_profile, kind):
    with library() as lib:
        if kind == "view": define(lib, "same(Tensor(a) x) -> Tensor(a)", lambda t: t.view(-1))
        else: define(lib, "same(Tensor x) -> Tensor", twice)
        kernel_profile(lambda: torch.ops.mine.same(x))
@pytest.mark.parametrize("kind", ["view", "computes"])
def test_same_name_among_those_of_torch(kernel_profile, kind):
    with library("aten") as lib:
        if kind == "view": define(lib, "same(Tensor(a) x) -> Tensor(a)", lambda t: t.view(-1))
        else: define(lib, "same(Tensor x) -> Tensor", twice)
        kernel_profile(lambda: torch.ops.aten.same(x))
@pytest.mark.parametrize("kind", ["torch's", "overridden"])
def test_dropout(kernel_profile, kind):
    with torch.library._scoped_library("aten", "IMPL") as lib:
        if kind == "overridden": lib.impl("dropout", lambda t, p, train: twice(t), "CPU")
        kernel_profile(torch.nn.functional.dropout, x, training=False)
def test_out_alone(kernel_profile):
    with library() as lib:
        define(lib, "into.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", lambda t, *, out: out)
        kernel_profile(lambda: torch.ops.mine.into.out(x, out=torch.empty(4)))
def test_readout(kernel_profile):
    with library() as lib:
        define(lib, "head.readout(Tensor x) -> Tensor", twice)
        kernel_profile(lambda: torch.ops.mine.head.readout(x))
@pytest.mark.parametrize("returns, call", [("Tensor", twice), ("float", lambda t: t.numpy().sum())])
def test_for_all_devices(kernel_profile, returns, call):
    with library() as lib:
        define(lib, f"raw(Tensor x) -> {returns}", call, "CompositeImplicitAutograd")
        kernel_profile(lambda: torch.ops.mine.raw(x))
"""


def test_an_operator_of_a_library_computes_unless_it_says_that_it_is_a_view(run: Run) -> None:
    result = run(LIBRARIES + COMPUTES, "-rA", "-p", "no:randomly")
    passed = {line.split("::")[1] for line in result.outlines if line.startswith("PASSED")}
    assert passed == {
        *("test_same_name[view]", "test_same_name_among_those_of_torch[view]"),
        "test_dropout[torch's]",
    }
    result.assert_outcomes(passed=3, failed=8)
    named = [line for line in result.outlines if line.startswith("E   max_kernels: 1 > limit 0")]
    assert len(named) == 8


DECOMPOSES = """
@pytest.mark.max_kernels(3)
def test_by_others(kernel_profile):
    with library() as lib:
        define(lib, "inner(Tensor x) -> Tensor", twice, "CompositeImplicitAutograd")
        define(
            lib, "outer(Tensor x) -> Tensor",
            lambda t: torch.ops.mine.inner(torch.ops.mine.inner(t)).exp(),
            "CompositeImplicitAutograd",
        )
        kernel_profile(lambda: torch.ops.mine.outer(x))
        names = [one.name for one in kernel_profile.last.kernels]
        assert names == ["mine::inner", "mine::inner", "aten::exp"]
"""


def test_an_operator_for_all_devices_counts_as_those_that_it_is_made_of(run: Run) -> None:
    run(LIBRARIES + DECOMPOSES).assert_outcomes(passed=1)


UNCLEAR = """
def test_gone():
    with library() as lib:
        define(lib, "gone(Tensor x) -> Tensor", twice)
        torch.ops.mine.gone(x)
def test_gone_without_inputs():
    with library() as lib:
        define(lib, "gone() -> Tensor", lambda: twice(x), "CompositeExplicitAutograd")
        torch.ops.mine.gone()
def test_override_that_is_taken_back():
    with torch.library._scoped_library("aten", "IMPL") as lib:
        lib.impl("dropout", lambda t, p, train: twice(t), "CPU")
        torch.nn.functional.dropout(x, training=False)
def test_override_that_ends_with_its_library():
    lib = torch.library.Library("aten", "IMPL")
    lib.impl("dropout", lambda t, p, train: twice(t), "CPU")
    torch.nn.functional.dropout(x, training=False)
@pytest.mark.max_kernels(9)
def test_view_beside_what_computes(kernel_profile):
    with library() as lib:
        define(lib, "part(Tensor(a) x) -> Tensor(a)", lambda t: t.view(-1))
        define(lib, "part.copy(Tensor x, int n) -> Tensor", lambda t, n: twice(t))
        kernel_profile(lambda: torch.ops.mine.part(x))
def test_a_range_is_no_operator(kernel_profile):
    from torch._C._profiler import _RecordFunctionFast
    def phase():
        with _RecordFunctionFast("app::phase"): pass
    kernel_profile(phase)
"""


def test_an_operator_of_which_nobody_knows_whether_it_computes_is_incomplete(run: Run) -> None:
    result = run(LIBRARIES + UNCLEAR, "-rE")
    result.assert_outcomes(passed=1, errors=5)
    result.stdout.fnmatch_lines_random(
        [
            "*the operator mine::gone is no longer registered as it was*",
            "*the operator aten::dropout is no longer registered as it was*",
            "*of the operator mine::part some overloads compute and others*",
        ]
    )


HANDED_ON = """
from torch.utils._python_dispatch import TorchDispatchMode
class Two(torch.Tensor):
    @staticmethod
    def __new__(cls, a, b): return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)
    def __init__(self, a, b): self.a, self.b = a, b
    @classmethod
    def __torch_dispatch__(cls, call, types, args=(), kwargs=None):
        return Two(call(*[t.a for t in args]), call(*[t.b for t in args]))
class Twice(TorchDispatchMode):
    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        return call(*args, **(kwargs or {})) + 1
class AsItIs(TorchDispatchMode):
    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        return call(*args, **(kwargs or {}))
def within(mode):
    with mode: return (x @ x).relu()
@pytest.mark.max_kernels(4)
def test_subclass(kernel_profile):
    kernel_profile(lambda t: (t @ t).relu(), Two(x, x))
    assert kernel_profile.last.kernel_count == 4
@pytest.mark.max_kernels(4)
def test_mode(kernel_profile):
    kernel_profile(within, Twice())
    assert kernel_profile.last.kernel_count == 4
@pytest.mark.max_kernels(2)
def test_mode_that_changes_nothing(kernel_profile):
    kernel_profile(within, AsItIs())
    assert [one.name for one in kernel_profile.last.kernels] == ["aten::dot", "aten::relu"]
def test_fake(kernel_profile):
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode() as mode: fake = torch.ones(4)
    kernel_profile(lambda: (fake @ fake).relu())
"""


@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10),
    reason="torch 2.9 leaves no event where it hands an operator on to Python",
)
def test_what_dispatch_in_python_runs_in_place_of_an_operator_counts(run: Run) -> None:
    run(LIBRARIES + HANDED_ON).assert_outcomes(passed=4)
