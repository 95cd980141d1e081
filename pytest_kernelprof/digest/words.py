"""Facts in a few words, each in one form everywhere: limits, places, chains of operators."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_kernelprof.schema.run import Place
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.schema.run import Environment, Profile, Verdict

_MOST_RANKS = 8
_NO_CALLERS = (
    *("autograd::engine::", "## Call CompiledFxGraph ", "ProfilerStep#", "record_param_comms"),
)


def title(verdict: Verdict) -> str:
    """A limit as it was written, for example ``max_memcpys(d2h)``."""
    if not verdict.qualifier or verdict.limit == "forbid_kernels":
        return verdict.limit
    if verdict.limit == "max_kernels":
        return f"max_kernels(match={verdict.qualifier!r})"
    return f"{verdict.limit}({verdict.qualifier})"


def limits_of(profiles: Iterable[Profile]) -> list[Verdict]:
    """One verdict for each limit of a test, however many of its profiles it judges; what is kept
    of it, or was before, is none."""
    verdicts = [verdict for profile in profiles for verdict in profile.verdicts if verdict.of_limit]
    return list({(one.limit, one.qualifier): one for one in verdicts}.values())


def is_judged(verdict: Verdict) -> bool:
    """Whether a limit says anything of the device that was measured."""
    return verdict.outcome != "not judged"


def place_words(environment: Environment) -> str:
    """Device and versions, for example ``NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0``."""
    versions = environment.versions
    named = [f"{key} {versions[key]}" for key in ("torch", "triton") if key in versions]
    return ", ".join([environment.device, *named])


def line_words(place: Place) -> str:
    """A line of a file, for example ``test_mlp.py:31``."""
    return f"{os.path.basename(place.file)}:{place.line}"


def lines_words(lines: Sequence[str]) -> str:
    """Return `` (one of lines 6, 7)`` for the lines of a change; empty where its line is known."""
    return f" (one of lines {', '.join(lines)})" if lines else ""


def source_place(source: str) -> Place | None:
    """The place of a ``file:line``; None where it is none."""
    file, _, line = source.rpartition(":")
    return Place(file, int(line)) if file and line.isascii() and line.isdigit() else None


def callers_of(operators: tuple[str, ...], own: str = "") -> tuple[str, ...]:
    """Of a chain, innermost first, the operators that are told: the innermost and the outermost,
    which is mostly the one that the user called; one where they are the same, or none.

    Args:
        own: the name of what they led to: an operator of the CPU, and what Inductor annotates,
            stands under its own name.
    """
    callers = operators[1:] if own and operators[:1] == (own,) else operators
    called = [name for name in callers if not name.startswith(_NO_CALLERS)]
    return tuple(dict.fromkeys([called[0], called[-1]])) if called else ()


def chain_words(operators: tuple[str, ...], own: str = "") -> str:
    """The operators of ``callers_of``, for example ``aten::mm < aten::linear``; empty without."""
    return " < ".join(callers_of(operators, own))


def rank_words(verdict: Verdict) -> str:
    """The ranks on which a limit is not kept, the worst first: `` on ranks 3, 1``; empty where it
    is kept, where there is one rank, and where the reason names one."""
    ranks = verdict.ranks
    named = verdict.outcome == "incomplete" and verdict.why.startswith("rank ")
    if not ranks or named or verdict.outcome in ("kept", "not judged"):
        return ""
    told = ", ".join(map(str, ranks[:_MOST_RANKS]))
    more = f" and {len(ranks) - _MOST_RANKS} more" if len(ranks) > _MOST_RANKS else ""
    return f" on rank{'s' if len(ranks) > 1 else ''} {told}{more}"


def judged_rank(profile: Profile, verdict: Verdict) -> Profile:
    """The profile of the rank that a verdict is of; the first where it has no kernels to show."""
    found = (one for one in profile.ranks if verdict.ranks and one.rank == verdict.ranks[0])
    judged = next(found, profile)
    return judged if judged.kernels_kept else profile


def pair_words(unit: str, value: float, allowed: float) -> tuple[str, str]:
    """A value and what is allowed, in words that differ where they do."""
    if unit == "us":
        told = format_time(allowed)
        return format_time(value), f"{allowed:g}us" if allowed and told == "0.0us" else told
    if unit == "bytes":
        pair = format_bytes(value), format_bytes(allowed)
        if pair[0] != pair[1] or value == allowed:
            return pair
        return f"{value:.0f} B", f"{allowed:.0f} B"
    return value_words(unit, value), value_words(unit, allowed)


def value_words(unit: str, value: float) -> str:
    """A value: a time of microseconds, a size of bytes, or a count."""
    if unit == "us":
        return format_time(value)
    return format_bytes(value) if unit == "bytes" else f"{value:.0f}"


def first_of(texts: Sequence[str], most: int, more: str = "{} more") -> list[str]:
    """The first texts, and how many more there are, if any."""
    left = len(texts) - most
    return [*texts[:most], *([more.format(left)] if left > 0 else [])]


def count_words(number: int, one: str, several: str = "") -> str:
    """A number, with commas, and what it counts: ``1 test``, ``30,615 kernels``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"
