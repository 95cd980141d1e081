"""What a profile of a small call costs, and where the time goes.

Six small operators: profiled to be counted (two rounds), and to be timed (twelve), from the call to
the finished profile, in turn with what is written by hand: torch.profiler around as many calls, and
the events counted. Then as many profiles again with a clock around each step of ours.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import statistics
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from harness import device_and_place, device_kind, in_turn, met, quartiles, table

from pytest_kernelprof.gpu.inventory import load_torch
from pytest_kernelprof.measure.policy import EXACT_ROUNDS, TIMED_ROUNDS, Needs, plan_of
from pytest_kernelprof.measure.runner import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_kernelprof.gpu.inventory import DeviceKind
    from pytest_kernelprof.measure.policy import Plan

OPERATORS = 6
COUNTED, TIMED, ALL = "counted", "timed", "timed, host times and memory too"
NEEDS = {
    COUNTED: Needs(),
    TIMED: Needs(device_times=True),
    ALL: Needs(device_times=True, host_times=True, memory=True),
}
TARGETS_MS = {COUNTED: 8.0, TIMED: 12.0}
MOST_P99 = 3.0

# Steps of ours by where they are looked up: module, attribute, and what is told of it.
CALLS = (
    ("measure.arguments", "first_call", "the warm-up call"),
    ("profiler.session", "Session.__enter__", "session: begin, the first sentinel kernel"),
    ("profiler.session", "Session.__exit__", "session: the last sentinel kernel, synchronise"),
    ("profiler.torch_profiler", "start", "torch's profiler: start"),
    ("profiler.torch_profiler", "Running.end", "torch's profiler: end"),
    ("profiler.trace_folder", "Scratch.save", "torch's profiler: export"),
    ("profiler.unprofiled_rounds", "flush_l2", "flush the L2 (enqueue)"),
    ("measure.sessions", "read_trace", "read the trace"),
    ("measure.sessions", "reading_of", "join its tables"),
    ("measure.sessions", "session_facts", "check it, work out all metrics"),
    ("profiler.operators", "compute_operators", "ask the dispatcher"),
    ("profiler.operators", "functions_called", "ask for autograd functions"),
    ("measure.runner", "profile_of", "make the profile"),
    ("profiler.unprofiled_rounds", "time_calls", "host times"),
    ("profiler.unprofiled_rounds", "watch_memory", "memory"),
    ("gpu.conditions", "Watch.block", "watch the GPU"),
)
ENDS = (
    ("gpu.conditions", "watch", "watch the GPU"),
    ("gpu.usage_lock", "gpu_lock", "lock the GPU"),
)
BLOCKS = (("profiler.session", "Session.round", "rounds: the calls and their annotations"),)
NVML = (
    *("ClockInfo", "MaxClockInfo", "CurrentClocksEventReasons", "FieldValues"),
    *("ProcessUtilization", "ComputeRunningProcesses"),
)


class Clock:
    """Sums up the time of each step, without that of the steps inside of it."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = defaultdict(float)
        self.times: dict[str, int] = defaultdict(int)
        self._open: list[str] = []
        self._since = 0

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._turn()
        self._open.append(name)
        self.times[name] += 1
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        now = time.perf_counter_ns()
        if self._open:
            self.ms[self._open[-1]] += (now - self._since) / 1e6
        self._since = time.perf_counter_ns()


