"""Markers that compare: ``min_speedup(1.5, over=eager)``, ``not_slower(than=eager)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.measure.clocks import CLOCKS
from pytest_kernelprof.units import parse_percent, parse_times


@dataclass(frozen=True, slots=True)
class Promise:
    """One marker that compares what a test profiles with another callable.

    Attributes:
        name: "min_speedup" or "not_slower".
        reference: the other callable; it gets the same arguments.
        value: how many times as fast, or the percentage by which it may be slower.
        metric: "cuda_time", "latency", "peak_memory" or None for the device's usual one.
    """

    name: str
    reference: Callable[..., Any]
    value: Any
    metric: str | None = None

    @property
    def key(self) -> tuple[str, int, str | None]:
        """What makes two of them the same: an inner level replaces an outer one."""
        return (self.name, id(self.reference), self.metric)


FORMS = {
    "min_speedup": 'min_speedup(1.5, over=eager) or min_speedup(1.5, over=eager, metric="latency")',
    "not_slower": 'not_slower(than=eager) or not_slower(than=eager, by="5%", metric="latency")',
}
HELP = {
    "min_speedup": "at least so many times as fast as another callable on the same arguments",
    "not_slower": "at most so much slower than another callable on the same arguments",
}
_REFERENCE = {"min_speedup": "over", "not_slower": "than"}


def parse_promise(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Promise:
    """The promise of a marker.

    Raises:
        MarkerError: the arguments are not of its form; the message shows it.
    """
    given = dict(kwargs)
    reference = given.pop(_REFERENCE[name], None)
    metric = given.pop("metric", None)
    if name == "min_speedup":
        value: Any = args[0] if len(args) == 1 else None
        wrong = "" if len(args) == 1 else f"expected one number above zero, got {len(args)}"
        try:
            value = value if wrong else parse_times(value)
        except ValueError as error:
            wrong = f"{value!r}: {error}"
    else:
        value = given.pop("by", "2%")
        wrong = "takes keyword arguments only" if args else _wrong_percent(value)
    if not wrong and given:
        wrong = f"unknown argument {', '.join(map(repr, given))}"
    if not wrong and not callable(reference):
        wrong = f"{_REFERENCE[name]}={reference!r} is no callable"
    if not wrong and metric is not None and metric not in CLOCKS:
        wrong = f"metric={metric!r} is none of {', '.join(CLOCKS)}"
    if wrong:
        raise MarkerError(f"{name}: {wrong}. The form is: {FORMS[name]}")
    return Promise(name, reference, value, metric)


def _wrong_percent(by: object) -> str:
    if not isinstance(by, str):
        return f"by={by!r} has no unit"
    try:
        parse_percent(by)
    except ValueError as error:
        return f"by: {error}"
    return ""
