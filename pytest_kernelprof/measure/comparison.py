"""What ``kernel_profile.compare`` hands out: how many times as fast, and how sure."""

from __future__ import annotations

import contextlib
import functools
import reprlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_kernelprof.device.conditions import quiet
from pytest_kernelprof.errors import LimitExceeded, MarkerError
from pytest_kernelprof.measure.clocks import CLOCKS, Clock
from pytest_kernelprof.measure.policy import next_rounds
from pytest_kernelprof.measure.progress import Progress, silently
from pytest_kernelprof.measure.taking import preparer, warm_profile
from pytest_kernelprof.measure.turns import Turns
from pytest_kernelprof.report.tables import Column, render
from pytest_kernelprof.stats.confidence import FEWEST_FOR_BLOCKS, median_interval
from pytest_kernelprof.stats.ratio import Ratio, ratio
from pytest_kernelprof.units import format_bytes, format_time, parse_percent, parse_times

if TYPE_CHECKING:
    from pytest_kernelprof.analysis.profile import Profile
    from pytest_kernelprof.device.inventory import DeviceKind

_WORDS = {"cuda_time": "GPU time", "latency": "latency", "peak_memory": "peak memory"}
_NO_TRUTH = (
    "a comparison is neither true nor false: assert what it is to keep, as in "
    'compare(f, g, x).min_speedup(1.5) or .not_slower(by="2%")'
)
_FEWEST_BYTES = 1.0
"""What a call without allocations is taken for: nothing has no ratio to anything."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One of the callables: its values, one a round, and the profile of its warmed-up call.

    Attributes:
        value: median, in microseconds or bytes. low, high: its interval at 99 %, or None.
        rounds: the values, in the order in which they were taken.
    """

    name: str
    rounds: tuple[float, ...]
    profile: Profile
    value: float
    low: float | None
    high: float | None


class Rounds:
    """The rounds of all callables of a comparison, and the way to more of them."""

    def __init__(
        self,
        turns: Turns,
        clock: Clock,
        profiles: Mapping[str, Profile],
        in_place: Sequence[str] = (),
    ) -> None:
        self.clock = clock
        self.in_place = tuple(in_place)
        self._turns = turns
        self._profiles = profiles
        self._series: dict[str, list[float]] = {name: [] for name in profiles}

    def take(self, turns: int) -> None:
        """Take more rounds of each."""
        for name, values in self._turns.take(turns).items():
            self._series[name] += values

    def take_until_sure(self, reference: str) -> None:
        """Take more rounds while neighbours are so alike that a ratio has no interval yet."""
        others = [name for name in self._series if name != reference]
        while self.taken >= FEWEST_FOR_BLOCKS and any(
            self.ratio(name, reference).low is None for name in others
        ):
            self.take(next_rounds(self.taken))

    @property
    def taken(self) -> int:
        """Rounds of each, so far."""
        return len(next(iter(self._series.values())))

    def contender(self, name: str) -> Contender:
        """One callable's values so far."""
        values = self._series[name]
        interval = median_interval(values)
        low, high = (interval.low, interval.high) if interval else (None, None)
        return Contender(
            name, tuple(values), self._profiles[name], statistics.median(values), low, high
        )

    def ratio(self, candidate: str, reference: str) -> Ratio:
        """The reference over the candidate, pair by pair."""
        one, other = self._series[candidate], self._series[reference]
        if self.clock == "peak_memory":
            one = [max(value, _FEWEST_BYTES) for value in one]
            other = [max(value, _FEWEST_BYTES) for value in other]
        found = ratio(one, other)
        if found is None:
            raise MarkerError(
                f"{candidate} cannot be compared with {reference}: a round took no {self.words} "
                'at all; compare metric="latency"'
            )
        return found

    def unstable(self) -> list[str]:
        """What to know of callables that launch another number of kernels now and then."""
        seen = {
            name: {*profile.metrics["kernels"].rounds, *self._turns.kernels.get(name, ())}
            for name, profile in self._profiles.items()
        }
        return [
            f"UNSTABLE: {name} launched {min(counts):.0f} to {max(counts):.0f} kernels a call"
            for name, counts in seen.items()
            if len(counts) > 1
        ]

    @property
    def doubt(self) -> str:
        """Why no verdict can stand on these rounds; empty where one can."""
        return "; ".join(sorted(self._turns.doubts))

    @property
    def words(self) -> str:
        """The metric, as a person says it."""
        return _WORDS[self.clock]


