"""Ranks with gloo, each a process: under torchrun, and started by a test.

A process that imports torch takes seconds to start, so what can be seen in one run is.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from multiprocessing import spawn
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this torch has no gloo",
)

HEAD = """
import os, time, pytest, torch, torch.distributed as dist
from datetime import timedelta
from pytest_kernelprof import IncompleteProfile, profile
x = torch.ones(4, 4)
def step(x=x):
    y = x @ x
    dist.all_reduce(y)
    return y
def me():
    return dist.get_rank()
"""

TORCHRUN = """
@pytest.fixture(scope="session", autouse=True)
def group():
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    yield
@pytest.mark.max_kernels(2)
def test_kept(kernel_profile):
    kernel_profile(step)
    assert [one.rank for one in kernel_profile.last.record.ranks] == [0, 1]
    assert kernel_profile.last.record.rank == me()
@pytest.mark.max_kernels(2)
def test_more_on_one(kernel_profile):
    kernel_profile(lambda: step() + 1 if me() else step())
@pytest.mark.max_latency("1us")
def test_time_is_over(kernel_profile):
    kernel_profile(step)
@pytest.mark.max_latency("100s")
def test_rounds_by_one(kernel_profile):
    kernel_profile.run(step, rounds=5 if me() else None)
    assert len(kernel_profile.last.metrics["latency"].rounds) >= 12
def test_compared(kernel_profile):
    found = kernel_profile.compare(step, lambda: (step(), step())[1], rounds=8 if me() else 9)
    assert found.pairs >= 9
    with open(f"ratio{me()}", "w") as file:
        file.write(repr(found.speedup))
def training():
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 4))
    )
    return lambda: model(x).square().mean().backward()
def test_compared_when_buckets_are_rebuilt(kernel_profile):
    kernel_profile(training())
    found = kernel_profile.compare(training(), training(), rounds=1)
    compared = [one.profile.kernel_count for one in (found.candidate, found.reference)]
    assert compared == [kernel_profile.last.kernel_count] * 2
def test_wrong_on_one(kernel_profile):
    kernel_profile.compare(lambda: step() + me(), step)
def test_random_on_one(kernel_profile):
    numbers = iter(range(1, 1_000_000))  # two of torch.rand may be as good as equal
    kernel_profile.compare(lambda: step() + me(), lambda: step() + next(numbers) * me())
def test_remembers_on_one(kernel_profile):
    first = x @ x
    def remembers(x):
        return first if me() else x @ x
    kernel_profile.compare(remembers, lambda x: x @ x, x, fresh=lambda: (x + 1,))
def test_cold_on_one(kernel_profile):
    calls = []
    def call():
        calls.append(1)
        return step() + 1 if me() and len(calls) == 2 else step()
    kernel_profile(call)
    assert [one.kernel_count for one in kernel_profile.last.record.ranks] == [2, 2]
    counts = [None, None]
    dist.all_gather_object(counts, len(calls))
    assert counts[0] == counts[1]
@pytest.mark.max_kernels(2)
def test_region_with_more_on_one(kernel_profile):
    with kernel_profile.region("block") as region:
        step() + 1 if me() else step()
    assert [one.kernel_count for one in region.profile.record.ranks] == [2, 3]
def test_region_of_one(kernel_profile):
    if me():
        with kernel_profile.region("block", group=[1], max_kernels=1):
            x + 1
    else:
        kernel_profile.run(lambda: x + 1, group=[0])
@pytest.mark.max_kernels(1)
def test_of_rank_0_alone(kernel_profile):
    if not me():
        time.sleep(0.3)
        kernel_profile.run(lambda: x + 1, group=[0])
@pytest.mark.max_kernels(1)
def test_of_rank_1_alone(kernel_profile):
    if me():
        kernel_profile.run(lambda: x + 1, group=[1])
def test_that_no_rank_profiles(kernel_profile):
    pass
def test_region_that_one_leaves_out(kernel_profile):
    if not me():
        with kernel_profile.region("block"):
            x + 1
    kernel_profile(step)
