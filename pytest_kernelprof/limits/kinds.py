"""Every limit: a function whose signature is its form, and one table of them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.records.metrics import DIRECTIONS, METRICS, OF_WORST_KERNEL, Rated
from pytest_kernelprof.units import parse_bytes, parse_percent, parse_rate, parse_time, parse_times

COMPARISONS = ("min_speedup", "not_slower")
"""The limits on two callables, not on a profile."""
COMPARED = ("cuda_time", "latency", "peak_memory")
"""The metrics that two callables can be compared by."""

_CLOSE = 0.6
_UNSET: Any = object()

Key = tuple[str | int, ...]


class Limit(NamedTuple):
    """One promise about a profile or, of those that compare, about two callables.

    Attributes:
        name: the marker's name.
        qualifier: what distinguishes it from others of its name, as it was written: ``match``,
            ``direction``, forbidden patterns, the speedup; empty otherwise.
        metric: the metric that is judged; empty for limits on kernel names, and for comparisons
            by the device's usual one.
        bound: the largest value allowed, in the metric's unit; of a "rate" the smallest; a fraction
            if ``relative``. For ``min_speedup`` the smallest speedup, for ``not_slower`` the
            fraction by which the callable may be slower.
        relative: whether ``bound`` is a fraction of the metric that ``SHARE_OF`` names.
        patterns: the patterns that kernels match; None stands for ``...``.
        allow: files or source lines whose waits, copies or kernels do not count.
        reference: in comparisons, the other callable. check: compares their results.
    """

    name: str
    qualifier: str = ""
    metric: str = ""
    bound: float = 0.0
    relative: bool = False
    patterns: tuple[str | None, ...] = ()
    allow: tuple[str, ...] = ()
    reference: Callable[..., Any] | None = None
    check: Any = "close"

    @property
    def key(self) -> Key:
        """The identity of the limit: an inner level replaces an outer limit of equal key."""
        if self.compares:
            return (self.name, id(self.reference), self.metric)
        return (self.name, self.qualifier)

    @property
    def compares(self) -> bool:
        """Whether it compares two callables."""
        return self.name in COMPARISONS

    @property
    def on_cpu(self) -> bool:
        """Whether it can be judged on the CPU."""
        return not self.metric or "cpu" in METRICS[self.metric].devices

    @property
    def sources(self) -> tuple[str, ...]:
        """What a profile has to take for it, as of ``MetricSpec``; nothing if it compares."""
        return METRICS[self.metric].sources if self.metric and not self.compares else ()

    @property
    def of_kernels(self) -> bool:
        """Whether it is judged by the kernels themselves, not by numbers of the call."""
        return bool(self.patterns) or not self.metric or self.metric in OF_WORST_KERNEL

    @property
    def device_time(self) -> bool:
        """Whether a profile needs enough profiled rounds for an interval."""
        return "profiled" in self.sources and METRICS[self.metric].kind in ("timed", "rate")


class Kind(NamedTuple):
    """A kind of limit: how it is written, and how its arguments become a ``Limit``.

    Attributes:
        form: the correct forms, as errors show them.
        help: what the limit means, for ``pytest --markers``.
        make: the function whose signature is the limit's.
    """

    name: str
    form: str
    help: str
    make: Callable[..., Limit]

    @property
    def example(self) -> str:
        """The first of the forms."""
        return re.split(r" or |, where |, max_", self.form, maxsplit=1)[0]

    @property
    def flag(self) -> str:
        """The option of a command for it."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def words(self) -> str:
        """The forms of that option."""
        written = rf"{self.name}\(([^)]*)\)"
        return re.sub(written, lambda one: f"{self.flag} {one[1].replace(',', '')}", self.form)


