"""``kernelprof noise``: how much times vary on this machine, and the margins to use."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pytest_kernelprof import api, errors, units
from pytest_kernelprof.cli.doctor import NotFinished, last_words, run_fresh
from pytest_kernelprof.gpu.inventory import DeviceKind, current_device, load_torch, usual_kind
from pytest_kernelprof.report.tables import Column, Table, style_of_output
from pytest_kernelprof.stats import intervals
from pytest_kernelprof.summary import wording

_METRICS = ("cuda_time", "latency", "launch_overhead")
_TIMEOUT_S = 900.0


def run(chosen: argparse.Namespace) -> int:
    """Measure and print; return 0.

    Raises:
        IncompleteProfile: a workload could not be measured.
    """
    if chosen.processes == 1:
        answers = [_measure_here(chosen)]
    else:
        answers = [_measure_in_fresh_process(chosen, i) for i in range(chosen.processes)]
    report = report_of(chosen, answers)
    print(json.dumps(report, indent=2) if chosen.json else "\n".join(lines_of(report)))
    return 0


def _measure_here(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure the rounds of every workload in this process, and where that was."""
    kind: DeviceKind = usual_kind() if chosen.device == "auto" else chosen.device
    current_device(kind)  # an error where there is none, before anything is made on it
    metrics = _METRICS if kind == "cuda" else ("latency",)
    measured: intervals.Run = {}
    place = ""
    doubts = []
    for name, call in _workloads(kind).items():
        found = api.profile(call, device=kind, rounds=chosen.rounds)
        place = wording.machine(found.environment)
        measured = {**measured, name: {key: list(found.metrics[key].rounds) for key in metrics}}
        if found.conditions.disturbed:
            doubts.append(f"{name}: {wording.doubt(found.conditions)}")
    return {"device": kind, "place": place, "doubts": doubts, "run": measured}


def _workloads(kind: DeviceKind) -> dict[str, Callable[[], Any]]:
    """Return a few real workloads by name. On the GPU: a kernel of a microsecond, a gated MLP for
    one token (many short kernels) and one for 8192 rows (few long ones). On the CPU: a small MLP.

    Raises:
        ProfilerUnavailable: torch is not installed.
    """
    torch = load_torch()
    if kind == "cpu":
        return {"small MLP": _gated_mlp(torch, torch.float32, "cpu", 32, 256, 1024)}
    x = torch.ones(1024, device="cuda")
    return {
        "tiny add": functools.partial(torch.add, x, 1),
        "decode MLP": _gated_mlp(torch, torch.float16, "cuda", 1, 1024, 4096),
        "large MLP": _gated_mlp(torch, torch.float16, "cuda", 8192, 768, 3072),
    }


def _gated_mlp(
    torch: Any, dtype: Any, device: str, rows: int, width: int, hidden: int
) -> Callable[[], Any]:
    make = functools.partial(torch.randn, device=device, dtype=dtype)
    x = make(rows, width)
    gate, up, down = (make(a, b) for a, b in ((width, hidden), (width, hidden), (hidden, width)))

    def gated_mlp() -> Any:
        with torch.no_grad():
            return (torch.nn.functional.gelu(x @ gate) * (x @ up)) @ down

    return gated_mlp


def _measure_in_fresh_process(chosen: argparse.Namespace, index: int) -> dict[str, Any]:
    if sys.stderr.isatty():
        print(f"process {index + 1} of {chosen.processes} ...", file=sys.stderr, flush=True)
    arguments = ["noise", "--processes=1", "--json"]
    arguments += [f"--rounds={chosen.rounds}", f"--device={chosen.device}"]
    code = f"from pytest_kernelprof.cli.main import main; sys.exit(main({arguments!r}))"
    try:
        done = run_fresh(code, _TIMEOUT_S)
    except NotFinished as error:
        raise errors.ProfilerUnavailable(f"process {index + 1}: {error}") from error
    if done.returncode:
        why = f"status {done.returncode}: {last_words(done).removeprefix('kernelprof: ')}"
        raise errors.ProfilerUnavailable(f"process {index + 1} ended with {why}")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        shown = done.stdout.strip()[:80]
        raise errors.ProfilerUnavailable(
            f"process {index + 1} did not print its times, but: {shown!r}"
        ) from None
    return {**{key: answer[key] for key in ("device", "place", "doubts")}, "run": answer["runs"][0]}


def report_of(chosen: argparse.Namespace, answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Judge the answers of all processes; disturbed times give no margins."""
    runs = [answer["run"] for answer in answers]
    found = intervals.spreads(runs)
    doubts = sorted({doubt for answer in answers for doubt in answer["doubts"]})
    if doubts:
        found = [spread._replace(margin_us=None) for spread in found]
    return {
        "schema": 1,
        "device": answers[0]["device"],
        "place": answers[0]["place"],
        "rounds": chosen.rounds,
        "processes": len(answers),
        "spreads": [{**spread._asdict(), "margin": spread.margin} for spread in found],
        "margins": [
            {**margin._asdict(), "text": margin.text} for margin in intervals.margins(found)
        ],
        "doubts": doubts,
        "rule": intervals.RULE,
        "runs": runs,
    }


def lines_of(report: dict[str, Any]) -> list[str]:
    """Return the report as text: a table, the margins, and their rule."""
    processes = wording.count(report["processes"], "process", "processes")
    title = f"{report['place']}: {report['rounds']} rounds in each of {processes}"
    lines = [title, *_table(report["spreads"]), ""]
    if report["device"] == "cpu":
        lines.append("On the CPU only latency is measured; limits on other times need a GPU.")
    lines += [f"Disturbed: {doubt}." for doubt in report["doubts"]]
    if report["margins"]:
        lines += ["Margins that are large enough for all of these:"]
        lines += [f"  {margin['text']}" for margin in report["margins"]]
        lines.append(f"Rule: {report['rule']}.")
        if any((margin["fraction"] or 0) > 1 for margin in report["margins"]):
            lines.append(
                "A margin above 100 % catches little: run nothing else on the machine, or "
                "compare more processes (k is 37 for 2, 10.6 for 3, 5.7 for 5, 4.0 for 10)."
            )
    elif report["doubts"]:
        lines.append("No margins: measure again when the GPU is cool and idle.")
    else:
        lines.append("No margins: one process does not show how processes differ (--processes=3).")
    return lines


def _table(spreads: Sequence[dict[str, Any]]) -> list[str]:
    titles = ("median", "within", "lag 1", "between", "margin")
    rows = [
        (
            units.format_time(one["median_us"]),
            _percent(one["within"]),
            f"{one['autocorrelation']:+.2f}",
            _percent(one["between"]),
            "" if one["margin_us"] is None else f"+{units.format_time(one['margin_us'])}",
        )
        for one in spreads
    ]
    columns = [Column(one, tuple(row[at] for row in rows)) for at, one in enumerate(titles)]
    names = tuple(f"{one['metric']} of {one['workload']}" for one in spreads)
    return Table((*columns, Column("what", names, kind="name"))).lines(style_of_output())


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction * 100:.1f} %"
