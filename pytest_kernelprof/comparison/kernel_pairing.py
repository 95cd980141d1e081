"""Which kernels of two profiles stand in each other's place.

Kernels get numbers, the same for those that are the same by name and innermost operator. Then long
sequences of numbers that are nearly equal are aligned, in time that grows with their length.

At a mismatch the alignment looks for the least skip after which four in a row agree (greedy
resynchronisation), in windows that grow while there is work left to spend; then, between what
agrees, for one: layers may be shorter than four. An exact alignment (difflib, Myers) is
quadratic where layers repeat.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os.path import basename
from typing import NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from pytest_kernelprof.kernel_names.short_names import comparable_name, short_name
from pytest_kernelprof.records.comparison import KernelSide
from pytest_kernelprof.records.profile import Kernel

Numbers = NDArray[np.int64]
AnyKernel = Kernel | KernelSide
Pairs = tuple[tuple[int, int], ...]


STEP = "ProfilerStep#"
"""How the annotations of torch.profiler's own steps begin."""


@dataclass(frozen=True)
class Numbered:
    """Kernels, and in columns what is compared of them.

    Attributes:
        keys: numbers of what they are.
        launches: numbers of how they are launched, as ``Keys.launch_of`` has it.
        steps: numbers of the profiler's own steps around them; 0 outside.
        us: durations in microseconds; NaN where not known. spills: likewise, in bytes.
        of_steps: how many steps there are of which these are one; 0 without the profiler's own.
    """

    kernels: Sequence[AnyKernel]
    keys: Numbers
    launches: Numbers
    steps: Numbers
    us: NDArray[np.float64]
    spills: NDArray[np.float64]
    of_steps: int = 0

    @functools.cached_property
    def numbers(self) -> list[int]:
        """The keys as a list, for what looks at them one by one."""
        return self.keys.tolist()  # type: ignore[no-any-return]

    def one_step(self) -> Numbered:
        """Of a trace with the profiler's own steps the kernels of the first of the most frequent
        ones; all kernels of another trace.

        A backward pass runs on a thread of its own, outside the annotation: its kernels belong to
        the step that was begun last.
        """
        inside = np.flatnonzero(self.steps)
        begins = inside[np.flatnonzero(np.diff(self.steps[inside], prepend=0))]
        if len(begins) < 2:
            return replace(self, of_steps=len(begins))
        ends = [*begins[1:], len(self.keys)]
        sequences = [part.tobytes() for part in np.split(self.keys, begins)[1:]]
        most = sequences.index(Counter(sequences).most_common(1)[0][0])
        rows = slice(int(begins[most]), int(ends[most]))
        names = ("kernels", "keys", "launches", "steps", "us", "spills")
        part = {name: getattr(self, name)[rows] for name in names}
        return replace(self, **part, of_steps=len(begins))


class Keys:
    """The numbers so far: in the order in which kernels are met.

    Args:
        comparable: what is equal of two names of one kernel.
    """

    def __init__(self, comparable: Callable[[str], str] = comparable_name) -> None:
        self._comparable = functools.cache(comparable)
        self._numbers: dict[tuple[str, str], int] = {}
        self._launches: dict[tuple[object, ...], int] = {}
        self._steps: dict[str, int] = {"": 0}

    def of(self, kernels: Sequence[AnyKernel]) -> Numbered:
        """The kernels with their numbers; each kind of kernel is looked at once."""
        first: dict[tuple[object, ...], int] = {}
        row_of = first.setdefault
        rows = [
            row_of((k.name, k.operators, k.grid, k.block, k.registers, k.shared_memory), row)
            for row, k in enumerate(kernels)
        ]
        alike = np.array(rows, np.int64)
        kinds = list(first.values())

        def column(number: Callable[[AnyKernel], int]) -> Numbers:
            table = np.zeros(len(rows), np.int64)
            table[kinds] = [number(kernels[row]) for row in kinds]
            return table[alike]

        return Numbered(
            kernels,
            keys=column(self._number),
            launches=column(self._launch),
            steps=column(self._step),
            us=np.array([kernel.duration_us for kernel in kernels], np.float64),
            spills=np.array([k.spills if isinstance(k.spills, int) else np.nan for k in kernels]),
        )

    def name_of(self, kernel: AnyKernel) -> str:
        """Its name, as all demanglers and all numberings have it."""
        return self._comparable(kernel.name)

    def _number(self, kernel: AnyKernel) -> int:
        inner = next((one for one in kernel.operators if not one.startswith(STEP)), "")
        return self._numbers.setdefault((inner, self.name_of(kernel)), len(self._numbers))

    @staticmethod
    def launch_of(kernel: AnyKernel) -> tuple[object, ...]:
        """Grid, block, registers and shared memory of a kernel; None for what is not known."""
        sizes = [one if any(one or ()) else None for one in (kernel.grid, kernel.block)]
        return (*sizes, kernel.registers or None, kernel.shared_memory)

    def _launch(self, kernel: AnyKernel) -> int:
        return self._launches.setdefault(self.launch_of(kernel), len(self._launches))

    def _step(self, kernel: AnyKernel) -> int:
        outermost = kernel.operators[-1] if kernel.operators else ""
        step = outermost if outermost.startswith(STEP) else ""
        return self._steps.setdefault(step, len(self._steps))


