"""Two profiles' kernels as one list in launch order: each beside the one that it is the same as."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.baseline.hunks import Sides
from pytest_kernelprof.baseline.keys import Keys
from pytest_kernelprof.schema.diff import Beside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_kernelprof.schema.run import Profile


def side_by_side(old: Profile, new: Profile) -> tuple[Beside, ...]:
    """The kernels that ``diff_profiles`` compares, by its rules: what is gone before what came.

    A kernel that was moved stands where it is now.
    """
    keys = Keys()
    before, _ = keys.of(old.kernels).one_step()
    after, _ = keys.of(new.kernels).one_step()
    sides = Sides.of(before, after, keys)
    sides.hunks(ordered=not (old.variants or new.variants))
    partners = dict(zip(sides.same_new, sides.same_old, strict=True))
    return tuple(_merged(sides, partners))


def _merged(sides: Sides, partners: dict[int, int]) -> Iterator[Beside]:
    """Args: partners: of rows of the new the row of the old that is the same."""
    old, new, lines = sides.old, sides.new, sides.lines
    there = set(partners.values())
    at = 0
    for row, kernel in enumerate(new):
        partner = partners.get(row)
        reached = partner + 1 if partner is not None else at
        # What stands before the same kernel and is gone comes first.
        while at < reached or (partner is None and at < len(old) and at not in there):
            if at not in there:
                yield Beside(old[at], None, lines.get(~at, ()))
            at += 1
        if partner is None:
            yield Beside(None, kernel, lines.get(row, ()))
        else:
            yield Beside(old[partner], kernel)
    left = (row for row in range(at, len(old)) if row not in there)
    yield from (Beside(old[row], None, lines.get(~row, ())) for row in left)
