"""Does a run against a revision cry wolf, and does it find what was planted? Seen on a GPU.

Two folders with the same tests, and code that is the same or a little dearer: by more work, not by
a pause. ``pytest --kernelprof-against=OLD`` runs in the new one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import device_and_place, device_kind, met, quartiles, spread, table

from pytest_kernelprof.baselines.run_documents import read_run
from pytest_kernelprof.errors import RunFileError
from pytest_kernelprof.records.comparison import IN_TURN, Paired, ProfileComparison
from pytest_kernelprof.summary.comparisons import baseline_summaries

# What the code does, by kind and by how much more of it there is. The planted kinds take time in
# proportion to their work: a loop inside of a kernel, or the bytes that one moves.
WORK = '''
import functools, torch
import torch.nn.functional as F
DEVICE = {device!r}
MORE = {more!r}
EXTRA = {extra!r}
SMALL = DEVICE == "cpu"

def rand(*shape, dtype=torch.float16):
    return torch.randn(*(min(n, 64) if SMALL else n for n in shape), device=DEVICE,
                       dtype=torch.float32 if SMALL else dtype)

@functools.cache
def tensors(kind):
    torch.manual_seed(0)
    if kind == "decode":
        return rand(1, 1024), rand(1024, 4096), rand(1024, 4096), rand(4096, 1024)
    if kind == "mlp":
        return rand(8192, 768), rand(768, 3072), rand(768, 3072), rand(3072, 768)
    if kind == "norm":
        return rand(8192, 2048), rand(2048), rand(2048)
    if kind == "softmax":
        return (rand(512, 1024),)
    if kind == "add":
        return rand(1024), rand(1024)
    if kind in ("stream", "rows"):
        return rand(16384, 4096), rand(16384, 4096)
    return rand(1024), rand(1024)  # spin

def of(n):
    """So many rows of those that there are, and the planted share more."""
    return int(n * 0.85 * MORE)

def decode(x, gate, up, down):
    return (F.gelu(x @ gate) * (x @ up)) @ down
mlp = decode
def norm(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], weight, bias)
def softmax(x):
    return torch.softmax(x, -1)
def add(x, y):
    return x + y
def stream(x, out):
    n = of(x.shape[0])
    torch.add(x[:n], 1.0, out=out[:n])
    return out
def rows(x, out):
    n = of(x.shape[0])
    torch.softmax(x[:n], -1, out=out[:n])
    return out
def spin(x, out):
    if SMALL:
        return torch.add(x, 1.0, out=out)
    spin_kernel()[(264,)](x, out, int(12000 * MORE))
    return out

@functools.cache
def spin_kernel():
    from pkg.spin import kernel
    return kernel

CALLS = dict(decode=decode, mlp=mlp, norm=norm, softmax=softmax, add=add, stream=stream, rows=rows,
             spin=spin)

def call(kind, extra, *args):
    with torch.no_grad():
        result = CALLS[kind](*args)
        if EXTRA and extra == 0:
            result.mul_(1.0)
        elif EXTRA and extra == 1 and not SMALL:
            torch.cuda.synchronize()
        elif EXTRA and extra == 2:
            result.copy_(result.clone())
        return result
'''
SPIN = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, out, loops):
    at = tl.program_id(0) * 0 + tl.arange(0, 1024)
    value = tl.load(x + at)
    for _ in range(loops):
        value = value * 1.0001 + 0.0001
    tl.store(out + at, value)
"""
TESTS = """
import pytest
from pkg import work

@pytest.mark.parametrize("n", range({tests}))
def test_it(kernel_profile, n):
    kind = {kinds!r}[n % {number}]
    kernel_profile(work.call, kind, n % 3, *work.tensors(kind))
"""
# How long it takes to bring each set of fresh workers to a call.
WAVES = """
import contextlib, time
from pytest_kernelprof.baselines import timing
at = timing.FreshPairs.at

@contextlib.contextmanager
def timed_at(self, firsts, call):
    begun = time.perf_counter()
    with at(self, firsts, call) as pairs:
        with open("waves.txt", "a") as file:
            file.write(f"{time.perf_counter() - begun:.2f} s {len(pairs)} pairs at {call.id}\\n")
        yield pairs

timing.FreshPairs.at = timed_at
"""
# What a run spends on its baseline: laying it out; waiting for it to start and to collect, for its
# calls, for turns, and for its end.
PARTS = """
import atexit, collections, json, sys, time
spent = collections.Counter()

def timed(part, owner, *names):
    for name in names:
        def call(*given, real=getattr(owner, name), **more):
            begun = time.perf_counter()
            try:
                return real(*given, **more)
            finally:
                spent[part] += time.perf_counter() - begun
        setattr(owner, name, call)

@atexit.register
def tell():
    if spent:
        with open("parts.txt", "w") as file:
            json.dump(spent, file)

if any(one.startswith("--kernelprof-against") for one in sys.argv):
    from pytest_kernelprof.baselines import timing, worker
    from pytest_kernelprof.plugin import against_revision
    timed("layout", against_revision, "_laid_out")
    timed("start", worker.Reference, "collect")
    timed("calls", worker.Reference, "begin", "go")
    timed("turns", timing, "time_call")
    timed("end", worker.Process, "wait", "end")
"""
OF_A_RUN = ("layout", "start", "calls", "turns", "end")
# Without a GPU the script itself can be tried: a call takes what the code says.
PRETEND = """
import os, random, sys
from pytest_kernelprof.gpu import inventory
from pytest_kernelprof.measure import sessions
chance, up = random.Random(os.getpid()), []
sessions.MoreRounds.why_untimed = lambda call: up.append(1) or ""
sessions.times_of = lambda taken: tuple(
    50.0 * sys.modules["pkg.work"].MORE * chance.gauss(1, 0.003)
    for _ in range(taken.facts.profile.rounds))
inventory.cuda_is_up = lambda: bool(up)
"""
MIXED = ("decode", "norm", "mlp", "softmax", "add")
LINEAR = ("spin", "stream", "rows")
FINE = "--kernelprof-margin=2%"
SUSPICION_S, MOST_OF_BARE = 15.0, 1.5
DOCUMENT = "run.json"


