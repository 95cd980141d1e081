"""The operators of one round as a tree: what is below each, and which of them launch nothing."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.report.style import Span
from pytest_kernelprof.report.tables import Numbers, lay_out, time_unit
from pytest_kernelprof.summary.kernel_groups import times_words
from pytest_kernelprof.summary.words import count_words, first_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.report.style import Colour, Line, Style
    from pytest_kernelprof.schema.kernels import OperatorNode

_MOST = 60
_DEEPEST = 20
_MOST_NAMES = 6
_WRAPPER = "autograd::engine::evaluate_function: "
"""What stands around each node of autograd, and is named like it."""


@dataclass(frozen=True, slots=True)
class _Row:
    node: OperatorNode
    depth: int
    name: str


def tree_lines(
    root: OperatorNode, style: Style, *, on_cpu: bool, top: int | None = None, everything: bool
) -> list[Line]:
    """A line for each operator under those that called it. What launches nothing stands in one
    line with its neighbours, and what is below that in none.

    Args:
        top: so many rows, those whose kernels take most with what they stand under.
        everything: each operator on a line of its own.
    """
    rows = list(_rows(root.below, 0, everything=everything))
    own = root.kernels - sum(one.kernels for one in root.below)
    if not rows:
        return [(Span("No operator in this trace: kernels alone."),)]
    most = None if everything else top or _MOST
    told = _costliest(rows, most)
    unit = time_unit([root.us])
    nothing = {at for at, row in enumerate(told) if not row.node.kernels}

    def column(title: str, cells: Sequence[str]) -> Numbers:
        return Numbers(title, tuple(cells))

    columns = [
        column("calls", [str(row.node.calls) for row in told]),
        column(
            "computing" if on_cpu else "kernels",
            ["" if at in nothing else str(row.node.kernels) for at, row in enumerate(told)],
        ),
        column(
            f"{'CPU' if on_cpu else 'GPU'} {unit.name}",
            ["" if at in nothing else unit.words(row.node.us) for at, row in enumerate(told)],
        ),
    ]
    names = ["  " * min(row.depth, _DEEPEST) + style.say(row.name) for row in told]
    laid = lay_out(columns, names, style.width + 2, name="operator", cut=style.cut)
    lines: list[Line] = [(Span(laid.title[2:], "dim"),)]
    for at, (cells, name) in enumerate(laid.rows):
        dim: Colour = "dim" if at in nothing else ""
        lines.append((Span("  ".join([*cells, name[0]]), dim),))
        lines += [(Span(" " * (laid.indent - 2) + more, dim),) for more in name[1:]]
    left = len(rows) - len(told)
    if left:
        lines.append((Span(f"{left:,} more lines, whose kernels take less: --all"),))
    if own:
        what = count_words(own, "operator" if on_cpu else "kernel")
        lines.append((Span(f"launched by no operator that is recorded: {what}"),))
    return lines


def _rows(nodes: Sequence[OperatorNode], depth: int, *, everything: bool) -> Iterator[_Row]:
    waiting: list[OperatorNode] = []
    for node in itertools.chain.from_iterable(map(_unwrapped, nodes)):
        if everything or node.kernels:
            yield _Row(node, depth, node.name)
            yield from _rows(node.below, depth + 1, everything=everything)
        else:
            waiting.append(node)
    if waiting:
        yield _silent(waiting, depth)


def _unwrapped(node: OperatorNode) -> tuple[OperatorNode, ...]:
    return node.below if node.name.startswith(_WRAPPER) and node.below else (node,)


def _silent(nodes: Sequence[OperatorNode], depth: int) -> _Row:
    """Those that launch nothing, as one."""
    names = first_of([times_words(one.name, one.calls) for one in nodes], _MOST_NAMES)
    calls = sum(one.calls for one in nodes)
    together = type(nodes[0])("", calls, 0, 0.0)
    return _Row(together, depth, f"nothing from {', '.join(names)}")


def _costliest(rows: Sequence[_Row], most: int | None) -> list[_Row]:
    """Those that take most, in their order. What stands above a row takes no less than it does, and
    comes before it."""
    if most is None or len(rows) <= most:
        return list(rows)
    ranked = sorted(range(len(rows)), key=lambda at: (-rows[at].node.us, at))
    return [rows[at] for at in sorted(ranked[:most])]
