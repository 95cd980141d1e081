"""Callables that are compared have to compute the same, and not to remember it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]

REMEMBERS = """
remembered = {}
def work(t): return (t @ t).relu()
def remembers(t):
    if t.data_ptr() not in remembered:
        remembered[t.data_ptr()] = work(t)
    return remembered[t.data_ptr()]
def other(): return (torch.randn(8, 8),)
@pytest.fixture(autouse=True)
def nothing_of_another_test():
    remembered.clear()
"""


def test_another_result_is_a_failure_that_says_what_differs_and_what_to_do(run: Run) -> None:
    result = run(
        """
def right(t): return {"out": (t @ t, t + 1)}
def wrong(t): return {"out": (t @ t, t + 1.1)}
def test_it(kernel_profile, kernelprof_device):
    kernel_profile.compare(wrong, right, x)
""",
        "-rf",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *WrongResult: wrong returned a different result than right: the result*out*1*: "
            "relative norm of the difference 0.05 > 0.001 (float32). If this is intended, pass "
            "your own check=: a function check(result, reference_result), or None",
            "test_it.py:*: WrongResult",
            "FAILED test_it.py::test_it - WrongResult: wrong returned a different result*",
        ]
    )


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [
        ("float16", "0.009", "0.011"),
        ("bfloat16", "0.007", "0.012"),
        ("float32", "0.0009", "0.0011"),
        ("complex64", "0.0009", "0.0011"),
        ("float64", "0.9e-6", "1.1e-6"),
    ],
)
def test_how_far_results_may_be_apart_depends_on_their_type(
    run: Run, dtype: str, least: str, most: str
) -> None:
    """16 bits so far that a product in two parts agrees, which sums in another order."""
    result = run(
        f"""
import time
ones = torch.ones(64, 64, dtype=torch.{dtype})
def same(): return ones
def test_near(kernel_profile, kernelprof_device):
    near = (ones * (1 + {least})).to(ones.dtype)
    kernel_profile.compare(lambda: near, same, rounds=1)
def test_far(kernel_profile, kernelprof_device):
    far = (ones * (1 + {most})).to(ones.dtype)
    kernel_profile.compare(lambda: far, same, rounds=1)
"""
    )
    result.assert_outcomes(passed=1, failed=1)


def test_a_product_in_two_parts_agrees(run: Run) -> None:
    result = run(
        """
a, b = torch.randn(2, 64, 512, dtype=torch.bfloat16)
b = b.t().contiguous()
def whole(): return a @ b
def in_two(): return a[:, :256] @ b[:256] + a[:, 256:] @ b[256:]
def test_it(kernel_profile, kernelprof_device):
    print(kernel_profile.compare(in_two, whole))
""",
        "-rP",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["in_two: results agree (relative norm 0.00*); not checked for remembered results"]
    )


def test_results_are_compared_by_their_structure_and_what_is_not_compared_is_named(
    run: Run,
) -> None:
    result = run(
        """
from dataclasses import dataclass
@dataclass
class Found:
    values: torch.Tensor
    indices: torch.Tensor
def most(t): return Found(*t.max(0))
def least_of_minus(t): return Found(-(-t).min(0).values, torch.zeros(8, dtype=torch.long))
def test_it(kernel_profile, kernelprof_device):
    print(kernel_profile.compare(least_of_minus, most, x))
def test_nothing(kernel_profile, kernelprof_device):
    print(kernel_profile.compare(lambda: None, most.__get__(x)))
def test_other_shapes(kernel_profile, kernelprof_device):
    kernel_profile.compare(lambda: x[:1] @ x, lambda: x @ x)
""",
        "-rP",
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*the result: shape (1, 8), not (8, 8)*",
            "*results agree (relative norm 0; not compared: the result.indices (int64))*",
            "*: results not compared: NoneType, not Found; *",
        ]
    )


def test_infinities_and_nans_at_the_same_places_agree(run: Run) -> None:
    result = run(
        """
masked = torch.tensor([1.0, float("nan"), float("-inf"), 2.0])
def test_alike(kernel_profile, kernelprof_device):
    kernel_profile.compare(lambda: masked.clone(), lambda: masked)
def test_elsewhere(kernel_profile, kernelprof_device):
    kernel_profile.compare(lambda: masked.roll(1), lambda: masked)
def test_one_side(kernel_profile, kernelprof_device):
    kernel_profile.compare(lambda: masked, lambda: masked.nan_to_num())
