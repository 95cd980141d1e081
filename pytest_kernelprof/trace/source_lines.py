"""The user's source line of each operator: from an attribution run, or from recorded frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.schema.recording import OwnNames
from pytest_kernelprof.trace.arrays import NO_ID
from pytest_kernelprof.trace.correlation import ancestors
from pytest_kernelprof.trace.nesting import enclosing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.trace.correlation import Links
    from pytest_kernelprof.trace.model import Trace


def annotated_lines(trace: Trace, links: Links) -> dict[int, str]:
    """``file:line`` of each operator for which an attribution run left one.

    A backward operator takes the line of the forward operator that autograd's flow events name:
    the line of ``backward()`` would be the same for all. Any other takes the innermost line
    annotation around it.
    """
    forward = _forward_of_backward(trace)
    lines: dict[int, str] = {}
    for operator in range(len(trace.operators)):
        origin = next((forward[i] for i in ancestors(links, operator) if i in forward), operator)
        line = _line_around(trace, links, origin) or _line_around(trace, links, operator)
        if line is not None:
            lines[operator] = line
    return lines


def frame_lines(trace: Trace, operators: Iterable[int]) -> dict[int, str]:
    """``file:line`` of the innermost recorded Python frame of the user around each operator.

    The profiler names the line of the ``def``, not of the call (pytorch #167605).
    """
    frames, ops = trace.frames, trace.operators
    users = np.flatnonzero(frames.name.that(_is_users))
    rows = np.array(sorted(set(operators) - {NO_ID}), np.int64)
    start = np.concatenate([frames.start[users], ops.start[rows]])
    end = np.concatenate([frames.end[users], ops.start[rows]])
    thread = np.concatenate([frames.thread[users], ops.thread[rows]])
    around = enclosing(thread, start, end, np.arange(len(start)) >= len(users))[len(users) :]
    names = frames.name[users]
    return {
        row: _line(names[frame])
        for row, frame in zip(rows.tolist(), around.tolist(), strict=True)
        if frame != NO_ID
    }


def _is_users(frame: str) -> bool:
    return ".py(" in frame and "site-packages" not in frame and "torch/" not in frame


def _line(frame: str) -> str:
    """Of ``file.py(12): function``."""
    file, _, rest = frame.partition("(")
    return f"{file}:{rest.partition(')')[0]}"


def _line_around(trace: Trace, links: Links, operator: int) -> str | None:
    prefix = OwnNames(trace.recording.nonce).line
    for above in ancestors(links, operator):
        name: str = trace.operators.name[above]
        if trace.operators.annotation[above] and name.startswith(prefix):
            return name[len(prefix) :]
    return None


def _forward_of_backward(trace: Trace) -> dict[int, int]:
    ops, flows = trace.operators, trace.flows
    at = {
        (int(thread), int(start)): i
        for i, (thread, start) in enumerate(zip(ops.thread, ops.start, strict=True))
        if not ops.annotation[i]
    }
    pairs: dict[int, int] = {}
    for row in range(len(flows.forward_at)):
        forward = at.get((int(flows.forward_thread[row]), int(flows.forward_at[row])))
        backward = at.get((int(flows.backward_thread[row]), int(flows.backward_at[row])))
        if forward is not None and backward is not None:
            pairs[backward] = forward
    return pairs
