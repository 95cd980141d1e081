"""The operators of one round as a tree, those too that launch nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.analysis import cpu_operators, kernels
from pytest_kernelprof.analysis.profile import device_kind
from pytest_kernelprof.schema.kernels import OperatorNode
from pytest_kernelprof.trace.rounds import round_of_time

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Ints
    from pytest_kernelprof.trace.model import Spans
    from pytest_kernelprof.trace.reading import Reading

_DEEPEST = 200
"""What is nested deeper is told with the operator there."""


@dataclass(slots=True)
class _Node:
    """What a node of the tree has so far: itself, without those below."""

    name: str = ""
    depth: int = 0
    calls: int = 0
    kernels: int = 0
    us: float = 0.0
    below: dict[str, _Node] = field(default_factory=dict)

    def child(self, name: str) -> _Node:
        """The node below of that name."""
        if self.depth == _DEEPEST:
            return self
        return self.below.setdefault(name, _Node(name, self.depth + 1))

    def frozen(self) -> OperatorNode:
        """With what is below it."""
        below = tuple(one.frozen() for one in self.below.values())
        return OperatorNode(
            self.name,
            self.calls,
            self.kernels + sum(one.kernels for one in below),
            self.us + sum(one.us for one in below),
            below,
        )


def operator_tree(reading: Reading, number: int) -> OperatorNode:
    """The operators of a round under those that called them, by name; annotations of ours are
    none. What was launched outside of any operator is the root's own.

    Args:
        number: which round.
    """
    root = _Node(calls=1)
    node_of = _nodes(reading, number, root)
    for operator, us in _costs(reading, number):
        node = node_of.get(operator, root)
        node.kernels += 1
        node.us += us
    return root.frozen()


def _nodes(reading: Reading, number: int, root: _Node) -> dict[int, _Node]:
    """Of each operator of the round, by its row, its node."""
    ops = reading.trace.operators
    users = kernels.users_of(reading)
    inside = round_of_time(reading.layout.rounds, ops.start, late=False) == number
    rows = np.flatnonzero(inside & (users[:-1] == np.arange(len(ops))))
    parents = users[reading.links.parent[rows]]  # NO_ID points to the last
    named = zip(rows.tolist(), parents.tolist(), ops.name[rows].tolist(), strict=True)
    found: dict[int, _Node] = {}
    for row, parent, name in named:  # callers begin before what they call
        found[row] = node = found.get(parent, root).child(name)
        node.calls += 1
    return found


def _costs(reading: Reading, number: int) -> list[tuple[int, float]]:
    """Of each kernel of the round the row of its innermost operator, and what it takes."""
    if device_kind(reading) == "cpu":
        rows = cpu_operators.operator_rows(reading)[number]
        return list(zip(rows.tolist(), _us(reading.trace.operators, rows), strict=True))
    rows = kernels.kernel_rows(reading)[number]
    users = kernels.users_of(reading)
    operators = users[np.array(kernels.operators_of_activities(reading, rows), np.int64)]
    return list(zip(operators.tolist(), _us(reading.trace.activities, rows), strict=True))


def _us(spans: Spans, rows: Ints) -> list[float]:
    found: list[float] = ((spans.end[rows] - spans.start[rows]) / 1e3).tolist()
    return found
