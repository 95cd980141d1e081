"""The user's source line of each operator: from an attribution run, or from recorded frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.schema.recording import OwnNames
from pytest_kernelprof.trace.arrays import NO_ID
from pytest_kernelprof.trace.correlation import nearest
from pytest_kernelprof.trace.nesting import enclosing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_kernelprof.trace.arrays import Ints
    from pytest_kernelprof.trace.correlation import Links
    from pytest_kernelprof.trace.model import Trace


def annotated_lines(trace: Trace, links: Links) -> dict[int, str]:
    """``file:line`` of each operator for which an attribution run left one.

    A backward operator takes the line of the forward operator that autograd's flow events name:
    the line of ``backward()`` would be the same for all. Any other takes the innermost line
    annotation around it.
    """
    names, prefix = trace.operators.name, OwnNames(trace.recording.nonce).line
    annotations = trace.operators.annotation & names.that(lambda name: name.startswith(prefix))
    around = nearest(links.parent, annotations)
    forward = _forward_of_backward(trace)
    origin = np.append(forward, NO_ID)[nearest(links.parent, forward != NO_ID)]
    line = np.where(around[origin] != NO_ID, around[origin], around)[:-1]
    rows = np.flatnonzero(line != NO_ID)
    texts = [name[len(prefix) :] for name in names[line[rows]].tolist()]
    return dict(zip(rows.tolist(), texts, strict=True))


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


def _forward_of_backward(trace: Trace) -> Ints:
    """For each operator the forward one that an arrow of autograd's leads from, else ``NO_ID``."""
    ops, flows = trace.operators, trace.flows
    found = np.full(len(ops), NO_ID, np.int64)
    rows = np.flatnonzero(~ops.annotation)
    row_at = dict(zip(_places(ops.thread[rows], ops.start[rows]), rows.tolist(), strict=True))
    begins = _places(flows.forward_thread, flows.forward_at)
    ends = _places(flows.backward_thread, flows.backward_at)
    for begin, end in zip(begins, ends, strict=True):
        if begin in row_at and end in row_at:
            found[row_at[end]] = row_at[begin]
    return found


def _places(thread: Ints, at: Ints) -> Iterator[tuple[int, int]]:
    return zip(thread.tolist(), at.tolist(), strict=True)
