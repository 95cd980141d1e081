"""Every limit that there is: its arguments, its metric, its unit, and its form in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.units import parse_bytes, parse_percent, parse_time

_DIRECTIONS = ("h2d", "d2h", "d2d", "p2p")


@dataclass(frozen=True, slots=True)
class Limit:
    """One promise about a profile.

    Attributes:
        name: the marker's name; with ``qualifier`` what makes two limits "the same".
        qualifier: ``match`` or ``direction`` where given, else empty.
        metric: the metric that is judged; empty for limits on kernel names.
        bound: the largest value allowed, in the metric's unit; a fraction if ``relative``.
        relative: whether ``bound`` is a fraction of the latency.
        patterns: what ``expect_kernels`` and ``forbid_kernels`` look for; None stands for ``...``.
        on_cpu: whether the limit can be judged on the CPU.
        host_time: whether it needs unprofiled rounds.
        device_time: whether it needs enough profiled rounds for an interval.
        memory: whether it needs calls whose memory is watched.
    """

    name: str
    qualifier: str = ""
    metric: str = ""
    bound: float = 0.0
    relative: bool = False
    patterns: tuple[str | None, ...] = ()
    on_cpu: bool = False
    host_time: bool = False
    device_time: bool = False
    memory: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """What "the same limit" means: an inner level replaces an outer limit of equal key."""
        return (self.name, self.qualifier)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of limit: how it is written and how a ``Limit`` is made of the arguments.

    Attributes:
        form: the right forms, as errors show them.
        help: what the limit says, for ``pytest --markers``.
    """

    name: str
    form: str
    help: str
    make: Callable[[tuple[Any, ...], dict[str, Any]], Limit]

    @property
    def example(self) -> str:
        """The first of the forms."""
        return re.split(r" or |, where |, max_", self.form, maxsplit=1)[0]