@pytest.mark.max_kernels(2)
def test_all_of_it_with_more_on_one():
    step() + 1 if me() else step()
@pytest.mark.max_kernels(2)
def test_all_of_it_raises_on_one():
    step()
    if me():
        raise ValueError("boom")
def test_benchmarked(kernel_benchmark):
    calls = []
    def call():
        calls.append(1)
        time.sleep(0.001 + 0.002 * me())  # one rank alone would be called more often
        return step()
    kernel_benchmark(call)
    counts = [None, None]
    dist.all_gather_object(counts, len(calls))
    assert counts[0] == counts[1]
def test_in_a_group(kernel_profile):
    kernel_profile.run(lambda: x + 1, group=[me()])
    both = dist.new_group([0, 1])
    kernel_profile.run(lambda: dist.all_reduce(x.clone(), group=both), group=both)
    dist.destroy_process_group(both)
    with pytest.raises(Exception, match="this is rank"):
        kernel_profile.run(step, group=[1 - me()])
def test_expected(kernel_profile):
    def fails():
        raise RuntimeError(f"rank {me()}")
    with pytest.raises(RuntimeError, match=f"rank {me()}"):
        kernel_profile(fails)
    kernel_profile(step)
def test_raises_on_one(kernel_profile):
    calls = []
    def call():
        calls.append(1)
        if me() and len(calls) == 3:
            raise ValueError("boom")
        return x + 1
    kernel_profile(call)
def test_skips_on_one(kernel_profile):
    if me():
        pytest.skip("not here")
    kernel_profile(step)
if os.environ["RANK"] == "0":
    def test_of_one_rank(kernel_profile):
        kernel_profile.run(lambda: x + 1, group=[0])
        kernel_profile(step)
def test_fewer_calls(kernel_profile):
    kernel_profile(step)
    if not me():
        kernel_profile(step)
def test_another_call(kernel_profile):
    if me():
        kernel_profile.compare(step, lambda: x)
    kernel_profile(step)
def test_another_line(kernel_profile):
    if me():
        kernel_profile(step)
    else:
        kernel_profile(step)
@pytest.fixture
def measures_late(kernel_profile):
    yield
    if me():
        raise ValueError("too late")
    kernel_profile(step)
def test_ends_badly_on_one(measures_late, kernel_profile):
    kernel_profile(step)
def test_fails_on_one():
    assert not me()
def test_as_before_in_the_end(kernel_profile):
    kernel_profile(step)
def test_stuck_in_a_collective(kernel_profile):
    calls = []
    def call():
        calls.append(1)
        if me() and len(calls) == 2:
            time.sleep(4)
        return step()
    kernel_profile(call)
def test_remade(kernel_profile):
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False)
    dist.destroy_process_group()
    again = dist.PrefixStore("again", store)
    rank, soon = int(os.environ["RANK"]), timedelta(seconds=20)
    dist.init_process_group("gloo", store=again, rank=rank, world_size=2, timeout=soon)
    kernel_profile(step)
def test_dies(kernel_profile):
    calls = []
    def call():
        calls.append(1)
        if me() and len(calls) == 3:
            os.kill(os.getpid(), 9)
        return step()
    kernel_profile(call)
"""

SPAWNED = """
def worker(extra, how=""):
    def call():
        y = step()
        return y + 1 if me() in extra else y
    if how == "kill":
        os.kill(os.getpid(), 9)
    if how == "raise":
        raise ValueError("boom")
    return me(), profile(call).kernel_count
def catches(how):
    profile(lambda: x + 1)
    try:
        return profile((lambda: 1 / 0) if how == "raises" else how)
    except (ZeroDivisionError, TypeError):
        return None
@pytest.mark.max_kernels(1)
def test_caught(kernel_profile):
    kernel_profile.ranks(1).run(catches, "raises")
@pytest.mark.max_kernels(1)
def test_caught_no_callable(kernel_profile):
    kernel_profile.ranks(1).run(catches, 3)
