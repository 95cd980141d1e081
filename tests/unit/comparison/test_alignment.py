"""Aligning long sequences: what agrees, and in time that grows with their length."""

from __future__ import annotations

import random
import time

import pytest

from pytest_kernelprof.comparison.kernel_pairing import align

LAYERS = [(i % 12) % 9 for i in range(600)]


def matched(old: list[int], new: list[int]) -> int:
    """How many agree, once the blocks are found to be ones."""
    at_old = at_new = 0
    for block in align(old, new):
        assert block.size > 0
        assert block.old >= at_old
        assert block.new >= at_new
        at_old, at_new = block.old + block.size, block.new + block.size
        assert old[block.old : at_old] == new[block.new : at_new]
    assert at_old <= len(old)
    assert at_new <= len(new)
    return sum(block.size for block in align(old, new))


@pytest.mark.parametrize("at", [0, 1, 7, 300, 598, 599, 600])
def test_one_more_is_all_that_does_not_agree(at: int) -> None:
    new = [*LAYERS[:at], 99, *LAYERS[at:]]
    assert matched(LAYERS, new) == 600
    assert matched(new, LAYERS) == 600


@pytest.mark.parametrize(
    ("new", "agree"),
    [
        (LAYERS, 600),
        ([x for i, k in enumerate(LAYERS) for x in ([99, k] if i % 12 == 5 else [k])], 600),
        ([99 if i % 30 == 7 else k for i, k in enumerate(LAYERS)], 580),
        (LAYERS[:240] + LAYERS[288:], 552),
        (LAYERS[:100] + [50 + i for i in range(300)] + LAYERS[100:], 600),
        ([], 0),
        ([k + 100 for k in LAYERS], 0),
    ],
    ids=["equal", "a layer", "others", "layers gone", "much more", "nothing", "all other"],
)
def test_what_is_as_it_was_agrees(new: list[int], agree: int) -> None:
    assert matched(LAYERS, new) == agree
    assert matched(new, LAYERS) == agree


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_however_few_agree_with_themselves(size: int) -> None:
    assert matched(LAYERS[:size], LAYERS[:size]) == size


def test_blocks_are_right_whatever_the_sequences_are() -> None:
    draw = random.Random(0)
    for _ in range(300):
        old = [draw.randrange(4) for _ in range(draw.randrange(40))]
        new = list(old)
        for _ in range(draw.randrange(6)):
            at = draw.randrange(len(new) + 1)
            new[at : at + draw.randrange(3)] = [draw.randrange(5)] * draw.randrange(3)
        matched(old, new)


@pytest.mark.parametrize("kind", ["shuffled", "all other", "one value", "two values"])
def test_twenty_times_as_many_take_no_more_than_in_proportion(kind: str) -> None:
    """Of sequences without any order, too; a quadratic rule takes four hundred times as long."""

    def seconds(size: int) -> float:
        draw = random.Random(0)
        old = [draw.randrange(9) for _ in range(size)]
        new = {
            "shuffled": lambda: draw.sample(old, len(old)),
            "all other": lambda: [one + 100 for one in old],
            "one value": lambda: [7] * size,
            "two values": lambda: [draw.randrange(2) for _ in old],
        }[kind]()
        started = time.process_time()
        align(old, new)
        return time.process_time() - started

    small = min(seconds(1_000) for _ in range(3))
    assert min(seconds(20_000) for _ in range(3)) < 200 * max(small, 1e-3)
