"""While our profiler runs, operators go through the dispatcher, where they are recorded.

Since torch 2.15 what ``torch.library.custom_op`` makes is dispatched in Python ("PyObject
dispatch", pytorch #187949), past the place where profilers note an operator. Of a custom operator
there is no event then: the operators that it calls would count for it, and no kernel below it would
have it in its chain.
"""

from __future__ import annotations

import operator
from typing import Any

from pytest_kernelprof.device.inventory import bound


def _put_back(overload: Any, call: Any) -> None:
    vars(overload)["_op"] = call


# What an operator calls is ``_op``: one way or the other. A property of the class goes before what
# the operators have themselves, also those that are made meanwhile. It has no frame in Python,
# which recorded stacks would show.
_THROUGH_THE_DISPATCHER: Any = property(operator.attrgetter("_cpp_dispatch_handle"), _put_back)


def dispatch_recorded() -> None:
    """Send operators through the dispatcher from now on, from any thread, where torch has another
    way at all."""
    torch = bound().module
    if hasattr(torch.ops.aten.relu.default, "_cpp_dispatch_handle"):
        torch._ops.OpOverload._op = _THROUGH_THE_DISPATCHER


def dispatch_as_before() -> None:
    """Let them go the way that torch has chosen."""
    overloads = bound().module._ops.OpOverload
    if vars(overloads).get("_op") is _THROUGH_THE_DISPATCHER:
        del overloads._op
