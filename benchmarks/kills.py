"""Runs that are killed at random moments: nothing of the user's is lost, and nothing stays behind.

Half of the runs write snapshots (``--kernelprof-update``), half compare with a revision
(``--kernelprof-against``). A process of each gets SIGKILL, SIGTERM or SIGINT: the one that was
started, a worker of pytest-xdist, or one of the reference's two. Afterwards the script looks for
each process that came of the run, each folder and lock, and at every byte of the user's project.

pytest itself is forked from this process, which has torch loaded and drops what it has of ours:
loading takes most of a run's time, and there a kill can spoil nothing. References, supervisors and
workers are started as ever.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
from harness import place, table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit"))

from filelock import FileLock, Timeout
from repositories import Repository, everything

from pytest_kernelprof.baselines import supervisor
from pytest_kernelprof.baselines.snapshots import read
from pytest_kernelprof.errors import SnapshotError

ROOT = Path(__file__).resolve().parents[1]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
VICTIMS = {
    "update": (*["pytest"] * 6, "pytest -n2", "worker"),
    "against": (*["pytest"] * 5, "pytest -n2", "worker", "reference", "supervisor", "reference"),
}
WITH_WORKERS = ("pytest -n2", "worker")
FILES = ("test_one", "test_two", "test_three")
TESTS = 2
MARK = "KERNELPROF_KILLS"
PATIENCE_S = 90.0
OPS = """
def f(x, n):
    for _ in range(n + {more}):
        x = x * 2
    return x
"""
TEST = """
import pytest, torch
from pkg import ops
@pytest.mark.parametrize("n", range({tests}))
def test_it(kernel_profile, n):
    kernel_profile(ops.f, torch.ones(4), n)
"""
LOST = ("entries", "tree", ".git")
LEFT = ("processes", "trees", "locks", "half files")
COLUMNS = (*LOST, *LEFT)


@dataclass(frozen=True)
class Kill:
    kind: str
    victim: str
    how: signal.Signals
    after_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="3 of each kind")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print(place("pytest", "pytest-kernelprof"), flush=True)
    load()
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder))
        for kind in VICTIMS:
            number = 3 if options.quick else options.kills
            print(report(kind, tried(project, kind, number, chance)), flush=True)


def load() -> None:
    """What takes long, and nothing of ours but what this script itself needs."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        torch.ones(1)
    gc.collect()
    gc.freeze()


class Run:
    """A pytest, forked from this process, in a session of its own."""

    def __init__(self, arguments: list[str], folder: Path, variables: dict[str, str]) -> None:
        self.pid = os.fork()
        self._ended = False
        if not self.pid:
            self._become(arguments, folder, variables)

    def _become(self, arguments: list[str], folder: Path, variables: dict[str, str]) -> NoReturn:
        status = 1
        try:
            os.setsid()
            for number in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.chdir(folder)
            os.environ.update(variables)
            tempfile.tempdir = None
            sys.dont_write_bytecode = True
            for name in [name for name in sys.modules if name.startswith("pytest_kernelprof")]:
                del sys.modules[name]  # as it looks for the temporary folder when it is loaded
            status = int(pytest.main(arguments))
        finally:
            os._exit(status)

    def poll(self) -> bool:
        """Whether it has ended."""
        if not self._ended:
            self._ended = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        return self._ended

    def wait(self) -> int:
        """The exit status of a run that was not asked before."""
        status = 0
        if not self._ended:
            status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            self._ended = True
        return status


def tried(
    project: Project, kind: str, kills: int, chance: random.Random
) -> dict[str, Counter[str]]:
    """What is wrong after each kill, by who was killed."""
    found: dict[str, Counter[str]] = {victim: Counter() for victim in VICTIMS[kind]}
    whole = {workers: project.time(kind, workers) for workers in (False, True)}
    for number in range(kills):
        victim = VICTIMS[kind][number % len(VICTIMS[kind])]
        longest = whole[victim in WITH_WORKERS]
        # Half of them where a run writes and tidies up.
        moment = chance.uniform(chance.choice((0.0, 0.7)) * longest, longest)
        found[victim].update(project.survive(Kill(kind, victim, chance.choice(SIGNALS), moment)))
    return found


def report(kind: str, found: dict[str, Counter[str]]) -> str:
    header = ["killed", "kills", "too late", *(f"lost: {c}" for c in LOST)]
    header += [f"left: {c}" for c in LEFT]
    header += ["trace folders"]
    rows = []
    for victim, counts in found.items():
        cells = [f"{counts[name]}" for name in ("kills", "too late", *COLUMNS, "traces")]
        rows.append([f"{kind}, {victim}", *cells])
    return table(header, rows)


