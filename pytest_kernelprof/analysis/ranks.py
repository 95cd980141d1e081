"""One call on several ranks: which of it was transfer, and who waited for whom.

The clocks of ranks are not compared. A collective ends on all of its ranks together, since none has
the result before the last one came; so by its end the rank on which its kernel took least is the
one that came last, and what it took there is the transfer. On every other rank the rest is waiting.
(Of a broadcast, or a send, this bounds the transfer: the side that gives may be done before the
other one comes.)
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from pytest_kernelprof.analysis.metrics import absent, metric_of
from pytest_kernelprof.schema.run import Collective, Profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_BETWEEN_TWO = ("send", "recv")


class Ring(NamedTuple):
    """Ranks that communicate with each other: a process group, or the two of a send."""

    name: str
    ranks: tuple[int, ...]


class Split(NamedTuple):
    """The collectives of a rank with their transfers, and these together in each round."""

    collectives: tuple[Collective, ...]
    transfers: tuple[float, ...]


Meeting = dict[int, int]
"""The places of one collective among those of each of its ranks."""


class UnmatchedError(ValueError):
    """The collectives of some ranks are not those of the others; says which."""


def gathered(profiles: Sequence[Profile]) -> Profile:
    """The profile of the lowest rank with the others in it, and what each waited for the others.
    What one of them lost makes all of them incomplete.

    Args:
        profiles: of the same call on each rank, each with its ``rank``, in any order.
    """
    first, *others = _with_what_is_missing(with_waiting(sorted(profiles, key=_number)))
    return replace(first, other_ranks=tuple(others))


def _with_what_is_missing(profiles: Sequence[Profile]) -> Sequence[Profile]:
    """The same, each with the problems of all."""
    problems = tuple(
        f"rank {one.rank}: {problem}" for one in profiles for problem in one.integrity.problems
    )
    if len(profiles) < 2 or not problems:
        return profiles
    return [replace(one, integrity=replace(one.integrity, problems=problems)) for one in profiles]


def with_waiting(profiles: Sequence[Profile]) -> list[Profile]:
    """The profiles with ``comm_transfer`` and ``comm_wait``, or why these are not to be had."""
    if len(profiles) < 2:
        return list(profiles)
    try:
        of_ranks = {_number(one): one for one in profiles}
        split = _split(of_ranks, _meetings(of_ranks))
    except UnmatchedError as error:
        why = f"not available: {error}"
        return [_without(one, why) for one in profiles]
    return [_with_split(one, split[_number(one)]) for one in profiles]


def _number(profile: Profile) -> int:
    return profile.rank or 0


def _without(profile: Profile, why: str) -> Profile:
    names = [name for name in ("comm_transfer", "comm_wait") if profile.collectives]
    return replace(profile, metrics=profile.metrics | {name: absent(name, why) for name in names})


def _with_split(profile: Profile, split: Split) -> Profile:
    """Where there is no time to split, why that is so stays with its metrics."""
    if not split.collectives or profile.metrics["comm_time"].value is None:
        return profile
    took = np.sum([one.rounds_us for one in split.collectives], axis=0)
    found = {
        "comm_transfer": metric_of("comm_transfer", split.transfers),
        "comm_wait": metric_of("comm_wait", np.maximum(0.0, took - split.transfers).tolist()),
    }
    return replace(profile, collectives=split.collectives, metrics=profile.metrics | found)


def _split(profiles: Mapping[int, Profile], meetings: Iterable[Meeting]) -> dict[int, Split]:
    """What of each rank's collectives was transfer."""
    collectives = {rank: list(profile.collectives) for rank, profile in profiles.items()}
    transfers: dict[int, Any] = dict.fromkeys(profiles, 0.0)
    for meeting in meetings:
        there = {rank: collectives[rank][place] for rank, place in meeting.items()}
        least = np.min([one.rounds_us for one in there.values()], axis=0)
        last = min(there, key=lambda rank: there[rank].us)
        for rank, place in meeting.items():
            transfers[rank] = transfers[rank] + least
            collectives[rank][place] = replace(
                there[rank], transfer_us=float(np.median(least)), last=last
            )
    return {
        rank: Split(tuple(ours), tuple(np.atleast_1d(transfers[rank]).tolist()))
        for rank, ours in collectives.items()
    }


