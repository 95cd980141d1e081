"""Three clocks, one protocol: isolated calls on cold data, the candidates in turn (A B, B A, ...).

- wall time: the host's clock around a call and a synchronisation, after a call that is not timed;
  no profiler in the process yet;
- graph time: an event pair around the replay of a CUDA graph of that one call;
- GPU time: the sum of the kernels' durations, one profile for all candidates.
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

from pytest_kernelprof import Kernel, profile

from .floors import HEAD_START
from .shapes import Case, Function

Functions = Mapping[str, Function]
Samples = dict[str, list[float]]

TURN = "whose turn it is: "


def wall_times(case: Case, functions: Functions, rounds: int) -> Samples:
    """Microseconds of each call, from its start until the device is done.

    A call that is not timed comes before each. Weights are cold (where no sets of them take turns,
    all data is); code is not, the host's above all. Else each candidate would pay for the code of
    those who came before it, and more so the more take part.
    """
    took: Samples = collections.defaultdict(list)
    flush = _flush_of(case)
    for name in _in_turn(functions, rounds):
        case.next_call(functions[name])()
        call = case.next_call(functions[name])
        flush()
        _wait()
        start = time.perf_counter_ns()
        result = call()
        _wait()
        took[name].append((time.perf_counter_ns() - start) / 1e3)
        del result  # freeing is not timed
    return took


def graph_times(case: Case, functions: Functions, rounds: int) -> tuple[Samples, dict[str, str]]:
    """Microseconds of each replay; and for candidates that cannot be captured, why."""
    took: Samples = collections.defaultdict(list)
    graphs: dict[str, list[torch.cuda.CUDAGraph]] = {}
    why: dict[str, str] = {}
    if not case.x.is_cuda:
        return took, why
    pool = torch.cuda.graph_pool_handle()  # shared: no two of these graphs run at once
    for name, fn in functions.items():
        try:
            graphs[name] = [_captured(case, fn, which, pool) for which in range(len(case.sets))]
        except Exception as error:  # noqa: PERF203  (the others are still to be timed)
            why[name] = f"no graph: {in_one_line(error)}"
    flush = _flush_of(case)
    for i, name in enumerate(_in_turn(graphs, rounds)):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush()
        torch.cuda._sleep(HEAD_START)
        begin.record()
        graphs[name][i % len(case.sets)].replay()
        end.record()
        end.synchronize()
        took[name].append(begin.elapsed_time(end) * 1e3)
    return took, why


def gpu_times(
    case: Case, functions: Functions, rounds: int
) -> tuple[Samples, dict[str, list[tuple[str, float]]]]:
    """Microseconds of all kernels of each call; and names and medians of a call's kernels.

    Each profiled round has one call of each candidate, behind a small kernel (or the one that
    flushes the L2) that says whose kernels follow: those of a backward are launched by another
    thread, where no annotation of ours is. On a CPU kernels are operators.
    """
    flush = _flush_of(case)
    mark = torch.zeros(1, device=case.x.device)
    turns = itertools.count()

    def everybody() -> None:
        names = list(functions)
        for name in names if next(turns) % 2 == 0 else reversed(names):
            call = case.next_call(functions[name])
            flush()
            with torch.profiler.record_function(TURN + name):
                mark.add_(1)
            _wait()
            call()
            _wait()

    measured = profile(everybody, device="cuda" if case.x.is_cuda else "cpu", rounds=rounds)
    calls: dict[str, list[list[Kernel]]] = {name: [] for name in functions}
    for kernels in measured.kernels_of_rounds():
        mine: list[Kernel] = []
        for kernel in kernels:
            turn = [o for o in kernel.operators if o.startswith(TURN)]
            if turn:
                mine = []
                calls[turn[0].removeprefix(TURN)].append(mine)
            elif FLUSH not in kernel.operators:
                mine.append(kernel)
    sums = {name: [sum(k.duration_us for k in call) for call in calls[name]] for name in calls}
    return sums, {name: _usual(calls[name]) for name in calls}


FLUSH = "flushes the L2"


def in_one_line(error: Exception) -> str:
    """What went wrong, short enough for a note in a table."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:160]


def _usual(calls: list[list[Kernel]]) -> list[tuple[str, float]]:
    """Name and median of each kernel, over the calls that have the usual number of them."""
    usual = statistics.mode(len(kernels) for kernels in calls)
    alike = [kernels for kernels in calls if len(kernels) == usual]
    return [
        (same[0].short_name, statistics.median(kernel.duration_us for kernel in same))
        for same in zip(*alike, strict=True)
    ]


def _in_turn(names: Mapping[str, Any], rounds: int) -> Iterator[str]:
    """A B, B A, A B, ...: a drift of the machine touches all alike."""
    for i in range(rounds):
        yield from names if i % 2 == 0 else reversed(list(names))


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _flush_of(case: Case) -> Callable[[], None]:
    """Something else in the whole L2, twice over; nothing where weights take turns."""
    if case.shape.rotates or not case.x.is_cuda:
        return lambda: None
    size = 2 * torch.cuda.get_device_properties(case.x.device).L2_cache_size
    other = torch.zeros(size // 4, dtype=torch.int32, device=case.x.device)

    def flush() -> None:
        with torch.profiler.record_function(FLUSH):
            other.fill_(1)

    return flush


def _captured(case: Case, fn: Function, which: int, pool: Any) -> torch.cuda.CUDAGraph:
    """A graph of one call, after warm-up on another stream than the default one, as capture asks.

    PyTorch instead of a kernel of ours would be measured as ours: that warning is an error here.
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
        warnings.filterwarnings("error", message="fused_mlp goes to PyTorch")
        with torch.cuda.graph(graph, pool=pool):
            call()
    graph.replay()  # the first replay uploads the graph
    return graph
