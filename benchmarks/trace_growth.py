"""How the reading of a trace grows with it, for traces of four kinds, beside others that read it.

Each reading is a process of its own: its processor's seconds from the file to the finished Profile
(for HolisticTraceAnalysis to its parsed table; for decoders of JSON to Python's own objects, which
a reader of events as dictionaries begins with), and by how much the peak of its memory rose. The
exponent is the slope of a line through the logarithms of time and events: 1 is linear. Files are
written, of the kinds that ``written_traces`` tells of; ``--recorded`` reads those that are there
(``recorded_traces.py``). ``--before`` is another checkout, whose reader is a row as well.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from harness import in_turn, met, peak_bytes, place, table
from written_traces import KINDS, write_trace

from pytest_kernelprof.api import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (100_000, 300_000, 1_000_000, 3_000_000)
OURS, HTA = "pytest-kernelprof", "HolisticTraceAnalysis"
MSGSPEC, JSON = "msgspec.json.decode", "json.loads"
ORJSON, BEFORE = "orjson.loads", "before"
DECODERS = {MSGSPEC: msgspec.json.decode, JSON: json.loads}
MOST_US, MOST_BYTES, MOST_EXPONENT, FASTER_THAN_HTA = 1.3, 250.0, 1.1, 10.0
MOST_US_RECORDED = 2.5


@dataclass(frozen=True)
class Reading:
    """Seconds and peak bytes, both of the reading alone; None where it was given up."""

    seconds: float | None
    peak: float = 0.0


@dataclass(frozen=True)
class Row:
    """What readings of one file by one reader took: medians."""

    kind: str
    events: int
    reader: str
    seconds: float | None
    peak: float


# -- one reading, in a process of its own --------------------------------------------------------


def read_here(reader: str, path: str, folder: str) -> None:
    """Read a file and print what it took."""
    logging.disable(logging.WARNING)
    if folder:
        sys.path.append(folder)
    parse = importlib.import_module("hta.common.trace").parse_trace_file if reader == HTA else None
    Profile.from_trace(Path(__file__).parents[1] / "tests" / "traces" / "mlp.json.gz")  # imports
    before, start = peak_bytes(), time.process_time()
    if parse:
        parse(path)
    elif reader == ORJSON:
        importlib.import_module("orjson").loads(Path(path).read_bytes())
    elif reader in DECODERS:
        DECODERS[reader](Path(path).read_bytes())
    else:
        finish(Profile.from_trace(path))
    print(json.dumps([time.process_time() - start, peak_bytes() - before]))


def finish(profile: Profile) -> None:
    """Everything that a profile has to say."""
    if problems := profile.integrity.problems:
        print(f"not complete: {'; '.join(problems)}", file=sys.stderr)
    assert len(profile.kernels) == profile.kernel_count
    assert profile.metrics


def read(reader: str, path: Path, options: argparse.Namespace) -> Reading:
    command = [sys.executable, __file__, "--read", reader, str(path)]
    command += ["--hta-folder", options.hta_folder]
    checkout = options.before if reader == BEFORE else str(Path(__file__).parents[1])
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
            timeout=options.patience,
            env={**os.environ, "PYTHONPATH": f"{checkout}:{os.environ.get('PYTHONPATH', '')}"},
        )
    except subprocess.TimeoutExpired:
        return Reading(None)
    except subprocess.CalledProcessError as error:
        print(f"  {reader} failed on {path.name}: exit status {error.returncode}", flush=True)
        return Reading(None)
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return Reading(seconds, peak)


# -- all of them ---------------------------------------------------------------------------------


def measure(kind: str, folder: Path, options: argparse.Namespace) -> list[Row]:
    """The rows of one kind, smallest first; who has given up once reads no larger file."""
    rows: list[Row] = []
    readers = readers_of(options)
    for events in options.sizes:
        path = folder / f"{kind.replace(' ', '_')}-{events}.json"
        with open(path, "w") as file:
            write_trace(file, events, kind)
        size = path.stat().st_size / 1e6
        print(f"  {kind}, {events:,} events, {size:,.0f} MB", file=sys.stderr, flush=True)
        ours = (OURS, BEFORE)
        able = [one for one in readers if one in ours or events <= options.others_up_to]
        taken = readings(path, able, options)
        path.unlink()
        rows += [row_of(kind, events, reader, found) for reader, found in taken.items()]
        readers = [one for one in able if taken[one][-1].seconds is not None]
    return rows


def readers_of(options: argparse.Namespace) -> list[str]:
    has_orjson = importlib.util.find_spec("orjson") is not None
    wanted = {BEFORE: options.before, ORJSON: has_orjson, HTA: not options.no_hta}
    return [OURS, MSGSPEC, JSON, *(reader for reader, wants in wanted.items() if wants)]


def readings(
    path: Path, readers: Sequence[str], options: argparse.Namespace
) -> dict[str, list[Reading]]:
    """What reading a file took each of them, in turn; who has given up once is not asked again."""
    taken: dict[str, list[Reading]] = {reader: [] for reader in readers}
    for reader in in_turn(readers, options.rounds):
        if all(one.seconds is not None for one in taken[reader]):
            taken[reader].append(read(reader, path, options))
    return taken


def measure_recorded(path: Path, options: argparse.Namespace) -> list[Row]:
    """The rows of a file that is there, whose events are counted by their records."""
    events = sum(one.get("ph") == "X" for one in json.loads(path.read_bytes())["traceEvents"])
    taken = readings(path, readers_of(options), options)
    return [row_of(path.stem, events, reader, found) for reader, found in taken.items()]


def row_of(kind: str, events: int, reader: str, found: Sequence[Reading]) -> Row:
    times = [one.seconds for one in found if one.seconds is not None]
    whole = len(times) == len(found)
    peak = statistics.median(one.peak for one in found)
    return Row(kind, events, reader, statistics.median(times) if whole else None, peak)


def exponent(rows: Sequence[Row]) -> float | None:
    """The slope of log time over log events by least squares; None of fewer than two sizes."""
    points = [(math.log(row.events), math.log(row.seconds)) for row in rows if row.seconds]
    if len(points) < 2:
        return None
    x, y = (statistics.fmean(column) for column in zip(*points, strict=True))
    run = sum((a - x) ** 2 for a, _ in points)
    return sum((a - x) * (b - y) for a, b in points) / run


def report(rows: Sequence[Row]) -> None:
    header = ["kind", "events", "reader", "CPU s", "us an event", "bytes an event", "of ours"]
    ours = {(row.kind, row.events): row.seconds for row in rows if row.reader == OURS}
    cells = []
    for row in rows:
        if row.seconds is None:
            took = ["given up", "", "", ""]
        else:
            mine = ours.get((row.kind, row.events))
            times = f"{row.seconds / mine:.1f}x" if mine and row.reader != OURS else ""
            took = [
                f"{row.seconds:.2f}",
                f"{row.seconds / row.events * 1e6:.2f}",
                f"{row.peak / row.events:.0f}",
                times,
            ]
        cells.append([row.kind, f"{row.events:,}", row.reader, *took])
    print(table(header, cells))
    print()


def judge(rows: Sequence[Row]) -> None:
    for kind in dict.fromkeys(row.kind for row in rows):
        ours = [row for row in rows if row.kind == kind and row.reader == OURS]
        grows = exponent(ours)
        known = [row for row in ours if row.seconds is not None]
        if len(known) < len(ours):
            print(f"{kind}: given up on at {ours[-1].events:,} events: {met(False)}")
            continue
        largest = known[-1]
        us = (largest.seconds or 0) / largest.events * 1e6
        if grows is None:
            most = MOST_US if kind in KINDS else MOST_US_RECORDED
            print(f"{kind}: {us:.2f} us an event (at most {most}): {met(us <= most)}")
            for reader in (BEFORE, *DECODERS, ORJSON, HTA):
                print_ratios(reader, ratios(rows, known, reader))
            continue
        size = largest.peak / largest.events
        kept = grows < MOST_EXPONENT and us <= MOST_US and size <= MOST_BYTES
        print(
            f"{kind}: exponent {grows:.2f} (below {MOST_EXPONENT}), {us:.2f} us "
            f"(at most {MOST_US}) and {size:.0f} bytes (at most {MOST_BYTES:.0f}) an event at "
            f"{largest.events:,}: {met(kept)}"
        )
        for reader in (BEFORE, *DECODERS, ORJSON, HTA):
            print_ratios(reader, ratios(rows, known, reader))


def ratios(rows: Sequence[Row], ours: Sequence[Row], reader: str) -> list[float]:
    """How many times as long as we a reader took, by file."""
    return [
        theirs.seconds / mine.seconds
        for theirs in rows
        for mine in ours
        if (theirs.kind, theirs.events, theirs.reader) == (mine.kind, mine.events, reader)
        and theirs.seconds
        and mine.seconds
    ]


def print_ratios(reader: str, found: Sequence[float]) -> None:
    if not found:
        return
    target = ""
    if reader == HTA:
        target = f"; target {FASTER_THAN_HTA:.0f}: {met(min(found) >= FASTER_THAN_HTA)}"
    print(f"  {min(found):.1f} to {max(found):.1f} times faster than {reader}{target}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--recorded", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--before", default="", metavar="FOLDER", help="another checkout")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="events")
    parser.add_argument("--rounds", type=int, default=3, help="readings of each file")
    parser.add_argument("--others-up-to", type=int, default=1_000_000, metavar="EVENTS")
    parser.add_argument("--hta-folder", default="", help="where pip install --target put it")
    parser.add_argument("--no-hta", action="store_true", help="leave HolisticTraceAnalysis out")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds of one reading")
    parser.add_argument("--quick", action="store_true", help="30,000 and 100,000 events, 1 reading")
    parser.add_argument("--read", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read_here(*options.read, options.hta_folder)
        return
    if options.quick:
        options.sizes, options.rounds = [30_000, 100_000], 1
    if options.hta_folder:
        sys.path.append(options.hta_folder)
    print(f"From a file to the finished Profile: median of {options.rounds} readings, in turn")
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(place("pytest-kernelprof", HTA, "numpy", "msgspec") + load)
    print()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for path in options.recorded:
            rows += measure_recorded(path, options)
        for kind in () if options.recorded else options.kinds:
            rows += measure(kind, Path(folder), options)
    report(rows)
    judge(rows)


if __name__ == "__main__":
    main()