def _meetings(profiles: Mapping[int, Profile]) -> Iterator[Meeting]:
    """Each collective, with its place on each of its ranks.

    Raises:
        UnmatchedError: those of a rank are not those of the others.
    """
    rings: dict[Ring, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, profile in profiles.items():
        for place, one in enumerate(profile.collectives):
            rings[_ring(rank, one, tuple(sorted(profiles)))][rank].append(place)
    for ring, places in rings.items():
        yield from _meetings_of(ring, places, profiles)


def _ring(rank: int, collective: Collective, present: tuple[int, ...]) -> Ring:
    """Who takes part: as said; all where the group is as large, or two ranks are all there are."""
    if collective.operation in _BETWEEN_TWO and len(collective.ranks) == 1:
        (peer,) = collective.ranks
        pair = (rank, peer) if collective.operation == "send" else (peer, rank)
        return _present(Ring(f"{pair[0]} to {pair[1]}", pair), collective, present)
    if collective.ranks:
        return _present(Ring(collective.group, collective.ranks), collective, present)
    if collective.size == len(present) or (not collective.size and len(present) == 2):
        return Ring(collective.group, present)
    raise UnmatchedError(
        f"the trace of rank {rank} does not say which ranks take part in {_words(collective)}"
    )


def _present(ring: Ring, collective: Collective, present: tuple[int, ...]) -> Ring:
    missing = [rank for rank in ring.ranks if rank not in present]
    if missing:
        raise UnmatchedError(
            f"rank {missing[0]}, which takes part in {_words(collective)}, is not among them"
        )
    return ring


def _meetings_of(
    ring: Ring, places: Mapping[int, list[int]], profiles: Mapping[int, Profile]
) -> Iterator[Meeting]:
    """Those of one ring: by the number that the group gave them, else by their order."""
    ranks = sorted(ring.ranks)
    ours = {rank: [profiles[rank].collectives[at] for at in places.get(rank, ())] for rank in ranks}
    keys = {rank: _keys(collectives) for rank, collectives in ours.items()}
    if any(key is None for key in keys.values()):
        keys = {rank: list(range(len(collectives))) for rank, collectives in ours.items()}
    first = ranks[0]
    at = {rank: dict(zip(keys[rank] or (), places.get(rank, ()), strict=True)) for rank in ranks}
    for rank in ranks[1:]:
        if at[rank].keys() != at[first].keys():
            raise UnmatchedError(
                f"rank {rank} has {len(at[rank])} of the collectives of group "
                f"{ring.name or 'unknown'} that rank {first} has {len(at[first])} of"
                + ("" if len(at[rank]) != len(at[first]) else ", and other ones")
            )
    for key in at[first]:
        meeting = {rank: at[rank][key] for rank in ranks}
        _check({rank: profiles[rank].collectives[place] for rank, place in meeting.items()})
        yield meeting


def _keys(collectives: Sequence[Collective]) -> list[int] | None:
    """The numbers of a group's collectives; None where some have none, or share one."""
    numbers = [one.number for one in collectives if one.number is not None]
    between = any(one.operation in _BETWEEN_TWO for one in collectives)
    usable = not between and len(set(numbers)) == len(collectives)
    return numbers if usable else None


def _check(meeting: Mapping[int, Collective]) -> None:
    """Raises UnmatchedError: the ranks do not do the same there."""
    first, *others = meeting
    for rank in others:
        one, other = meeting[first], meeting[rank]
        same = one.operation == other.operation or {one.operation, other.operation} == {
            *_BETWEEN_TWO
        }
        if not same:
            raise UnmatchedError(
                f"rank {first} does {_words(one)} where rank {rank} does {_words(other)}"
            )
        if len(one.rounds_us) != len(other.rounds_us):
            raise UnmatchedError(
                f"rank {first} has {len(one.rounds_us)} rounds of {_words(one)}, rank {rank} "
                f"{len(other.rounds_us)}"
            )


def _words(collective: Collective) -> str:
    return collective.operation or "a collective"
