"""Measure every shape of the speed table: kernels, GPU, wall and graph time, against the others.

python example_project/benchmarks/fused_mlp.py --json h200.jsonl --seconds 300
python example_project/benchmarks/fused_mlp.py --json h200.jsonl --seconds 300    # the rest
python example_project/benchmarks/fused_mlp.py --read h200.jsonl --markdown h200.md
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import os
import platform
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

if not __package__:
    # Run as a script: import from example_project, not from this folder, where this very file
    # would stand for the package fused_mlp.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch

from benchmarks import timing
from benchmarks.candidates import (
    BUILDERS,
    BY_THE_WALL_ONLY,
    CANDIDATES,
    UnavailableError,
    eager,
)
from benchmarks.floors import Floors, measure_floors
from benchmarks.results import Measured, Result, read, report, spread
from benchmarks.shapes import REGIMES, Case, Function, shapes
from pytest_kernelprof import KernelprofError

WRONG = 2e-2
"""A relative error above this is a wrong answer: bf16 gives 2e-3 to 4e-3."""

FOR_THE_GPU = 0.1
"""Share of the time that is left for the profiles, which come last."""


def main() -> None:
    start, options = time.monotonic(), _options()
    if not options.read:
        _measure(options, start)
    found = read(options.read or [options.json] if options.json or options.read else [])
    text = report(sorted(found.values(), key=lambda one: REGIMES.index(one.shape.regime)))
    if options.markdown:
        options.markdown.write_text(text)
    print("", text, sep="\n")


def _measure(options: argparse.Namespace, start: float) -> None:
    import torch._inductor.config as inductor

    inductor.compile_threads = os.cpu_count() or 1
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    floors = measure_floors(kind)
    place = _place(floors)
    print(place, flush=True)
    done = read([options.json] if options.json else [])
    everything = []
    # All that needs no profiler first: once it was up, CUPTI stays and slows every launch.
    for shape in shapes(tuple(options.regime or REGIMES), tiny=kind == "cpu"):
        left = options.seconds * (1 - FOR_THE_GPU) - (time.monotonic() - start)
        if shape in done and done[shape].is_whole and not options.again:
            continue
        if left < 0:
            print(f"{shape.label}: left out, the time is over", flush=True)
            continue
        measured = Measured(shape, place, floors, {})
        late = time.monotonic() + left
        functions = _prepare(measured, options.candidates or CANDIDATES[shape.regime], kind, late)
        everything.append((measured, functions))
        with _timed(measured, "wall and graph"):
            _clock(measured, functions, kind, options.rounds)
        measured.write(options.json)
    for measured, functions in everything:
        with _timed(measured, "GPU"):
            _profile(measured, functions, kind, options.rounds)
        measured.write(options.json)


def _prepare(
    measured: Measured, names: tuple[str, ...], kind: str, late: float
) -> dict[str, Function]:
    """Build, compile, warm up and check each candidate; those that fail leave a note."""
    shape, ready = measured.shape, {}
    case = Case(shape, kind)
    for name in names:
        result = measured.results[name] = Result()
        start = time.monotonic()
        if start > late and name != "ours":
            result.notes.append("not compiled: the time was over")
            continue
        try:
            fn = BUILDERS[name](shape)
            with torch.set_grad_enabled(shape.training):
                for _ in range(3 * len(case.sets)):
                    case.next_call(fn)()
                if name != "gemms":
                    result.error = case.error(fn, eager(shape))
        except UnavailableError as why:
            result.notes.append(str(why))
            continue
        except Exception as error:  # one candidate's fault must not cost the others' numbers
            result.notes.append(timing.in_one_line(error))
            continue
        print(f"  {name}: ready in {time.monotonic() - start:.1f} s", flush=True)
        if result.error is not None and not result.error <= WRONG:  # a NaN is wrong, too
            result.notes.append(f"wrong: relative error {result.error:.1e}; not timed")
            continue
        ready[name] = fn
    return ready


def _clock(measured: Measured, functions: dict[str, Function], kind: str, rounds: int) -> None:
    case = Case(measured.shape, kind)
    gc.collect()
    with torch.set_grad_enabled(measured.shape.training):
        walls = timing.wall_times(case, functions, 2 * rounds)
        on_the_gpu = {n: fn for n, fn in functions.items() if n not in BY_THE_WALL_ONLY}
        graphs, notes = timing.graph_times(case, on_the_gpu, rounds)
    for name in functions:
        result = measured.results[name]
        result.wall, result.graph = spread(walls[name]), spread(graphs[name])
        result.notes += [notes[name]] if name in notes else []


def _profile(measured: Measured, functions: dict[str, Function], kind: str, rounds: int) -> None:
    """All in one profile; should that be incomplete, each alone, so that only one is missing."""
    case = Case(measured.shape, kind)
    together = {n: fn for n, fn in functions.items() if n not in BY_THE_WALL_ONLY}
    try:
        _profile_some(measured, case, together, rounds)
    except KernelprofError:
        for name, fn in together.items():
            with _timed(measured, f"GPU, {name} alone", (name,)):
                _profile_some(measured, case, {name: fn}, rounds)


def _profile_some(
    measured: Measured, case: Case, functions: dict[str, Function], rounds: int
) -> None:
    with torch.set_grad_enabled(measured.shape.training):
        times, kernels = timing.gpu_times(case, functions, rounds)
    for name in functions:
        result = measured.results[name]
        result.kernels, result.gpu = kernels[name], spread(times[name])


@contextlib.contextmanager
def _timed(measured: Measured, what: str, names: tuple[str, ...] = ()) -> Iterator[None]:
    """Says how long it took; an error becomes a note of these candidates, or of all."""
    start = time.monotonic()
    try:
        yield
    except Exception as error:
        for name in names or measured.results:
            measured.results[name].notes.append(f"{what}: {timing.in_one_line(error)}")
    print(f"{measured.shape.label}: {what}, {time.monotonic() - start:.1f} s", flush=True)


def _place(floors: Floors) -> str:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    packages = ("torch", "triton", "liger_kernel", "quack_kernels", "nvidia_cutlass_dsl")
    named = [f"{name} {_version(name)}" for name in packages]
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return (
        f"{device}, {', '.join(named)}, Python {platform.python_version()}, {today}; measured: "
        f"{floors.flops / 1e12:.4g} TFLOP/s, {floors.bandwidth / 1e12:.3g} TB/s; "
        f"an empty event pair reads {floors.event_us:.1f} us"
    )


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "(none)"


def _options() -> Any:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--regime", action="append", choices=REGIMES, help="repeatable; all by default")
    add("--candidates", nargs="+", choices=list(BUILDERS), help="by default those that matter")
    add("--rounds", type=int, default=30, help="profiled calls; wall time takes twice as many")
    add("--seconds", type=float, default=1e9, help="begin no further shape so late that it is over")
    add("--json", type=Path, metavar="FILE", help="append each shape; those in it are not repeated")
    add("--again", action="store_true", help="but they are")
    add("--markdown", type=Path, metavar="FILE", help="write the tables")
    add("--read", type=Path, nargs="+", metavar="FILE", help="measure nothing: tables of files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