"""
    )
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*: relative norm of the difference inf > 0.001 (float32)*"])


def test_a_buffer_that_both_write_is_looked_at_before_the_other_writes(run: Run) -> None:
    result = run(
        """
buffer = torch.empty(8, 8)
def test_it(kernel_profile, kernelprof_device):
    kernel_profile.compare(
        lambda: torch.add(x, 2, out=buffer), lambda: torch.add(x, 1, out=buffer)
    )
"""
    )
    result.assert_outcomes(failed=1)


def test_results_of_other_inputs_or_other_numbers_are_not_compared(run: Run) -> None:
    result = run(
        """
def test_in_place(kernel_profile, kernelprof_device):
    print(kernel_profile.compare(lambda t: t.mul_(1.1), lambda t: t.mul_(1.2), torch.ones(8)))
def test_random(kernel_profile, kernelprof_device):
    print(kernel_profile.compare(lambda: F.dropout(x), lambda: x * (torch.rand(8, 8) > 0.5)))
def test_fresh_arguments(kernel_profile, kernelprof_device):
    def setup(): return (torch.ones(8),)
    kernel_profile.compare(lambda t: t.mul_(1.1), lambda t: t.mul_(1.2), setup=setup)
""",
        "-rP",
    )
    result.assert_outcomes(passed=2, failed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*: results not compared: argument 1 changes in place; make new ones with setup=; *",
            "*: results not compared: those of <lambda> (reference) differ between calls; *",
        ]
    )


def test_results_that_cannot_be_read_are_not_compared(run: Run) -> None:
    result = run(
        """
nested = torch.nested.nested_tensor([x, x], layout=torch.strided)
class Raises:
    def __getattr__(self, name): raise RuntimeError(name)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_odd(kernel_profile, kernelprof_device, number):
    returned = (nested, Raises(), {"out": Raises()})[number]
    kernel_profile.compare(lambda t: returned, lambda t: returned, x, fresh=lambda: (x + 1,))
@pytest.mark.parametrize("method", ["clone", "isnan"])
def test_patched(kernel_profile, kernelprof_device, monkeypatch, method):
    def fails(*args, **kwargs): raise MemoryError
    monkeypatch.setattr(torch.Tensor, method, fails, raising=False)
    print(kernel_profile.compare(lambda: x, lambda: x))
""",
        "-rP",
    )
    result.assert_outcomes(passed=5)
    said = "results not compared: MemoryError; not checked for remembered results"
    assert sum(said in line for line in result.outlines) == 2


def test_a_check_of_ones_own_is_strict_and_none_checks_nothing(run: Run) -> None:
    result = run(
        """
def right(): return x
def wrong(): return x + 1
def test_exact(kernel_profile, kernelprof_device):
    check = torch.testing.assert_close
    kernel_profile.compare(wrong, right, check=check)
def test_false(kernel_profile, kernelprof_device):
    kernel_profile.compare(wrong, right, check=torch.equal)
def test_true(kernel_profile, kernelprof_device):
    print(kernel_profile.compare(lambda: x.clone(), right, check=torch.equal))
def test_none(kernel_profile, kernelprof_device):
    print(kernel_profile.compare(wrong, right, check=None))
def test_nonsense(kernel_profile, kernelprof_device):
    kernel_profile.compare(wrong, right, check="strict")
def test_nothing_to_check(kernel_profile, kernelprof_device):
    kernel_profile.compare(wrong, right, check=None, fresh=lambda: ())
""",
        "-rP",
    )
    result.assert_outcomes(passed=2, failed=2, errors=2)
    result.stdout.fnmatch_lines(
        [
            "*MarkerError: check='strict': expected a function check(result, reference_result), "
            'None, or "close"*',
            "*MarkerError: fresh= gives inputs for check=, which is None*",
            "*AssertionError: Tensor-likes are not close!*",
            "*WrongResult: wrong returned a different result than right: AssertionError: "
            "Tensor-likes*",
            "*WrongResult: wrong returned a different result than right: equal says False",
            "<lambda>: results pass equal; not checked for remembered results",
            "wrong: results not checked (check=None); not checked for remembered results",
        ]
    )


def test_markers_check_results_too(run: Run) -> None:
    result = run(
        """
def right(): return x
def wrong(): return x + 1
@pytest.mark.min_speedup(0.001, over=right)
def test_it(kernel_profile):
    kernel_profile(wrong)