class Project:
    """A repository whose code is now and then another, with snapshots of both kinds."""

    def __init__(self, folder: Path) -> None:
        self._made = Repository(folder / "project")
        self._tmp = folder / "tmp"
        self._tmp.mkdir()
        files = {f"tests/{name}.py": TEST.format(tests=TESTS) for name in FILES}
        self._made.commit({"pkg/__init__.py": "", **files, "pytest.ini": "[pytest]\npythonpath=."})
        self._entries = []
        for more in (2, 1):  # of which the last is committed
            self._change(more)
            self._run("update", workers=False).wait()
            self._entries.append([read(str(path)) for path in self._kept()])
        assert [len(one) for one in self._entries[0]] == [TESTS] * len(FILES)
        self._made.commit({})

    def time(self, kind: str, workers: bool) -> float:
        """How long a run takes that nobody kills, here and now.

        Raises:
            RuntimeError: it does not pass, so a kill of one would show nothing.
        """
        self._prepare(kind, 1)
        begun = time.monotonic()
        if status := self._run(kind, workers=workers).wait():
            raise RuntimeError(f"{kind}: a run that nobody kills ends with {status}")
        return time.monotonic() - begun

    def survive(self, kill: Kill) -> Counter[str]:
        """Kill a run; what is wrong afterwards."""
        self._prepare(kill.kind, 2)
        before = everything(self._made.folder)
        run = self._run(kill.kind, workers=kill.victim in WITH_WORKERS)
        time.sleep(kill.after_s)
        hit = self._hit(kill, run)
        run.wait()
        left = self._wait_for_all()
        found = Counter({"kills": 1, "too late": 0 if hit else 1, "processes": len(left)})
        supervisor.sweep_folders(str(self._tmp))
        found["trees"] = len(list(self._tmp.glob("kernelprof-against-*")))
        found["traces"] = len(list(self._tmp.glob("kernelprof-traces-*")))
        found["locks"] = sum(map(is_held, self._tmp.glob("*.lock")))
        found.update(self._changed(before, everything(self._made.folder)))
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return found

    def _changed(self, before: dict, after: dict) -> Counter[str]:  # type: ignore[type-arg]
        changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        kept = {str(path.relative_to(self._made.folder)) for path in self._kept()}
        half = {name for name in changed if "/.kernelprof-" in name}
        git = {name for name in changed if name.startswith(".git/")}
        folders_of = {str(Path(name).parent) for name in kept}
        return Counter(
            {
                ".git": len(git),
                "tree": len(changed - kept - git - half - folders_of),
                "half files": len(half),
                "entries": self._lost_entries(),
            }
        )

    def _lost_entries(self) -> int:
        """How many are neither as they were nor as they were to be."""
        lost = 0
        for number, name in enumerate(FILES):
            old, new = (one[number] for one in self._entries)
            try:
                now = read(str(self._folder() / f"{name}.json"))
            except SnapshotError:
                now = {}
            lost += sum(now.get(key) not in (old[key], new[key]) for key in old)
        return lost

    def _folder(self) -> Path:
        return self._made.folder / "tests" / "__kernelprof__" / "cpu"

    def _kept(self) -> list[Path]:
        return [self._folder() / f"{name}.json" for name in FILES]

    def _change(self, more: int) -> None:
        (self._made.folder / "pkg" / "ops.py").write_text(OPS.format(more=more))

    def _prepare(self, kind: str, more: int) -> None:
        self._made.git("checkout", "--quiet", ".")
        for path in (*self._folder().glob(".kernelprof-*"), *self._tmp.glob("kernelprof-*")):
            with contextlib.suppress(OSError):
                path.unlink() if path.is_file() else [each.unlink() for each in path.iterdir()]
                path.rmdir()
        self._change(more if kind == "update" else 1)

    def _run(self, kind: str, *, workers: bool) -> Run:
        usual = ["-p", "no:cacheprovider", "-p", "no:benchmark", "--kernelprof-device=cpu", "-q"]
        what = "--kernelprof-update" if kind == "update" else "--kernelprof-against=main"
        return Run(
            [*usual, what, *(["-n2"] if workers else []), "tests"],
            self._made.folder,
            {
                MARK: str(self._tmp),
                "TMPDIR": str(self._tmp),
                "PYTHONPATH": str(ROOT),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )

    def _hit(self, kill: Kill, run: Run) -> bool:
        victims = [run.pid]
        if kill.victim in WORDS_OF:
            victims = [pid for pid in self._processes() if WORDS_OF[kill.victim] in arguments(pid)]
        is_late = run.poll() or not victims
        if is_late:
            victims = [] if run.poll() else [run.pid]
        if not victims:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(victims[-1], kill.how)
        return not is_late

    def _processes(self) -> list[int]:
        """All that a run has started, by a variable that each inherits."""
        found = []
        mine = f"{MARK}={self._tmp}".encode()
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and mine in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    def _wait_for_all(self) -> list[int]:
        late = time.monotonic() + PATIENCE_S
        while (left := self._processes()) and time.monotonic() < late:
            time.sleep(0.05)
        return left


WORDS_OF = {
    "worker": "exec(eval(",
    "supervisor": supervisor.__name__,
    "reference": "plugin.baseline_pytest",
}


def arguments(pid: int) -> str:
    """Of a supervisor, whose arguments name the reference as well, only its own."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        return next((words[i + 1] for i, word in enumerate(words) if word == "-c"), "")
    return ""


def is_held(path: Path) -> bool:
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True


if __name__ == "__main__":
    main()
