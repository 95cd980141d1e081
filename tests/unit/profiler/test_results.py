"""Results held against each other, and arguments in memory of our own."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch

from pytest_kernelprof.profiler.tensors import OwnMemory, kept, likeness

Pair = namedtuple("Pair", ["one", "other"])
ONES = torch.ones(3)


@pytest.mark.parametrize(
    "result",
    [
        ONES.clone(),
        (ONES.clone(), [ONES.clone()]),
        {"a": {"b": ONES.clone()}},
        Pair(ONES.clone(), None),
        torch.ones(3, 2).max(0),
        torch.nn.Parameter(ONES.clone()),
    ],
)
def test_what_is_kept_stays_when_the_result_is_written_over(result: Any) -> None:
    found = kept(result)
    assert type(found) is type(result) or isinstance(found, torch.Tensor)
    assert likeness(found, result).norm == 0
    with torch.no_grad():
        first = result
        while not isinstance(first, torch.Tensor):
            first = next(iter(first.values())) if isinstance(first, dict) else first[0]
        first.add_(1)
    assert likeness(result, found).apart


def test_what_is_kept_holds_no_graph() -> None:
    assert kept(ONES.clone().requires_grad_() * 2).grad_fn is None


@pytest.mark.parametrize(
    ("result", "reference"),
    [
        (ONES.to_sparse(), ONES.to_sparse()),
        (ONES.to("meta"), ONES.to("meta")),
        (ONES, ONES.int()),
        (1.0, 1.0),
        (None, None),
        ([], []),
        (ONES.to(torch.float8_e4m3fn), ONES.to(torch.float8_e4m3fn)),
        (ONES, {"out": ONES}),
    ],
)
def test_only_floating_tensors_of_both_are_compared(result: Any, reference: Any) -> None:
    found = likeness(result, reference)
    assert (found.norm, found.apart, len(found.left_out)) == (None, (), 1)


def test_the_looser_of_two_types_says_how_far_apart() -> None:
    assert not likeness(ONES * 1.004, ONES).agrees
    assert likeness(ONES.bfloat16() * 1.004, ONES).agrees
    assert likeness(ONES + 0j, ONES).agrees


@pytest.mark.parametrize("size", [0, 1, (1 << 20) + 1, (1025, 1025)])
def test_a_result_of_any_size_is_looked_at_to_its_end(size: Any) -> None:
    one = torch.ones(size)
    assert likeness(one, one.clone()).agrees
    if one.numel():
        changed = one.clone()
        changed.view(-1)[-1] = 1e6
        assert not likeness(changed, one).agrees


def test_numbers_too_large_for_their_square_are_compared() -> None:
    huge = torch.full((3,), 1e38)
    assert likeness(huge, huge * 1.0001).agrees
    assert not likeness(huge, huge / 2).agrees


def test_zeros_agree_with_zeros_alone() -> None:
    assert likeness(ONES * 0, ONES * 0).agrees
    assert not likeness(ONES, ONES * 0).agrees


def test_tensors_of_inference_mode_can_be_compared() -> None:
    with torch.inference_mode():
        made = ONES * 2
    assert likeness(made, kept(made)).agrees


@pytest.mark.parametrize(
    "given",
    [
        (ONES,),
        ([ONES, {"b": ONES}],),
        (torch.ones(4, 4)[:, :2],),
        (ONES.expand(2, 3),),
        (torch.ones(6).unfold(0, 3, 1),),
        (torch.ones(2, requires_grad=True), 3, "text"),
    ],
)
def test_other_values_come_to_the_same_addresses_and_what_is_given_stays(given: Any) -> None:
    memory = OwnMemory()
    args, _ = memory.holding(given, {})
    before, addresses = kept(args), addresses_of(args)
    changed = tuple(one.detach() * 2 if isinstance(one, torch.Tensor) else one for one in given)
    other, _ = memory.holding(changed, {})
    assert likeness(before, given).agrees
    if isinstance(given[0], torch.Tensor) and not given[0].requires_grad:
        assert addresses_of(other) == addresses
        assert not likeness(args, given).agrees


def addresses_of(args: Any) -> list[int]:
    return [one.data_ptr() for one in args if isinstance(one, torch.Tensor)]


def test_a_copy_is_laid_out_as_what_is_given_and_one_tensor_stays_one() -> None:
    part = torch.ones(4, 8)[:, :2]
    (one, other), kwargs = OwnMemory().holding((part, part), {"third": part})
    assert one is other is kwargs["third"]
    assert one.stride() == part.stride()
    assert one is not part


@pytest.mark.parametrize(
    "given", [ONES.clone().requires_grad_() * 2, torch.nn.Linear(2, 2), torch.nn.Parameter(ONES)]
)
def test_what_belongs_to_a_graph_or_a_module_is_handed_on(given: Any) -> None:
    ((found,), _) = OwnMemory().holding((given,), {})
    assert found is given


def test_what_stands_too_deep_is_handed_on() -> None:
    deep = [[[[[[ONES]]]]]]
    ((found,), _) = OwnMemory().holding((deep,), {})
    assert found[0][0][0][0][0][0] is ONES


def test_gradients_begin_anew_with_other_values() -> None:
    memory = OwnMemory()
    ((own,), _) = memory.holding((torch.ones(2, requires_grad=True),), {})
    own.sum().backward()
    ((again,), _) = memory.holding((torch.zeros(2, requires_grad=True),), {})
    assert again is own
    assert again.grad is None