@pytest.mark.max_kernels(2)
def test_four(kernel_profile):
    found = kernel_profile.ranks(4).run(worker, (2, 3))
    assert found == [(0, 2), (1, 2), (2, 3), (3, 3)]
    assert [one.kernel_count for one in kernel_profile.last.record.ranks] == [2, 2, 3, 3]
@pytest.mark.kernelprof(ranks=1)
def test_killed(kernel_profile):
    kernel_profile.ranks().run(worker, (), how="kill")
def test_raised(kernel_profile):
    kernel_profile.ranks(1).run(worker, (), how="raise")
def test_cannot_be_pickled(kernel_profile):
    kernel_profile.ranks(2).run(lambda: 1)
def test_work(kernel_profile):
    kernel_profile.work(flops=32)
    kernel_profile.ranks(1).run(worker, ())
def test_how_many(kernel_profile):
    kernel_profile.ranks().run(worker)
def test_no_number(kernel_profile):
    kernel_profile.ranks("two")
"""

Once = Callable[[str, Callable[[Path], None]], Path]

PYTEST = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"


_OPTIONS = (
    *("-p", "no:cacheprovider", "-rA", "--tb=short", "--kernelprof-device=cpu"),
    *("-p", "no:randomly", "-p", "no:random_order"),  # tests have one order on all ranks
)


def run(folder: Path, *command: str) -> None:
    """Run a command in a folder, with what it prints in ``out.txt``."""
    environment = {key: value for key, value in os.environ.items() if "PYTEST" not in key}
    with open(folder / "out.txt", "w") as out:
        try:
            subprocess.run(
                [*command, *_OPTIONS],
                cwd=folder,
                env=environment | {"OMP_NUM_THREADS": "1", "COLUMNS": "400"},
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=100,
            )
        except subprocess.TimeoutExpired:
            out.flush()
            pytest.fail(f"it hangs; until now:\n{(folder / 'out.txt').read_text()}")


def _torchrun(python: str, folder: Path) -> None:
    (folder / "test_it.py").write_text(HEAD + TORCHRUN)
    run(
        folder,
        *(python, "-c", "from torch.distributed.run import main; main()"),
        # Standalone: by itself torchrun of older torch has one port for all runs of a machine.
        *("--standalone", "--nproc-per-node=2", "--no-python"),
        *(python, "-c", PYTEST, "-o", "faulthandler_timeout=40"),
        *("-o", "kernelprof_rank_timeout=2", "--kernelprof-json=run.json"),
        *("--kernelprof-report", "--kernelprof-trace-dir=traces"),
    )


@contextlib.contextmanager
def processes_of(python: str) -> Iterator[None]:
    """What is spawned meanwhile starts in a tenth of the time; as for users it does in the docs'
    test."""
    usual = spawn.get_executable()
    spawn.set_executable(python)
    try:
        yield
    finally:
        spawn.set_executable(usual)


def _spawned(pytester: pytest.Pytester, python: str, folder: Path) -> None:
    """In this process, which has loaded torch."""
    (folder / "test_it.py").write_text(HEAD + SPAWNED)
    with pytest.MonkeyPatch.context() as here, processes_of(python):
        here.chdir(folder)
        here.setenv("COLUMNS", "400")
        result = pytester.runpytest_inprocess(*_OPTIONS, "--kernelprof-json=run.json")
    (folder / "out.txt").write_text("\n".join(result.outlines))


class Seen:
    """What a run printed and left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.text = (folder / "out.txt").read_text()
        found = re.findall(r"^(\w+) test_it\.py::(\w+)", self.text, re.MULTILINE)
        self.outcomes = {name: outcome for outcome, name in found}

    def line(self, test: str) -> str:
        found = re.search(rf"^\w+ test_it\.py::{test}\b.*", self.text, re.MULTILINE)
        assert found, f"{test} in:\n{self.text}"
        return found[0]

    @property
    def profiles(self) -> dict[str, list[dict[str, object]]]:
        tests = json.loads((self.folder / "run.json").read_text())["tests"]
        return {one["id"].partition("::")[2]: one.get("profiles", []) for one in tests}


