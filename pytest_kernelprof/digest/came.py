"""Which kernels of a profile came since what was before, by their positions, and which are gone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.words import callers_of
from pytest_kernelprof.names.apart import kept_name
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_kernelprof.schema.diff import ProfileDiff
    from pytest_kernelprof.schema.run import Kernel, Profile
    from pytest_kernelprof.schema.snapshot import Finding

    IsIt = Callable[[Kernel], bool]

_FURTHEST = 200
"""So far behind the beginning of a change its kernels are looked for: in between stand those that
both sides have."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A kernel that is not there any more, by its short name.

    Attributes:
        chain: the operators that launched it, as ``callers_of`` has them.
        before: the position, from 0, of the kernel that it stood before; None where that is not
            known.
        times: how often. us: what it took, in microseconds; None where that is not known.
    """

    name: str
    chain: tuple[str, ...]
    before: int | None
    times: int = 1
    us: float | None = None


@dataclass(frozen=True, slots=True)
class Came:
    """What is another since something that was before.

    Attributes:
        since: what that is, in words.
        positions: of the kernels that came, from 0. gone: those that went.
    """

    since: str
    positions: frozenset[int] = frozenset()
    gone: tuple[Gone, ...] = ()


@dataclass(slots=True)
class _Finder:
    """Finds kernels that came among those of a profile."""

    kernels: Sequence[Kernel]
    found: set[int] = field(default_factory=set)

    def find(self, is_it: IsIt, begin: int | None, times: int) -> int | None:
        """Mark a kernel that came, and say where; of one that came so often all of its kind. None
        where it cannot be told which of its kind came."""
        if begin is not None and times == 1:
            candidates = range(begin, min(begin + _FURTHEST, len(self.kernels)))
            here = (at for at in candidates if at not in self.found and is_it(self.kernels[at]))
            at = next(here, None)
            self.found |= set() if at is None else {at}
            return at
        alike = [at for at, one in enumerate(self.kernels) if is_it(one)]
        if len(alike) != times:
            return None
        self.found |= set(alike)
        return alike[0]


@dataclass(frozen=True, slots=True)
class _Change:
    """A kernel that came, or one that is gone; of a change that repeats, the first.

    ``lines`` as of ``Change`` in ``schema.diff``.
    """

    times: int
    begin: int | None
    lines: tuple[str, ...] = ()
    is_it: IsIt | None = None
    gone: Gone | None = None


def came_since(profile: Profile) -> Came | None:
    """By the first verdict that compares with something; None where there is none, or where it
    cannot be told of each kernel that came which one it is."""
    for verdict in profile.verdicts:
        if verdict.outcome == "over" and verdict.snapshot is not None and verdict.snapshot.changes:
            return _came(profile, "the snapshot", _of_finding(verdict.snapshot))
        if verdict.outcome == "over" and verdict.comparison is not None:
            diff = verdict.comparison.diff
            changes = list(_of_diff(diff)) if diff is not None else []
            if changes:
                return _came(profile, "the earlier run", changes)
    return None


def came_in(profile: Profile, diff: ProfileDiff) -> frozenset[int]:
    """The kernels that only the new side of a diff has, by their positions from 0; none where it
    cannot be told of each which one it is."""
    found = _came(profile, "", _of_diff(diff))
    return found.positions if found is not None else frozenset()


def _came(profile: Profile, since: str, changes: Iterable[_Change]) -> Came | None:
    finder = _Finder(profile.kernels)
    gone: list[Gone] = []
    for change in changes:
        if change.is_it is not None and (
            change.lines or finder.find(change.is_it, change.begin, change.times) is None
        ):
            return None
        if change.gone is not None:
            gone.append(change.gone)
    return Came(since, frozenset(finder.found), tuple(gone))


def _of_finding(finding: Finding) -> Iterator[_Change]:
    for one in finding.changes:
        begin = one.at - 1 if one.at else None
        name, _, operator = one.kernel.partition(" | ")
        if one.sign == "+":
            yield _Change(one.times, begin, one.lines, is_it=_kept_as(name))
        else:
            chain = (operator,) if operator else ()
            yield _Change(one.times, begin, gone=Gone(name, chain, begin, one.times))


def _kept_as(name: str) -> IsIt:
    return lambda kernel: printable(kept_name(kernel.name)) == name


def _of_diff(diff: ProfileDiff) -> Iterator[_Change]:
    for hunk in diff.hunks:
        begin = hunk.new_at - 1 if hunk.new_at else None
        for change in hunk.changes:
            old, times = change.old, hunk.times
            if old is not None:
                chain = callers_of(old.operators, old.name)
                us = change.old_us / times
                gone = Gone(old.short_name, chain, begin, times, us)
                yield _Change(times, begin, gone=gone)
            if change.new is not None:
                yield _Change(times, begin, change.lines, is_it=_same_as(change.new))


def _same_as(wanted: Kernel) -> IsIt:
    return lambda kernel: kernel.name == wanted.name and kernel.operators == wanted.operators