@pytest.mark.min_speedup(0.001, over=right, check=None)
def test_meant(kernel_profile):
    kernel_profile(wrong)
@pytest.mark.min_speedup(0.001, over=right, check=1)
def test_nonsense(kernel_profile):
    kernel_profile(wrong)
"""
    )
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*wrong returned a different result than right*"])


def test_a_result_that_is_remembered_shows_by_other_inputs_at_the_same_place(run: Run) -> None:
    result = run(
        REMEMBERS
        + """
def test_believed(kernel_profile, kernelprof_device):
    print(kernel_profile.compare(remembers, work, x, metric="latency"))
def test_it(kernel_profile, kernelprof_device):
    before, version = x.clone(), x._version
    try:
        kernel_profile.compare(remembers, work, x, fresh=other)
    finally:
        assert torch.equal(x, before) and x._version == version
def test_with_setup(kernel_profile, kernelprof_device):
    kernel_profile.compare(remembers, work, setup=other, fresh=other)
def test_by_keyword(kernel_profile, kernelprof_device):
    kernel_profile.compare(remembers, work, t=x, fresh=lambda: ((), {"t": torch.randn(8, 8)}))
def test_with_a_check(kernel_profile, kernelprof_device):
    kernel_profile.compare(remembers, work, x, fresh=other, check=torch.testing.assert_close)
""",
        "-rP",
    )
    result.assert_outcomes(passed=1, failed=4)
    said = "WrongResult: remembers returned the result of other inputs"
    assert sum(said in line for line in result.outlines if line.startswith("E ")) == 4
    result.stdout.fnmatch_lines(
        ["remembers: results agree (relative norm 0); not checked for remembered results"]
    )


def test_what_computes_anew_is_checked_by_other_inputs(run: Run) -> None:
    result = run(
        REMEMBERS
        + """
def also(t): return F.relu(torch.mm(t, t))
def test_it(kernel_profile, kernelprof_device):
    print(kernel_profile.compare(also, work, x, fresh=other))
def test_same(kernel_profile, kernelprof_device):
    print(kernel_profile.compare(also, work, x, fresh=lambda: (x.clone(),)))
def test_other_shapes(kernel_profile, kernelprof_device):
    print(kernel_profile.compare(also, work, x, fresh=lambda: (torch.randn(4, 4),)))
def test_wrong_there(kernel_profile, kernelprof_device):
    kernel_profile.compare(lambda t: t + 7, work, x, fresh=other)
def test_no_inputs(kernel_profile, kernelprof_device):
    kernel_profile.compare(also, work, x, fresh=lambda: None)
def test_no_function(kernel_profile, kernelprof_device):
    kernel_profile.compare(also, work, x, fresh=x)
""",
        "-rP",
    )
    result.assert_outcomes(passed=3, failed=1, errors=2)
    result.stdout.fnmatch_lines(
        [
            "*CannotMeasureError: fresh returned NoneType; expected *",
            "*MarkerError: fresh=*: expected a function that returns other inputs*",
            "*WrongResult: <lambda>, on the inputs of fresh=, returned a different result than "
            "work: *",
            "also: results agree (relative norm 0); checked with other inputs",
            "also: results agree (relative norm 0); not checked for remembered results "
            "(fresh= gave inputs with the same result)",
            "also: results agree (relative norm 0); not checked for remembered results "
            "(fresh= gave tensors of other types or shapes)",
        ]
    )


def test_reports_say_how_results_were_held_against_each_other(
    run: Run, pytester: pytest.Pytester
) -> None:
    run(
        REMEMBERS
        + """
def test_it(kernel_profile, kernelprof_device):
    kernel_profile.compare_all({"again": work, "once": remembers, "work": work}, x,
        reference="work")
""",
        *("--kernelprof-report", "--kernelprof-json=run.json", "--kernelprof-html=run.html"),
    ).stdout.fnmatch_lines(
        [
            "  again: results agree (relative norm 0); not checked for remembered results",
            "  once: results agree (relative norm 0); not checked for remembered results",
        ]
    )
    ((compared,),) = [
        one["comparisons"]
        for one in json.loads(Path(pytester.path, "run.json").read_text())["tests"]
    ]
    checks = [one.get("checks", []) for one in compared["callables"]]
    agree = ["results agree (relative norm 0)", "not checked for remembered results"]
    assert checks == [agree, agree, []]
    assert "not checked for remembered results" in Path(pytester.path, "run.html").read_text()
