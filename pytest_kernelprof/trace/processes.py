"""A trace of several processes (ranks) as one trace of each."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from pytest_kernelprof.trace.correlation import processes_of_activities
from pytest_kernelprof.trace.model import Spans

if TYPE_CHECKING:
    from pytest_kernelprof.trace.arrays import Bools
    from pytest_kernelprof.trace.model import Trace

Table = TypeVar("Table", bound=Spans)


def of_each_process(trace: Trace) -> list[Trace]:
    """One trace for each process that the device worked for, in the order of the file; the trace
    itself where there is one at most.

    Waits, frames and links of autograd, which are no part of kernels, stay with each.
    """
    owners = processes_of_activities(trace)
    processes = np.unique(owners)
    if len(processes) < 2:
        return [trace]
    operators = trace.process_of_thread[trace.operators.thread]
    calls = trace.process_of_thread[trace.calls.thread]
    return [
        replace(
            trace,
            operators=_rows(trace.operators, operators == one),
            calls=_rows(trace.calls, calls == one),
            activities=_rows(trace.activities, owners == one),
        )
        for one in processes.tolist()
    ]


def _rows(table: Table, rows: Bools) -> Table:
    columns = {field.name: getattr(table, field.name) for field in fields(table)}
    return replace(
        table,
        **{name: column[rows] for name, column in columns.items() if column is not None},
    )