def parse_limit(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Limit:
    """Return the limit of a marker or keyword.

    Raises:
        MarkerError: the arguments do not fit the limit's form; the message shows it.
    """
    kind = KINDS[name]
    try:
        return _made(kind.make, args, kwargs)
    except (ValueError, TypeError, OverflowError) as error:
        raise MarkerError(f"{name}: {error}. Write {kind.form}") from error


def parse_keyword(name: str, value: Any) -> Limit:
    """Return the limit of a keyword, as ``max_kernels=3`` or
    ``max_memcpys={"n": 0, "direction": "d2h"}``.

    A list or tuple gives several positional arguments, a dict keyword arguments.

    Raises:
        MarkerError: there is no such limit, it compares, or its value is wrong.
    """
    if name in COMPARISONS:
        raise MarkerError(
            f"{name} compares two callables and is not a limit of one profile: use the marker "
            f"{KINDS[name].example}, or kernel_profile.compare(f, g, *args).{name}(...)"
        )
    if name not in KINDS:
        raise MarkerError(_unknown(name))
    if isinstance(value, Mapping):
        return parse_limit(name, (), value)
    return parse_limit(name, value if isinstance(value, (list, tuple)) else (value,), {})


_NUMBERS = {"n": int, "us": float, "ms": float}
"""The parameters that take a number; the others take text."""


def parse_words(kind: Kind, words: Sequence[str]) -> Limit:
    """Return the limit of an option's words, as ``0 direction=d2h`` or ``mm ... gelu``.

    Raises:
        MarkerError: the words do not fit the limit's form; the message shows it.
    """
    parameters = _signature(kind.make).parameters
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    try:
        for word in words:
            name, equals, value = word.partition("=")
            one = parameters.get(name)
            if equals and one is not None and one.kind is one.KEYWORD_ONLY:
                if name in kwargs:
                    raise ValueError(f"{name}= is given twice")
                kwargs[name] = _value(name, value)
            else:
                args.append(_value(next(iter(parameters)), word))
        return _made(kind.make, args, kwargs)
    except (ValueError, TypeError, OverflowError) as error:
        raise MarkerError(f"{kind.flag}: {error}. Write {kind.words}") from error


def _value(parameter: str, word: str) -> Any:
    """The value of a word; text where it is no number, which the limit then refuses."""
    try:
        return ... if word == "..." else _NUMBERS[parameter](word)
    except (KeyError, ValueError):
        return word


def parse_assertion(name: str, value: Any) -> Limit:
    """Return the limit of ``comparison.min_speedup(1.5)`` or ``.not_slower(by="2%")``; the
    reference is that of the comparison.

    Raises:
        MarkerError: the value is no number above zero, or no percentage.
    """
    try:
        return _speedup(parse_times(value)) if name == "min_speedup" else _slack(value)
    except (ValueError, TypeError) as error:
        form = "min_speedup(1.5)" if name == "min_speedup" else 'not_slower(by="2%")'
        raise MarkerError(f"{name}: {error}. Write {form}") from error


def parse_work(flops: Any, moved: Any) -> dict[Rated, int]:
    """Return the work that ``kernel_profile.work(flops=..., bytes=...)`` says.

    Raises:
        MarkerError: it says nothing, or no number from 1 to 10**18.
    """
    said: dict[Rated, Any] = {"throughput": flops, "bandwidth": moved}
    with contextlib.suppress(ValueError):
        found = {one: round(parse_times(n)) for one, n in said.items() if n is not None}
        if found and all(1 <= one <= 10**18 for one in found.values()):
            return found
    given = f"flops={reprlib.repr(flops)}, bytes={reprlib.repr(moved)}"
    form = "from 1 to 1e18 for one or both. Write kernel_profile.work(flops=2 * m * n * k)"
    raise MarkerError(f"kernel_profile.work: {given}: expected a number {form}")


def _unknown(name: str) -> str:
    import difflib  # most runs have no such limit

    names = [known for known in KINDS if known not in COMPARISONS]
    near = difflib.get_close_matches(name, names, n=1, cutoff=_CLOSE)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"unknown limit {name!r}{meant}; the limits are: {', '.join(names)}"


_signature = functools.cache(inspect.signature)


def _made(make: Callable[..., Limit], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Limit:
    """Call the function with the arguments; raise a TypeError in our words if they do not fit."""
    kinds = {name: one.kind for name, one in _signature(make).parameters.items()}
    various = [name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_POSITIONAL]
    if unknown := [name for name in kwargs if name not in kinds or name in various]:
        raise TypeError(f"unknown argument {', '.join(map(repr, unknown))}")
    try:
        _signature(make).bind(*args, **kwargs)
    except TypeError:
        plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
        one = next((name for name, kind in kinds.items() if kind is plain), "")
        raise TypeError(_how_many(one, len(args) + (one in kwargs))) from None
    return make(*args, **kwargs)


def _how_many(parameter: str, given: int) -> str:
    """Say what is wrong with this number of values for the one positional parameter."""
    if not parameter:
        return "takes keyword arguments only"
    words = {"time": "takes one time", "times": "expected one number above zero"}
    return f"{words.get(parameter, 'takes one value')}, got {given or 'none'}"


# The limits. They check their arguments, whatever the type.


def max_kernels(n: Any, *, match: Any = None, allow: Any = ()) -> Limit:
    """At most this many kernels a call; match="copy" counts only those whose name or operator
    matches this regular expression (case ignored)."""
    return _matched("max_kernels", "kernels", _whole(n), match, allow)


def max_launches(n: Any) -> Limit:
    """At most this many launches by the host; a CUDA graph is one."""
    return Limit("max_launches", "", "launches", _whole(n))


def max_cuda_time(time: Any = _UNSET, *, us: Any = _UNSET, ms: Any = _UNSET) -> Limit:
    """At most this GPU time of a call, without communication (median of the rounds)."""
    return Limit("max_cuda_time", "", "cuda_time", _time(time, us, ms))


def max_launch_overhead(time: Any = _UNSET, *, us: Any = _UNSET, ms: Any = _UNSET) -> Limit:
    """At most this time of a call in which the GPU is idle."""
    bound, share = _time_or_share(time, us, ms)
    return Limit("max_launch_overhead", "", "launch_overhead", bound, relative=share)


def max_exposed_comm(time: Any = _UNSET, *, us: Any = _UNSET, ms: Any = _UNSET) -> Limit:
    """At most this communication time that no computation hides."""
    bound, share = _time_or_share(time, us, ms)
    return Limit("max_exposed_comm", "", "exposed_comm_time", bound, relative=share)


def max_latency(time: Any = _UNSET, *, us: Any = _UNSET, ms: Any = _UNSET) -> Limit:
    """At most this time from the call until the GPU is done (median of the rounds)."""
    return Limit("max_latency", "", "latency", _time(time, us, ms))


def min_throughput(rate: Any) -> Limit:
    """At least this work a second of GPU time, or this share of the GPU's peak for its types."""
    return _floor("min_throughput", "throughput", rate)


def min_bandwidth(rate: Any) -> Limit:
    """At least these bytes a second of GPU time, or this share of the peak of the GPU's memory."""
    return _floor("min_bandwidth", "bandwidth", rate)


def max_memcpys(n: Any, *, direction: Any = None, allow: Any = ()) -> Limit:
    """At most this many memory copies; direction="h2d" (d2h, d2d, p2p) counts only those."""
    way = _one_of("direction", direction, DIRECTIONS)
    return Limit("max_memcpys", way, _directed("memcpys", way), _whole(n), allow=_places(allow))


def max_memcpy_bytes(size: Any, *, direction: Any = None, allow: Any = ()) -> Limit:
    """At most this many bytes copied; direction="h2d" (d2h, d2d, p2p) counts only those."""
    way = _one_of("direction", direction, DIRECTIONS)
    metric = _directed("memcpy_bytes", way)
    return Limit("max_memcpy_bytes", way, metric, _size(size), allow=_places(allow))


def max_syncs(n: Any, *, allow: Any = ()) -> Limit:
    """At most this many waits of the host for the GPU; allow="logger.py" (or "logger.py:12") does
    not count those of this file or line, likewise for copies and max_kernels."""
    return Limit("max_syncs", "", "syncs", _whole(n), allow=_places(allow))


def max_peak_memory(size: Any) -> Limit:
    """At most this peak of memory above what was there before the call."""
    return Limit("max_peak_memory", "", "peak_memory", _size(size))


def max_allocations(n: Any) -> Limit:
    """At most this many cudaMalloc and cudaFree calls by PyTorch's caching allocator."""
    return Limit("max_allocations", "", "allocations", _whole(n))


def max_recompiles(n: Any) -> Limit:
    """At most this many compilations by torch.compile during the measured calls."""
    return Limit("max_recompiles", "", "recompiles", _whole(n))


def max_registers(n: Any, *, match: Any = None) -> Limit:
    """At most this many registers a thread in each kernel (that matches)."""
    return _matched("max_registers", "registers", _whole(n), match)


def max_shared_memory(size: Any, *, match: Any = None) -> Limit:
    """At most this much shared memory a block in each kernel (that matches)."""
    return _matched("max_shared_memory", "shared_memory", _size(size), match)


def max_spills(n: Any, *, match: Any = None) -> Limit:
    """At most this many spilled bytes a thread in each Triton kernel (that matches)."""
    return _matched("max_spills", "spills", _whole(n), match)


def max_jit_compiles(n: Any) -> Limit:
    """At most this many new specialisations of @triton.jit functions during the measured calls,
    also if they are read from the disk."""
    return Limit("max_jit_compiles", "", "jit_compiles", _whole(n))


def max_autotunes(n: Any) -> Limit:
    """At most this many runs of an autotuner (Triton's, Inductor's) during the measured calls."""
    return Limit("max_autotunes", "", "autotunes", _whole(n))


def max_graph_breaks(n: Any) -> Limit:
    """At most this many graph breaks of torch.compile in the code that the call runs."""
    return Limit("max_graph_breaks", "", "graph_breaks", _whole(n))


def expect_kernels(*patterns: Any) -> Limit:
    """Exactly these kernels in launch order, a regular expression each; ... matches any kernels."""
    wanted = tuple(None if one is ... else _pattern(one) for one in patterns)
    return Limit("expect_kernels", patterns=wanted)


def forbid_kernels(*patterns: Any) -> Limit:
    """No kernel whose name or operators match one of these regular expressions (case ignored)."""
    if not patterns:
        raise TypeError("takes at least one pattern")
    forbidden = tuple(_pattern(one) for one in patterns)
    return Limit("forbid_kernels", "|".join(forbidden), patterns=forbidden)


def min_speedup(times: Any, *, over: Any = None, metric: Any = None, check: Any = "close") -> Limit:
    """At least this many times as fast as another callable on the same arguments."""
    by = _one_of("metric", metric, COMPARED)
    return _speedup(parse_times(times), by, _callable("over", over))._replace(check=checked(check))


def not_slower(
    *, than: Any = None, by: Any = "2%", metric: Any = None, check: Any = "close"
) -> Limit:
    """At most this much slower than another callable on the same arguments (default: by="2%")."""
    limit = _slack(by, _one_of("metric", metric, COMPARED), _callable("than", than))
    return limit._replace(check=checked(check))


# Checks of their arguments.


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{value!r} is not a whole number")
    if value < 0:
        raise ValueError(f"{value!r} is negative; a limit is zero or more")
    whole = int(value)
    if whole >= 2**63:
        raise ValueError("the number is too large")
    return whole


def _time(time: Any, us: Any, ms: Any) -> float:
    given = [value for value in (time, us, ms) if value is not _UNSET]
    if len(given) != 1:
        raise TypeError(_how_many("time", len(given)))
    if us is not _UNSET:
        return _number("us", us)
    if ms is not _UNSET:
        return _number("ms", ms) * 1000.0
    if not isinstance(time, str):
        raise TypeError(f"{time!r} has no unit; write a string with one, or us= or ms=")
    return parse_time(time)


def _time_or_share(time: Any, us: Any, ms: Any) -> tuple[float, bool]:
    """Return a time in microseconds or a fraction, and whether it is a fraction."""
    if isinstance(time, str) and time.strip().endswith("%") and us is ms is _UNSET:
        return parse_percent(time), True
    return _time(time, us, ms), False


def _floor(name: str, metric: Rated, rate: Any) -> Limit:
    unit = METRICS[metric].unit
    if not isinstance(rate, str):
        raise TypeError(f"{rate!r} has no unit; write a string with one")
    return Limit(name, "", metric, parse_rate(rate, unit), relative=rate.strip().endswith("%"))


def _number(unit: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{unit}={value!r} is not a number")
    if not 0 <= float(value) < float("inf"):
        raise ValueError(f"{unit}={value!r} is not a finite time of zero or more")
    return float(value)


def _size(value: Any) -> int:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} has no unit; write a string with one")
    return parse_bytes(value)


def _one_of(keyword: str, value: Any, choices: Sequence[str]) -> str:
    """One of the choices; empty where nothing is given."""
    if value is None:
        return ""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{keyword}={value!r} is not one of {', '.join(choices)}")
    return str.__str__(value)


def _directed(metric: str, direction: str) -> str:
    return f"{metric}_{direction}" if direction else metric


def _matched(name: str, metric: str, bound: float, match: Any, allow: Any = ()) -> Limit:
    """A limit on all kernels, or on those that match a pattern."""
    patterns = () if match is None else (_pattern(match),)
    return Limit(name, "".join(patterns), metric, bound, False, patterns, _places(allow))


def _pattern(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is not a pattern; write a regular expression as a string")
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression ({error})") from error
    return value


def _places(value: Any) -> tuple[str, ...]:
    """Files or their lines, one or several."""
    found = (value,) if isinstance(value, str) else value
    is_list = isinstance(found, (tuple, list))
    if not is_list or not all(isinstance(one, str) and one.split(":")[0] for one in found):
        raise TypeError(
            f'allow={reprlib.repr(value)} is no file: expected one as "logger.py", a line of it as '
            '"logger.py:12", or a list of them'
        )
    return tuple(one.replace("\\", "/") for one in found)


def _speedup(times: float, metric: str = "", reference: Callable[..., Any] | None = None) -> Limit:
    return Limit("min_speedup", f"{times:g}", metric, times, reference=reference)


def _slack(by: Any, metric: str = "", reference: Callable[..., Any] | None = None) -> Limit:
    if not isinstance(by, str):
        raise TypeError(f"by={by!r} has no unit")
    try:
        slack = parse_percent(by)
    except ValueError as error:
        raise ValueError(f"by: {error}") from error
    return Limit("not_slower", f'by="{by}"', metric, slack, reference=reference)


def _callable(keyword: str, value: Any) -> Callable[..., Any]:
    if not callable(value):
        raise TypeError(f"{keyword}={value!r} is not callable")
    return value  # type: ignore[no-any-return]


def checked(check: Any) -> Any:
    """Return the function that compares results, if it is one, "close" or None.

    Raises:
        TypeError: it is something else.
    """
    if check is None or callable(check) or (isinstance(check, str) and check == "close"):
        return check
    raise TypeError(
        f"check={reprlib.repr(check)}: expected a function check(result, reference_result), None, "
        'or "close"'
    )


_FORMS: dict[Callable[..., Limit], str] = {
    max_kernels: 'max_kernels(3) or max_kernels(0, match="elementwise")',
    max_launches: "max_launches(3)",
    max_cuda_time: 'max_cuda_time("200us"), max_cuda_time(us=200) or max_cuda_time(ms=0.2)',
    max_launch_overhead: (
        'max_launch_overhead("40us"), max_launch_overhead(us=40) or max_launch_overhead("30%")'
    ),
    max_exposed_comm: (
        'max_exposed_comm("50us"), max_exposed_comm(us=50) or max_exposed_comm("10%")'
    ),
    min_throughput: 'min_throughput("600 TFLOP/s") or min_throughput("80%")',
    min_bandwidth: 'min_bandwidth("3 TB/s") or min_bandwidth("80%")',
    max_latency: 'max_latency("300us"), max_latency(us=300) or max_latency(ms=0.3)',
    max_memcpys: 'max_memcpys(0) or max_memcpys(0, direction="d2h"), with h2d, d2h, d2d or p2p',
    max_memcpy_bytes: 'max_memcpy_bytes("1 MB") or max_memcpy_bytes("1 MB", direction="h2d")',
    max_syncs: 'max_syncs(0) or max_syncs(0, allow="logger.py")',
    max_peak_memory: 'max_peak_memory("64 MB")',
    max_allocations: "max_allocations(0)",
    max_recompiles: "max_recompiles(0)",
    max_registers: 'max_registers(128) or max_registers(128, match="gemm")',
    max_shared_memory: 'max_shared_memory("100 KB") or max_shared_memory("1 KB", match="gemm")',
    max_spills: 'max_spills(0, match="gemm") or max_spills(0)',
    max_jit_compiles: "max_jit_compiles(0)",
    max_autotunes: "max_autotunes(0)",
    max_graph_breaks: "max_graph_breaks(0)",
    expect_kernels: 'expect_kernels("mm", "gelu", ..., "mm"), where ... is any run of kernels',
    forbid_kernels: 'forbid_kernels("elementwise")',
    min_speedup: 'min_speedup(1.5, over=eager) or min_speedup(1.5, over=eager, metric="latency")',
    not_slower: 'not_slower(than=eager) or not_slower(than=eager, by="5%", metric="latency")',
}


def _kind(make: Callable[..., Limit], form: str) -> Kind:
    # No docstrings are left under python -OO.
    said = " ".join((make.__doc__ or "").split()).rstrip(".")
    return Kind(make.__name__, form, said[:1].lower() + said[1:], make)


KINDS: dict[str, Kind] = {kind.name: kind for kind in map(_kind, _FORMS, _FORMS.values())}
JUDGED = tuple(kind for kind in KINDS.values() if kind.name not in COMPARISONS)
"""Those of one profile."""
