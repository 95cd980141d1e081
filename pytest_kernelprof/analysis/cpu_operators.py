"""On the CPU the outermost computing operator of each chain counts; what lies below it is its
implementation. Of a trace that does not say which operators compute, the outermost one counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.analysis.kernels import chains
from pytest_kernelprof.schema.run import Kernel, Wait
from pytest_kernelprof.trace.arrays import NO_ID
from pytest_kernelprof.trace.correlation import ancestors, around, within
from pytest_kernelprof.trace.rounds import round_of_time
from pytest_kernelprof.trace.vocabulary import COMPILED_REGION, INDUCTOR_GRAPH, OPERATOR, matches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.trace.arrays import Bools, Ints
    from pytest_kernelprof.trace.model import Operators
    from pytest_kernelprof.trace.reading import Reading

# Below these an operator hands its work on to ``__torch_dispatch__`` of a mode or a subclass, whose
# operators count in its place (torch 2.10 and later).
_TO_PYTHON = frozenset(["PythonDispatchMode", "PythonSubclass"])
_READ = "aten::_local_scalar_dense"
_NO_DIMENSIONS = (0, 0, 0)


def operator_rows(reading: Reading) -> list[Ints]:
    """Of each round its compute operators, as rows of the operators in order; all of its outermost
    operators where the trace does not say which of them compute."""
    computes, covered = _computing(reading)
    return _of_rounds(reading, computes & ~covered)


def read_rows(reading: Reading) -> list[Ints]:
    """Find in each round the reads of a tensor's value into Python: ``.item()``, ``if tensor``.

    A read by an operator that computes is part of its implementation, and not among them.

    Returns:
        For each round the rows of the operators that read.
    """
    ops = reading.trace.operators
    _, covered = _computing(reading)
    return _of_rounds(reading, ops.name.are(_READ) & ~_ranges(ops, ()) & ~covered)


def _computing(reading: Reading) -> tuple[Bools, Bools]:
    """Tell which operators compute, and which lie below one that does or in a compilation. All
    compute where that is not noted."""
    ops, parent = reading.trace.operators, reading.links.parent
    recording = reading.trace.recording
    noted = recording.compute_operators
    counts = OPERATOR.fullmatch if noted is None else frozenset(noted).__contains__
    ranges = _ranges(ops, recording.bare_operators)
    computes = ops.name.that(counts) & ~ranges
    # A library's operator for all devices: by others that count, or by code of its own.
    delegates = parent[ops.name.that(_TO_PYTHON.__contains__)]
    computes[delegates[delegates != NO_ID]] = False
    if recording.decomposing_operators:
        alone = ops.name.that(frozenset(recording.decomposing_operators).__contains__) & ~ranges
        alone &= ~around(parent, computes)
        computes |= alone & ~around(parent, alone)
    # What torch.compile runs while it traces is no work of the call. Without a compilation it is
    # somebody else's range.
    compiling = ops.name.are("dynamo") & ~ops.annotation & (recording.recompiles != 0)
    return computes, compiling | within(parent, computes | compiling)


def _of_rounds(reading: Reading, chosen: Bools) -> list[Ints]:
    """Split the rows of the chosen operators by round."""
    of_round = round_of_time(reading.layout.rounds, reading.trace.operators.start, late=False)
    found = np.flatnonzero(chosen)
    return [found[of_round[found] == number] for number in range(reading.rounds)]


def reads_as_waits(reading: Reading, rows: Ints) -> tuple[Wait, ...]:
    """Make waits of these reads, which they would be on a GPU."""
    return tuple(Wait(chain[0], chain) for chain in chains(reading, rows.tolist()))


def _ranges(ops: Operators, bare: Iterable[str]) -> Bools:
    """What is no operator, whatever it is called: annotations, and ranges without inputs.

    ``torch._C._profiler._RecordFunctionFast("aten::mm")`` leaves an event of an operator's
    category, but without the inputs that an operator has where they are recorded. The kernels of
    compiled code, known by that code, have none either, nor have operators that take none.
    """
    if ops.has_inputs is None:
        return ops.annotation
    kept = frozenset(bare)
    named = ops.name.that(lambda name: "::" in name and name not in kept)
    found: Bools = ops.annotation | (~ops.has_inputs & named)
    return found


def silent_regions(reading: Reading) -> int:
    """How many calls of compiled code in the rounds left no operator that computes, nor a graph
    that Inductor made: their back end computes elsewhere."""
    ops, links = reading.trace.operators, reading.links
    of_round = round_of_time(reading.layout.rounds, ops.start, late=False)
    called = matches(ops.name, COMPILED_REGION) & ~ops.annotation & (of_round != NO_ID)
    regions = set(np.flatnonzero(called).tolist())
    if not regions:
        return 0
    outermost = {i for i in regions if regions.isdisjoint(list(ancestors(links, i))[1:])}
    computes, _ = _computing(reading)
    telling = np.flatnonzero(computes | matches(ops.name, INDUCTOR_GRAPH)).tolist()
    return len(outermost.difference(*(ancestors(links, i) for i in telling)))


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