_AGREE = (4, 1)
_FIRST_WINDOW, _GROWTH = 8, 4
_STRIDE, _LONGEST_STRIDE = 8, 8192
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
            gone, come = after.old - i, after.new - j
            if min(gone, come) > 0 and (gone + come > 2 or old[i] == new[j]):
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
        if a[i] == b[j]:
            size = _agreeing(a, b, i, j)
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
    most = min(len(a) - i, len(b) - j)
    size, step = 0, _STRIDE
    while size < most and a[i + size : i + size + step] == b[j + size : j + size + step]:
        size += step
        step = min(2 * step, _LONGEST_STRIDE)
    while step > 1:
        step //= 2
        if a[i + size : i + size + step] == b[j + size : j + size + step]:
            size += step
    return min(size, most)


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


_LIKE_ENOUGH = 3
_CELLS, _CELLS_IN_ALL = 4_096, 200_000


@dataclass(slots=True)
class Pairing:
    """Pairs kernels of hunks. What it spends on exact pairing is bounded: a hunk that is too large,
    or comes after too many, is paired by operators alone.

    Attributes:
        cells_left: how many pairs may still be looked at.
        by_line: whether source lines are the same on both sides, so that they speak for a pair.
    """

    cells_left: int = _CELLS_IN_ALL
    by_line: bool = False

    def pairs(self, old: Sequence[AnyKernel], new: Sequence[AnyKernel]) -> Pairs:
        """Indices of kernels that stand for each other, in order."""
        if not old or not new:
            return ()
        cells = len(old) * len(new)
        if cells > min(_CELLS, self.cells_left):
            return _by_operators(old, new)
        self.cells_left -= cells
        return _by_likeness(old, new, self.likeness)

    def is_one(self, old: AnyKernel, new: AnyKernel) -> bool:
        """Whether lines count, and two kernels have one operator and line, as far as known. Of a
        file that each environment has for itself, the lines may have moved."""
        if not self.by_line or not (old.source or old.operators):
            return False
        (file, _, line), (other, _, at) = (one.source.rpartition(":") for one in (old, new))
        is_there = line == at if file == other else basename(file) == basename(other)
        return is_there and old.operators[:1] == new.operators[:1]

    def likeness(self, old: AnyKernel, new: AnyKernel) -> int:
        """How much speaks for one standing for the other: its line, its operators, then its
        name."""
        found, alike = _LIKE_ENOUGH * self.is_one(old, new), 1
        if not (old.operators and new.operators):  # in the replay of a graph none is known
            alike = _LIKE_ENOUGH
        elif old.operators[0] == new.operators[0]:
            found += 5 if old.operators == new.operators else 4
        if old.name == new.name:
            return found + 2 * _LIKE_ENOUGH
        if short_name(old.name) == short_name(new.name):
            return found + _LIKE_ENOUGH
        return found + alike if stem(old.name) == stem(new.name) else found


def stem(name: str) -> str:
    """The first word of a short name: the family or the template."""
    return short_name(name).split(" ", 1)[0]


