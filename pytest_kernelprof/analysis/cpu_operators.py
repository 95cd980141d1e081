"""On the CPU the outermost computing operator of each chain counts; what lies below it is its
implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.analysis.kernels import chains
from pytest_kernelprof.schema.run import Kernel
from pytest_kernelprof.trace.model import NO_ID
from pytest_kernelprof.trace.rounds import round_of_time

if TYPE_CHECKING:
    from pytest_kernelprof.trace.model import Ints
    from pytest_kernelprof.trace.reading import Reading

_NO_DIMENSIONS = (0, 0, 0)


def operator_rows(reading: Reading) -> list[Ints]:
    """Of each round its compute operators, as rows of the operators in order."""
    ops, parent = reading.trace.operators, reading.links.parent
    compute_names = frozenset(reading.trace.recording.compute_operators or ())
    names = ops.name.tolist()
    computes = np.array([name in compute_names for name in names], np.bool_) & ~ops.annotation
    # What torch.compile runs while it traces is no work of the call.
    covered = (ops.name == "dynamo") & ~ops.annotation
    for i in np.lexsort((-ops.end, ops.start, ops.thread)):
        above = parent[i]
        covered[i] |= above != NO_ID and (covered[above] or computes[above])
    of_round = round_of_time(reading.layout.rounds, ops.start, late=False)
    found = np.flatnonzero(computes & ~covered)
    return [found[of_round[found] == number] for number in range(reading.rounds)]


def operators_as_kernels(reading: Reading, rows: Ints) -> tuple[Kernel, ...]:
    """The compute operators of these rows, in the form of kernels."""
    ops = reading.trace.operators
    return tuple(
        Kernel(
            name,
            duration,
            *(_NO_DIMENSIONS, _NO_DIMENSIONS, 0, 0, 0, 0),
            "operator",
            chain,
        )
        for name, duration, chain in zip(
            ops.name[rows].tolist(),
            ((ops.end[rows] - ops.start[rows]) / 1e3).tolist(),
            chains(reading, rows.tolist()),
            strict=True,
        )
    )
