"""How long the diff of two profiles takes, by their size and by how much differs, beside difflib.

CPU time of this process, the fastest of some runs in turn. The layers of a model repeat, so keys do
too: that is what makes an exact alignment quadratic. difflib is given the same keys and is left out
where it would take minutes.
"""

from __future__ import annotations

import argparse
import difflib
import math
import random
import time
from typing import TYPE_CHECKING

from harness import in_turn, met, place, table

from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.comparison.kernel_pairing import align
from pytest_kernelprof.records.metrics import METRICS
from pytest_kernelprof.records.profile import Kernel, Metric, Profile
from pytest_kernelprof.records.recording import Environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIZES = (2_000, 10_000, 100_000, 300_000)
DIFFLIB_UP_TO = 2_000
LAYER = 12
MOST_ALIGNMENT_S, MOST_DIFF_S, MOST_EXPONENT = 0.1, 0.1, 1.2
_SEED = 0


def layers(size: int) -> list[int]:
    """Layers of twelve kernels, of which some are the same."""
    return [(i % LAYER) % 9 for i in range(size)]


def one_more(keys: list[int]) -> list[int]:
    middle = len(keys) // 2
    return [*keys[:middle], 99, *keys[middle:]]


def one_more_a_layer(keys: list[int]) -> list[int]:
    found = []
    for i, key in enumerate(keys):
        found += [99, key] if i % LAYER == 5 else [key]
    return found


def some_renamed(keys: list[int]) -> list[int]:
    draw = random.Random(_SEED)
    return [key + 1_000 if draw.random() < 0.05 else key for key in keys]


def layers_gone(keys: list[int]) -> list[int]:
    return keys[: len(keys) // 3] + keys[len(keys) // 3 + 4 * LAYER :]


def shuffled(keys: list[int]) -> list[int]:
    found = list(keys)
    random.Random(_SEED).shuffle(found)
    return found


def all_other(keys: list[int]) -> list[int]:
    return [key + 1_000 for key in keys]


EDITS: dict[str, Callable[[list[int]], list[int]]] = {
    "equal": list,
    "one more": one_more,
    "one more a layer": one_more_a_layer,
    "5 % renamed": some_renamed,
    "four layers gone": layers_gone,
    "shuffled": shuffled,
    "all other": all_other,
}
NEARLY_EQUAL = ("equal", "one more", "one more a layer", "5 % renamed", "four layers gone")


def profile_of(keys: Sequence[int]) -> Profile:
    chains = [(f"aten::op{key}", "aten::linear") for key in range(2_000)]
    names = [f"void at::native::f_kernel<at::native::F{key}Functor>(int)" for key in range(2_000)]
    size = (8, 1, 1)
    kernels = tuple(
        Kernel(names[k], 10.0, size, size, 32, 0, 0, 7, "cudaLaunchKernel", chains[k]) for k in keys
    )
    metrics = {name: Metric(name, spec.kind, spec.unit) for name, spec in METRICS.items()}
    return Profile(environment=Environment("cuda", "NVIDIA H200"), metrics=metrics, kernels=kernels)


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def measure(edit: str, size: int, rounds: int) -> dict[str, float]:
    """The fastest run of each, taken in turn."""
    old = layers(size)
    new = EDITS[edit](old)
    before, after = profile_of(old), profile_of(new)
    works: dict[str, Callable[[], object]] = {
        "align": lambda: align(old, new),
        "diff": lambda: diff_profiles(before, after),
    }
    if size <= DIFFLIB_UP_TO:
        works["difflib"] = lambda: difflib.SequenceMatcher(None, old, new, False).get_opcodes()
    taken: dict[str, list[float]] = {name: [] for name in works}
    for name in in_turn(list(works), rounds):
        if name != "difflib" or not taken[name]:
            taken[name].append(seconds(works[name]))
    return {name: min(values) for name, values in taken.items()}


def exponent(small: float, large: float, sizes: tuple[int, int]) -> float:
    return math.log(large / small) / math.log(sizes[1] / sizes[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="kernels")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, in turn")
    parser.add_argument("--quick", action="store_true", help="up to 100,000 kernels, 1 run")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.rounds = [2_000, 10_000, 100_000], 1
    print(place("pytest-kernelprof", "numpy", "msgspec"))
    print()
    rows, found = [], {}
    for edit in EDITS:
        for size in options.sizes:
            taken = found[edit, size] = measure(edit, size, options.rounds)
            theirs = taken.get("difflib")
            rows.append(
                [
                    edit,
                    f"{size:,}",
                    f"{taken['align'] * 1e3:.1f}",
                    f"{taken['diff'] * 1e3:.1f}",
                    f"{theirs * 1e3:.1f}" if theirs else "",
                    f"{theirs / taken['align']:.0f}x" if theirs else "",
                ]
            )
    print(table(["change", "kernels", "align ms", "diff ms", "difflib ms", "of align"], rows))
    print()
    judge(found, options.sizes)


def judge(found: dict[tuple[str, int], dict[str, float]], sizes: Sequence[int]) -> None:
    at = 100_000
    for what, most in (("align", MOST_ALIGNMENT_S), ("diff", MOST_DIFF_S)):
        if at in sizes:
            worst = max(found[edit, at][what] for edit in NEARLY_EQUAL)
            kept = met(worst <= most)
            print(f"{what} of {at:,} nearly equal kernels: {worst:.2f} s (at most {most}): {kept}")
        if len(sizes) > 1:
            ends = (sizes[-2], sizes[-1])
            grows = max(exponent(*(found[e, end][what] for end in ends), ends) for e in EDITS)
            kept = met(grows < MOST_EXPONENT)
            print(f"{what} grows with an exponent of {grows:.2f} (below {MOST_EXPONENT}): {kept}")


if __name__ == "__main__":
    main()
