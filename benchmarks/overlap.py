"""Is `exposed_comm_time` right? Against HolisticTraceAnalysis's overlap, on the same traces.

    python benchmarks/overlap.py TRACE...

Needs `pip install HolisticTraceAnalysis`. HTA gives the share of the time of communication that
computation hides, to a hundredth of a percent, and cuts times to whole microseconds; the exposed
time is what is left of the union of the communication kernels. It is compared only where HTA finds
as many communication kernels as we do: of some names it finds none.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

from pytest_kernelprof import Profile


class Found(NamedTuple):
    """Kernels that communicate, what they take together and what nothing hides, in us."""

    kernels: int
    comm_us: float
    exposed_us: float


def ours(trace: Path) -> Found:
    profile = Profile.from_trace(trace)
    found = (profile.metrics[name].value for name in ("comm_time", "exposed_comm_time"))
    comm, exposed = (value or 0.0 for value in found)
    return Found(len(profile.collectives), comm, exposed)


def of_hta(trace: Path) -> Found:
    from hta.trace_analysis import TraceAnalysis
    from hta.utils.utils import get_kernel_type, merge_kernel_intervals

    with tempfile.TemporaryDirectory() as folder:
        analysis = TraceAnalysis(
            trace_files={0: str(trace.resolve())}, trace_dir=folder, include_last_profiler_step=True
        )
    events, symbols = analysis.t.get_trace(0), analysis.t.symbol_table.get_sym_table()
    on_device = events[events["stream"].ne(-1)]
    kinds = on_device["name"].map(lambda at: get_kernel_type(symbols[at]))
    talking = on_device[kinds == "COMMUNICATION"]
    if talking.empty:
        return Found(0, 0.0, 0.0)
    merged = merge_kernel_intervals(talking.copy())
    hidden = analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0]
    together = float((merged["end"] - merged["ts"]).sum())
    return Found(len(talking), float(talking["dur"].sum()), together * (1 - hidden / 100))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("traces", nargs="+", type=Path)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    print(f"{'kernels':>8}{'HTA':>8}{'comm us':>12}{'HTA':>12}{'exposed us':>12}{'HTA':>12}  trace")
    for trace in parser.parse_args().traces:
        one, other = ours(trace), of_hta(trace)
        told = f"{one.kernels:8}{other.kernels:8}{one.comm_us:12.0f}{other.comm_us:12.0f}"
        told += f"{one.exposed_us:12.0f}{other.exposed_us:12.0f}  {trace.name}"
        print(told if one.kernels == other.kernels else f"{told}  (not compared: other kernels)")


if __name__ == "__main__":
    main()