@dataclass(frozen=True)
class Seen:
    """One run: its seconds, and how its tests compare, each of which has one profile."""

    wall_s: float
    tests: Sequence[ProfileComparison]

    @property
    def results(self) -> Counter[str]:
        return Counter(test.change for test in self.tests)

    @property
    def timings(self) -> list[Paired]:
        return [one.paired for one in self.tests if one.paired is not None]


@dataclass(frozen=True)
class Project:
    """Tests of some kinds of work, whose new code does ``more``, and something ``extra``.

    ``early``: whether to load them brings up CUDA. ``parts``: whether runs write down their parts.
    """

    folder: Path
    kind: str
    tests: int
    kinds: tuple[str, ...] = MIXED
    more: float = 1.0
    extra: bool = False
    early: bool = False
    parts: bool = False

    def write(self) -> tuple[Path, Path]:
        """Both folders, the old and the new."""
        old, new = self.folder / "old", self.folder / "new"
        for place, more, extra in ((old, 1.0, False), (new, self.more, self.extra)):
            for name, text in {
                "pytest.ini": "[pytest]\npythonpath = .\n",
                "pkg/__init__.py": "",
                "pkg/spin.py": SPIN,
                "pkg/work.py": WORK.format(device=self.kind, more=more, extra=extra),
                "tests/conftest.py": WAVES + PARTS * self.parts + PRETEND * (self.kind == "cpu"),
                "tests/test_it.py": TESTS.format(
                    tests=self.tests, kinds=self.kinds, number=len(self.kinds)
                )
                + self.early * "X = work.rand(8)\n",
            }.items():
                path = place / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return old, new

    def run(self, *options: str) -> Seen:
        """Compare them."""
        old, new = self.write()
        done, wall_s = self.tried(new, f"--kernelprof-against={old}", *options)
        tests = compared(new / DOCUMENT, done)
        for line in done.stdout.splitlines():
            if " worse than " in line:
                print(f"  {line} [{wall_s:.0f} s]", flush=True)
        return Seen(wall_s, tests)

    def tried(
        self, new: Path, *options: str, python: str = sys.executable, package: str = ""
    ) -> tuple[subprocess.CompletedProcess[str], float]:
        """Run pytest on the new code; return how it ended, and its seconds.

        Args:
            package: the folder of another checkout of this package, to run with.
        """
        plugins = [] if any(one.startswith("-n") for one in options) else ["-p", "no:xdist"]
        command = [
            *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins),
            *("-p", "no:randomly", "-p", "no:benchmark", f"--kernelprof-device={self.kind}"),
            *(f"--kernelprof-json={DOCUMENT}", *options),
        ]
        environment = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
        if package:  # goes before the one that runs this script
            known = environment.get("PYTHONPATH", "")
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (package, known)))
        start = time.perf_counter()
        done = subprocess.run(
            command, cwd=new, env=environment, capture_output=True, text=True, check=False
        )
        return done, time.perf_counter() - start


