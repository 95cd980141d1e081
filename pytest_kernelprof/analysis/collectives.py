"""What communication costs: on one rank, and with the ranks together who waited for whom.

A communication kernel spins while it waits for the other ranks, so its time is that of a transfer
and of waiting together; what is which is known once the ranks are together, ``with_waiting``.

The clocks of ranks are not compared. A collective ends on all of its ranks together, since none has
the result before the last one starts. So by its end the rank on which its kernel took least is the
one that started last, and what it took there is the transfer. On every other rank the rest is
waiting. (Of a broadcast, or a send, this bounds the transfer: the side that gives may be done
before the other one starts.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from pytest_kernelprof.analysis.metric_values import absent, metric_of
from pytest_kernelprof.records.profile import Collective, Metric, Profile
from pytest_kernelprof.trace.columns import NO_ID, Announced, Ints
from pytest_kernelprof.trace.correlation import Reading
from pytest_kernelprof.trace.vocabulary import GLOO, communicates, operation_of, tally

ONE_RANK = "not available on one rank: the waiting time needs the profiles of all ranks"
_TOGETHER = ("comm_transfer", "comm_wait")
COMMUNICATION = ("comm_time", "exposed_comm_time", "comm_bytes", *_TOGETHER)


def communication_metrics(reading: Reading) -> dict[str, Metric]:
    """The metrics of communication, by name; those that need all ranks are not available."""
    if on_the_host := _on_the_host(reading):
        return {name: absent(name, on_the_host) for name in COMMUNICATION}
    chosen = reading.trace.activities.name.that(communicates)
    rows = [(of_round[chosen[of_round]], of_round) for of_round in reading.kernels]
    why = ONE_RANK if any(len(ours) for ours, _ in rows) else "no kernel of it communicates"
    return {
        "comm_time": metric_of("comm_time", [_took(reading, ours).sum() / 1e3 for ours, _ in rows]),
        "exposed_comm_time": metric_of(
            "exposed_comm_time", [_exposed(reading, *of_round) / 1e3 for of_round in rows]
        ),
        "comm_bytes": _comm_bytes(reading, [ours for ours, _ in rows]),
        **{name: absent(name, why) for name in _TOGETHER},
    }


def collectives_of(reading: Reading, fullest: int) -> tuple[Collective, ...]:
    """The communication kernels of a round in launch order.

    Args:
        fullest: which round. What the others took is there too, where they communicate alike.
    """
    names, rows = reading.trace.activities.name, reading.kernels
    chosen = names.that(communicates)
    places = chosen[rows[fullest]].nonzero()[0]
    if not len(places):
        return ()
    ours = [of_round[chosen[of_round]] for of_round in rows]
    here = ours[fullest]
    alike = all(np.array_equal(names.codes[one], names.codes[here]) for one in ours)
    took = np.array([_took(reading, one) for one in (ours if alike else [here])]) / 1e3
    rows_of_each = (places.tolist(), names[here].tolist(), _announced(reading, here))
    return tuple(
        Collective(
            kernel=place,
            rounds_us=tuple(us),
            **said._replace(operation=said.operation or operation_of(name))._asdict(),
        )
        for place, name, said, us in zip(*rows_of_each, took.T.tolist(), strict=True)
    )


def _on_the_host(reading: Reading) -> str:
    """Why communication cannot be told where the host does some of it, which leaves no kernels."""
    operators = reading.trace.operators
    by_gloo = operators.name.that(lambda name: name.startswith(GLOO))
    inside = by_gloo & (reading.round_of_operator != NO_ID)
    if not inside.any():
        return ""
    told = tally(operators.name[inside])
    return f"not available: gloo communicates on the host ({told}), which leaves no kernels"


def _took(reading: Reading, rows: Ints) -> Ints:
    """What activities took, in ns."""
    acts = reading.trace.activities
    return acts.end[rows] - acts.start[rows]


def _exposed(reading: Reading, ours: Ints, kernels: Ints) -> int:
    """In how much time a device communicated and ran no other kernel, in ns: the union of all
    kernels of a device, less that of those that compute."""
    device = reading.trace.activities.device
    exposed = 0
    for one in set(device[ours].tolist()):
        here = kernels[device[kernels] == one]
        others = np.setdiff1d(here, ours, assume_unique=True)
        exposed += _covered(reading, here) - _covered(reading, others)
    return exposed


def _covered(reading: Reading, rows: Ints) -> int:
    """How much time activities cover together, in ns."""
    acts = reading.trace.activities
    if not len(rows):
        return 0
    rows = rows[np.argsort(acts.start[rows], kind="stable")]
    start, reached = acts.start[rows], np.maximum.accumulate(acts.end[rows])
    begun = np.maximum(start[1:], reached[:-1])
    return int(reached[0] - start[0] + np.maximum(0, reached[1:] - begun).sum())


def _announced(reading: Reading, rows: Ints) -> Sequence[Announced]:
    column = reading.trace.activities.announced
    if column is None:
        return [Announced()] * len(rows)
    return [one or Announced() for one in column[rows].tolist()]


def _comm_bytes(reading: Reading, rounds: Sequence[Ints]) -> Metric:
    """What the ranks exchange, as far as it is said of each kernel."""
    sizes = [[one.bytes for one in _announced(reading, rows)] for rows in rounds]
    every = zip(np.concatenate(rounds).tolist(), chain.from_iterable(sizes), strict=True)
    if unsaid := [row for row, size in every if size is None]:
        names = (name.partition("(")[0] for name in reading.trace.activities.name[unsaid].tolist())
        return absent(
            "comm_bytes", f"not available: the trace does not say how much {tally(names)} exchange"
        )
    return metric_of("comm_bytes", [sum(size or 0 for size in of_round) for of_round in sizes])


_BETWEEN_TWO = ("send", "recv")


class Ring(NamedTuple):
    """Ranks that communicate with each other: a process group, or the two of a send."""

    name: str
    ranks: tuple[int, ...]


Meeting = dict[int, int]
"""The places of one collective among those of each of its ranks."""


class UnmatchedError(ValueError):
    """The collectives of some ranks are not those of the others; says which."""


def with_waiting(profiles: Sequence[Profile]) -> list[Profile]:
    """The profiles with ``comm_transfer`` and ``comm_wait``, or why these are not available."""
    if len(profiles) < 2:
        return list(profiles)
    try:
        of_ranks = {one.rank or 0: one for one in profiles}
        split = _split(of_ranks, _meetings(of_ranks))
    except UnmatchedError as error:
        why = f"not available: {error}"
        return [_without(one, why) for one in profiles]
    return [_with_split(one, *split[one.rank or 0]) for one in profiles]


def _without(profile: Profile, why: str) -> Profile:
    names = _TOGETHER if profile.collectives else ()
    return replace(profile, metrics=profile.metrics | {name: absent(name, why) for name in names})


def _with_split(profile: Profile, collectives: tuple[Collective, ...], transfers: Any) -> Profile:
    """Where there is no time to split, why that is so stays with its metrics.

    Args:
        transfers: those of the collectives together, in each round.
    """
    if not collectives or profile.metrics["comm_time"].value is None:
        return profile
    took = np.sum([one.rounds_us for one in collectives], axis=0)
    found = {
        "comm_transfer": metric_of("comm_transfer", np.atleast_1d(transfers).tolist()),
        "comm_wait": metric_of("comm_wait", np.maximum(0.0, took - transfers).tolist()),
    }
    return replace(profile, collectives=collectives, metrics=profile.metrics | found)


def _split(
    profiles: Mapping[int, Profile], meetings: Iterable[Meeting]
) -> dict[int, tuple[tuple[Collective, ...], Any]]:
    """Each rank's collectives with what was transfer, and that together in each round."""
    collectives = {rank: list(profile.collectives) for rank, profile in profiles.items()}
    transfers: dict[int, Any] = dict.fromkeys(profiles, 0.0)
    for meeting in meetings:
        there = {rank: collectives[rank][place] for rank, place in meeting.items()}
        least = np.min([one.rounds_us for one in there.values()], axis=0)
        last = min(there, key=lambda rank: there[rank].us)
        for rank, place in meeting.items():
            transfers[rank] = transfers[rank] + least
            split = replace(there[rank], transfer_us=float(np.median(least)), last=last)
            collectives[rank][place] = split
    return {rank: (tuple(ours), transfers[rank]) for rank, ours in collectives.items()}


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
    ring = Ring(collective.group, collective.ranks)
    if collective.operation in _BETWEEN_TWO and len(collective.ranks) == 1:
        (peer,) = collective.ranks
        pair = (rank, peer) if collective.operation == "send" else (peer, rank)
        ring = Ring(f"{pair[0]} to {pair[1]}", pair)
    elif not ring.ranks:
        if collective.size != len(present) and (collective.size or len(present) != 2):
            raise UnmatchedError(
                f"the trace of rank {rank} does not say which ranks take part in "
                f"{_words(collective)}"
            )
        ring = Ring(collective.group, present)
    if missing := [rank for rank in ring.ranks if rank not in present]:
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
        operations = {one.operation, other.operation}
        if len(operations) > 1 and operations != {*_BETWEEN_TWO}:
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