class Comparison:
    """A candidate and a reference, measured in turn in one run.

    Attributes are those of the rounds so far; an assertion that is not decided takes more.
    """

    def __init__(
        self, rounds: Rounds, candidate: str, reference: str, undecided: Callable[[str], None]
    ) -> None:
        self._rounds = rounds
        self._candidate = candidate
        self._reference = reference
        self._undecided = undecided
        self._asserted = False

    def __bool__(self) -> bool:
        if not self._asserted:
            raise TypeError(_NO_TRUTH)
        return True

    @property
    def speedup(self) -> float:
        """The reference's time over the candidate's: 2.0 is twice as fast. Of pairs of rounds, the
        median; of ``peak_memory``, the reference's bytes over the candidate's."""
        return self._ratio.median

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 99 % interval of the speedup; None with fewer than 8 pairs."""
        low, high = self._ratio.low, self._ratio.high
        return None if low is None or high is None else (low, high)

    @property
    def pairs(self) -> int:
        """How many pairs of rounds there are."""
        return self._rounds.taken

    @property
    def candidate(self) -> Contender:
        """The candidate's values and profile."""
        return self._rounds.contender(self._candidate)

    @property
    def reference(self) -> Contender:
        """The reference's values and profile."""
        return self._rounds.contender(self._reference)

    def min_speedup(self, times: float) -> Comparison:
        """Assert that the candidate is at least so many times as fast as the reference.

        Rounds are added, up to 96 pairs, while the interval holds ``times``; what is undecided
        then warns, fails or passes by ``--kernelprof-undecided``.

        Raises:
            LimitExceeded: the interval of the speedup lies below ``times``.
            MarkerError: ``times`` is no number above zero.
        """
        __tracebackhide__ = True
        try:
            least = parse_times(times)
        except ValueError as error:
            raise MarkerError(f"min_speedup({times!r}): {error}, as in min_speedup(1.5)") from error
        self._assert(least, f"min_speedup({least:g})")
        return self

    def not_slower(self, by: str = "2%") -> Comparison:
        """Assert that the candidate takes at most so much longer than the reference.

        Raises:
            LimitExceeded: the interval of the slowdown lies above ``by``.
            MarkerError: ``by`` is no percentage.
        """
        __tracebackhide__ = True
        try:
            if not isinstance(by, str):
                raise TypeError(f"{by!r} has no unit")
            slack = parse_percent(by)
        except (TypeError, ValueError) as error:
            raise MarkerError(f'not_slower: {error}. The form is: not_slower(by="2%")') from error
        self._assert(1 / (1 + slack), f'not_slower(by="{by}")')
        return self

    def __str__(self) -> str:
        return f"{self._headline()}\n{self.table()}"

    __repr__ = __str__

    def table(self, width: int = 98) -> str:
        """Both as a text table."""
        return table(self._rounds, [self._candidate, self._reference], self._reference, width)

    @property
    def _ratio(self) -> Ratio:
        return self._rounds.ratio(self._candidate, self._reference)

    def _assert(self, least: float, what: str) -> None:
        __tracebackhide__ = True
        self._asserted = True
        while True:
            found = self._ratio
            low, high = found.low, found.high
            decided = low is not None and high is not None and (low >= least or high < least)
            more = next_rounds(self.pairs)
            if decided or self._rounds.doubt or not more:
                break
            self._rounds.take(more)
        if self._rounds.doubt:
            self._undecided(f"{what}: INCONCLUSIVE, {self._rounds.doubt}; {self._headline()}")
            return
        if low is not None and low >= least:
            return
        if high is not None and high < least:
            raise LimitExceeded(f"{what}: {self}", pytrace=False)
        self._undecided(f"{what}: INCONCLUSIVE, {self._headline()}")

    def _headline(self) -> str:
        found, words = self._ratio, self._rounds.words
        sure = "too few pairs for an interval"
        if found.low is not None and found.high is not None:
            sure = f"99 % CI {found.low:.3f}..{found.high:.3f}"
        blocks = f" in blocks of {found.block}" if found.block > 1 else ""
        unstable = "".join(f"; {note}" for note in self._rounds.unstable())
        return (
            f"{self._candidate} over {self._reference}, {words}: {found.median:.3f} times as good "
            f"({sure}, {found.pairs} pairs{blocks}{unstable})"
        )


