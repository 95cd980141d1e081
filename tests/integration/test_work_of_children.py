"""Work that a call has child processes do: it is in no count, so no limit is kept by it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from repositories import Repository

from pytest_kernelprof.gpu import procfs

Run = Callable[..., pytest.RunResult]

on_linux = pytest.mark.skipif(not procfs.TELLS_CHILDREN, reason="this system tells of no children")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

HEAD = """
import functools, multiprocessing, os, signal, subprocess, sys
from concurrent.futures import ProcessPoolExecutor

forking = multiprocessing.get_context("fork")
spawning = multiprocessing.get_context("spawn")

def work(_=None):
    return float((x @ x).sum())

def start_and_wait(context, target=work):
    child = context.Process(target=target)
    child.start()
    child.join()

@pytest.fixture(scope="module")
def pool():
    # What a library has set for SIGTERM in the process of the tests would keep the child alive.
    with forking.Pool(1, signal.signal, (signal.SIGTERM, signal.SIG_DFL)) as pool:
        pool.map(work, [0])
        yield pool

SERVER = '''
import sys, torch
for line in sys.stdin:
    print(float(torch.ones(8).sum()), flush=True)
'''

@pytest.fixture(scope="module")
def server():
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        ask(process)
        yield process
        process.stdin.close()

def ask(server):
    server.stdin.write(b"go\\n")
    server.stdin.flush()
    return server.stdout.readline()
"""


@on_linux
def test_work_in_children_is_no_pass(run: Run) -> None:
    result = run(
        HEAD
        + """
@pytest.mark.max_kernels(0)
def test_fork(kernel_profile):
    kernel_profile(start_and_wait, forking)

@pytest.mark.max_kernels(0)
def test_spawn(kernel_profile):
    with kernel_profile.region():
        start_and_wait(spawning)

@pytest.mark.max_kernels(0)
def test_forkserver(kernel_profile):
    with kernel_profile.region():
        start_and_wait(multiprocessing.get_context("forkserver"))

@pytest.mark.max_kernels(0)
def test_fork_of_a_partial(kernel_profile):
    kernel_profile(start_and_wait, forking, functools.partial(work))

class Works(forking.Process):
    def run(self):
        work()

@pytest.mark.max_kernels(0)
def test_class_of_its_own(kernel_profile):
    def call():
        child = Works()
        child.start()
        child.join()
    kernel_profile(call)

@pytest.mark.max_kernels(0)
def test_executor_of_the_call():
    with ProcessPoolExecutor(1, mp_context=forking) as executor:
        assert executor.submit(work).result() == 512

@pytest.mark.max_kernels(0)
def test_pool_that_was_started_earlier(kernel_profile, pool):
    kernel_profile(pool.map, work, [0])

@pytest.mark.max_kernels(0)
def test_process_that_was_started_earlier(kernel_profile, server):
    kernel_profile(ask, server)

CHILD = '''
import subprocess, sys
subprocess.run([sys.executable, "-c", *sys.argv[1:]])
'''
# As much of torch as is seen of it.
LOADED = '''
import sys, ctypes
ctypes.CDLL(sys.argv[1])
for line in sys.stdin:
    print(sum(range(9)), flush=True)
'''
LIBRARY = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")

