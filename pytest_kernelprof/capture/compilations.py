"""How often torch.compile has compiled in this process."""

from __future__ import annotations

import sys


def compilations() -> int:
    """How many graphs torch.compile has compiled in this process; compare two readings.

    Dynamo's counter of frames leaves out what is compiled with ``fullgraph=True``.
    """
    utils = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else int(utils.counters["stats"]["unique_graphs"])
