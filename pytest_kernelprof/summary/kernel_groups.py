"""Kernels that are alike, counted: by what launched them, and by name, the costliest first, of one
call and over all tests."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_kernelprof.names.apart import tell_apart
from pytest_kernelprof.summary.records import HotKernel
from pytest_kernelprof.summary.words import chain_words, natural, source_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_kernelprof.schema.run import Kernel, Place, Profile
    from pytest_kernelprof.summary.records import Row


@dataclass(frozen=True, slots=True)
class Alike:
    """Kernels of one short name, one chain of operators and one line.

    Attributes:
        name: the short name. chain: in words; empty where there is none.
        number: how many. us: what they take.
    """

    name: str
    chain: str
    place: Place | None
    number: int
    us: float

    @property
    def words(self) -> str:
        """For example ``elementwise [copy] x2, from aten::copy_ < MmBackward0``."""
        return with_chain(times_words(self.name, self.number), self.chain)


def alike(kernels: Iterable[Kernel]) -> list[Alike]:
    """Kernels that are alike, in the order of the first of each kind."""
    found: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for one in kernels:
        chain = chain_words(one.operators, one.name)
        found[one.short_name, chain, one.source].append(one.duration_us)
    return [
        Alike(name, chain, source_place(source), len(us), sum(us))
        for (name, chain, source), us in found.items()
    ]


def times_words(name: str, number: int) -> str:
    """``elementwise [copy] x2``; the name alone of one."""
    return f"{name} x{number}" if number > 1 else name


def with_chain(words: str, chain: str) -> str:
    """With what launched it, where that is known."""
    return f"{words}, from {chain}" if chain else words


def groups_of(profile: Profile) -> dict[str, tuple[int, float]]:
    """Of each full name of a profile's kernels, how many there are and what they take; under the
    empty name those of which no more is known."""
    found: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for kernel in profile.kernels:
        number, us = found[kernel.name]
        found[kernel.name] = number + 1, us + kernel.duration_us
    for group in profile.more_kernels:
        number, us = found[group.name]
        found[group.name] = number + group.count, us + group.duration_us
    return dict(found)


Order = Literal["name", "calls", "each", "total", "order"]
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
    """The kernels by name, in one of the orders.

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


_MOST_TOLD_APART = 500


def hottest_kernels(
    rows: Sequence[Row], gpu_us: float | None, most: int = 50
) -> tuple[HotKernel, ...]:
    """By time, the largest first; on the CPU, where there is no GPU time, none.

    Args:
        gpu_us: of the run; shares are of it, or of all these kernels where they take longer:
            a profile that is incomplete has kernels, though no GPU time.
        most: how many.
    """
    found: dict[str, tuple[int, float, set[str]]] = {}
    for row in rows:
        if row.profile.environment.kind == "cuda":
            for name, (number, us) in groups_of(row.profile).items():
                calls, total, tests = found.get(name, (0, 0.0, set()))
                tests.add(row.test.id)
                found[name] = calls + number, total + us, tests
    found.pop("", None)
    whole = max(gpu_us or 0.0, sum(us for _, us, _ in found.values()))
    hottest = sorted(found.items(), key=lambda one: (-one[1][1], one[0]))
    told = tell_apart(name for name, _ in hottest[: max(most, _MOST_TOLD_APART)])
    return tuple(
        HotKernel(told[name], name, calls, us, us / whole if whole else 0.0, len(tests))
        for name, (calls, us, tests) in hottest[:most]
    )
