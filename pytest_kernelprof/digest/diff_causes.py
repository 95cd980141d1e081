"""What came, went and is another, of a kernel diff and of a snapshot, as causes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.kernel_groups import times_words, with_chain
from pytest_kernelprof.digest.records import Cause
from pytest_kernelprof.digest.words import chain_words, source_place
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.schema.diff import Change, Hunk, Pace, ProfileDiff
    from pytest_kernelprof.schema.run import Kernel
    from pytest_kernelprof.schema.snapshot import Finding

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


def causes_of_diff(diff: ProfileDiff) -> tuple[Cause, ...]:
    """One line a change, in launch order; then what takes longer."""
    changed = [cause for hunk in diff.hunks for cause in _causes_of_hunk(hunk)]
    slower = [_pace_cause(one) for one in diff.paces if one.kind == "slower"]
    return (*changed, *slower)


def causes_of_finding(finding: Finding) -> tuple[Cause, ...]:
    """The same of a snapshot, whose kernels stand as ``name | operator``."""
    found = []
    for one in finding.changes:
        name, _, operator = one.kernel.partition(" | ")
        words = with_chain(times_words(name, one.times), operator)
        found.append(Cause(words, source_place(one.source), one.sign))
    return tuple(found)


def _causes_of_hunk(hunk: Hunk) -> Iterator[Cause]:
    gone = [one.old for one in hunk.changes if one.new is None and one.old is not None]
    come = [one.new for one in hunk.changes if one.old is None and one.new is not None]
    split = _taken_apart(gone, come)
    if split is not None:
        yield split
    for change in hunk.changes:
        if split is None or change.kind in ("renamed", "replaced"):
            yield _change_cause(change, hunk.times)


def _taken_apart(gone: Sequence[Kernel], come: Sequence[Kernel]) -> Cause | None:
    """Where one kernel did what several do now, or the other way round, as the operators in their
    names say; None where that is not so."""
    if len(gone) == 1 and len(come) > 1 and _does(gone[0]) == _do(come):
        after = " + ".join(one.short_name for one in come)
        return Cause(f"{gone[0].short_name} is now {after}", source_place(come[0].source))
    if len(come) == 1 and len(gone) > 1 and _does(come[0]) == _do(gone):
        before = " + ".join(one.short_name for one in gone)
        return Cause(f"{before} is now {come[0].short_name}", source_place(come[0].source))
    return None


def _does(kernel: Kernel) -> list[str]:
    """The operators in a kernel's short name, sorted: of ``triton_poi_fused [gelu, mul]`` two."""
    brackets = _BRACKETS.search(kernel.short_name)
    return sorted(re.split(r"\s*,\s*", brackets[1])) if brackets else [kernel.short_name]


def _do(kernels: Sequence[Kernel]) -> list[str]:
    return sorted(operator for one in kernels for operator in _does(one))


def _change_cause(change: Change, times: int) -> Cause:
    kernel = change.new or change.old
    assert kernel is not None  # one side has it
    if change.old is not None and change.new is not None:
        old, new = change.old.short_name, change.new.short_name
        variant = "another variant, " if change.kind == "renamed" else ""
        words = f"{times_words(new, times)}: {variant}was {old}"
        return Cause(words, source_place(kernel.source))
    words = with_chain(
        times_words(kernel.short_name, times), chain_words(kernel.operators, kernel.name)
    )
    return Cause(words, source_place(kernel.source), "-" if change.new is None else "+")


def _pace_cause(pace: Pace) -> Cause:
    old, new = format_time(pace.old_us), format_time(pace.new_us)
    words = f"slower: {times_words(pace.new.short_name, pace.times)}, {old} -> {new}"
    return Cause(words, source_place(pace.new.source))
