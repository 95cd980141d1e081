"""Does a comparison cry wolf, and does it find what is there? A/A, A/A under load, A/B.

A/A compares a function with itself by `not_slower(by="2%")` at the default settings: whatever
fails is a false alarm. Under load, a second process keeps the same GPU busy. A/B makes a function
slower on purpose: one kernel more that takes 2, 5 or 10 % of the time, a slower tile, an `.item()`.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from harness import device_and_place, met, quartiles, table
from workloads import WORKLOADS, Call, cycles_per_us, with_a_pause

from pytest_kernelprof.distributed.agreement import ALONE
from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.gpu.inventory import load_torch
from pytest_kernelprof.limits.evaluate import evaluate_comparison
from pytest_kernelprof.limits.kinds import parse_assertion
from pytest_kernelprof.measure.arguments import Arguments
from pytest_kernelprof.measure.callables import Contest, contest
from pytest_kernelprof.measure.policy import Plan, more_pairs, no_progress
from pytest_kernelprof.stats.intervals import autocorrelation

BUSY = Path(__file__).parent.parent / "tests" / "gpu" / "busy.py"


@dataclass
class Tally:
    """Outcomes of many comparisons of one kind."""

    outcomes: Counter[str] = field(default_factory=Counter)
    pairs: list[int] = field(default_factory=list)
    speedups: list[float] = field(default_factory=list)
    covered: int = 0
    autocorrelations: list[float] = field(default_factory=list)

    @property
    def comparisons(self) -> int:
        return sum(self.outcomes.values())


def compare(
    candidate: Call, reference: Call, metric: Any = "cuda_time"
) -> tuple[str, Contest | None]:
    """One comparison from nothing, as a test makes it, and how ``not_slower(by="2%")`` ends."""
    plan = Plan(
        "cuda", rounds=12, lock_timeout_s=600.0, who="false_alarms.py", ignore_children=True
    )
    callables = {"candidate": candidate, "reference": reference}
    try:
        rounds = contest(
            callables,
            plan,
            Arguments(),
            reference="reference",
            metric=metric,
            check=None,
            fresh=None,
            measuring=partial(contextlib.nullcontext, no_progress),
            agreeing=partial(contextlib.nullcontext, ALONE),
        )
    except IncompleteProfile:
        return "incomplete", None
    limit = parse_assertion("not_slower", "2%")
    while True:
        verdict = evaluate_comparison(
            limit,
            rounds.record(),
            "candidate",
            rounds.values("candidate"),
            rounds.values("reference"),
        )
        decided = verdict.outcome != "undecided"
        more = more_pairs(rounds.pairs, decided=decided, disturbed=rounds.disturbed)
        if not more:
            return ("disturbed" if rounds.disturbed else verdict.outcome), rounds
        rounds.take(more)


def tally(
    candidate: Call, reference: Call, number: int, seconds: float, metric: Any = "cuda_time"
) -> Tally:
    """Many comparisons, or as many as there is time for."""
    found, late = Tally(), time.monotonic() + seconds
    for _ in range(number):
        outcome, rounds = compare(candidate, reference, metric)
        found.outcomes[outcome] += 1
        if rounds is not None:
            paired = rounds.paired("candidate")
            found.pairs.append(rounds.pairs)
            found.speedups.append(paired.speedup)
            low, high = paired.speedup_interval or (-math.inf, math.inf)
            found.covered += low <= 1 <= high
            found.autocorrelations.append(autocorrelation(rounds.values("reference")))
        if time.monotonic() > late:
            break
    return found


def row_of(name: str, found: Tally) -> list[str]:
    return [
        name,
        str(found.comparisons),
        *(
            str(found.outcomes[outcome])
            for outcome in ("failed", "passed", "undecided", "disturbed")
        ),
        f"{statistics.median(found.speedups):.4f}" if found.speedups else "-",
        f"{quartiles(found.pairs)[1]:.0f}, {max(found.pairs)}" if found.pairs else "-",
        f"{100 * found.covered / max(1, len(found.speedups)):.1f} %",
        "{:+.2f} [{:+.2f}, {:+.2f}]".format(
            *(lambda q: (q[1], q[0], q[2]))(quartiles(found.autocorrelations))
        )
        if found.autocorrelations
        else "-",
    ]


HEADER = [
    *("comparison", "number", "failed", "passed", "undecided", "disturbed"),
    *("median speedup", "pairs: median, most", "CI holds 1", "lag-1 of rounds [quartiles]"),
]


def same(torch: Any, number: int, seconds: float) -> list[list[str]]:
    rows, alarms, total = [], 0, 0
    for name, make in WORKLOADS.items():
        call = make(torch)
        # Four in five of the others decide after 12 or 24 pairs; the add mostly takes all 96.
        found = tally(call, call, number // 2 if name == "tiny add" else number, seconds)
        rows.append(row_of(f"A/A {name}", found))
        alarms += found.outcomes["failed"]
        total += found.comparisons
    print(table(HEADER, rows))
    print(f"false alarms: {alarms} of {total}; target: none of 3,000: {met(alarms == 0)}\n")
    return rows


def loaded(torch: Any, number: int, seconds: float) -> None:
    with subprocess.Popen([sys.executable, str(BUSY)], stdout=subprocess.PIPE, text=True) as load:
        assert load.stdout is not None
        load.stdout.readline()
        try:
            rows, alarms, unseen, total = [], 0, 0, 0
            for name, make in WORKLOADS.items():
                call = make(torch)
                found = tally(call, call, number, seconds)
                rows.append(row_of(f"A/A {name}, loaded", found))
                alarms += found.outcomes["failed"]
                unseen += found.outcomes["passed"] + found.outcomes["undecided"]
                total += found.comparisons
        finally:
            load.kill()
    print(table(HEADER, rows))
    print(
        f"false alarms: {alarms} of {total}, contention not seen: {unseen}; target: none and none: "
        f"{met(alarms == 0 and unseen == 0)}\n"
    )


def slower(torch: Any, number: int, seconds: float) -> None:
    speed = cycles_per_us(torch)
    rows, found_5 = [], []
    for name, share in (
        *(("large MLP", share) for share in (0.02, 0.05, 0.10)),
        *(("decode MLP", share) for share in (0.05, 0.10)),
    ):
        call = WORKLOADS[name](torch)
        usual = compare(call, call)[1]
        assert usual is not None
        pause = share * statistics.median(usual.values("reference"))
        found = tally(with_a_pause(torch, call, pause, speed), call, number, seconds)
        rows.append(row_of(f"{name}, {share:.0%} more", found))
        found_5 += [found] if share == 0.05 and name == "large MLP" else []
    quick, slow = tiles(torch)
    rows.append(row_of("copy, a slower tile", tally(slow, quick, number, seconds)))
    call = WORKLOADS["decode MLP"](torch)
    waits = lambda: call().sum().item()  # noqa: E731
    sums = lambda: call().sum()  # noqa: E731
    found = tally(waits, sums, number, seconds, "latency")
    rows.append(row_of("decode MLP, .item(), latency", found))
    print(table(HEADER, rows))
    for one in found_5:
        share = one.outcomes["failed"] / one.comparisons
        print(f"5 % found: {share:.1%}; target: at least 99 %: {met(share >= 0.99)}\n")


def tiles(torch: Any) -> tuple[Call, Call]:
    """The same copy by a Triton kernel in blocks of 1,024 and in blocks of 64."""
    import triton
    from tile_copy import copy_kernel

    x = torch.randn(1 << 24, device="cuda")
    y = torch.empty_like(x)

    def by(block: int) -> Callable[[], Any]:
        grid = (triton.cdiv(x.numel(), block),)
        return lambda: copy_kernel[grid](x, y, x.numel(), block, num_warps=2 if block < 256 else 4)

    return by(1024), by(64)


PARTS = {"same": same, "loaded": loaded, "slower": slower}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--number", type=int, default=1200, help="A/A comparisons (the add: half)")
    parser.add_argument("--loaded", type=int, default=100, help="of them, under load")
    parser.add_argument("--slower", type=int, default=100, help="A/B comparisons a case")
    parser.add_argument("--seconds", type=float, default=math.inf, help="at most, for each row")
    parser.add_argument("--quick", action="store_true", help="10 comparisons of each")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}")
    numbers = {"same": options.number, "loaded": options.loaded, "slower": options.slower}
    torch = load_torch()
    torch.manual_seed(0)
    print('not_slower(by="2%"), 12 to 96 pairs, 99 % intervals, L2 flushed')
    print(device_and_place("cuda", "pytest-kernelprof", "triton"), "\n", flush=True)
    for part in options.parts:
        PARTS[part](torch, 10 if options.quick else numbers[part], options.seconds)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