def parse_limit(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Limit:
    """The limit that a marker or keyword asks for.

    Raises:
        MarkerError: the arguments are not of the limit's form; the message shows it.
    """
    kind = KINDS[name]
    try:
        return kind.make(tuple(args), dict(kwargs))
    except (ValueError, TypeError, OverflowError) as error:
        raise MarkerError(f"{name}: {error}. The form is: {kind.form}") from error


def parse_keyword(name: str, value: Any) -> Limit:
    """The limit of a keyword: ``max_kernels=3``, ``max_memcpys={"n": 0, "direction": "d2h"}``.

    A list or tuple stands for several positional arguments, a dict for keyword arguments.

    Raises:
        MarkerError: there is no such limit, or its value is wrong.
    """
    if name not in KINDS:
        raise MarkerError(f"unknown limit {name!r}; there are: {', '.join(KINDS)}")
    if isinstance(value, Mapping):
        return parse_limit(name, (), value)
    if isinstance(value, (list, tuple)):
        return parse_limit(name, value, {})
    return parse_limit(name, (value,), {})


def _one(args: tuple[Any, ...], kwargs: dict[str, Any], keyword: str) -> Any:
    if keyword in kwargs:
        args = (*args, kwargs.pop(keyword))
    if len(args) != 1:
        raise TypeError(f"takes one value, got {len(args)}")
    return args[0]


def _no_more(kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise TypeError(f"unknown argument {', '.join(map(repr, kwargs))}")


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{value!r} is not a whole number")
    if value < 0:
        raise ValueError(f"{value!r} is negative; a limit is zero or more")
    whole = int(value)
    if whole >= 2**63:
        raise ValueError("the number is too large to count to")
    return whole


def _time(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    given = [unit for unit in ("us", "ms") if unit in kwargs]
    if len(given) + len(args) != 1:
        raise TypeError(f"takes one time, got {len(given) + len(args)}")
    if given:
        value = kwargs.pop(given[0])
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{given[0]}={value!r} is not a number")
        if not 0 <= float(value) < float("inf"):
            raise ValueError(f"{given[0]}={value!r} is not a finite time of zero or more")
        return float(value) * (1000.0 if given[0] == "ms" else 1.0)
    if not isinstance(args[0], str):
        raise TypeError(f"{args[0]!r} has no unit; write a string with one, or us= or ms=")
    return parse_time(args[0])


def _counted(
    name: str, metric: str, *, memory: bool = False, on_cpu: bool = False
) -> Callable[..., Limit]:
    def make(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Limit:
        bound = _whole(_one(args, kwargs, "n"))
        _no_more(kwargs)
        return Limit(name, metric=metric, bound=bound, memory=memory, on_cpu=on_cpu)

    return make


def _kernels(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Limit:
    match = kwargs.pop("match", None)
    patterns = () if match is None else (_pattern(match),)
    bound = _whole(_one(args, kwargs, "n"))
    _no_more(kwargs)
    return Limit("max_kernels", match or "", "kernels", bound, patterns=patterns, on_cpu=True)


def _timed(
    name: str,
    metric: str,
    *,
    host_time: bool = False,
    device_time: bool = False,
    on_cpu: bool = False,
) -> Callable[..., Limit]:
    def make(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Limit:
        bound = _time(args, kwargs)
        _no_more(kwargs)
        return Limit(
            name,
            metric=metric,
            bound=bound,
            on_cpu=on_cpu,
            host_time=host_time,
            device_time=device_time,
        )

    return make


def _launch_overhead(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Limit:
    relative = len(args) == 1 and isinstance(args[0], str) and args[0].strip().endswith("%")
    if relative:
        _no_more(kwargs)
        bound = parse_percent(args[0])
    else:
        bound = _time(args, kwargs)
        _no_more(kwargs)
    return Limit(
        "max_launch_overhead", "", "launch_overhead", bound, relative,
        host_time=True, device_time=True,
    )  # fmt: skip


def _memcpys(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Limit:
    direction = _direction(kwargs)
    bound = _whole(_one(args, kwargs, "n"))
    _no_more(kwargs)
    return Limit("max_memcpys", direction, _directed("memcpys", direction), bound)


def _memcpy_bytes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Limit:
    direction = _direction(kwargs)
    bound = _size(_one(args, kwargs, "size"))
    _no_more(kwargs)
    return Limit("max_memcpy_bytes", direction, _directed("memcpy_bytes", direction), bound)


def _peak_memory(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Limit:
    bound = _size(_one(args, kwargs, "size"))
    _no_more(kwargs)
    return Limit("max_peak_memory", "", "peak_memory", bound, memory=True)


def _size(value: Any) -> int:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} has no unit; write a string with one")
    return parse_bytes(value)


def _direction(kwargs: dict[str, Any]) -> str:
    direction = kwargs.pop("direction", None)
    if direction is None:
        return ""
    if direction not in _DIRECTIONS:
        raise ValueError(f"direction={direction!r} is none of {', '.join(_DIRECTIONS)}")
    return str(direction)


def _directed(metric: str, direction: str) -> str:
    return f"{metric}_{direction}" if direction else metric


def _pattern(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is not a pattern; write a regular expression as a string")
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression ({error})") from error
    return value


def _expect(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Limit:
    _no_more(kwargs)
    patterns = tuple(None if value is ... else _pattern(value) for value in args)
    return Limit("expect_kernels", patterns=patterns, on_cpu=True)


def _forbid(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Limit:
    _no_more(kwargs)
    if not args:
        raise TypeError("takes at least one pattern")
    patterns = tuple(_pattern(value) for value in args)
    return Limit("forbid_kernels", "|".join(patterns), patterns=patterns, on_cpu=True)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "max_kernels",
            'max_kernels(3) or max_kernels(0, match="elementwise")',
            "at most n kernels a call (only those that match a regular expression)",
            _kernels,
        ),
        Kind(
            "max_launches",
            "max_launches(3)",
            "at most n launch calls of the host; a CUDA graph is one",
            _counted("max_launches", "launches"),
        ),
        Kind(
            "max_cuda_time",
            'max_cuda_time("200us"), max_cuda_time(us=200) or max_cuda_time(ms=0.2)',
            "at most this sum of the kernels' durations",
            _timed("max_cuda_time", "cuda_time", device_time=True),
        ),
        Kind(
            "max_launch_overhead",
            'max_launch_overhead("40us"), max_launch_overhead(us=40) or max_launch_overhead("30%")',
            "at most this time of a call in which the device has nothing to do",
            _launch_overhead,
        ),
        Kind(
            "max_latency",
            'max_latency("300us"), max_latency(us=300) or max_latency(ms=0.3)',
            "at most this time until the device is done",
            _timed("max_latency", "latency", host_time=True, on_cpu=True),
        ),
        Kind(
            "max_memcpys",
            'max_memcpys(0) or max_memcpys(0, direction="d2h"), with h2d, d2h, d2d or p2p',
            "at most n memory copies (of one direction)",
            _memcpys,
        ),
        Kind(
            "max_memcpy_bytes",
            'max_memcpy_bytes("1 MB") or max_memcpy_bytes("1 MB", direction="h2d")',
            "at most this many bytes copied (in one direction)",
            _memcpy_bytes,
        ),
        Kind(
            "max_syncs",
            "max_syncs(0)",
            "at most n waits of the host for the device",
            _counted("max_syncs", "syncs"),
        ),
        Kind(
            "max_peak_memory",
            'max_peak_memory("64 MB")',
            "at most this peak of requested bytes above the call's start",
            _peak_memory,
        ),
        Kind(
            "max_allocations",
            "max_allocations(0)",
            "at most n device allocations and frees of the caching allocator",
            _counted("max_allocations", "allocations", memory=True),
        ),
        Kind(
            "max_recompiles",
            "max_recompiles(0)",
            "at most n compilations of torch.compile in the measured calls",
            _counted("max_recompiles", "recompiles", on_cpu=True),
        ),
        Kind(
            "expect_kernels",
            'expect_kernels("mm", "gelu", ..., "mm"), where ... is any run of kernels',
            "exactly these kernels in launch order, one pattern each",
            _expect,
        ),
        Kind(
            "forbid_kernels",
            'forbid_kernels("elementwise")',
            "no kernel that matches any of the patterns",
            _forbid,
        ),
    )
}