def compared(
    document: Path, done: subprocess.CompletedProcess[str]
) -> tuple[ProfileComparison, ...]:
    """How the tests of a run compare with the revision, or the other environment.

    Args:
        document: the run document that pytest was told to write. done: how pytest ended.
    """
    why = f"pytest ended with status {done.returncode}"
    if done.returncode in (0, 1):  # all tests passed, or some failed
        try:
            run = read_run(str(document))
        except RunFileError as error:
            why += f" and wrote no document: {error}"
        else:
            found = [one for one in baseline_summaries(run) if one.baseline.source in IN_TURN]
            if found:
                return found[0].profiles
            why += f", and {document} compares with nothing in turn"
    raise SystemExit(f"{why}\n{done.stdout[-6000:]}{done.stderr[-3000:]}")


def why_undecided(timing: Paired) -> str:
    """Why there is no verdict; empty where there is one."""
    if timing.change not in ("undecided", "not compared"):
        return ""
    if timing.disturbed:
        return "other work on the GPU, or it throttled"
    return timing.why or f"undecided after {len(timing.pairs)} pairs"


def told_of(seen: Seen) -> str:
    """How far the ratios of all tests reach, and why times were not had."""
    ratios = [one.ratio for one in seen.timings if one.pairs]
    why = Counter(filter(None, map(why_undecided, seen.timings)))
    words = [f"{why[one]}x {one}" for one in why]
    if ratios:
        middle = (statistics.median(ratios) - 1) * 100
        low, high = ((value - 1) * 100 for value in (min(ratios), max(ratios)))
        words.insert(0, f"ratios {low:+.1f} .. {middle:+.1f} .. {high:+.1f} %")
    for one in seen.tests:
        if one.change == "undecided" and one.paired is not None:
            pairs = " ".join(f"{pair.ratio - 1:+.1%}" for pair in one.paired.pairs)
            took = f"{one.paired.baseline_us:.2f} us"
            words.append(f"undecided {one.test.rpartition('::')[2]}, {took}: {pairs}")
    return "\n  ".join(words)


