"""Several ranks of torch.distributed: counts beside the profiler's own, times that end, very many
profiles in a row, what is planted, ranks that do not come, and tests that wait for free GPUs."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import device_and_place, device_kind, met, table

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS = Path(__file__).parents[1] / "tests" / "gpu" / "ranks_of_gpus.py"
PARTS = ("suite", "lost", "spawned", "symmetric")
HOWS = {
    "raises": "one rank raises in its third call",
    "dies": "one rank is killed in its third call",
    "is late": "one rank sleeps for 12 s in its third call",
    "calls less": "one rank makes one call less, and sleeps for 9 s",
    "skips a collective": "one rank leaves a collective out",
}

CONFTEST = """
import os, pytest, torch, torch.distributed as dist
@pytest.fixture(scope="session", autouse=True)
def group():
    if "RANK" not in os.environ:
        yield
        return
    if {device!r} == "cuda":
        rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    else:
        dist.init_process_group("gloo")
    yield
    if dist.is_initialized() and "LOST" not in os.environ:
        dist.destroy_process_group()
"""

HEAD = """
import json, os, signal, time, pytest, torch, torch.distributed as dist
from ranks_of_gpus import STEPS, all_reduce, names_by_hand, symmetric
DEVICE, MANY = {device!r}, {many}
def tell(**row):
    with open(f"rows{{os.environ['RANK']}}.jsonl", "a") as file:
        file.write(json.dumps(row | {{"rank": dist.get_rank()}}) + "\\n")
def value(record, name):
    metric = record.metrics.get(name)
    return metric.value if metric is not None else None
"""

SUITE = """
def compared_with_torch(kernel_profile, name, step):
    kernel_profile(step)
    profile = kernel_profile.last
    ours, by_hand = sorted(kernel.name for kernel in profile.kernels), names_by_hand(step)
    tell(table="counts", step=name, ours=len(ours), by_hand=len(by_hand), equal=ours == by_hand,
         communicate=sum("nccl" in one for one in ours), rounds=profile.rounds)
    assert ours == by_hand or DEVICE == "cpu"

@pytest.mark.parametrize("name", STEPS)
@pytest.mark.max_kernels(500)
def test_counts(kernel_profile, kernelprof_device, name):
    compared_with_torch(kernel_profile, name, STEPS[name]())

@pytest.mark.parametrize("name", STEPS)
@pytest.mark.max_cuda_time("1s")
@pytest.mark.max_latency("10s")
@pytest.mark.max_launch_overhead("10s")
@pytest.mark.max_exposed_comm("10s")
def test_times(kernel_profile, kernelprof_device, name):
    step, began = STEPS[name](), time.monotonic()
    kernel_profile(step)
    took, record = time.monotonic() - began, kernel_profile.last.record
    own = ("cuda_time", "latency", "comm_time", "comm_transfer", "comm_wait", "exposed_comm_time")
    tell(table="times", step=name, took=took, **{one: value(record, one) for one in own})

def test_compared(kernel_profile, kernelprof_device):
    one, other = STEPS["ddp"](), STEPS["fsdp"]()
    for metric in ("latency",) if DEVICE == "cpu" else ("cuda_time", "latency"):
        began = time.monotonic()
        found = kernel_profile.compare(one, other, rounds=12, metric=metric, check=None)
        tell(table="compared", metric=metric, pairs=found.pairs, speedup=found.speedup,
             took=time.monotonic() - began)

@pytest.mark.max_kernels(1)
def test_one_more_on_rank_1(kernel_profile, kernelprof_device):
    x = torch.ones(64, device=DEVICE)
    kernel_profile(lambda: (dist.all_reduce(x), x.mul_(2) if dist.get_rank() == 1 else None))

@pytest.mark.max_kernels(1, match="nccl" if DEVICE == "cuda" else "allreduce")
def test_an_extra_all_reduce(kernel_profile, kernelprof_device):
    x = torch.ones(64, device=DEVICE)
    kernel_profile(lambda: (dist.all_reduce(x), dist.all_reduce(x)))

