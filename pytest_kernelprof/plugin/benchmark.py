"""The bridge to pytest-benchmark: its table, files and comparisons, about the GPU's time.

It uses pytest-benchmark's public parts only: the ``benchmark`` fixture, its marker's ``timer``,
``extra_info``, its hooks, and the JSON's shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import pytest

from pytest_kernelprof import errors
from pytest_kernelprof.plugin.items import run_state, state_of
from pytest_kernelprof.plugin.settings import check_option
from pytest_kernelprof.system import now_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_kernelprof.api import Profile
    from pytest_kernelprof.measure.arguments import Arguments
    from pytest_kernelprof.plugin.fixture import KernelProfile
    from pytest_kernelprof.plugin.measuring import MeasuredTest

R = TypeVar("R")
Timer = Literal["wall", "cuda"]


class Clock:
    """The timer that pytest-benchmark is given, one a test. What it reads is set when it is known:
    the host's clock behind a synchronisation, or the replay of measured device times.

    ``__name__`` is what the saved JSON names as ``timer``.
    """

    def __init__(self) -> None:
        self.read("wall", now_s)

    def __call__(self) -> float:
        """The time in seconds."""
        return self._read()

    def read(self, timer: Timer, read: Callable[[], float]) -> None:
        """From now on, read this."""
        self.__name__ = f"kernelprof-{timer}"
        self._read = read


@dataclass(slots=True, eq=False)
class KernelBenchmark:
    """Profiles a callable as ``kernel_profile`` does, then hands it to pytest-benchmark to time."""

    _benchmark: Any
    _kernel_profile: KernelProfile
    _test: MeasuredTest
    _clock: Clock
    _node: pytest.Item
    _used: bool = False

    def __call__(
        self, fn: Callable[..., R], /, *args: Any, timer: Timer = "wall", **kwargs: Any
    ) -> R:
        """Profile ``fn(*args, **kwargs)`` once, then benchmark it; returns the first call's result.

        Args:
            timer: see ``run``. A callable that takes a ``timer`` of its own needs ``run``.
        """
        return self.run(fn, args, kwargs, timer=timer)

    def run(
        self,
        fn: Callable[..., R],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        setup: Callable[[], Any] | None = None,
        timer: Timer = "wall",
        rounds: int | None = None,
    ) -> R:
        """The explicit form of a call.

        Args:
            setup: runs before each call, outside of what is timed, and returns fresh arguments:
                a tuple, a pair of tuple and dict, or None to keep the given ones.
            timer: "wall" is the host's time until the device is done: pytest-benchmark calls
                ``fn`` in rounds as it always does, and the device is synchronised before each
                reading of the clock. A call that is short against a synchronisation it repeats
                within a round, one synchronisation for all; the time is the round's share.
                "cuda" is the time that the device was busy with the call (``gpu_busy``), one value
                of each profiled round, the L2 cache flushed before it: neither the launch nor gaps
                between kernels count. These rounds are profiled first, in one session, and played
                back to pytest-benchmark, whose own settings of rounds, time and warm-up therefore
                do not matter.
            rounds: how many rounds are profiled; with ``setup`` or "cuda" also how many
                pytest-benchmark sees. By default what the options say, else 12.

        Raises:
            IncompleteProfile: with "cuda", there are no device times; with "wall", the clock is
                not to be believed; the message says why. (Of a
                profile that misses something the test's verdict tells, as with kernel_profile.)
            MarkerError: timer or rounds are not of their form.
            RuntimeError: it was called before in this test.
        """
        from pytest_kernelprof.measure.arguments import Arguments
        from pytest_kernelprof.plugin.measuring import call_request

        test, arguments = self._test, Arguments(args, {} if kwargs is None else kwargs, setup)
        with test.ledger.asking(call_request(test)):
            self._check(fn, timer)
            if rounds is not None:
                check_option("rounds", rounds)
        if test.unmeasured:
            test.ledger.leave_out(test.unmeasured)
            return self._run_unmeasured(fn, arguments, timer)
        result = self._kernel_profile.run(fn, args, kwargs, setup=setup, rounds=rounds)
        if test.ledger.blind or test.ledger.unmeasured:
            self._run_unmeasured(fn, arguments, timer)
            return result
        profile = self._kernel_profile.last
        self._benchmark.extra_info["kernelprof"] = facts_of(profile, timer)
        if timer == "cuda":
            # An incomplete profile has no times to play; the test's verdict says so at its end.
            if profile.integrity.complete:
                self._play_back(device_times(profile))
        else:
            from pytest_kernelprof.measure.policy import require_clock

            require_clock(profile.record)
            self._time(fn, arguments, len(profile.metrics["kernels"].rounds))
        return result

    def _check(self, fn: object, timer: object) -> None:
        from pytest_kernelprof.api import refuse_no_callable

        refuse_no_callable(fn, "kernel_benchmark", "times")
        if timer not in get_args(Timer):
            raise errors.MarkerError(
                f'timer={timer!r}: expected "wall" or "cuda". Write kernel_benchmark(fn, '
                '*args, timer="cuda"); a callable that takes a timer of its own is called with '
                'kernel_benchmark.run(fn, args, {"timer": ...})'
            )
        if self._used:
            raise errors.IncompleteProfile(
                "kernel_benchmark times one callable per test, as pytest-benchmark does: "
                "parametrise the test, or profile the others with kernel_profile"
            )
        self._used = True
        if timer == "cuda" and self._test.device != "cuda" and not self._test.unmeasured:
            raise errors.ProfilerUnavailable(
                'timer="cuda": this test runs on the CPU, where there is no device time; use '
                'timer="wall" (the default), or run it on a GPU'
            )

    def _time(self, fn: Callable[..., object], arguments: Arguments, rounds: int) -> Any:
        """Let pytest-benchmark time live calls: as many as it likes, but on each of several ranks,
        which would decide on another number each, so many."""
        from pytest_kernelprof.distributed.agreement import number_of_rank
        from pytest_kernelprof.measure.arguments import preparer

        if arguments.setup is None and number_of_rank() is None:
            return self._benchmark(fn, *arguments.args, **arguments.kwargs)
        prepare = preparer(fn, arguments)
        with self._test.agreeing(self._test.request("kernel_benchmark")) as agreement:

            def begin() -> tuple[tuple[Callable[[], object]], dict[str, Any]]:
                call = prepare()
                agreement.begin()
                return (call,), {}

            most = max(agreement.gather("rounds to benchmark", rounds))
            return self._benchmark.pedantic(lambda call: call(), setup=begin, rounds=most)

    def _play_back(self, times_us: Sequence[float]) -> None:
        """Let pytest-benchmark read times that are known already: time stands still but for
        ``play``, which lets the next one pass; none is left over for further calls."""
        left, now_us = iter(times_us), 0.0

        def play() -> None:
            nonlocal now_us
            now_us += next(left, 0.0)

        self._clock.read("cuda", lambda: now_us * 1e-6)
        self._benchmark.pedantic(play, rounds=len(times_us))

    def _run_unmeasured(self, fn: Callable[..., R], arguments: Arguments, timer: Timer) -> R:
        """Where nothing is measured: the host's times, but no device times."""
        from pytest_kernelprof.plugin.measuring import run_plainly

        if timer == "wall":
            rounds = self._node.config.getoption("benchmark_min_rounds")
            return self._time(fn, arguments, rounds)  # type: ignore[no-any-return]
        state_of(self._node).warn('not benchmarked: timer="cuda" needs a profile')
        return run_plainly(fn, arguments)


def device_times(profile: Profile) -> tuple[float, ...]:
    """How long the device was busy with each profiled round, in microseconds.

    They are the profiler's, not those of event pairs around the call: a pair also times the launch
    between its events (20 us for an addition that takes 0.9 us), and a head start for the device
    that hides the launch fails where the call waits, or launches longer than the head start.

    Raises:
        IncompleteProfile: the call gave the device nothing to do.
    """
    busy = profile.metrics["gpu_busy"]
    if not any(busy.rounds):
        raise errors.IncompleteProfile(
            'timer="cuda": the call gave the GPU nothing to do, so there is no device time to '
            'benchmark; use timer="wall" (the default)'
        )
    return busy.rounds


def facts_of(profile: Profile, timer: Timer) -> dict[str, Any]:
    """What goes into ``extra_info``: plain builtins, each metric under its name and unit.

    Times are medians in microseconds, counts those of the largest round; None is a number that
    could not be had here. ``cupti_ratio`` is what an attached CUPTI costs the host's launches, as a
    ratio: host times hold that share, those of timer "wall" too.
    """
    from pytest_kernelprof.report.files import named_with_unit
    from pytest_kernelprof.summary import wording

    return {
        "timer": timer,
        "device_kind": profile.device_kind,
        "place": wording.machine(profile.environment),
        "complete": profile.integrity.complete,
        **dict(named_with_unit(metric) for metric in profile.metrics.values()),
        "cupti_ratio": profile.record.cupti_ratio,
        "bound": profile.bound.verdict,
        "bound_reason": profile.bound.reason,
    }


class Bridge:
    """The part of the plugin that is only there when pytest-benchmark is."""

    @pytest.fixture
    def kernel_benchmark(
        self, request: pytest.FixtureRequest, kernel_profile: KernelProfile, benchmark: Any
    ) -> KernelBenchmark:
        """Profile GPU code as kernel_profile does, then benchmark it with pytest-benchmark:
        kernel_benchmark(fn, *args) times with a synchronised clock, timer="cuda" the GPU's time."""
        from pytest_kernelprof.gpu.inventory import current_device, synchronize, usual_kind

        marker = request.node.get_closest_marker("benchmark")
        clock = marker.kwargs.get("timer") if marker else None
        if not isinstance(clock, Clock):
            raise errors.MarkerError(
                "kernel_benchmark must be an argument of the test or of one of its fixtures: "
                "with getfixturevalue it is too late to give pytest-benchmark its timer"
            )
        test = state_of(request.node).test
        assert test is not None, "kernel_profile has begun it"
        # Where nothing is profiled no device was chosen, but the clock must wait for a GPU still.
        device = current_device(usual_kind() if test.unmeasured else test.device)

        def read() -> float:
            synchronize(device)
            return now_s()

        clock.read("wall", read)
        return KernelBenchmark(benchmark, kernel_profile, test, clock, request.node)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Before ``benchmark`` is made: give it our timer, or refuse what would come out wrong."""
        state = state_of(item)
        settings = state.run.settings
        if "kernel_benchmark" in state.fixtures:
            _set_timer(item)
        elif settings.disable or not state.is_benchmarked or "kernel_profile" in state.fixtures:
            return
        elif state.marks.limits:
            from pytest_kernelprof.plugin.measuring import refuse_whole_call

            refuse_whole_call(state.marks.limits)
        elif settings.all:
            state.warn(
                "not profiled: pytest-benchmark times this test; kernel_benchmark(fn, *args) in "
                "place of benchmark(fn, *args) does both"
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> None:
        """Note that a test has got ``benchmark``, in whatever way."""
        if fixturedef.argname == "benchmark" and isinstance(request.node, pytest.Item):
            state_of(request.node).has_benchmark = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Runs that were saved on different GPUs or with different software are told apart."""
        from pytest_kernelprof.gpu.nvml import describe_gpu

        machine_info["gpu"] = describe_gpu()

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_group_stats(
        self, config: pytest.Config, benchmarks: Sequence[Mapping[str, Any]]
    ) -> None:
        """Called when there is a table to print: note whose; the grouping is left to others."""
        if config.getoption("benchmark_verbose") or not config.getoption("benchmark_quiet"):
            run_state(config).in_its_table.update(bench["fullname"] for bench in benchmarks)


def _set_timer(item: pytest.Item) -> None:
    """Put our clock into the test's benchmark marker, which pytest-benchmark reads next.

    Raises:
        MarkerError: the marker has another timer.
    """
    marker = item.get_closest_marker("benchmark")
    kwargs = dict(marker.kwargs) if marker else {}
    given = kwargs.get("timer")
    if isinstance(given, Clock):  # the test is run again
        return
    if given is not None:
        raise errors.MarkerError(
            f"benchmark(timer={given!r}): kernel_benchmark brings its own timer. Drop this one, or "
            'ask for device times with kernel_benchmark(fn, *args, timer="cuda")'
        )
    args, kwargs["timer"] = marker.args if marker else (), Clock()
    item.add_marker(pytest.mark.benchmark(*args, **kwargs), append=False)
