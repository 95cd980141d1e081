"""What a trace is one of: whose runtime recorded it, in which form, of how many processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_kernelprof.schema.run import Origin
from pytest_kernelprof.trace.vocabulary import OLD_CATEGORIES

if TYPE_CHECKING:
    from pytest_kernelprof.trace.model import Trace

_OLD_FORM = "in the form of 2021"


def origin_of(trace: Trace) -> Origin:
    """What to say of a trace's origin.

    Processes are those with operators or calls, devices those with activities.
    """
    ours = [table.thread for table in (trace.operators, trace.calls)]
    processes = np.unique(trace.process_of_thread[np.concatenate(ours)])
    acts = trace.activities
    devices = np.unique(np.stack([acts.process, acts.device]), axis=1).shape[1] if len(acts) else 0
    form = _OLD_FORM if OLD_CATEGORIES.intersection(trace.categories) else ""
    return Origin(trace.back_end or "CPU", form, len(processes), devices)