@pytest.mark.max_kernels(1)
def test_one_more_in_a_region_of_rank_1(kernel_profile, kernelprof_device):
    x = torch.ones(64, device=DEVICE)
    with kernel_profile.region("block"):
        dist.all_reduce(x)
        if dist.get_rank() == 1:
            x.mul_(2)

@pytest.mark.max_exposed_comm("1us")
def test_exposed(kernel_profile):
    kernel_profile(STEPS["ddp"]())

@pytest.mark.max_cuda_time("100us")
def test_a_slow_rank(kernel_profile):
    x = torch.ones(1024, device=DEVICE)
    def step():
        if dist.get_rank() == 1:
            torch.cuda._sleep(2_000_000)
        dist.all_reduce(x)
    kernel_profile(step)
    for one in kernel_profile.last.record.collectives:
        tell(table="slow", last=one.last, waited=value(kernel_profile.last.record, "comm_wait"))

@pytest.mark.max_kernels(500)
def test_many(kernel_profile, kernelprof_device):
    steps, began, incomplete = [make() for make in STEPS.values()], time.monotonic(), 0
    counts = [set() for _ in steps]
    for i in range(MANY):
        kernel_profile(steps[i % len(steps)])
        incomplete += not kernel_profile.last.integrity.complete
        counts[i % len(steps)].add(kernel_profile.last.kernel_count)
    tell(table="many", profiles=MANY, took=time.monotonic() - began, incomplete=incomplete,
         counts=[sorted(one) for one in counts])
    assert not incomplete
    assert all(len(one) == 1 for one in counts)
"""

SYMMETRIC = """
@pytest.mark.max_kernels(500)
def test_symmetric(kernel_profile):
    step = symmetric()
    kernel_profile(step)
    record, ours = kernel_profile.last.record, sorted(k.name for k in kernel_profile.last.kernels)
    tell(table="symmetric", ours=ours, equal=ours == names_by_hand(step),
         communicate=len(record.collectives), comm_time=value(record, "comm_time"))
    kernel_profile.last.save_trace(f"symmetric_rank{dist.get_rank()}.json.gz")
"""

LOST = """
HOW = os.environ["LOST"]
@pytest.mark.max_kernels(9)
def test_lost(kernel_profile, kernelprof_device):
    x, calls, other = torch.ones(1 << 16, device=DEVICE), [], dist.get_rank() == 1
    def call():
        calls.append(1)
        if other and len(calls) == 3:
            if HOW == "raises":
                raise ValueError("boom")
            if HOW == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if HOW == "is late":
                time.sleep(12)
            if HOW == "skips a collective":
                return
        dist.all_reduce(x.mul_(0.5))
    if other and HOW == "calls less":
        time.sleep(9)
        return
    kernel_profile(call)
@pytest.mark.max_kernels(9)
def test_alone_afterwards(kernel_profile, kernelprof_device):
    x = torch.ones(64, device=DEVICE)
    kernel_profile.run(lambda: x + 1, group=[dist.get_rank()])
    assert kernel_profile.last.kernel_count == 1
"""

SPAWNED = """
import json, time, pytest
from ranks_of_gpus import taken
@pytest.mark.parametrize("i", range(2))
@pytest.mark.kernelprof(ranks=2)
@pytest.mark.max_cuda_time("1s")
def test_spawned(kernel_profile, kernelprof_device, i):
    found = kernel_profile.ranks().run(taken, "all_reduce")
    assert found[0] == found[1]