@pytest.fixture
def torchrun(once: Once, python: str) -> Seen:
    """A run of two ranks, of which the last test kills one."""
    return Seen(once("ranks-torchrun", functools.partial(_torchrun, python)))


@pytest.fixture
def spawned(once: Once, python: str, pytester: pytest.Pytester) -> Seen:
    """A run whose tests start their ranks."""
    return Seen(once("ranks-spawned", functools.partial(_spawned, pytester, python)))


@pytest.mark.parametrize(
    "test",
    [
        *("test_kept", "test_rounds_by_one", "test_compared", "test_cold_on_one"),
        *("test_compared_when_buckets_are_rebuilt", "test_random_on_one"),
        *("test_in_a_group", "test_expected", "test_as_before_in_the_end", "test_remade"),
        *("test_region_of_one", "test_of_rank_0_alone", "test_of_rank_1_alone"),
    ],
)
def test_ranks_that_go_together_pass(torchrun: Seen, test: str) -> None:
    assert torchrun.outcomes[test] == "PASSED", torchrun.text


def test_a_test_that_no_rank_profiles_is_an_error_on_each(torchrun: Seen) -> None:
    line = torchrun.line("test_that_no_rank_profiles")
    assert line.startswith("ERROR")
    assert "asks for kernel_profile but profiled nothing" in line


def test_ranks_benchmark_together(torchrun: Seen) -> None:
    pytest.importorskip("pytest_benchmark")
    assert torchrun.outcomes["test_benchmarked"] == "PASSED", torchrun.text


@pytest.mark.parametrize(
    "test", ["test_more_on_one", "test_region_with_more_on_one", "test_all_of_it_with_more_on_one"]
)
def test_a_limit_that_one_rank_breaks_fails_on_all_with_its_number(
    torchrun: Seen, test: str
) -> None:
    assert "max_kernels: 3 > limit 2 on rank 1" in torchrun.line(test)
    assert f"{test} (rank 0)" not in torchrun.text  # there as here
    assert [one["rank"] for one in torchrun.profiles[test][0]["other_ranks"]] == [1]  # type: ignore[attr-defined]


def test_a_time_that_is_over_fails_on_all(torchrun: Seen) -> None:
    assert torchrun.line("test_time_is_over").startswith("FAILED")


def test_ranks_compare_alike(torchrun: Seen) -> None:
    ratios = [(torchrun.folder / f"ratio{rank}").read_text() for rank in (0, 1)]
    assert ratios[0] == ratios[1]


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("test_wrong_on_one", "<lambda> returned a different result than step: "),
        ("test_remembers_on_one", "remembers returned the result of other inputs: "),
    ],
)
def test_a_result_that_is_wrong_on_one_rank_fails_on_all(
    torchrun: Seen, test: str, words: str
) -> None:
    assert torchrun.line(test).startswith(f"FAILED test_it.py::{test} - ")
    assert f"WrongResult: on another rank: {words}" in torchrun.line(test)


@pytest.mark.parametrize(
    ("test", "words"),
    [
        (
            "test_raises_on_one",
            "rank 1 raised ValueError: boom, so ranks 0 and 1 could not",
        ),
        ("test_skips_on_one", "rank 1 has ended the test (Skipped: not here)"),
        ("test_of_one_rank", "rank 1 does not run this test, so ranks 0 and 1 could not continue"),
        ("test_fewer_calls", "rank 1 has ended the test, so ranks 0 and 1"),
        ("test_another_call", "is at a comparison at test_it.py:"),
        ("test_another_line", "is at kernel_profile at test_it.py:"),
        ("test_region_that_one_leaves_out", "is at region 'block' at test_it.py:"),
        ("test_all_of_it_raises_on_one", "rank 1 has ended the test (ValueError: boom)"),
        (
            "test_stuck_in_a_collective",
            "rank 1 did not reach a collective in which others waited",
        ),
        ("test_dies", "rank 1 has died (process "),
    ],
)
def test_a_rank_that_does_not_come_is_an_error_that_names_it(
    torchrun: Seen, test: str, words: str
) -> None:
    assert torchrun.line(test).startswith("ERROR")
    assert words in torchrun.line(test)
    assert f"of test_it.py::{test})" in torchrun.text


