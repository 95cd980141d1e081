"""From a trace file to a finished Profile, against prof.events() and HolisticTraceAnalysis.

With a GPU the work is recorded: N launches of one small kernel (an operator, a launch call and a
kernel each), read back by ``prof.events()`` + ``key_averages()`` from the profiler itself, and by
us and by HolisticTraceAnalysis from the file that it exports. Without a GPU the file is written in
the same format, modelled on recordings from an H200, and the first column is left out.

"Finished" means: read, linked, checked for completeness, every metric, and the tuple of kernels.
Events are what carries a time (``"ph": "X"``); arrows come on top, two for each kernel.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import device_and_place, device_kind, in_turn, met, peak_bytes, spread, table, version
from written_traces import EVENTS_A_KERNEL, write_trace

from pytest_kernelprof.analysis.session_profile import profile_of, session_facts
from pytest_kernelprof.api import Profile
from pytest_kernelprof.trace.correlation import reading_of
from pytest_kernelprof.trace.reader import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIZES = (100_000, 300_000, 1_000_000)
JUDGED = 300_000
OURS, HTA = "pytest-kernelprof", "HolisticTraceAnalysis"
EVENTS = "prof.events() + key_averages()"
FASTER_THAN_EVENTS, FASTER_THAN_HTA, MOST_BYTES = 30.0, 10.0, 1000.0

# -- traces --------------------------------------------------------------------------------------


@dataclass
class Trace:
    """A trace on disk and, where it was recorded, the profiler that recorded it."""

    path: Path
    events: int
    kernels: int
    export_s: float = 0.0
    profiler: Any = None


def record_trace(path: Path, events: int) -> Trace:
    """Record that many events on the GPU and export them."""
    from pytest_kernelprof.gpu.inventory import current_device, load_torch
    from pytest_kernelprof.profiler.torch_profiler import prime

    prime(current_device("cuda"))
    torch = load_torch()
    kernels = events // EVENTS_A_KERNEL
    x = torch.zeros(1024, device="cuda")
    kinds = torch.profiler.ProfilerActivity
    profiler = torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA])
    torch.cuda.synchronize()
    with profiler:
        for _ in range(kernels):
            x.add_(1)
        torch.cuda.synchronize()
    start = time.perf_counter()
    profiler.export_chrome_trace(str(path))
    return Trace(path, events, kernels, time.perf_counter() - start, profiler)


def written_trace(path: Path, events: int) -> Trace:
    with open(path, "w") as file:
        kernels = write_trace(file, events)
    return Trace(path, events, kernels)


# -- readers -------------------------------------------------------------------------------------


def finish(profile: Profile, expected: int | None = None) -> None:
    """Compute all that a profile has to say."""
    assert profile.integrity.complete, profile.integrity.problems
    assert profile.metrics
    assert len(profile.kernels) == profile.kernel_count
    assert expected is None or profile.kernel_count == expected, profile.kernel_count


def read_by_us(trace: Trace) -> None:
    finish(Profile.from_trace(trace.path), trace.kernels)


def read_by_hta(trace: Trace) -> None:
    module = importlib.import_module("hta.common.trace")
    module.parse_trace_file(str(trace.path))


def read_by_torch(trace: Trace) -> None:
    profiler, trace.profiler = trace.profiler, None  # the second time it would answer from a cache
    profiler.events()
    profiler.key_averages()


def stages(trace: Trace) -> dict[str, float]:
    """Seconds of each step from the file to the finished profile."""
    took: dict[str, float] = {}

    def step(name: str, work: Callable[[], object]) -> Any:
        start = time.perf_counter()
        result = work()
        took[name] = time.perf_counter() - start
        return result

    columns = step("read into columns", lambda: read_trace(trace.path))
    reading = step("link activity, call, operator", lambda: reading_of(columns))
    facts = step("completeness, metrics, kernels", lambda: session_facts(reading))
    step("profile", lambda: profile_of(facts, columns.recording))
    return took


# -- memory: in processes of their own -----------------------------------------------------------


def peak_of(reader: str, path: str) -> int | None:
    """Peak memory in a fresh process: ``reader`` is "nothing" (imports only), "ours" or "hta"."""
    if not Path("/proc/self/status").exists():
        return None
    command = [sys.executable, __file__, "--peak-of", reader, path]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return int(said.splitlines()[-1])


def print_peak(reader: str, path: str) -> None:
    logging.disable(logging.WARNING)
    if reader.startswith("hta"):
        module = importlib.import_module("hta.common.trace")
        if reader == "hta":
            module.parse_trace_file(path)
    elif reader == "ours":
        finish(Profile.from_trace(path))
    print(peak_bytes())


def bytes_an_event(reader: str, trace: Trace) -> float | None:
    path = str(trace.path)
    base, peak = (
        peak_of("hta nothing" if reader == "hta" else "nothing", path),
        peak_of(reader, path),
    )
    return None if base is None or peak is None else (peak - base) / trace.events


# -- the table -----------------------------------------------------------------------------------


@dataclass
class Results:
    """What was measured at one size; times in seconds by reader."""

    events: int
    file_mb: float
    took: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    export: list[float] = field(default_factory=list)
    steps: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    bytes_ours: float | None = None
    bytes_hta: float | None = None

    def median(self, reader: str) -> float | None:
        return statistics.median(self.took[reader]) if self.took[reader] else None

    def ratio(self, reader: str) -> float | None:
        """How many times faster than a peer, from medians of runs in turn."""
        theirs, mine = self.median(reader), self.median(OURS)
        return theirs / mine if theirs and mine else None


def measure_size(
    events: int, folder: Path, options: argparse.Namespace, peers: Sequence[str]
) -> Results:
    path = folder / f"{events}.json"
    make = record_trace if EVENTS in peers else written_trace
    trace = make(path, events)
    results = Results(events, path.stat().st_size / 1e6)
    readers: dict[str, Callable[[Trace], None]] = {OURS: read_by_us}
    if HTA in peers and events <= options.hta_up_to:
        readers[HTA] = read_by_hta
    if EVENTS in peers and events <= options.events_up_to:
        readers[EVENTS] = read_by_torch
    read_by_us(trace)  # the file into the page cache, the code warm
    for name in in_turn(list(readers), options.rounds):
        if name == EVENTS and trace.profiler is None:
            trace = record_trace(path, events)
        if trace.export_s:
            results.export.append(trace.export_s)
            trace.export_s = 0.0
        gc.collect()
        start = time.perf_counter()
        readers[name](trace)
        results.took[name].append(time.perf_counter() - start)
    trace.profiler = None
    for _ in range(options.rounds):
        gc.collect()
        for step, seconds in stages(trace).items():
            results.steps[step].append(seconds)
    results.bytes_ours = bytes_an_event("ours", trace)
    if HTA in readers:
        results.bytes_hta = bytes_an_event("hta", trace)
    path.unlink()
    return results


def shown(value: float | None, text: str = "{:.0f}") -> str:
    return "-" if value is None else text.format(value)


def report(found: Sequence[Results], peers: Sequence[str]) -> None:
    rows = []
    for result in found:
        for reader in (OURS, HTA, EVENTS):
            if not result.took[reader]:
                continue
            used = {OURS: result.bytes_ours, HTA: result.bytes_hta}.get(reader)
            times = "" if reader == OURS else shown(result.ratio(reader), "{:.1f}x")
            size = f"{result.events:,}"
            rows.append([reader, size, spread(result.took[reader]), times, shown(used)])
        if result.export:
            size = f"{result.events:,}"
            rows.append(["(export by torch)", size, spread(result.export), "", ""])
    header = ["reader", "events", "s, median [quartiles]", "of ours", "peak bytes/event"]
    print(table(header, rows))
    if HTA not in peers:
        print(f"  {HTA}: not installed (pip install -r benchmarks/requirements.txt)")
    if EVENTS not in peers:
        print(f"  {EVENTS}: needs a GPU to record on")
    print()
    steps = list(found[0].steps)
    rows = [
        [step, *(f"{statistics.median(result.steps[step]):.3f}" for result in found)]
        for step in steps
    ]
    print(table(["step, s", *(f"{result.events:,}" for result in found)], rows))
    print(f"  files: {', '.join(f'{result.file_mb:.0f} MB' for result in found)}")
    print()


def judge(found: Sequence[Results]) -> None:
    judged = min(found, key=lambda result: abs(result.events - JUDGED))
    print(f"at {judged.events:,} events:")
    for reader, target in ((EVENTS, FASTER_THAN_EVENTS), (HTA, FASTER_THAN_HTA)):
        ratio = judged.ratio(reader)
        if ratio is not None:
            verdict = met(ratio >= target)
            print(f"  {ratio:.1f}x faster than {reader}; target {target:.0f}x: {verdict}")
    if judged.bytes_ours is not None:
        verdict = met(judged.bytes_ours < MOST_BYTES)
        print(f"  {judged.bytes_ours:.0f} bytes an event; target below {MOST_BYTES:.0f}: {verdict}")
    if len(found) > 1:
        each = [(result.median(OURS) or 0) / result.events * 1e6 for result in found]
        sizes = ", ".join(f"{us:.2f}" for us in each)
        print(f"us an event from size to size (equal if linear): {sizes}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="events")
    parser.add_argument("--rounds", type=int, default=5, help="readings of each")
    parser.add_argument("--hta-up-to", type=int, default=JUDGED, metavar="EVENTS")
    parser.add_argument("--events-up-to", type=int, default=JUDGED, metavar="EVENTS")
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--no-hta", action="store_true", help="leave HolisticTraceAnalysis out")
    parser.add_argument("--quick", action="store_true", help="30,000 and 100,000 events, 2 rounds")
    parser.add_argument("--write", type=Path, metavar="FILE", help="only write such a trace")
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of:
        print_peak(*options.peak_of)
        return
    if options.write:
        written_trace(options.write, options.sizes[0])
        return
    if options.quick:
        options.sizes, options.rounds = [30_000, 100_000], 2
    logging.disable(logging.WARNING)  # HolisticTraceAnalysis tells of every step
    kind = device_kind(options.device)
    peers = [OURS]
    if version(HTA) != "not installed" and not options.no_hta:
        peers.append(HTA)
    if kind == "cuda":
        peers.append(EVENTS)

    print(f"Reading a trace to the finished Profile: {options.rounds} readings of each, in turn")
    print(device_and_place(kind, "pytest-kernelprof", HTA, "numpy", "msgspec"))
    print(
        "traces: " + ("recorded on this GPU" if kind == "cuda" else "written (no GPU to record on)")
    )
    print()
    with tempfile.TemporaryDirectory() as folder:
        found = [measure_size(size, Path(folder), options, peers) for size in options.sizes]
    report(found, peers)
    judge(found)


if __name__ == "__main__":
    main()
