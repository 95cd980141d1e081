"""Mutated trace files, kind by kind: how many are read, how many refused, how many neither.

Recorded traces are mutated in their bytes, their JSON structure, their numbers and our own notes
beside them, for as long as is asked for. A file is a profile, or one line of ``TraceError``: any
other exception, and any reading that takes the processor longer than ``--slow`` seconds, is shown
with the seed that makes it again.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from harness import place, table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))

from mutations import KINDS, result, small_documents

WELL = ("read", "refused")


def give_up(*_: object) -> None:
    raise TimeoutError


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1, help="of the first file; each has its own")
    parser.add_argument("--slow", type=float, default=2.0, help="processor's seconds of a reading")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--quick", action="store_true", help="half a minute")
    options = parser.parse_args()
    ends = time.monotonic() + 60 * (0.5 if options.quick else options.minutes)
    documents = small_documents()
    found: dict[str, Counter[str]] = defaultdict(Counter)
    longest: dict[str, float] = defaultdict(float)
    examples: dict[str, str] = {}
    seed = options.seed
    signal.signal(signal.SIGPROF, give_up)
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < ends:
            kind = options.kinds[seed % len(options.kinds)]
            chance = random.Random(seed)
            data = KINDS[kind](chance.choice(documents), chance)
            start = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, options.slow)
            done = result(Path(folder) / "mutated.json", data)
            signal.setitimer(signal.ITIMER_PROF, 0)
            took = time.process_time() - start
            longest[kind] = max(longest[kind], took)
            found[kind][done if done in WELL else "neither"] += 1
            if done not in WELL:
                examples.setdefault(f"{kind}: {done}", f"seed {seed}")
            seed += 1
    print(place("pytest-kernelprof", "msgspec", "numpy"))
    print(f"{seed - options.seed:,} files from seed {options.seed} on\n")
    rows = [
        [kind, *(f"{found[kind][one]:,}" for one in (*WELL, "neither")), f"{longest[kind]:.2f}"]
        for kind in options.kinds
    ]
    print(table(["mutated", *WELL, "neither", "longest, s"], rows))
    for words, where in examples.items():
        print(f"  {words} ({where})")


if __name__ == "__main__":
    main()
