"""Whether a call is slower than the revision's: one pair of processes clears it, four convict."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_kernelprof.against.turns import NoRounds, take_turns
from pytest_kernelprof.schema.turns import TimedPair, Timing
from pytest_kernelprof.stats import pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.against.further import Further
    from pytest_kernelprof.against.reference import Reference
    from pytest_kernelprof.against.turns import Alone, Rounds, Taken
    from pytest_kernelprof.schema.run import Conditions
    from pytest_kernelprof.schema.turns import Side

_SIDES: tuple[Side, ...] = ("candidate", "reference")


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call of a test whose kernels are to be timed.

    Attributes:
        label: of its profile. work: its arguments and result, a line each.
        margin: how much slower it may be, a fraction.
    """

    test: str
    label: str
    work: tuple[str, ...]
    margin: float


@dataclass(frozen=True, slots=True)
class Timed:
    """What came of it.

    Attributes:
        another_work: how the reference's work differs; empty where it does not.
        old_kernels_us, new_kernels_us: of each kernel in launch order what it takes.
    """

    timing: Timing
    another_work: str = ""
    old_kernels_us: tuple[float, ...] = ()
    new_kernels_us: tuple[float, ...] = ()


def time_call(
    call: TimedCall, candidate: Rounds, reference: Reference, further: Further, alone: Alone
) -> Timed:
    """Take turns with the reference, which holds in the same call, and where that makes the call
    suspect, have further pairs do so.

    Args:
        alone: has the GPU alone, and watches it.
    """
    assert reference.at is not None, "it holds"
    other = first_difference(call.work, reference.at.work)
    if other:
        return Timed(not_timed(f"not the same work: {other}"), other)
    try:
        taken = take_turns(candidate, reference, alone)
    except NoRounds as error:
        return Timed(not_timed(str(error)))
    pair = taken.pair(reference.first)
    margin = pairs.margin_for(pair.old_us, call.margin)
    found, disturbed, why = [pair], _disturbed([taken]), ""
    if disturbed is None and _decide(found, margin).outcome == "more":
        try:
            more = _further(call, pair.first, further, alone)
        except NoRounds as error:
            why = f"there are no more pairs: {error}"
        else:
            disturbed = _disturbed([one for one, _ in more])
            found = [pair for pair in (pair, *(two for _, two in more)) if pair.first is not None]
            if _lacking(found):
                why = "who of a pair came first is not known"
    return Timed(
        _timing(found, margin, disturbed, why),
        old_kernels_us=taken.reference[-1].kernels_us,
        new_kernels_us=taken.candidate[-1].kernels_us,
    )


def not_timed(why: str) -> Timing:
    """A call that was not timed, and why."""
    return Timing("not timed", why)


def first_difference(here: Sequence[str], there: Sequence[str]) -> str:
    """How the work of two sides first differs, in words; empty where it does not."""
    for one, other in zip(here, there, strict=False):
        if one != other:
            place, _, words = one.partition(": ")
            return f"{place} is {words} here, {other.removeprefix(f'{place}: ')} there"
    more, where = (here, "here") if len(here) > len(there) else (there, "there")
    rest = more[min(len(here), len(there)) :]
    return f"{rest[0].partition(': ')[0]} is {where} alone" if rest else ""


def _further(
    call: TimedCall, first: Side | None, further: Further, alone: Alone
) -> list[tuple[Taken, TimedPair]]:
    """The pairs that make four, in two of which each side was first."""
    known = [first] if first is not None else []
    firsts = _in_turn({side: 2 - known.count(side) for side in _SIDES})
    found = []
    with further.at(firsts, call.test, call.label) as chosen:
        for pair in chosen:
            for member in pair.members:
                at = member.at
                other = first_difference(call.work, at.work) if at is not None else ""
                if other:
                    raise NoRounds(f"a fresh process does other work: {other}")
            taken = take_turns(pair.candidate, pair.reference, alone)
            found.append((taken, taken.pair(pair.first)))
    return found


def _in_turn(wanted: dict[Side, int]) -> list[Side]:
    """So many of each side, the one with more of them first, in turn."""
    order = sorted(_SIDES, key=lambda side: -wanted[side])
    return [side for i in range(max(wanted.values())) for side in order if i < wanted[side]]


def _lacking(found: Sequence[TimedPair]) -> bool:
    firsts = [pair.first for pair in found]
    return any(firsts.count(side) < 2 for side in _SIDES)


def _decide(found: Sequence[TimedPair], margin: float) -> pairs.Decision:
    return pairs.decide(
        [pairs.Pair(one.first or "candidate", math.log(one.ratio)) for one in found], margin
    )


def _timing(
    found: Sequence[TimedPair], margin: float, disturbed: Conditions | None, why: str
) -> Timing:
    decision = _decide(found, margin) if found else pairs.Decision("undecided", 1.0, 0)
    timing = Timing(
        "undecided",
        why,
        ratio=decision.ratio,
        pairs=tuple(found),
        agreeing=decision.agreeing,
        margin=margin,
        old_us=statistics.median(one.old_us for one in found) if found else 0.0,
        new_us=statistics.median(one.new_us for one in found) if found else 0.0,
        disturbed=disturbed,
    )
    if why or disturbed is not None or decision.outcome == "more":
        return timing
    return replace(timing, outcome=decision.outcome)


def _disturbed(taken: Sequence[Taken]) -> Conditions | None:
    """The conditions of turns on which no verdict can stand."""
    return next((one.conditions for one in taken if one.conditions.disturbed), None)


def unless_reconfigured(timing: Timing) -> Timing:
    """Of kernels that were launched in another configuration: slower only where all pairs are."""
    decision = pairs.Decision(
        "worse" if timing.outcome == "worse" else "held",
        timing.ratio,
        len(timing.pairs),
        timing.agreeing,
    )
    if pairs.unless_reconfigured(decision).outcome != "undecided":
        return timing
    return replace(timing, outcome="undecided", why="another configuration was chosen")