def _by_likeness(
    old: Sequence[AnyKernel], new: Sequence[AnyKernel], of: Callable[[AnyKernel, AnyKernel], int]
) -> Pairs:
    """The pairing in order with the most in its favour (Needleman and Wunsch, gaps are free)."""
    like = functools.cache(lambda i, j: of(old[i], new[j]))
    best = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old) - 1, -1, -1):
        for j in range(len(new) - 1, -1, -1):
            paired = best[i + 1][j + 1] + like(i, j) if like(i, j) >= _LIKE_ENOUGH else 0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    found = []
    i = j = 0
    while i < len(old) and j < len(new):
        if like(i, j) >= _LIKE_ENOUGH and best[i][j] == best[i + 1][j + 1] + like(i, j):
            found.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return tuple(found)


def _by_operators(old: Sequence[AnyKernel], new: Sequence[AnyKernel]) -> Pairs:
    numbers: dict[str, int] = {}

    def keys(kernels: Sequence[AnyKernel]) -> list[int]:
        said = ((k.operators or (stem(k.name),))[0] for k in kernels)
        return [numbers.setdefault(one, len(numbers)) for one in said]

    blocks = align(keys(old), keys(new))
    return tuple((one.old + k, one.new + k) for one in blocks for k in range(one.size))


# What repeats in one sequence.

_LONGEST, _LEAST_SAVED = 2048, 4
_WORK_OF_FOLDING = 2_000_000
"""So many parts of a sequence are compared: a second or so."""


def period_of(sequence: Sequence[object]) -> int:
    """The length of the shortest part that the whole is repeats of."""
    whole, last = len(sequence), sequence[-1]
    sizes = (n for n in range(1, whole + 1) if whole % n == 0 and sequence[n - 1] == last)
    return next(n for n in sizes if sequence[n:] == sequence[:-n])


def one_repeat(kernels: Sequence[Kernel]) -> tuple[tuple[Kernel, ...], int]:
    """Of a sequence that is one part again and again that part, each kernel with its mean time, and
    how often it is there; else all, and 1."""
    names = [one.name for one in kernels]
    period = period_of(names) if names else 0
    if len(names) - period < _LEAST_SAVED:
        return tuple(kernels), 1
    times = len(names) // period
    return tuple(
        structs.replace(one, duration_us=sum(k.duration_us for k in kernels[at::period]) / times)
        for at, one in enumerate(kernels[:period])
    ), times


def without_frame(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Drop the annotation that all kernels stand in, which tells none of them apart."""
    outermost = {one.operators[-1] for one in kernels if len(one.operators) > 1}
    frame = outermost.pop() if len(outermost) == 1 and len(kernels) > 1 else "::"
    if "::" in frame:
        return tuple(kernels)
    return tuple(
        structs.replace(one, operators=tuple(name for name in one.operators if name != frame))
        for one in kernels
    )


def folded(names: Sequence[str]) -> list[tuple[Sequence[str], int]]:
    """The parts of a sequence, each with how often it is there: of the repeats that begin at a name
    the one that saves most, and what is between them.

    Parts have up to 2,048 names. The time is bounded: in a long sequence repeats may be left.
    """
    codes = {name: at for at, name in enumerate(dict.fromkeys(names))}
    text = "".join(chr(codes[name]) for name in names)  # whose parts are quickly compared
    found: list[tuple[Sequence[str], int]] = []
    at = end = 0
    work = _WORK_OF_FOLDING
    while at < len(text):
        saved, period, most = _LEAST_SAVED - 1, 1, 1
        there = text.find(text[at], at + 1, at + 1 + _LONGEST)
        while there > 0 and work > 0:
            unit, times = text[at:there], 1
            while text.startswith(unit, at + times * len(unit)):
                times += 1
            work -= times
            if len(unit) * (times - 1) > saved:
                saved, period, most = len(unit) * (times - 1), len(unit), times
            there = text.find(text[at], there + 1, at + 1 + _LONGEST)
        if most > 1:
            found += [(names[end:at], 1)] if at > end else []
            found.append((names[at : at + period], most))
            end = at + period * most
        at += period * most
    return [*found, *([(names[end:], 1)] if end < len(names) else [])]