@pytest.mark.max_kernels(0)
def test_child_of_a_child(kernel_profile):
    command = [sys.executable, "-c", CHILD, LOADED, LIBRARY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        ask(process)
        try:
            kernel_profile(ask, process)
        finally:
            process.stdin.close()
"""
    )
    assert result.parseoutcomes() == {"errors": 9}
    counted = "its operators are not counted"
    result.stdout.fnmatch_lines(
        [
            "*incomplete (tried once): a process that the call started (test_it.work) ended "
            f"before it could be checked; {counted}; if this is intended, mark the test "
            'kernelprof(other_processes="ignore")',
            "  Its counts could be too low, so no limit is judged",
            "*a process that the call started (test_it.work) ended *",
            "*a process that the call started (test_it.work) ended *",
            "*a process that the call started (functools.partial) ended *",
            "*a process that the call started (test_it.Works) ended *",
            "*a process that the call started (concurrent.futures.process._process_worker) ended *",
            f"*process * (forked from this one) has loaded torch and ran during *; {counted}*",
            f"*process * (python* -c import sys, torch *) has loaded torch and ran*; {counted}*",
            "*ERROR at call of test_child_of_a_child*",
            f"*process * (python* -c import sys, ctypes *) has loaded torch and ran*; {counted}*",
        ]
    )


@on_linux
def test_a_limit_that_is_broken_stays_broken(run: Run) -> None:
    result = run(
        HEAD
        + """
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    kernel_profile(lambda: (start_and_wait(forking), x + 1))
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 1 > limit 0"])


@on_linux
def test_children_beside_a_process_that_computes_give_no_alarm(run: Run) -> None:
    result = run(
        HEAD
        + """
data = torch.utils.data.DataLoader(torch.ones(4, 8), num_workers=1, multiprocessing_context="fork")

@pytest.mark.max_kernels(5)  # the loader draws a seed
def test_loader(kernel_profile):
    kernel_profile(lambda: [rows + 1 for rows in data])

@pytest.mark.max_kernels(1)
def test_pool(kernel_profile, pool):
    kernel_profile(lambda: (pool.map(work, [0]), x + 1))
"""
    )
    result.assert_outcomes(passed=2)


@on_linux
def test_children_that_cannot_compute_give_no_alarm(run: Run) -> None:
    result = run(
        HEAD
        + """
@pytest.mark.max_kernels(0)
def test_pool_that_has_nothing_to_do(kernel_profile, pool):
    kernel_profile(lambda: None)

@pytest.mark.max_kernels(0)
def test_tools(kernel_profile):
    kernel_profile(subprocess.run, [sys.executable, "-I", "-S", "-c", ""])

@pytest.mark.max_kernels(0)
def test_process_without_torch(kernel_profile):
    with subprocess.Popen(["sleep", "60"]) as process:
        kernel_profile(lambda: process.poll())
        process.kill()

@pytest.mark.max_kernels(0)
def test_manager_and_its_tracker(kernel_profile):
    def share():
        with forking.Manager() as manager:
            return len(manager.list([1, 2]))
    kernel_profile(share)
""",
        "--kernelprof-report",
        "-v",
    )
    result.assert_outcomes(passed=4)
    result.stdout.no_fnmatch_line("*child processes*")


@on_linux
def test_children_that_are_meant_are_told_in_the_row(run: Run) -> None:
    result = run(
        HEAD
        + """
@pytest.mark.kernelprof(other_processes="ignore")
@pytest.mark.max_kernels(0)
def test_meant(kernel_profile, pool):
    kernel_profile(pool.map, work, [0])

@pytest.mark.kernelprof(other_processes="ignore")
@pytest.mark.max_kernels(0)
def test_nothing_to_ignore(kernel_profile):
    kernel_profile(lambda: None)

@pytest.mark.kernelprof(other_processes="ignore")
@pytest.mark.max_kernels(0)
def test_region(kernel_profile, pool):
    with kernel_profile.region():
        pool.map(work, [0])

@pytest.mark.kernelprof(other_processes="ignore")
def test_compare(kernel_profile, pool):
    kernel_profile.compare(lambda: pool.map(work, [0]), lambda: pool.map(work, [0]), rounds=2)
""",
        "--kernelprof-report",
        "-v",
    )
    result.assert_outcomes(passed=4)
    text = result.stdout.str()
    told = r"other processes ignored: process \d+ \(forked from this one\) .*"
    assert len(re.findall(rf"test_(?:meant|region).*\n +{told}", text)) == 2
    assert len(re.findall(told, text)) == 2


@on_linux
def test_a_child_that_ended_before_it_was_looked_at_is_told(run: Run) -> None:
    result = run(
        HEAD
        + """
BUSY = "import time\\nwhile time.process_time() < 0.4: pass"

@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    with kernel_profile.region():
        subprocess.run([sys.executable, "-c", BUSY])
""",
        "--kernelprof-report",
        "-v",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*child processes ended unchecked after *s: their work is not counted"]
    )


def test_elsewhere_than_on_linux_it_is_told_that_nobody_looked(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "TELLS_CHILDREN", False)
    result = run(
        HEAD
        + """
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    kernel_profile(lambda: (start_and_wait(forking), x + 1))
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*, children not checked"])


@on_linux
def test_the_worker_of_another_revision_is_ours(run: Run, pytester: pytest.Pytester) -> None:
    busy = """
import threading, time
def spin():
    while time.process_time() < 60: time.sleep(sum(range(9999)) * 1e-12)
threading.Thread(target=spin, daemon=True).start()
def call(): pass
"""
    repository = Repository(pytester.path)
    repository.commit({"pytest.ini": "[pytest]", "code_of_mine.py": busy})
    repository.write({"code_of_mine.py": "import time\ndef call(): time.sleep(0.1)"})
    result = run(
        """
from code_of_mine import call

@pytest.mark.max_kernels(0)
@pytest.mark.parametrize("number", [1, 2])
def test_it(kernel_profile, number):
    kernel_profile(call)
""",
        "--kernelprof-against=main",
    )
    result.assert_outcomes(passed=2)


@on_linux
def test_ranks_are_ours(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    with kernel_profile.region():
        assert kernel_profile.ranks(1).run(int) == [0]
"""
    )
    result.assert_outcomes(passed=1)
