"""Faults put into recorded traces, one at a time: what share of each kind is told.

Every fault that can befall a recorded trace of ``tests/traces`` is tried, some 3,800 in all.
"told": the file is refused, the profile incomplete, or the number not given. "harmless": every
number, kernel and operator is as it was. "rounds differ": nothing is said, but the rounds have
different numbers of kernels: a count is that of the largest round, and times are called UNSTABLE.
"silent": a number is another, and nothing says so.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from harness import place, table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))

from corpus import NAMES, document, recorded
from faults import KINDS, as_noted_today, facts_of, outcome

OUTCOMES = ("told", "harmless", "shown", "silent")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="five traces")
    options = parser.parse_args()
    found: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.traces[:5] if options.quick else options.traces:
            whole, healthy = as_noted_today(document(name)), facts_of(recorded(name))
            for kind, make in KINDS.items():
                for case in make(whole["traceEvents"], random.Random(options.seed)):
                    done, _ = outcome(
                        Path(folder) / "faulty.json", {**whole, "traceEvents": case()}, healthy
                    )
                    found[kind][done] += 1
                    if done == "silent":
                        wrong[kind][name] += 1
    print(place("pytest-kernelprof"))
    rows = []
    for kind in KINDS:
        counts = found[kind]
        heard = counts.total() - counts["harmless"]
        share = f"{counts['told'] / heard:.0%}" if heard else "-"
        rows.append(
            [kind, f"{counts.total()}", *(f"{counts[one]}" for one in OUTCOMES), share],
        )
    header = ["fault", "tried", "told", "harmless", "rounds differ", "silent", "told of harmful"]
    print(table(header, rows))
    for kind, counts in wrong.items():
        print(f"  silent, {kind}: {', '.join(f'{name} {n}' for name, n in counts.items())}")


if __name__ == "__main__":
    main()
