"""Real children of a test that use the GPU, and such that do not: no limit is kept by the first."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("_disturbs_the_gpu")

WORK = """
import torch

def work(_=None):
    return float(torch.ones(8, device="cuda").sum())

def nothing(_=None):
    pass
"""

# Imported first of all: its worker is forked, and brings up CUDA, before this process does.
FORKED = """
import multiprocessing
from work import work

forked = multiprocessing.get_context("fork").Pool(1)
assert forked.map(work, [0]) == [8]
"""

TESTS = """
from forked import forked
from work import nothing, work
import multiprocessing, subprocess, sys
from multiprocessing import resource_tracker
import pytest, torch
from torch.utils.data import DataLoader

forking = multiprocessing.get_context("fork")
spawning = multiprocessing.get_context("spawn")
SERVER = '''
import sys, torch
for line in sys.stdin:
    print(float(torch.ones(8, device="cuda").sum()), flush=True)
'''

@pytest.fixture(scope="module")
def x():
    return torch.ones(8, device="cuda")

@pytest.fixture(scope="module")
def pool():
    with spawning.Pool(1) as pool:
        assert pool.map(work, [0]) == [8]
        yield pool

@pytest.fixture(scope="module")
def server():
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert ask(process) == b"8.0\\n"
        yield process
        process.stdin.close()

def ask(server):
    server.stdin.write(b"go\\n")
    server.stdin.flush()
    return server.stdout.readline()

def start_and_wait(context, target):
    child = context.Process(target=target)
    child.start()
    child.join()

@pytest.mark.max_kernels(0)
def test_no_pass_spawn(kernel_profile, x):
    with kernel_profile.region():
        start_and_wait(spawning, work)

@pytest.mark.max_kernels(0)
def test_no_pass_pool_that_was_spawned_earlier(kernel_profile, x, pool):
    kernel_profile(pool.map, work, [0])

@pytest.mark.max_kernels(0)
def test_no_pass_pool_that_was_forked_before_cuda(kernel_profile, x):
    kernel_profile(forked.map, work, [0])

@pytest.mark.max_kernels(0)
def test_no_pass_subprocess(kernel_profile, x, server):
    kernel_profile(ask, server)

@pytest.mark.max_kernels(0)
def test_broken_is_broken(kernel_profile, x, pool):
    kernel_profile(lambda: (pool.map(work, [0]), x + 1))

@pytest.mark.kernelprof(other_processes="ignore")
@pytest.mark.max_kernels(0)
def test_ignored(kernel_profile, x, pool):
    kernel_profile(pool.map, work, [0])

@pytest.mark.max_kernels(1)
def test_fine_children_that_use_the_gpu_are_idle(kernel_profile, x, pool, server):
    kernel_profile(lambda: x + 1)

@pytest.mark.max_kernels(0)
def test_fine_fork_after_cuda(kernel_profile, x):
    kernel_profile(start_and_wait, forking, nothing)

@pytest.mark.max_kernels(0)
def test_fine_loader(kernel_profile, x):
    data = DataLoader(torch.ones(64, 8), 8, num_workers=2, multiprocessing_context="fork")
    kernel_profile(lambda: sum(len(rows) for rows in data))

@pytest.mark.max_kernels(0)
def test_fine_loader_that_was_started_earlier(kernel_profile, x):
    data = DataLoader(torch.ones(64, 8), 8, num_workers=2, multiprocessing_context="fork",
                      persistent_workers=True)
    assert len(list(data)) == 8
    kernel_profile(lambda: sum(len(rows) for rows in data))

@pytest.mark.max_kernels(0)
def test_fine_resource_tracker(kernel_profile, x):
    trackers = []
    def start():
        trackers.append(resource_tracker.ResourceTracker())
        trackers[-1].ensure_running()
    kernel_profile(start)

@pytest.mark.max_kernels(1)
def test_fine_workers_of_inductor(kernel_profile, x):
    compiled = torch.compile(lambda x: (x + 1).relu() * 2)
    kernel_profile(compiled, x)

@pytest.mark.max_kernels(999)
def test_fine_compiled_in_the_call(kernel_profile, x):
    with kernel_profile.region():
        torch.compile(lambda x: (x + 2).relu() * 3)(x)
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a run of all of these tests prints."""
    folder: Path = tmp_path_factory.mktemp("children")
    for name, code in (("work", WORK), ("forked", FORKED), ("test_it", TESTS)):
        (folder / f"{name}.py").write_text(code)
    options = ("-p", "no:cacheprovider", "-p", "no:randomly", "-rA", "--kernelprof-device=cuda")
    command = [sys.executable, "-m", "pytest", *options, "--kernelprof-report", "-v", "test_it.py"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    return done.stdout + done.stderr


def outcomes(printed: str, outcome: str) -> set[str]:
    return set(re.findall(rf"^{outcome} test_it.py::test_(\w+)", printed, re.MULTILINE))


def test_work_of_children_on_the_gpu_is_no_pass(printed: str) -> None:
    assert outcomes(printed, "ERROR") == {
        "no_pass_spawn",
        "no_pass_pool_that_was_spawned_earlier",
        "no_pass_pool_that_was_forked_before_cuda",
        "no_pass_subprocess",
    }, printed
    told = (
        r"ERROR at call of test_no_pass_(\w+) _+\nE   profile incomplete .*: process \d+ "
        r"\((.*)\) uses"
    )
    programs = dict(re.findall(rf"{told} the GPU; its kernels are not counted", printed))
    assert programs.pop("pool_that_was_forked_before_cuda") == "forked from this one", printed
    assert set(programs) == {"pool_that_was_spawned_earlier", "subprocess"}, printed
    assert "a process that the call started (work.work) ended before it could be" in printed


def test_a_broken_limit_stays_broken_beside_children(printed: str) -> None:
    assert outcomes(printed, "FAILED") == {"broken_is_broken"}, printed
    assert "max_kernels: 1 > limit 0" in printed


def test_children_that_are_meant_are_told_in_the_row(printed: str) -> None:
    assert "ignored" in outcomes(printed, "PASSED"), printed
    assert re.search(r"test_ignored.*\n +other processes ignored: process \d+ \(python", printed)


def test_children_that_use_no_gpu_or_do_nothing_give_no_alarm(printed: str) -> None:
    assert outcomes(printed, "PASSED") - {"ignored"} == {
        "fine_children_that_use_the_gpu_are_idle",
        "fine_fork_after_cuda",
        "fine_loader",
        "fine_loader_that_was_started_earlier",
        "fine_resource_tracker",
        "fine_workers_of_inductor",
        "fine_compiled_in_the_call",
    }, printed