"""


@dataclass(frozen=True)
class Ran:
    """A run of pytest that has ended, or that was ended after so long."""

    folder: Path
    seconds: float
    text: str

    def rows(self, of: str) -> list[dict[str, Any]]:
        """What all ranks told for a table, by rank."""
        lines = [
            line
            for path in sorted(self.folder.glob("rows*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        return [one for one in map(json.loads, lines) if one["table"] == of]

    def outcomes(self, test: str = r"\w+") -> list[str]:
        """The lines of the short summary about a test, the verdict in one line."""
        found = re.findall(rf"^(?:PASSED|FAILED|ERROR) \S+::{test}\b.*", self.text, re.MULTILINE)
        return [re.sub(r"^(\w+) \S+::", r"\1 ", line)[:240] for line in found]


class Place:
    """Where the runs take place."""

    def __init__(self, device: str, ranks: int, many: int, longest_s: float, folder: Path) -> None:
        self._ranks, self._longest_s, self._folder = ranks, longest_s, folder
        self._fill = {"device": device, "many": many}
        self._device = device

    def torchrun(self, name: str, suite: str, *options: str, lost: str = "") -> Ran:
        """Run a suite in each rank."""
        launched = (
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={self._ranks}",
        )
        return self._run(name, HEAD.format(**self._fill) + suite, launched, options, lost)

    def spawned(self) -> Ran:
        """Two tests in two workers, each of which wants all GPUs."""
        return self._run("spawned", SPAWNED, ("-m", "pytest", "-n2"), ("--durations=0",), "")

    def _run(
        self, name: str, suite: str, command: Sequence[str], options: Sequence[str], lost: str
    ) -> Ran:
        folder = self._folder / name.replace(" ", "_")
        folder.mkdir()
        shutil.copy(STEPS, folder)
        (folder / "conftest.py").write_text(CONFTEST.format(**self._fill))
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_ranks.py").write_text(suite)
        inner = () if "pytest" in command else ("--no-python", sys.executable, "-m", "pytest")
        usual = ("-p", "no:cacheprovider", "-p", "no:randomly", "-rA", "--tb=line")
        device = f"--kernelprof-device={self._device}"
        environment = os.environ | {"COLUMNS": "400"} | ({"LOST": lost} if lost else {})
        began, out = time.monotonic(), folder / "out.txt"
        with open(out, "w") as file:
            process = subprocess.Popen(
                [sys.executable, *command, *inner, *usual, device, *options],
                cwd=folder,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            try:
                process.wait(self._longest_s)
            except subprocess.TimeoutExpired:
                process.terminate()
                file.write(f"\nwas ended after {self._longest_s} s\n")
        return Ran(folder, time.monotonic() - began, out.read_text(errors="replace"))


def us(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def counts(ran: Ran) -> None:
    rows = ran.rows("counts")
    header = ["step", "rank", "kernels", "torch.profiler", "", "of NCCL"]
    cells = [
        [
            one["step"],
            str(one["rank"]),
            str(one["ours"]),
            str(one["by_hand"]),
            "EQUAL" if one["equal"] else "DIFFER",
            str(one["communicate"]),
        ]
        for one in sorted(rows, key=lambda one: (one["step"], one["rank"]))
    ]
    print("\nKernels of one call, by name, beside a torch.profiler alone around a later call:\n")
    print(table(header, cells))
    print(f"\nequal on each rank: {met(bool(rows) and all(one['equal'] for one in rows))}")


def times(ran: Ran) -> None:
    header = ["step", "rank", "took s", "cuda_time", "latency", "comm_time", "transfer", "wait"]
    names = ("cuda_time", "latency", "comm_time", "comm_transfer", "comm_wait", "exposed_comm_time")
    cells = [
        [one["step"], str(one["rank"]), f"{one['took']:.2f}", *(us(one[name]) for name in names)]
        for one in sorted(ran.rows("times"), key=lambda one: (one["step"], one["rank"]))
    ]
    print("\nFour limits on times, sampled until they are decided; medians in us:\n")
    print(table([*header, "exposed"], cells))
    for one in ran.rows("compared"):
        print(
            f"compared by {one['metric']} on rank {one['rank']}: {one['pairs']} pairs in "
            f"{one['took']:.2f} s, DDP takes 1/{one['speedup']:.3f} of FSDP's time"
        )


def many(ran: Ran) -> None:
    rows = ran.rows("many")
    print()
    for one in rows:
        print(
            f"rank {one['rank']}: {one['profiles']} profiles in a row in {one['took']:.1f} s, "
            f"{one['incomplete']} incomplete; kernels of each step: {one['counts']}"
        )
    is_met = len(rows) > 1 and all(
        not one["incomplete"] and all(len(seen) == 1 for seen in one["counts"]) for one in rows
    )
    print(f"none incomplete, none hangs, each step has one number of kernels: {met(is_met)}")


def planted(ran: Ran) -> None:
    print("\nPlanted, and what rank 0 reports of it:\n")
    for name in ("one_more_on_rank_1", "an_extra_all_reduce", "one_more_in_a_region_of_rank_1"):
        print("\n".join(ran.outcomes(f"test_{name}")) or f"NOTHING of {name}")
    for name in ("exposed", "a_slow_rank"):
        print("\n".join(ran.outcomes(f"test_{name}")) or f"NOTHING of {name}")
    for one in ran.rows("slow"):
        print(f"on rank {one['rank']}: rank {one['last']} is last, it waits {us(one['waited'])} us")


def lost(place: Place) -> None:
    print("\nA rank that does not come, with kernelprof_rank_timeout=4; all runs side by side:\n")
    with ThreadPoolExecutor(len(HOWS)) as pool:
        runs = {
            how: pool.submit(place.torchrun, how, LOST, "-o", "kernelprof_rank_timeout=4", lost=how)
            for how in HOWS
        }
    for how, words in HOWS.items():
        ran = runs[how].result()
        how_long = "ended by --longest after" if "\nwas ended after" in ran.text else "took"
        print(f"{words}: {how_long} {ran.seconds:.0f} s, from the start of the processes")
        print("".join(f"  {line}\n" for line in ran.outcomes()) or f"  NOTHING\n{ran.text[-2000:]}")


def suite(ran: Ran) -> None:
    for tell in (counts, times, many, planted):
        tell(ran)
    ended = re.findall(r"\d+ [a-z]+(?:, \d+ [a-z]+)* in [\d.]+s", ran.text)
    print(f"\n{ended[-1] if ended else ran.text[-3000:]}", flush=True)


def spawned(ran: Ran) -> None:
    print(f"\nTwo tests that start a rank on each GPU, in two workers: {ran.seconds:.0f} s")
    print("\n".join(ran.outcomes()) or ran.text[-2000:], flush=True)


def symmetric(ran: Ran) -> None:
    print("\nSymmetric memory (one-shot and two-shot all-reduce of PyTorch):\n")
    for one in ran.rows("symmetric"):
        told = "EQUAL" if one["equal"] else "DIFFER"
        print(
            f"rank {one['rank']}: {told} to torch.profiler, {one['communicate']} communicate, "
            f"comm_time {us(one['comm_time'])} us; {[name[:60] for name in one['ours']]}"
        )
    print("\n".join(ran.outcomes()) or ran.text[-2000:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="30 profiles in a row, not 500")
    parser.add_argument("--keep", type=Path, help="a new folder for what the runs leave")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--longest", type=float, default=120.0, help="seconds that a run may take")
    given = parser.parse_args()
    kind = device_kind(given.device)
    began = time.monotonic()
    print(f"{given.ranks} ranks of torch.distributed, on one machine")
    print(device_and_place(kind, "triton", "pytest", "pytest-kernelprof"), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        many_profiles, kept = 30 if given.quick else 500, given.keep or Path(folder)
        place = Place(kind, given.ranks, many_profiles, given.longest, kept)
        if given.keep:
            given.keep.mkdir(parents=True)
        if "suite" in given.parts:
            suite(place.torchrun("suite", SUITE))
        with ThreadPoolExecutor() as pool:  # beside the runs in which a rank is lost
            wanted = kind == "cuda" and "symmetric" in given.parts
            beside = pool.submit(place.torchrun, "symmetric", SYMMETRIC) if wanted else None
            if "lost" in given.parts:
                lost(place)
            if beside:
                symmetric(beside.result())
        if "spawned" in given.parts:
            spawned(place.spawned())
    print(f"\nall of it took {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
