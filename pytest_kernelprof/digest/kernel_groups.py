"""Kernels that are alike, counted: by what launched them, and by name."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.words import chain_words, source_place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.schema.run import Kernel, Place, Profile


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
