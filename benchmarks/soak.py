"""Very many profiles of mixed work, each beside an independent count: is any of them wrong?

Every kernel of the work adds one to a counter in the device's memory, so the counter tells how many
have run, whatever the profiler saw. A profile that says that it is complete and has another count
is *wrong*: there must be none. Work is drawn from what code does: plain loops, graphs, streams,
threads, exceptions, Triton, compiled code, backward passes, copies and waits between kernels; with
idle gaps before some. Half of the profiles are of a call (warm-up, two rounds or more), half are
one-shots.

A run ends after --profiles or --minutes, and appends a line to --log; runs with other seeds add up.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from endurance import resident_mb
from harness import device_and_place, device_kind, met, table

from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.gpu.inventory import current_device, load_torch, synchronize
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure, measure_once
from pytest_kernelprof.profiler.cuda_graphs import watch_captures
from pytest_kernelprof.records.profile import Profile
from pytest_kernelprof.records.recording import DeviceKind

Work = Callable[[int], None]

MOST_KERNELS = 40
GAPS = ((5.0, 0.002), (1.0, 0.01), (0.05, 0.05))
"""Seconds of idling before a profile, and how often."""


class Mine(Exception):  # noqa: N818 (not an error of ours)
    """What the measured code raises."""


def works(kind: DeviceKind, counter: Any) -> dict[str, Work]:
    """What is drawn from: each adds its argument to the counter, one kernel for each."""
    torch = load_torch()

    def eager(n: int) -> None:
        for _ in range(n):
            counter.add_(1)

    def thread(n: int) -> None:
        other = threading.Thread(target=eager, args=(n,))
        other.start()
        other.join()

    def caught(n: int) -> None:
        try:
            eager(n)
            raise Mine
        except Mine:
            pass

    def copies(n: int) -> None:
        for i in range(n):
            counter.add_(1)
            if i % 8 == 0:
                counter.item()

    class Counted(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, n: int) -> Any:
            ctx.n = n
            eager(n - n // 2)
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            eager(ctx.n // 2)
            return grad, None

    weight = torch.zeros(4, device=kind, requires_grad=True)
    grad = torch.zeros(4, device=kind)

    def backward(n: int) -> None:
        torch.autograd.grad(Counted.apply(weight, n), weight, grad)

    backend = "inductor" if kind == "cuda" else "eager"
    one_more = torch.compile(lambda t: t.add_(1), backend=backend)

    def compiled(n: int) -> None:
        for _ in range(n):
            one_more(counter)

    compiled(1)
    found = {"eager": eager, "thread": thread, "exception caught": caught, "copies": copies}
    found |= {"backward": backward, "compiled": compiled}
    return found | (works_of_a_gpu(torch, counter, eager) if kind == "cuda" else {})


def works_of_a_gpu(torch: Any, counter: Any, eager: Work) -> dict[str, Work]:
    side = torch.cuda.Stream()
    watch_captures()
    eager(1)
    torch.cuda.synchronize()
    graphs = {}
    for nodes in (1, 3, 8):
        graphs[nodes] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[nodes]):
            eager(nodes)

    def stream(n: int) -> None:
        here = torch.cuda.current_stream()
        for _ in range(n):
            side.wait_stream(here)
            with torch.cuda.stream(side):
                counter.add_(1)
            here.wait_stream(side)

    def graph(n: int) -> None:
        for nodes in (8, 3, 1):
            while n >= nodes:
                graphs[nodes].replay()
                n -= nodes

    found: dict[str, Work] = {"stream": stream, "graph": graph}
    try:
        from one_more import one_more_kernel
    except ImportError:
        return found

    def with_triton(n: int) -> None:
        for _ in range(n):
            one_more_kernel[(1,)](counter)

    return {**found, "Triton": with_triton}


class Soak:
    """The profiles of one run, and what became of them."""

    def __init__(self, kind: DeviceKind, seed: int) -> None:
        torch = load_torch()
        self._device = current_device(kind)
        self._numbers = random.Random(seed)
        self._counter = torch.zeros(1, dtype=torch.int64, device=kind)
        self._works = works(kind, self._counter)
        self._calls = 0
        self.kinds: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.incomplete: list[str] = []
        self.retaken = 0
        self.kernels = 0

    def one(self) -> None:
        """Draw the work and take its profile."""
        numbers = self._numbers
        for seconds, share in GAPS:
            if numbers.random() < share:
                time.sleep(seconds)
                self.kinds[f"gaps of {seconds:g} s"] += 1
                break
        name, n = numbers.choice(sorted(self._works)), numbers.randint(0, MOST_KERNELS)
        once, raises = numbers.random() < 0.5, numbers.random() < 0.05
        self.kinds[name] += 1
        self._calls = 0
        before = self._count()
        try:
            profile = self._profile(name, n, once=once, raises=raises)
        except Mine:
            self.kinds["exception raised"] += 1
            return
        except IncompleteProfile as error:
            self.incomplete.append(f"{name}, {n}: {error}")
            return
        self._check(f"{name}, {n}, {'one-shot' if once else 'call'}", profile, before)

    def _profile(self, name: str, n: int, *, once: bool, raises: bool) -> Profile:
        work = self._works[name]

        def call() -> None:
            self._calls += 1
            work(n)
            if raises and self._calls == 2 - once:
                raise Mine

        plan = Plan(self._device.kind)
        if not once:
            return measure(call, plan)[1].profile
        with measure_once(plan) as found:
            call()
        return found[0].profile

    def _check(self, what: str, profile: Profile, before: int) -> None:
        ran = self._count() - before
        self.retaken += profile.integrity.retakes > 0
        if not profile.integrity.complete:
            self.incomplete.append(f"{what}: {'; '.join(profile.integrity.problems)}")
        elif profile.kernel_count * self._calls != ran or not profile.metrics["kernels"].stable:
            rounds = profile.metrics["kernels"].rounds
            self.wrong.append(f"{what}: {rounds} a call, {ran} ran in {self._calls} calls")
        self.kernels += ran

    def _count(self) -> int:
        synchronize(self._device)
        return int(self._counter.item())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--profiles", type=int, default=2500)
    parser.add_argument("--minutes", type=float, default=9.0, help="end after so long all the same")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--log", type=Path, help="a file that a line of JSON is appended to")
    parser.add_argument("--quick", action="store_true", help="60 profiles")
    options = parser.parse_args()
    kind = device_kind(options.device)
    soak = Soak(kind, options.seed)
    resident, began, taken = resident_mb(), time.monotonic(), 0
    wanted = 60 if options.quick else options.profiles
    while taken < wanted and time.monotonic() - began < options.minutes * 60:
        soak.one()
        taken += 1
    result = {
        "seed": options.seed,
        "on": device_and_place(kind, "pytest-kernelprof"),
        "profiles": taken,
        "wrong": soak.wrong,
        "incomplete": soak.incomplete,
        "retaken": soak.retaken,
        "kernels": soak.kernels,
        "seconds": round(time.monotonic() - began),
        "more MB": round(resident_mb() - resident, 1),
        "kinds": dict(sorted(soak.kinds.items())),
    }
    runs = [result]
    if options.log is not None:
        with options.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(result) + "\n")
        runs = [json.loads(line) for line in options.log.read_text("utf-8").splitlines()]
    report(runs)


def report(runs: list[dict[str, Any]]) -> None:
    """All runs together, and what is wrong in any of them."""
    print(f"{len(runs)} runs, seeds {', '.join(str(one['seed']) for one in runs)}")
    for place in sorted({one["on"] for one in runs}):
        print(place)
    kinds: Counter[str] = Counter()
    for one in runs:
        kinds.update(one["kinds"])
    totals = ("profiles", "kernels", "retaken", "seconds")
    rows = [[name, f"{sum(one[name] for one in runs):,}"] for name in totals]
    rows += [["incomplete, and said so", str(sum(len(one["incomplete"]) for one in runs))]]
    rows += [["more MB, the most of a run", f"{max(one['more MB'] for one in runs):.1f}"]]
    rows += [[f"  of {name}", f"{count:,}"] for name, count in sorted(kinds.items())]
    print()
    print(table(["in all", "found"], rows))
    print()
    for one in runs:
        for kind in ("wrong", "incomplete"):
            for line in one[kind]:
                print(f"{kind}, seed {one['seed']}: {line}")
    wrong = sum(len(one["wrong"]) for one in runs)
    print(f"wrong: {wrong}; target: none: {met(not wrong)}")


if __name__ == "__main__":
    main()
