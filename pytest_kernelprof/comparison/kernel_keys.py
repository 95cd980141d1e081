"""Numbers for kernels: the same for those that are the same by name and innermost operator."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.names.short_names import comparable_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pytest_kernelprof.schema.comparison import KernelSide
    from pytest_kernelprof.schema.profile import Kernel

    Numbers = NDArray[np.int64]
    AnyKernel = Kernel | KernelSide

STEP = "ProfilerStep#"
"""How the annotations of torch.profiler's own steps begin."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """Kernels, and in columns what is compared of them.

    Attributes:
        keys: numbers of what they are.
        launches: numbers of how they are launched: grid, block, registers and shared memory; 0
            where that is not known.
        steps: numbers of the profiler's own steps around them; 0 outside.
        us: durations in microseconds; NaN where not known.
    """

    kernels: Sequence[AnyKernel]
    keys: Numbers
    launches: Numbers
    steps: Numbers
    us: NDArray[np.float64]

    def one_step(self) -> tuple[Numbered, int]:
        """Of a trace with the profiler's own steps the kernels of the first of the most frequent
        ones, and how many steps there are; all kernels, and 0, of another trace.

        A backward pass runs on a thread of its own, outside the annotation: its kernels belong to
        the step that was begun last.
        """
        inside = np.flatnonzero(self.steps)
        if not len(inside):
            return self, 0
        begins = inside[np.flatnonzero(np.diff(self.steps[inside], prepend=0))]
        ends = [*begins[1:], len(self.keys)]
        if len(begins) < 2:
            return self, len(begins)
        sequences = [
            self.keys[begin:end].tobytes() for begin, end in zip(begins, ends, strict=True)
        ]
        most = sequences.index(Counter(sequences).most_common(1)[0][0])
        return self._part(slice(int(begins[most]), int(ends[most]))), len(begins)

    def _part(self, rows: slice) -> Numbered:
        columns = (self.keys, self.launches, self.steps, self.us)
        return Numbered(self.kernels[rows], *(column[rows] for column in columns))  # type: ignore[arg-type]


@dataclass(slots=True)
class Keys:
    """The numbers so far: in the order in which kernels are met.

    Attributes:
        comparable: what is equal of two names of one kernel.
    """

    comparable: Callable[[str], str] = comparable_name
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _launches: dict[tuple[object, ...], int] = field(default_factory=lambda: {(None,) * 4: 0})
    _steps: dict[str, int] = field(default_factory=lambda: {"": 0})

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
        )

    def name_of(self, kernel: AnyKernel) -> str:
        """Its name, as all demanglers and all numberings have it."""
        name = self._names.get(kernel.name)
        if name is None:
            name = self._names[kernel.name] = self.comparable(kernel.name)
        return name

    def _number(self, kernel: AnyKernel) -> int:
        name = self.name_of(kernel)
        inner = next((one for one in kernel.operators if not one.startswith(STEP)), "")
        return self.numbers.setdefault((inner, name), len(self.numbers))

    def _launch(self, kernel: AnyKernel) -> int:
        facts = (kernel.grid, kernel.block, kernel.registers, kernel.shared_memory)
        return self._launches.setdefault(facts, len(self._launches))

    def _step(self, kernel: AnyKernel) -> int:
        outermost = kernel.operators[-1] if kernel.operators else ""
        step = outermost if outermost.startswith(STEP) else ""
        return self._steps.setdefault(step, len(self._steps))
