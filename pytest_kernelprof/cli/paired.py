"""A process of ``kernelprof noise --pairs``: it holds in a workload, and takes rounds of it."""

from __future__ import annotations

import contextlib
import os

from pytest_kernelprof.against.holding import serve
from pytest_kernelprof.against.turns import in_a_line
from pytest_kernelprof.against.wire import Lost, Wire
from pytest_kernelprof.cli.workloads import workloads
from pytest_kernelprof.device import inventory, presence
from pytest_kernelprof.measure.completeness import require_complete
from pytest_kernelprof.measure.plan import Plan
from pytest_kernelprof.measure.runner import measure
from pytest_kernelprof.schema.against import Done, RunTest, ToReference
from pytest_kernelprof.schema.turns import At, Go


def main(arguments: list[str]) -> None:
    """Serve over the two descriptors of the first argument, on the kind of device of the second."""
    incoming, outgoing = map(int, arguments[0].split(","))
    for end in (incoming, outgoing):
        os.set_inheritable(end, False)
    wire = Wire(incoming, outgoing, ToReference)
    kind: inventory.DeviceKind = "cuda" if arguments[1] == "cuda" else "cpu"
    with contextlib.suppress(Lost):  # nobody asks any more
        while isinstance(asked := wire.receive(), RunTest) and _hold(wire, kind, asked.id):
            pass


def _hold(wire: Wire, kind: inventory.DeviceKind, workload: str) -> bool:
    """Measure a workload and hold in it; whether more is to be measured."""
    try:
        call = workloads(kind)[workload]
        result, measured = measure(call, Plan(kind))
        require_complete(measured.profile)
        assert measured.more is not None, "a call can be made again"
        work = measured.more.work(result)
    except Exception as error:
        wire.send(Done(workload, failure=in_a_line(error)))
        return True
    presence.finish_work()
    wire.send(At(workload, work, inventory.cuda_is_up()))
    if not isinstance(serve(wire, measured.more.series()), Go):
        return False
    wire.send(Done(workload))
    return True