def contend(
    callables: Mapping[str, Callable[..., Any]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    reference: str,
    device: DeviceKind,
    clock: Clock,
    pairs: int,
    setup: Callable[[], Any] | None,
    flush_l2: bool,
    lock_timeout_s: float,
    who: str,
    measuring: Callable[[], contextlib.AbstractContextManager[Progress]] = silently,
) -> Rounds:
    """Warm up and profile each callable, then take so many rounds of each in turn; more where
    twelve or more still give no interval of how each compares with the ``reference``.

    Raises:
        IncompleteProfile: the profiler is not available, or a profile stayed incomplete, or (its
            kind GpuBusy) another process kept the GPU's lock.
        MarkerError: there is no ratio, since a round took none of what is compared.
    """
    from pytest_kernelprof.capture.mutation import changed, versions
    from pytest_kernelprof.capture.session import refuse_to_nest
    from pytest_kernelprof.device.inventory import current_device

    on = current_device(device)
    refuse_to_nest()
    prepares = {name: preparer(fn, args, kwargs, setup) for name, fn in callables.items()}
    before = versions(args, kwargs)
    profiles = {name: warm_profile(on, prepare, name) for name, prepare in prepares.items()}
    in_place = changed(before, versions(args, kwargs)) if setup is None else []
    alone = functools.partial(quiet, on, lock_timeout_s, who)
    rounds = Rounds(
        Turns(on, clock, prepares, flush_l2, alone, measuring), clock, profiles, in_place
    )
    rounds.take(pairs)
    rounds.take_until_sure(reference)
    return rounds


class Comparisons(Mapping[str, Comparison]):
    """Several candidates and one reference, measured in turn, by the candidate's name."""

    def __init__(
        self, rounds: Rounds, names: list[str], reference: str, undecided: Callable[[str], None]
    ) -> None:
        self._rounds = rounds
        self._names = names
        self._reference = reference
        self._found = {
            name: Comparison(rounds, name, reference, undecided)
            for name in names
            if name != reference
        }

    def __getitem__(self, name: str) -> Comparison:
        return self._found[name]

    def __bool__(self) -> bool:
        raise TypeError(_NO_TRUTH)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __str__(self) -> str:
        return self.table()

    __repr__ = __str__

    def table(self, width: int = 98) -> str:
        """All of them as a text table, the reference included."""
        return table(self._rounds, self._names, self._reference, width)


def table(rounds: Rounds, names: list[str], reference: str, width: int) -> str:
    """One line a callable: kernels, value with its spread, speedup with its interval."""
    columns = (
        Column("callable", shrinks=True),
        Column("kernels", number=True),
        Column(rounds.words, number=True),
        Column("speedup", number=True),
        Column("99 % CI", number=True),
    )
    lines = render(columns, [_cells(rounds, name, reference) for name in names], width)
    return "\n".join([*lines, *rounds.unstable()])


def _cells(rounds: Rounds, name: str, reference: str) -> list[str]:
    one = rounds.contender(name)
    shown = format_bytes if rounds.clock == "peak_memory" else format_time
    value = shown(one.value)
    if one.low is not None and one.high is not None and one.value and rounds.clock != "peak_memory":
        value += f" ±{(one.high - one.low) / 2 / one.value * 100:.1f}%"
    kernels = f"{one.profile.kernel_count}"
    if name == reference:
        return [name, kernels, value, "reference", ""]
    found = rounds.ratio(name, reference)
    interval = "" if found.low is None else f"{found.low:.3f}..{found.high:.3f}"
    return [name, kernels, value, f"{found.median:.3f}", interval]


class NoComparison:
    """Stands for a comparison that was not made: whatever is asked of it skips the test."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        pytest.skip(self._why)

    def __bool__(self) -> bool:
        pytest.skip(self._why)

    def __str__(self) -> str:
        return self._why


class NoComparisons(Comparisons):
    """The same for several."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __getitem__(self, name: str) -> Any:
        return NoComparison(self._why)

    def __iter__(self) -> Iterator[str]:
        pytest.skip(self._why)

    def __len__(self) -> int:
        pytest.skip(self._why)

    def __bool__(self) -> bool:
        pytest.skip(self._why)

    def table(self, width: int = 98) -> str:
        """The reason."""
        return self._why


def names_of(candidate: object, reference: object) -> tuple[str, str]:
    """What the callables are called in tables; told apart where both have one name."""
    names = [
        str(getattr(fn, "__name__", None) or type(fn).__name__) for fn in (candidate, reference)
    ]
    if names[0] == names[1]:
        names = [f"{names[0]} (candidate)", f"{names[1]} (reference)"]
    return names[0], names[1]


def check_callables(callables: object, reference: object) -> None:
    """Raise MarkerError unless these are callables by name, and the reference one of them."""
    form = 'compare_all({"eager": f, "fused": g}, x, reference="eager")'
    if not isinstance(callables, Mapping) or len(callables) < 2:
        raise MarkerError(f"expected two callables or more, by name. The form is: {form}")
    for name, fn in callables.items():
        if not isinstance(name, str):
            raise MarkerError(f"{name!r}: expected a name as text. The form is: {form}")
        if not callable(fn):
            raise MarkerError(
                f"{name}: expected a callable, got {type(fn).__name__} {reprlib.repr(fn)}; write "
                "compare(f, g, x), not compare(f(x), g(x))"
            )
    if not isinstance(reference, str) or reference not in callables:
        names = ", ".join(map(repr, callables))
        raise MarkerError(f"reference={reference!r} is none of {names}. The form is: {form}")


def clock_for(metric: str | None, device: DeviceKind) -> Clock:
    """The clock of that name; by default the device's usual one.

    Raises:
        MarkerError: there is no such clock, or none on this device.
    """
    default: Clock = "latency" if device == "cpu" else "cuda_time"
    if metric is None:
        return default
    for clock in CLOCKS:
        if metric == clock:
            if device == "cpu" and clock != "latency":
                raise MarkerError(
                    f"metric={metric!r}: on the CPU there is latency alone; leave metric out to "
                    "get cuda_time on a GPU and latency elsewhere"
                )
            return clock
    raise MarkerError(f"metric={metric!r}: expected one of {', '.join(CLOCKS)}")
