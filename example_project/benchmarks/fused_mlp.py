"""Measure every shape of the speed table: kernels, GPU, wall and graph time, against the others.

python example_project/benchmarks/fused_mlp.py --regime decode --json decode.jsonl
python example_project/benchmarks/fused_mlp.py --read decode.jsonl narrow.jsonl --markdown all.md
"""

from __future__ import annotations

import argparse
import datetime
import gc
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

if not __package__:
    # Run as a script: import from example_project, not from this folder, where this very file
    # would stand for the package fused_mlp.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch

from benchmarks import table, timing
from benchmarks.candidates import BUILDERS, DEFAULTS, UnavailableError, eager
from benchmarks.floors import Floors, measure_floors
from benchmarks.inputs import Case, Function
from benchmarks.results import Measured, Result, line_of, read, spread, write_line
from benchmarks.shapes import REGIMES, chosen
from pytest_kernelprof.device.inventory import Device, current_device, why_no_gpu

WRONG = 2e-2
"""A relative error above this is a wrong answer: bf16 gives 2e-3 to 4e-3."""

QUICK_ROUNDS = 8


def main() -> None:
    options = _options()
    if options.read:
        _hand_out(*read(options.read), options.markdown)
        return
    device = current_device(_kind(options.device))
    import torch._inductor.config as inductor

    inductor.compile_threads = options.compile_threads
    floors = measure_floors(device.kind)
    run, place = _run_and_place(device, floors)
    print(place, flush=True)
    write_line(options.json, {"run": run, "place": place, "floors": asdict(floors)})
    regimes = options.regime or list(REGIMES)
    shapes = chosen(regimes, options.match, tiny=device.kind == "cpu", first_only=options.quick)
    rounds = QUICK_ROUNDS if options.quick else options.rounds
    everything, late = [], time.monotonic() + 60 * options.minutes
    # All that needs no profiler first: once it was up, CUPTI stays and slows every launch.
    for shape in shapes:
        if time.monotonic() > late:
            print(f"{shape.label}: left out, --minutes are over", flush=True)
            continue
        measured = Measured(shape, floors, {})
        functions = _prepare(measured, options.candidates or DEFAULTS[shape.regime], device)
        everything.append((measured, functions))
        _timed(measured, "wall and graph", lambda: _clock(measured, functions, device, rounds))  # noqa: B023
        write_line(options.json, line_of(measured, run))
    for measured, functions in everything:
        _timed(measured, "GPU", lambda: _profile(measured, functions, device, rounds))  # noqa: B023
        write_line(options.json, line_of(measured, run))
    _hand_out([place], [measured for measured, _ in everything], options.markdown)


def _prepare(measured: Measured, names: list[str], device: Device) -> dict[str, Function]:
    """Build, compile, warm up and check each candidate; those that fail leave a note."""
    shape, ready = measured.shape, {}
    case = Case(shape, device.kind)
    for name in names:
        result = measured.results[name] = Result()
        start = time.perf_counter()
        try:
            fn = BUILDERS[name](shape)
            with torch.set_grad_enabled(shape.training):
                for _ in range(3):
                    case.prepared(fn)()
                if name != "gemms":
                    result.error = case.error(fn, eager(shape))
                result.held_bytes = case.held_bytes(fn)
        except UnavailableError as why:
            result.notes.append(str(why))
            continue
        except Exception as error:  # one candidate's fault must not cost the others' numbers
            result.notes.append(timing.in_one_line(error))
            continue
        print(f"  {name}: ready in {time.perf_counter() - start:.1f} s", flush=True)
        if result.error is not None and not result.error <= WRONG:  # a NaN is wrong, too
            result.notes.append(f"wrong: relative error {result.error:.1e}; not timed")
            continue
        ready[name] = fn
    return ready


def _clock(measured: Measured, functions: dict[str, Function], device: Device, rounds: int) -> None:
    case = Case(measured.shape, device.kind)
    gc.collect()
    with torch.set_grad_enabled(measured.shape.training):
        walls = timing.wall_times(case, functions, device, 2 * rounds)
        graphs, notes = timing.graph_times(case, functions, device, rounds)
    for name in functions:
        result = measured.results[name]
        result.wall, result.graph = spread(walls[name]), spread(graphs[name])
        result.notes += [notes[name]] if name in notes else []


def _profile(
    measured: Measured, functions: dict[str, Function], device: Device, rounds: int
) -> None:
    case = Case(measured.shape, device.kind)
    with torch.set_grad_enabled(measured.shape.training):
        calls, problems = timing.profiled(case, functions, device, rounds)
    for name in functions:
        result = measured.results[name]
        sums = [sum(kernel.duration_us for kernel in kernels) for kernels in calls[name]]
        result.kernels, result.gpu = timing.per_kernel(calls[name]), spread(sums)
        counts = sorted({len(kernels) for kernels in calls[name]})
        if len(counts) > 1:
            result.notes.append(f"the number of kernels varies: {counts}")
        result.notes += [f"profile incomplete: {problems}"] if problems else []


def _timed(measured: Measured, what: str, measure: Callable[[], None]) -> None:
    start = time.perf_counter()
    try:
        measure()
    except Exception as error:
        for result in measured.results.values():
            result.notes.append(f"{what}: {timing.in_one_line(error)}")
    print(f"{measured.shape.label}: {what}, {time.perf_counter() - start:.1f} s", flush=True)


def _hand_out(places: list[str], measured: list[Measured], markdown: Path | None) -> None:
    text = table.report(places, measured)
    print("", text, sep="\n")
    if markdown:
        markdown.write_text(text)


def _run_and_place(device: Device, floors: Floors) -> tuple[str, str]:
    now = datetime.datetime.now(datetime.timezone.utc)
    versions = {**device.versions, **_version_of("triton"), **_version_of("liger_kernel")}
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    place = (
        f"{device.name}, {named}, {now:%Y-%m-%d}; measured floors: "
        f"{floors.flops / 1e12:.4g} TFLOP/s, {floors.bandwidth / 1e12:.3g} TB/s; "
        f"an empty event pair reads {floors.event_us:.1f} us"
    )
    return f"{now:%Y%m%dT%H%M%S}-{os.getpid()}", place


def _version_of(distribution: str) -> dict[str, str]:
    try:
        return {distribution: metadata.version(distribution)}
    except metadata.PackageNotFoundError:
        return {}


def _kind(wanted: str) -> Any:
    return wanted if wanted != "auto" else "cpu" if why_no_gpu() else "cuda"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--regime", action="append", choices=REGIMES, help="repeatable; all by default")
    add("--match", default="", metavar="REGEX", help="only shapes whose label it is found in")
    add("--candidates", nargs="+", choices=list(BUILDERS), help="by default those that matter")
    add("--device", choices=["auto", "cuda", "cpu"], default="auto", help="on a CPU: tiny shapes")
    add("--quick", action="store_true", help="the first shape of each regime, 8 rounds")
    add("--rounds", type=int, default=30, help="profiled calls; wall time takes twice as many")
    add("--minutes", type=float, default=1e9, help="begin no further shape after so many")
    add("--compile-threads", type=int, default=os.cpu_count() or 1, help="of Inductor")
    add("--json", type=Path, metavar="FILE", help="append each shape as a line when it is done")
    add("--markdown", type=Path, metavar="FILE", help="write the tables")
    add(
        "--read", type=Path, nargs="+", metavar="FILE", help="measure nothing: tables of JSON files"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
