"""Three clocks, one protocol: isolated calls on cold data, the candidates in turn (A B, B A, ...).

- wall time: the host's clock around a call and a synchronisation, no profiler in the process yet;
- graph time: an event pair around the replay of a CUDA graph of that one call;
- GPU time: the sum of the kernels' durations, from one profiler session for all candidates.
"""

from __future__ import annotations

import collections
import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from pytest_kernelprof import Kernel, Profile
from pytest_kernelprof.capture.l2 import L2Flush
from pytest_kernelprof.device.inventory import Device
from pytest_kernelprof.measure.arguments import Arguments
from pytest_kernelprof.measure.plan import Plan
from pytest_kernelprof.measure.runner import measure

from .floors import HEAD_START
from .inputs import Case, Function

Functions = Mapping[str, Function]
Samples = dict[str, list[float]]


def in_turn(names: list[str]) -> Iterator[str]:
    """A B, B A, A B, ... without end: a drift of the machine touches all alike."""
    for i in itertools.count():
        yield from names if i % 2 == 0 else reversed(names)


def wall_times(case: Case, functions: Functions, device: Device, rounds: int) -> Samples:
    """Microseconds of each call, from its start until the device is done."""
    took: Samples = collections.defaultdict(list)
    flush = _flush_of(case, device)
    for name in itertools.islice(in_turn(list(functions)), rounds * len(functions)):
        call = case.prepared(functions[name])
        flush()
        wait(device.kind)
        start = time.perf_counter_ns()
        result = call()
        wait(device.kind)
        took[name].append((time.perf_counter_ns() - start) / 1e3)
        del result  # freeing is not timed
    return took


def graph_times(
    case: Case, functions: Functions, device: Device, rounds: int
) -> tuple[Samples, dict[str, str]]:
    """Microseconds of each replay; and for candidates that cannot be captured, why."""
    took: Samples = collections.defaultdict(list)
    graphs: dict[str, list[torch.cuda.CUDAGraph]] = {}
    why: dict[str, str] = {}
    if device.kind != "cuda":
        return took, why
    pool = torch.cuda.graph_pool_handle()  # shared: no two of these graphs run at once
    for name, fn in functions.items():
        try:
            graphs[name] = [_captured(case, fn, which, pool) for which in range(len(case.sets))]
        except Exception as error:  # noqa: PERF203  (the others are still to be timed)
            why[name] = f"no graph: {in_one_line(error)}"
    flush = _flush_of(case, device)
    for i, name in enumerate(itertools.islice(in_turn(list(graphs)), rounds * len(graphs))):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush()
        torch.cuda._sleep(HEAD_START)
        begin.record()
        graphs[name][i % len(case.sets)].replay()
        end.record()
        end.synchronize()
        took[name].append(begin.elapsed_time(end) * 1e3)
    return took, why


def profiled(
    case: Case, functions: Functions, device: Device, rounds: int
) -> tuple[dict[str, list[tuple[Kernel, ...]]], str]:
    """The kernels of each profiled call (on the CPU: operators); and what is wrong, if anything.

    One session for all: ``setup`` hands the next candidate's call to each round, and its log says
    whose round it was. The session that counts is the last, should one be taken again.
    """
    if not functions:
        return {}, ""
    turns, log = in_turn(list(functions)), []

    def setup() -> tuple[Callable[[], Any]]:
        log.append(next(turns))
        return (case.prepared(functions[log[-1]]),)

    number = rounds * len(functions)
    plan = Plan(device.kind, rounds=number, flush_l2=not case.shape.rotates)
    _, measurement = measure(lambda call: call(), plan, Arguments(setup=setup))
    profile = Profile.of(measurement)
    rounds_of = profile.kernels_of_rounds()
    found: dict[str, list[tuple[Kernel, ...]]] = collections.defaultdict(list)
    for i, name in enumerate(log[-number:]):
        found[name].append(rounds_of[i])
    return found, "; ".join(profile.integrity.problems)


def per_kernel(calls: list[tuple[Kernel, ...]]) -> list[tuple[str, str, float]]:
    """Operator, name and median microseconds of each kernel, over the calls that have the usual
    number of them."""
    usual = statistics.mode(len(kernels) for kernels in calls)
    alike = [kernels for kernels in calls if len(kernels) == usual]
    return [
        (
            (*same[0].operators, "")[0],
            same[0].short_name,
            statistics.median(kernel.duration_us for kernel in same),
        )
        for same in zip(*alike, strict=True)
    ]


def in_one_line(error: Exception) -> str:
    """What went wrong, short enough for a note in a table."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:160]


def wait(kind: str) -> None:
    """Until the device is idle."""
    if kind == "cuda":
        torch.cuda.synchronize()


def _flush_of(case: Case, device: Device) -> Callable[[], None]:
    return (lambda: None) if case.shape.rotates else L2Flush(device)


def _captured(case: Case, fn: Function, which: int, pool: Any) -> torch.cuda.CUDAGraph:
    """A graph of one call, after warm-up on another stream than the default one, as capture asks.

    Falling back to another kernel because no workspace is left would be measured as ours: that
    warning is an error here.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            case.call(fn, which)()
    torch.cuda.current_stream().wait_stream(side)
    call = case.call(fn, which)
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="fused_mlp falls back")
        with torch.cuda.graph(graph, pool=pool):
            call()
    graph.replay()  # the first replay uploads the graph
    return graph
