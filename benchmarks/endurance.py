"""Many profiles in a row, idle gaps between them: are kernels lost, does memory stay?

Each profile is of a 5-kernel call and a random number of further kernels, so the truth is known
beforehand. A loss is *detected* where the profile says that it is incomplete, and undetected where
a profile that calls itself complete has another count: there must be none of those.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import time
from collections import Counter
from pathlib import Path

from harness import MLP_KERNELS, device_and_place, device_kind, geglu_mlp, met, quartiles, table

from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.gpu.inventory import load_torch
from pytest_kernelprof.measure.arguments import Arguments
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure

MOST_EXTRA = 20
SETTLED_AT = 400
LIMIT_MB = 10.0


def resident_mb() -> float:
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def gap_before(profile: int, profiles: int) -> int:
    """Seconds of idling before a profile: four times 5 s and some fifteen times 1 s in a run."""
    if profile and profile % max(1, profiles // 5) == 0:
        return 5
    return 1 if profile and profile % max(1, profiles // 15) == 0 else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--profiles", type=int, default=1000)
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--mlp-kernels", type=int, default=MLP_KERNELS, help="what the MLP launches on this GPU"
    )
    parser.add_argument("--no-gaps", action="store_true")
    parser.add_argument("--quick", action="store_true", help="60 profiles")
    options = parser.parse_args()
    profiles = 60 if options.quick else options.profiles
    kind = device_kind(options.device)
    torch = load_torch()
    mlp, x = geglu_mlp(kind)
    small = torch.zeros(1024, device=kind)
    numbers = random.Random(options.seed)
    plan = Plan(kind, rounds=2)

    def call(extra: int) -> None:
        mlp(x)
        for _ in range(extra):
            small.add_(1)

    seen: Counter[str] = Counter()
    undetected: list[str] = []
    resident = {0: resident_mb()}
    gaps: Counter[int] = Counter()
    took: list[float] = []
    began = time.perf_counter()
    for i in range(profiles):
        gap = 0 if options.no_gaps else gap_before(i, profiles)
        if gap:
            gaps[gap] += 1
            time.sleep(gap)
        extra = numbers.randint(0, MOST_EXTRA)
        truth = options.mlp_kernels + extra
        start = time.perf_counter()
        try:
            _, measurement = measure(call, plan, Arguments((extra,)))
        except IncompleteProfile as error:
            seen["incomplete"] += 1
            print(f"profile {i}: {error}")
            continue
        profile = measurement.profile
        count, complete = profile.kernel_count, profile.integrity.complete
        took.append((time.perf_counter() - start) * 1e3)
        seen["retakes"] += profile.integrity.retakes
        seen["unsettled"] += not profile.integrity.settled
        if not complete:
            seen["incomplete"] += 1
            print(f"profile {i}: {'; '.join(profile.integrity.problems)}")
        elif count != truth:
            undetected.append(f"profile {i}: {count} kernels, {truth} launched")
        del profile, measurement
        if i + 1 in (1, SETTLED_AT, profiles):
            resident[i + 1] = resident_mb()
    resident.setdefault(profiles, resident_mb())
    gc.collect()
    collected = resident_mb()

    idle = ", ".join(f"{n} x {s} s" for s, n in sorted(gaps.items())) or "none"
    whole = time.perf_counter() - began
    print(f"{profiles} profiles in a row ({kind}), {whole:.0f} s, idle gaps: {idle}")
    print(device_and_place(kind, "pytest-kernelprof"))
    print()
    rows = [
        ["undetected losses", str(len(undetected))],
        ["incomplete, and said so", str(seen["incomplete"])],
        ["sessions taken again", str(seen["retakes"])],
        ["never became warm", str(seen["unsettled"])],
    ]
    if took:
        low, middle, high = quartiles(took)
        rows.append(["ms a profile, median [quartiles]", f"{middle:.1f} [{low:.1f}, {high:.1f}]"])
    for after, mb in resident.items():
        rows.append([f"resident MB after profile {after}", f"{mb:.1f}"])
    rows.append(["the same after gc.collect()", f"{collected:.1f}"])
    print(table(["in a row", "found"], rows))
    print()
    for line in undetected:
        print(line)
    print(f"undetected losses: {len(undetected)}; target: none: {met(not undetected)}")
    if profiles > SETTLED_AT:
        growth = resident[profiles] - resident[SETTLED_AT]
        print(
            f"memory from profile {SETTLED_AT} to {profiles}: {growth:+.1f} MB; target from 400 to "
            f"1,400: at most {LIMIT_MB:.0f} MB: {met(growth <= LIMIT_MB)}"
        )


if __name__ == "__main__":
    main()
