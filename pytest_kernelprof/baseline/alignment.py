"""Aligns two long sequences that are nearly equal, in time that grows with their length.

At a mismatch it looks for the least skip after which four in a row agree (greedy
resynchronisation), in windows that grow while there is work left to spend; then, between what
agrees, for one: layers may be shorter than four. An exact alignment (difflib, Myers) is
quadratic where layers repeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_AGREE = (4, 1)
_FIRST_WINDOW, _GROWTH = 8, 4
_STEP, _LONGEST_STEP = 8, 8192
_WORK_EACH, _WORK = 8, 20_000
# Behind the ends, so that they agree as well. Keys are zero or more.
_END = (-1, -2, -3, -4)


class Block(NamedTuple):
    """So many in a row that agree, from these places on."""

    old: int
    new: int
    size: int


def align(old: Sequence[int], new: Sequence[int]) -> list[Block]:
    """The blocks of two sequences that agree, in order; what is between them does not.

    Args:
        old, new: keys, zero or more.
    """
    blocks = [Block(0, 0, 0)]
    for agree in _AGREE:
        ends = [*blocks[1:], Block(len(old), len(new), 0)]
        finer = []
        for block, after in zip(blocks, ends, strict=True):
            i, j = block.old + block.size, block.new + block.size
            finer.append(block)
            # One that is replaced by another is what most gaps are.
            if min(after.old - i, after.new - j) > 0 and (after.old - i) + (after.new - j) > 2:
                inside = _align(old[i : after.old], new[j : after.new], agree)
                finer += [Block(i + one.old, j + one.new, one.size) for one in inside]
        blocks = finer
    return [block for block in blocks if block.size]


def _align(old: Sequence[int], new: Sequence[int], agree: int) -> list[Block]:
    """Blocks of which each begins with so many that agree."""
    a, b = [*old, *_END[:agree]], [*new, *_END[:agree]]
    work = _WORK + _WORK_EACH * (len(a) + len(b))
    blocks: list[Block] = []
    i = j = 0
    while i < len(old) and j < len(new):
        size = _agreeing(a, b, i, j)
        if size:
            blocks.append(Block(i, j, min(size, len(old) - i, len(new) - j)))
            i, j = i + size, j + size
            continue
        window = _FIRST_WINDOW
        while True:
            work -= 2 * window
            skip = _least_skip(a, b, i, j, window, agree)
            if skip or work < 0 or window > max(len(a) - i, len(b) - j):
                break
            window *= _GROWTH
        if skip is None:
            break
        i, j = i + skip[0], j + skip[1]
    return blocks


def _agreeing(a: Sequence[int], b: Sequence[int], i: int, j: int) -> int:
    """How many agree from here on."""
    start, step = i, _STEP
    most = min(len(a) - i, len(b) - j)
    end = i + most
    while i < end and a[i : i + step] == b[j : j + step]:
        i, j = i + step, j + step
        step = min(2 * step, _LONGEST_STEP)
    while step > _STEP:
        step //= 2
        if a[i : i + step] == b[j : j + step]:
            i, j = i + step, j + step
    while i < end and a[i] == b[j]:
        i, j = i + 1, j + 1
    return min(i - start, most)


def _least_skip(
    a: Sequence[int], b: Sequence[int], i: int, j: int, window: int, agree: int
) -> tuple[int, int] | None:
    """How many to leave out of each, as few as can be, so that the next ones agree."""
    for few in ((1, 0), (0, 1), (1, 1)):  # mostly it is one kernel
        here = a[i + few[0] : i + few[0] + agree]
        if len(here) == agree and here == b[j + few[1] : j + few[1] + agree]:
            return few
    first: dict[tuple[int, ...], int] = {}
    for skip, run in enumerate(_runs(b, j, window, agree)):
        first.setdefault(run, skip)
    best: tuple[int, int] | None = None
    for skip, run in enumerate(_runs(a, i, window, agree)):
        if best and skip >= sum(best):
            break
        other = first.get(run)
        if other is not None and (best is None or skip + other < sum(best)):
            best = (skip, other)
    return best


def _runs(keys: Sequence[int], at: int, window: int, agree: int) -> zip[tuple[int, ...]]:
    part = keys[at : at + window + agree - 1]
    return zip(*(part[k:] for k in range(agree)), strict=False)