class Parts:
    """The parts of the benchmark: each runs, and adds its rows."""

    def __init__(self, folder: Path, kind: str, options: argparse.Namespace) -> None:
        self.folder, self.kind = folder, kind
        self.scale = 0.1 if options.quick else options.scale
        self.before, self.repeats = options.before, options.repeats
        self.rows: list[list[str]] = []

    def number(self, tests: int) -> int:
        return max(len(MIXED), int(tests * self.scale))

    def project(self, name: str, tests: int, **more: Any) -> Project:
        return Project(self.folder / name, self.kind, tests, **more)

    def say(self, what: str, found: object, asked: str, ok: bool) -> None:
        self.rows.append([what, str(found), asked, met(ok)])

    def same(self) -> None:
        """The same code raises no alarm; and what a timed test costs."""
        project = self.project("same", self.number(300))
        seen = self._unchanged("same code", project.run())
        took = [one.took_s for one in seen.timings if len(one.pairs) == 1]
        low, middle, high = quartiles(took or [0.0])
        found = f"{middle:.3f} [{low:.3f}, {high:.3f}]"
        self.say("seconds of turns a test, median [quartiles]", found, "0.15", middle <= 0.15)

    def bare(self) -> None:
        """What a comparison of 36 tests adds to their run, by whole runs in turn: A B B A."""
        project = self.project("bare", self.number(36), parts=True)
        old, new = project.write()
        given = f"--kernelprof-against={old}"
        kinds = {"alone": ("", ()), "against": ("", (given,))}
        if self.before:
            kinds["before"] = self.before, (given,)
        for package, options in kinds.values():  # the first compile
            project.tried(new, *options, package=package)
        took: dict[str, list[float]] = {name: [] for name in kinds}
        spent: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
        for i in range(self.repeats):
            for name in list(kinds)[:: 1 if i % 2 else -1]:
                package, options = kinds[name]
                done, seconds = project.tried(new, *options, package=package)
                assert done.returncode == 0, done.stdout[-3000:]
                took[name].append(seconds)
                if options:
                    compared(new / DOCUMENT, done)
                    spent[name].append(json.loads((new / "parts.txt").read_text()))
        rows = [
            [name, *map(spread, ([one.get(part, 0.0) for one in parts] for part in OF_A_RUN))]
            for name, parts in spent.items()
            if parts
        ]
        rows = [[row[0], spread(took[row[0]]), *row[1:]] for row in rows]
        rows.insert(0, ["alone", spread(took["alone"]), *[""] * len(OF_A_RUN)])
        print(table(["s, median [quartiles]", "in all", *OF_A_RUN], rows))
        times = ", ".join(f"{name} {statistics.median(one):.1f} s" for name, one in took.items())
        ratio = statistics.median(
            b / a for a, b in zip(took["alone"], took["against"], strict=True)
        )
        self.say(
            f"{project.tests} tests compared ({times})",
            f"{ratio:.2f}",
            "1.5",
            ratio <= MOST_OF_BARE,
        )

    def workers(self) -> None:
        """Nor do four workers on one GPU."""
        options = ("-n4", "-o", "kernelprofspread_workers=false")
        project = self.project("workers", self.number(300))
        self._unchanged("same code, -n 4", project.run(*options))

    def _unchanged(self, what: str, seen: Seen) -> Seen:
        found = seen.results
        print(f"  {told_of(seen)}")
        most = max(1, len(seen.tests) * 6 // 300)
        self.say(f"{what}: worse", found["worse"], "0", not found["worse"])
        others = len(seen.tests) - found["same"] - found["undecided"]
        self.say(f"{what}: changed in any way", others, "0", not others)
        self.say(
            f"{what}: undecided", found["undecided"], f"at most {most}", found["undecided"] <= most
        )
        timed = sum(bool(one.pairs) for one in seen.timings)
        self.say(f"{what}: timed", timed, f"{len(seen.tests)}", timed == len(seen.tests))
        return seen

    def planted(self) -> None:
        """8 % more work is found."""
        project = self.project("planted", self.number(100), kinds=LINEAR, more=1.08)
        self._found("8 % more", project.run(), 0.98)

    def suspicion(self) -> None:
        """The first suspicion of a run does not take long: three more pairs are started for it."""
        for early, what in ((False, ""), (True, ", CUDA up when tests are loaded")):
            project = Project(
                *(self.folder / f"suspicion-{early}", self.kind, 3, ("stream",)),
                more=1.08,
                early=early,
            )
            seen = project.run()
            print(f"  {told_of(seen)}")
            first, *later = [one.took_s for one in seen.timings] or [math.inf]
            print(f"  first: {first:.2f} s, of it:")
            waves = project.folder / "new" / "waves.txt"
            for line in waves.read_text().splitlines() if waves.exists() else ["no more pairs"]:
                print(f"    {line}")
            pairs = [len(one.pairs) for one in seen.timings]
            print(f"  later ones: {', '.join(f'{one:.2f} s' for one in later)}; pairs: {pairs}")
            worse = seen.results["worse"]
            self.say(f"8 % more{what}: worse", worse, "3", worse == 3)
            self.say(
                f"seconds of a first suspicion{what}", f"{first:.1f}", "15", first <= SUSPICION_S
            )

    def extra(self) -> None:
        """A kernel, a wait, a copy more is found each time."""
        project = self.project("extra", 3 * len(MIXED), extra=True)
        seen = project.run()
        for i, extra in enumerate(("kernel", "sync", "copy")):
            of_these = [one for one in seen.tests if int(one.test.split("[")[1][:-1]) % 3 == i]
            worse = sum(one.change == "worse" for one in of_these)
            asked = 0 if extra == "sync" and self.kind == "cpu" else len(of_these)
            self.say(f"a {extra} more: worse", worse, str(asked), worse == asked)

    def fine(self) -> None:
        """At a margin of 2 %: 4 % more is found."""
        project = self.project("fine", self.number(100), kinds=LINEAR, more=1.04)
        self._found("4 % more at a margin of 2 %", project.run(FINE), 0.95)

    def fine_same(self) -> None:
        """At a margin of 2 % the same code raises no alarm either."""
        seen = self.project("fine-same", self.number(100)).run(FINE)
        print(f"  {told_of(seen)}")
        worse = seen.results["worse"]
        self.say("same code at a margin of 2 %: worse", worse, "0", not worse)

    def _found(self, what: str, seen: Seen, least: float) -> None:
        print(f"  {told_of(seen)}")
        worse, wanted = seen.results["worse"], least * len(seen.tests)
        asked = f"{least:.0%} of {len(seen.tests)}"
        self.say(f"{what}: worse", worse, asked, worse >= wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ("suspicion", "bare", "same", "workers", "planted", "extra", "fine", "fine_same")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of tests")
    parser.add_argument("--quick", action="store_true", help="a tenth of the tests")
    parser.add_argument("--before", default="", help="bare: another checkout of this package, too")
    parser.add_argument("--repeats", type=int, default=4, help="bare: runs of each kind")
    options = parser.parse_args()
    kind = device_kind(options.device)
    print(device_and_place(kind, "pytest", "pytest-xdist", "pytest-kernelprof", "triton"))
    if kind == "cpu":
        print("Without a GPU times are pretended: this tries the script alone.")
    with tempfile.TemporaryDirectory() as folder:
        found = Parts(Path(folder), kind, options)
        for part in options.parts:
            begun = time.perf_counter()
            print(f"{part}: {getattr(Parts, part).__doc__}", flush=True)
            getattr(found, part)()
            print(f"  {time.perf_counter() - begun:.0f} s", flush=True)
    print()
    print(table(["what", "found", "asked", "met"], found.rows))


if __name__ == "__main__":
    main()