def test_nobody_waits_for_a_teardown_that_failed_elsewhere(torchrun: Seen) -> None:
    told = "ERROR test_it.py::test_ends_badly_on_one - "
    assert f"{told}rank 1 has ended the test (ValueError: too late)" in torchrun.text


def test_rank_0_tells_what_fails_on_another_alone(torchrun: Seen) -> None:
    assert "FAILED test_it.py::test_fails_on_one (rank 1)" in torchrun.text
    assert "FAILED test_it.py::test_raises_on_one (rank 1) - ValueError: boom" in torchrun.text


def test_the_other_ranks_are_quiet(torchrun: Seen) -> None:
    assert torchrun.text.count("test session starts") == 1
    assert torchrun.text.count("short test summary info") == 1
    assert "kernelprof: rank 1 died" in torchrun.text


def test_there_is_one_document_with_all_ranks(torchrun: Seen) -> None:
    profiles = torchrun.profiles
    (kept,) = profiles["test_kept"]
    assert kept["rank"] == 0
    assert [one["rank"] for one in kept["other_ranks"]] == [1]  # type: ignore[attr-defined]


def test_the_rank_that_breaks_a_limit_has_its_timeline_in_the_document(torchrun: Seen) -> None:
    (kept,), (over,) = (torchrun.profiles[one] for one in ("test_kept", "test_more_on_one"))
    others = kept["other_ranks"], over["other_ranks"]
    with_one = ["timeline" in one for (one,) in others]  # type: ignore[attr-defined]
    assert with_one == [False, True]


def test_each_rank_writes_its_traces(torchrun: Seen) -> None:
    written = sorted(path.name for path in torchrun.folder.glob("traces/*test_kept*"))
    assert [name.partition("test_kept-1")[2] for name in written] == [
        ".rank0.json.gz",
        ".rank1.json.gz",
    ]


def test_ranks_that_a_test_starts_are_judged_each(spawned: Seen) -> None:
    assert "max_kernels: 3 > limit 2 on ranks 2, 3" in spawned.line("test_four")
    (profile,) = spawned.profiles["test_four"]
    assert [one["rank"] for one in profile["other_ranks"]] == [1, 2, 3]  # type: ignore[attr-defined]


def test_work_that_is_said_before_is_that_of_their_first_call(spawned: Seen) -> None:
    assert len(spawned.profiles["test_work"]) == 1
    assert "::test_work -" not in spawned.text


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("test_killed", "ERROR test_it.py::test_killed - rank 0 of 1 died (SIGKILL)"),
        (
            "test_caught",
            "ERROR test_it.py::test_caught - max_kernels was not judged: profile(<lambda>) on "
            "rank 0 was not measured completely (ZeroDivisionError was raised); catch expected "
            "exceptions inside the callable",
        ),
        (
            "test_caught_no_callable",
            "max_kernels was not judged: profile(int) on rank 0 was not measured completely "
            "(CannotMeasureError was raised)",
        ),
        ("test_raised", "FAILED test_it.py::test_raised - ValueError: boom"),
        ("test_cannot_be_pickled", "CannotMeasureError: ranks(2).run: "),
        ("test_how_many", "MarkerError: kernel_profile.ranks: the number"),
        ("test_no_number", "MarkerError: kernel_profile.ranks('two'): expected a whole number"),
    ],
)
def test_what_a_started_rank_cannot_do_is_told(spawned: Seen, test: str, words: str) -> None:
    assert words in spawned.line(test)


def test_what_a_started_rank_raised_has_its_traceback(spawned: Seen) -> None:
    assert 'in worker\n    raise ValueError("boom")' in spawned.text
