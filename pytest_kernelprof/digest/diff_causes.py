"""What came, went and is another, of a kernel diff and of a snapshot, as causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.fusions import fusions_of
from pytest_kernelprof.digest.kernel_groups import times_words, with_chain
from pytest_kernelprof.digest.words import chain_words, lines_words, source_place
from pytest_kernelprof.schema.run import Cause
from pytest_kernelprof.units import format_time

if TYPE_CHECKING:
    from pytest_kernelprof.schema.diff import Change, Pace, ProfileDiff
    from pytest_kernelprof.schema.snapshot import Finding


def causes_of_diff(diff: ProfileDiff) -> tuple[Cause, ...]:
    """Kernels that do what others did; then one line a change, in launch order; then what takes
    longer."""
    fusions = fusions_of(diff)
    fused = {id(change) for one in fusions for change in (*one.gone, *one.come)}
    changed = [
        _change_cause(change, hunk.times)
        for hunk in diff.hunks
        for change in hunk.changes
        if id(change) not in fused
    ]
    slower = [_pace_cause(one) for one in diff.paces if one.kind == "slower"]
    return (
        *(Cause(one.words, source_place(one.after[0].source)) for one in fusions),
        *changed,
        *slower,
    )


def causes_of_finding(finding: Finding) -> tuple[Cause, ...]:
    """The same of a snapshot, whose kernels stand as ``name | operator``."""
    found = []
    for one in finding.changes:
        name, _, operator = one.kernel.partition(" | ")
        words = with_chain(times_words(name, one.times), operator)
        found.append(Cause(words + lines_words(one.lines), source_place(one.source), one.sign))
    return tuple(found)


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
    words += lines_words(change.lines)
    return Cause(words, source_place(kernel.source), "-" if change.new is None else "+")


def _pace_cause(pace: Pace) -> Cause:
    old, new = format_time(pace.old_us), format_time(pace.new_us)
    words = f"slower: {times_words(pace.new.short_name, pace.times)}, {old} -> {new}"
    return Cause(words, source_place(pace.new.source))
