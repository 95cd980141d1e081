"""How far a run can be trusted: what was taken again, is incomplete, cold, or was not judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.records import Trust, Unjudged
from pytest_kernelprof.digest.words import is_judged, limits_of, place_words, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.schema.run import Profile, Test


def trust_of(profiles: Sequence[Profile]) -> Trust:
    """How many profiles there were, and how many could not be trusted, at first or at all."""
    integrities = [profile.integrity for profile in profiles]
    conditions = [profile.conditions for profile in profiles]
    on_cpu = sum(profile.environment.kind == "cpu" for profile in profiles)  # all: the verdict's
    noted = {
        "cold": sum(bool(one.cold) or not one.settled for one in integrities),
        "with unproven graph replays": sum(one.graph_replays == "unproven" for one in integrities),
        "timed while other processes worked on the GPU": sum(one.contended for one in conditions),
        "rounds discarded, since the GPU throttled": sum(
            one.discarded_rounds for one in conditions
        ),
        "of CPU operators, which are no kernels": 0 if on_cpu == len(profiles) else on_cpu,
    }
    return Trust(
        profiles=len(profiles),
        retaken=sum(one.retakes > 0 for one in integrities),
        incomplete=sum(not one.complete for one in integrities),
        noted={what: number for what, number in noted.items() if number},
    )


def integrity_line(trust: Trust) -> str:
    """``412 profiles, 3 taken again, 0 incomplete, 2 cold``."""
    always = [
        f"{trust.profiles} profile{'s' if trust.profiles != 1 else ''}",
        f"{trust.retaken} taken again",
        f"{trust.incomplete} incomplete",
    ]
    return ", ".join([*always, *(f"{number} {what}" for what, number in trust.noted.items())])


def unjudged_limits(tests: Iterable[Test]) -> tuple[Unjudged, ...]:
    """Limits that say nothing of the device that was measured, beside others of their test that
    were judged; by the reason."""
    found: dict[str, list[tuple[str, str]]] = {}
    for test in tests:
        if test.not_judged or test.outcome == "rerun":
            continue
        for verdict in limits_of(test.profiles):
            if not is_judged(verdict):
                found.setdefault(verdict.why, []).append((test.id, title(verdict)))
    return tuple(
        Unjudged(
            limits=tuple(dict.fromkeys(limit for _, limit in several)),
            tests=tuple(dict.fromkeys(test for test, _ in several)),
            why=why,
        )
        for why, several in found.items()
    )


def places_of(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """Devices with their versions, each once; those with a GPU first."""
    environments = (profile.environment for profile in profiles)
    found = {(one.kind == "cpu", place_words(one)) for one in environments if one.device}
    return tuple(words for _, words in sorted(found))
