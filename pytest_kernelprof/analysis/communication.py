"""What each round spends on communication: time of its kernels, what nothing hides, and bytes.

A communication kernel spins while it waits for the other ranks, so its time is that of a transfer
and of waiting together; what is which is known once the ranks are ``gathered``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.analysis.kernels import kernel_rows
from pytest_kernelprof.analysis.metrics import absent, metric_of
from pytest_kernelprof.schema.kernels import Collective
from pytest_kernelprof.trace.announced import Announced
from pytest_kernelprof.trace.arrays import NO_ID
from pytest_kernelprof.trace.rounds import round_of_time
from pytest_kernelprof.trace.vocabulary import GLOO, communicates, operation_of, tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.run import Metric
    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.reading import Reading

ONE_RANK = "not available on one rank: the waiting time needs the profiles of all ranks"
_NO_COMMUNICATION = "no kernel of it communicates"
_TOGETHER = ("comm_transfer", "comm_wait")
COMMUNICATION = ("comm_time", "exposed_comm_time", "comm_bytes", *_TOGETHER)


def talking(reading: Reading) -> Bools:
    """Which activities are communication kernels, by their names."""
    return reading.trace.activities.name.that(communicates)


def communication_metrics(reading: Reading) -> dict[str, Metric]:
    """The metrics of communication, by name; those that need all ranks are not to be had."""
    on_the_host = _on_the_host(reading)
    if on_the_host:
        return {name: absent(name, on_the_host) for name in COMMUNICATION}
    chosen = talking(reading)
    rows = [(of_round[chosen[of_round]], of_round) for of_round in kernel_rows(reading)]
    why = ONE_RANK if any(len(ours) for ours, _ in rows) else _NO_COMMUNICATION
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
    chosen, rows = talking(reading), kernel_rows(reading)
    places = np.flatnonzero(chosen[rows[fullest]])
    if not len(places):
        return ()
    ours = [of_round[chosen[of_round]] for of_round in rows]
    names = reading.trace.activities.name
    alike = all(np.array_equal(names.codes[one], names.codes[ours[fullest]]) for one in ours)
    took = np.array([_took(reading, one) for one in (ours if alike else [ours[fullest]])]) / 1e3
    return tuple(
        Collective(
            kernel=place,
            operation=said.operation or operation_of(name),
            group=said.group,
            size=said.size,
            ranks=said.ranks,
            number=said.number,
            bytes=said.bytes,
            rounds_us=tuple(us),
        )
        for place, name, said, us in zip(
            places.tolist(),
            names[ours[fullest]].tolist(),
            _announced(reading, ours[fullest]),
            took.T.tolist(),
            strict=True,
        )
    )


def _on_the_host(reading: Reading) -> str:
    """Why communication cannot be told where the host does some of it, which leaves no kernels."""
    operators = reading.trace.operators
    by_gloo = operators.name.that(lambda name: name.startswith(GLOO))
    inside = round_of_time(reading.layout.rounds, operators.start[by_gloo], late=False) != NO_ID
    if not inside.any():
        return ""
    told = tally(operators.name[by_gloo][inside])
    return f"not available: gloo communicates on the host ({told}), which leaves no kernels"


def _took(reading: Reading, rows: Ints) -> Ints:
    """What activities took, in ns."""
    acts = reading.trace.activities
    took: Ints = acts.end[rows] - acts.start[rows]
    return took


def _exposed(reading: Reading, ours: Ints, kernels: Ints) -> int:
    """In how much time a device communicated and ran no other kernel, in ns: the union of all
    kernels of a device, less that of those that compute."""
    device = reading.trace.activities.device
    exposed = 0
    for one in np.unique(device[ours]).tolist():
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
    unsaid = np.concatenate(
        [
            rows[np.array([size is None for size in of_round], np.bool_)]
            for rows, of_round in zip(rounds, sizes, strict=True)
        ]
    )
    if len(unsaid):
        names = (name.partition("(")[0] for name in reading.trace.activities.name[unsaid].tolist())
        return absent(
            "comm_bytes",
            f"not available: the trace does not say how much {tally(names)} exchange",
        )
    return metric_of("comm_bytes", [sum(size or 0 for size in of_round) for of_round in sizes])
