"""Numbers for kernels: the same for those that are the same by name and innermost operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_kernelprof.names.apart import comparable_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.run import Kernel

STEP = "ProfilerStep#"
"""How the annotations of torch.profiler's own steps begin."""


@dataclass(slots=True)
class Keys:
    """The numbers so far: zero or more, in the order in which kernels are met."""

    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _known: dict[tuple[int, str], int] = field(default_factory=dict)

    def of(self, kernels: Sequence[Kernel]) -> list[int]:
        """The number of each kernel."""
        # Kernels share their tuples of operators, which are hashed slowly.
        known = self._known
        found = []
        for kernel in kernels:
            quick = (id(kernel.operators), kernel.name)
            number = known.get(quick)
            if number is None:
                number = known[quick] = self._number(kernel)
            found.append(number)
        return found

    def name_of(self, kernel: Kernel) -> str:
        """Its name, as all demanglers and all numberings have it."""
        name = self._names.get(kernel.name)
        if name is None:
            name = self._names[kernel.name] = comparable_name(kernel.name)
        return name

    def _number(self, kernel: Kernel) -> int:
        name = self.name_of(kernel)
        inner = next((one for one in kernel.operators if not one.startswith(STEP)), "")
        return self.numbers.setdefault((inner, name), len(self.numbers))