def clocked(clock: Clock, call: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(call)
    def clock_and_call(*args: Any, **kwargs: Any) -> Any:
        with clock.step(name):
            return call(*args, **kwargs)

    return clock_and_call


def clocked_block(clock: Clock, block: Callable[..., Any], name: str) -> Callable[..., Any]:
    @contextlib.contextmanager
    def clock_and_enter(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with clock.step(name), block(*args, **kwargs) as entered:
            yield entered

    return clock_and_enter


def clocked_ends(clock: Clock, block: Callable[..., Any], name: str) -> Callable[..., Any]:
    def clock_and_enter(*args: Any, **kwargs: Any) -> Ends:
        return Ends(clock, block(*args, **kwargs), name)

    return clock_and_enter


class Ends:
    """A block of which entering and leaving are timed, and not what is done in it."""

    def __init__(self, clock: Clock, block: Any, name: str) -> None:
        self._clock, self._block, self._name = clock, block, name

    def __enter__(self) -> Any:
        with self._clock.step(self._name):
            return self._block.__enter__()

    def __exit__(self, *raised: object) -> Any:
        with self._clock.step(self._name):
            return self._block.__exit__(*raised)


@contextlib.contextmanager
def every_step(clock: Clock) -> Iterator[None]:
    """Put the clock around each step of ours, as long as this is entered."""
    with contextlib.ExitStack() as undo:
        for wrapped, steps in ((clocked, CALLS), (clocked_block, BLOCKS), (clocked_ends, ENDS)):
            for module, path, name in steps:
                owner: Any = importlib.import_module(f"pytest_kernelprof.{module}")
                *owners, attribute = path.split(".")
                for one in owners:
                    owner = getattr(owner, one)
                put(undo, owner, attribute, wrapped(clock, getattr(owner, attribute), name))
        with contextlib.suppress(ImportError):
            import pynvml

            for name in NVML:
                call = getattr(pynvml, f"nvmlDeviceGet{name}")
                put(undo, pynvml, f"nvmlDeviceGet{name}", clocked(clock, call, f"NVML: {name}"))
        yield


def put(undo: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    undo.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def small_call(kind: DeviceKind) -> Callable[[], object]:
    torch = load_torch()
    x = torch.ones(1024, device=kind)

    def call() -> object:
        return (((x + 1) * 2).relu() - 1).sigmoid().abs()

    return call


def ours(plan: Plan, call: Callable[[], object]) -> None:
    _, measurement = measure(call, plan)
    profile = measurement.profile
    assert profile.integrity.complete, profile.integrity.problems
    assert len(profile.kernels) == OPERATORS, [kernel.name for kernel in profile.kernels]


def by_hand(kind: DeviceKind, rounds: int, call: Callable[[], object]) -> None:
    torch = load_torch()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if kind == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    call()  # as ours does, to warm up
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(rounds):
            call()
        if kind == "cuda":
            torch.cuda.synchronize()
    on_gpu = torch.autograd.DeviceType.CUDA
    counted = sum(
        event.device_type == on_gpu if kind == "cuda" else event.name.startswith("aten::")
        for event in profiler.events()
    )
    assert counted >= OPERATORS * rounds


def p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


def costs(took: dict[str, list[float]]) -> str:
    rows = []
    for name, values in took.items():
        low, middle, high = quartiles(values)
        tail = p99(values)
        times = [f"{ms:.2f}" for ms in (middle, low, high, tail)]
        rows.append([name, *times, f"{tail / middle:.1f}", f"{max(values):.2f}"])
    header = ["from the call to the result, ms", "median", "quartiles", "", "p99", "p99/median"]
    return table([*header, "longest"], rows)


def where(clock: Clock, whole_ms: float, profiles: int) -> str:
    steps = sorted(clock.ms, key=lambda name: -clock.ms[name])
    rows = []
    for name in steps:
        times, ms = clock.times[name] / profiles, clock.ms[name]
        rows.append([name, f"{times:g}", f"{ms / profiles:.3f}", f"{100 * ms / whole_ms:.0f} %"])
    return table(["step (others inside of it left out)", "times", "ms", "share"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=300, help="profiles of each kind")
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--quick", action="store_true", help="40 profiles")
    options = parser.parse_args()
    count = 40 if options.quick else options.rounds
    kind = device_kind(options.device)
    call = small_call(kind)

    mine = {name: functools.partial(ours, plan_of(kind, needs)) for name, needs in NEEDS.items()}
    hand = {
        COUNTED: functools.partial(by_hand, kind, EXACT_ROUNDS),
        TIMED: functools.partial(by_hand, kind, TIMED_ROUNDS),
    }
    peers: dict[str, Callable[[Callable[[], object]], None]] = {}
    for name in NEEDS:
        peers[f"ours, {name}"] = mine[name]
        if name in hand:
            peers[f"by hand, as many calls as {name}"] = hand[name]
    for peer in peers.values():  # brings the profiler up and warms every path
        for _ in range(10):
            peer(call)
    took: dict[str, list[float]] = {name: [] for name in peers}
    gc.collect()
    for name in in_turn(list(peers), count):
        start = time.perf_counter()
        peers[name](call)
        took[name].append((time.perf_counter() - start) * 1e3)

    print(f"A profile of {OPERATORS} small operators ({kind}): {count} of each, in turn")
    print(device_and_place(kind, "nvidia-ml-py", "pytest-kernelprof"))
    print(f"counted: {EXACT_ROUNDS} rounds; timed: {TIMED_ROUNDS}; a call to warm up in each")
    print()
    print(costs(took))
    print()
    for name, target in TARGETS_MS.items():
        values, theirs = took[f"ours, {name}"], took[f"by hand, as many calls as {name}"]
        middle = statistics.median(values)
        ratio = statistics.median(a / b for a, b in zip(values, theirs, strict=True))
        said = f"ours, {name}: {middle:.2f} ms, {ratio:.2f} times by hand; target"
        if kind == "cuda":
            print(f"{said} on an H200: at most {target:g} ms: {met(middle <= target)}")
        else:
            print(f"{said}: on an H200 alone")
        tail = p99(values) / middle
        print(f"  p99 / median: {tail:.1f}; target: below {MOST_P99:g}: {met(tail < MOST_P99)}")
    for name, profile in mine.items():
        clock = Clock()
        with every_step(clock):
            for _ in range(count):
                with clock.step("all else"):
                    profile(call)
        clock.times["all else"] = 0
        whole = sum(clock.ms.values())
        print()
        print(f"Where the time goes, {name}: {whole / count:.2f} ms a profile, the clocks included")
        print(where(clock, whole, count))


if __name__ == "__main__":
    main()
