"""What one call launched: its kernels by name, the costliest first."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_kernelprof.digest.ids import natural
from pytest_kernelprof.names.apart import tell_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_kernelprof.schema.run import Kernel

Order = Literal["name", "calls", "each", "total", "order"]
ORDERS: tuple[Order, ...] = ("name", "calls", "each", "total", "order")
ENOUGH_SHARE, MOST_NAMES = 0.85, 20
"""So much of the time, or so many names, are told one by one where nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Named:
    """Kernels of one name.

    Attributes:
        name: as people say it, told apart from the others here.
        calls: how many there are. us: what they take together.
        callers: what launched them, each once, in words; of the CPU what called the operators.
    """

    name: str
    calls: int
    us: float
    callers: tuple[str, ...] = ()

    @property
    def each_us(self) -> float:
        """What one of them takes."""
        return self.us / self.calls


@dataclass(frozen=True, slots=True)
class ByName:
    """Kernels by name.

    Attributes:
        shown: those that are told one by one. rest: all others as one, named by how many they are.
        us: what all of them take.
    """

    shown: tuple[Named, ...]
    rest: tuple[Named, ...]
    us: float

    @property
    def rest_calls(self) -> int:
        """How many kernels are not told one by one."""
        return sum(one.calls for one in self.rest)

    @property
    def rest_us(self) -> float:
        """What they take."""
        return sum(one.us for one in self.rest)


_KEYS: dict[Order, Callable[[Named], tuple[object, ...]]] = {
    "name": lambda one: (natural(one.name.lower()),),
    "calls": lambda one: (-one.calls, -one.us, natural(one.name)),
    "each": lambda one: (-one.each_us, natural(one.name)),
    "total": lambda one: (-one.us, natural(one.name)),
    "order": lambda one: (),  # as they were first launched
}


def by_name(
    kernels: Sequence[Kernel],
    caller: Callable[[Kernel], str],
    order: Order = "total",
    most: int | None = None,
) -> ByName:
    """The kernels by name, in an order of ``ORDERS``.

    Args:
        caller: what launched a kernel, in words; empty where that is not known.
        most: how many names are told one by one; None for those that make up ``ENOUGH_SHARE`` of
            the time, ``MOST_NAMES`` at most.
    """
    names = tell_apart(kernel.name for kernel in kernels)
    found: defaultdict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        found[names[kernel.name]].append(kernel)
    all_named = [
        Named(
            name,
            len(several),
            sum(one.duration_us for one in several),
            tuple(dict.fromkeys(map(caller, several))),
        )
        for name, several in found.items()
    ]
    total = sum(one.us for one in all_named)
    ranked = sorted(all_named, key=_KEYS[order])
    told = _enough(ranked, total) if most is None else most
    return ByName(tuple(ranked[:told]), tuple(ranked[told:]), total)


def _enough(ranked: Sequence[Named], total: float) -> int:
    """How many of them make up what is enough; one more that would be left alone is told, too."""
    reached = 0.0
    for number, one in enumerate(ranked, 1):
        reached += one.us
        if number == MOST_NAMES or (total and reached >= ENOUGH_SHARE * total):
            return len(ranked) if len(ranked) == number + 1 else number
    return len(ranked)
