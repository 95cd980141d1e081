"""``kernelprof noise --pairs``: how far pairs of processes that run the same code differ, and the
margin for times against a revision that this machine bears."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.against.holding import HeldRounds
from pytest_kernelprof.against.turns import NoRounds, take_turns
from pytest_kernelprof.against.wire import Lost, Wire
from pytest_kernelprof.device.conditions import LOCK_TIMEOUT_S, alone
from pytest_kernelprof.device.inventory import current_device
from pytest_kernelprof.device.shared_lock import tell_children
from pytest_kernelprof.digest.conditions import doubt_words
from pytest_kernelprof.errors import ProfilerUnavailable
from pytest_kernelprof.schema.against import Done, Finish, FromReference, RunTest
from pytest_kernelprof.schema.turns import At, Go, TimedPair
from pytest_kernelprof.stats.pairs import DEFAULT_MARGIN, noise_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_kernelprof.device.inventory import Device
    from pytest_kernelprof.schema.run import Conditions
    from pytest_kernelprof.schema.turns import Side

_SCHEMA = 1
_TIMEOUT_S = 300.0
_ROOT = str(Path(__file__).parents[2])
_CODE = f"import sys; sys.path.append({_ROOT!r}); from pytest_kernelprof.cli.paired import main; "
_AT_WORK = 2


class Paired(HeldRounds):
    """A fresh process that holds in workloads.

    Attributes:
        at: the workload that it holds in.
    """

    def __init__(self, device: Device) -> None:
        theirs_in, out = os.pipe()
        inn, theirs_out = os.pipe()
        ends = (theirs_in, theirs_out)
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"{_CODE}main({[','.join(map(str, ends)), device.kind]!r})"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=ends,
        )
        for end in ends:
            os.close(end)
        super().__init__(Wire(inn, out, FromReference), _TIMEOUT_S)

    def bring(self, workload: str) -> At:
        """Have it measure a workload, and hold in it.

        Raises:
            NoRounds: it cannot measure it.
        """
        self._wire.send(RunTest(workload, holds=True), _TIMEOUT_S)
        answer = self._wire.receive(_TIMEOUT_S)
        if not isinstance(answer, At):
            why = answer.failure if isinstance(answer, Done) else ""
            raise NoRounds(f"{workload}: {why or 'it was not measured'}")
        return answer

    def let_go(self) -> None:
        """Have it leave the workload."""
        self._wire.send(Go(), _TIMEOUT_S)
        self._wire.receive(_TIMEOUT_S)

    def end(self) -> None:
        """End it."""
        with contextlib.suppress(Lost):
            self._wire.send(Finish(), 1.0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10.0)
        self._process.kill()
        self._process.wait()
        self._wire.close()


def run(chosen: argparse.Namespace) -> int:
    """Measure and print; 0.

    Raises:
        ProfilerUnavailable: there is no GPU, or a process could not measure.
    """
    from pytest_kernelprof.cli.workloads import workloads

    device = current_device("cuda")
    names = tuple(workloads(device.kind))
    tell_children()
    found: dict[str, list[TimedPair]] = {name: [] for name in names}
    doubts: list[str] = []
    for number in range(chosen.pairs):
        first: Side = "reference" if number % 2 else "candidate"
        if sys.stderr.isatty():
            print(f"pair {number + 1} of {chosen.pairs} ...", file=sys.stderr, flush=True)
        for name, (pair, conditions) in measure_pair(device, first, names).items():
            found[name].append(pair)
            if conditions.disturbed:
                doubts.append(f"{name}: {doubt_words(conditions)}")
    report = report_of(device.name, found, doubts)
    print(json.dumps(report, indent=2) if chosen.json else "\n".join(lines_of(report)))
    return 0


def measure_pair(
    device: Device, first: Side, names: Sequence[str]
) -> dict[str, tuple[TimedPair, Conditions]]:
    """Two fresh processes, one of which comes up first, by all workloads in turn.

    Raises:
        ProfilerUnavailable: one of them could not measure.
    """
    found = {}
    have = partial(alone, device, LOCK_TIMEOUT_S, "kernelprof noise --pairs", at_work=_AT_WORK)
    with contextlib.ExitStack() as ended:
        try:
            sides: dict[Side, Paired] = {}
            for name in names:
                for side in _from(first):  # the second is started when the first has a context
                    if side not in sides:
                        sides[side] = Paired(device)
                        ended.callback(sides[side].end)
                    sides[side].bring(name)
                taken = take_turns(sides["candidate"], sides["reference"], have)
                found[name] = taken.pair(first), taken.conditions
                for one in sides.values():
                    one.let_go()
        except (NoRounds, Lost) as error:
            raise ProfilerUnavailable(f"a pair could not measure: {error}") from error
    return found


def _from(first: Side) -> Iterator[Side]:
    yield first
    yield "reference" if first == "candidate" else "candidate"


def report_of(
    device: str, found: Mapping[str, Sequence[TimedPair]], doubts: Sequence[str]
) -> dict[str, Any]:
    """What pairs show of each workload; no margin from times that were disturbed."""
    rows = []
    for name, pairs in found.items():
        noise = noise_of([(pair.first or "candidate", pair.ratio) for pair in pairs])
        rows.append(
            {
                "workload": name,
                "median_us": sorted(pair.old_us for pair in pairs)[len(pairs) // 2],
                "order": noise.order,
                "spread": noise.spread,
                "largest": noise.largest,
                "margin": None if doubts else noise.margin,
                "suspected": sum(pair.ratio - 1 > DEFAULT_MARGIN / 2 for pair in pairs),
                "pairs": [{"first": pair.first, "ratio": pair.ratio} for pair in pairs],
            }
        )
    return {"schema": _SCHEMA, "device": device, "rows": rows, "doubts": sorted({*doubts})}


def lines_of(report: Mapping[str, Any]) -> list[str]:
    """The report for people."""
    from pytest_kernelprof.report.tables import Column, render
    from pytest_kernelprof.units import format_time

    rows, count = report["rows"], len(report["rows"][0]["pairs"])
    names = ("cuda time", "first faster", "spread", "largest", "suspected", "margin")
    columns = [Column("workload", shrinks=True), *(Column(name, number=True) for name in names)]
    cells = [
        [
            one["workload"],
            format_time(one["median_us"]),
            f"{one['order'] * 100:+.2f} %",
            f"{one['spread'] * 100:.2f} %",
            f"{one['largest'] * 100:.2f} %",
            f"{one['suspected']} of {count}",
            "-" if one["margin"] is None else f"{one['margin'] * 100:.1f} %",
        ]
        for one in rows
    ]
    lines = [
        f"{report['device']}: {count} pairs of fresh processes of the same code",
        *render(columns, cells, shutil.get_terminal_size((100, 24)).columns),
        "",
        *(f"Disturbed: {doubt}." for doubt in report["doubts"]),
    ]
    if report["doubts"]:
        return [*lines, "No margin: measure again when the GPU is cool and has nothing else to do."]
    borne = max(one["margin"] for one in rows)
    return [
        *lines,
        f"--kernelprof-margin={borne * 100:.1f}% and above raises no alarm on these.",
        "first faster: by how much who comes up first is; spread: of pairs beyond that; suspected: "
        f"pairs that would ask for more at a margin of {DEFAULT_MARGIN:.0%}.",
    ]
