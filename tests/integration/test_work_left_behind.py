"""Work that a call leaves behind when it returns: futures, threads, tasks, iterators, children."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

LATE = """
import asyncio, itertools, os, threading, time
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(1)
pool.submit(int).result()
started = []

def work(wait=0.0):
    time.sleep(wait)
    return (x @ x).relu() + 1

def thread(wait):
    started.append(threading.Thread(target=work, args=(wait,), name="mine"))
    started[-1].start()

@pytest.fixture(autouse=True)
def end_all():
    yield
    while started:
        started.pop().join()
    pool.submit(int).result()
"""


@pytest.mark.project(
    LATE
    + """
@pytest.mark.max_kernels(1)
@pytest.mark.parametrize("wait", [0.0, 0.003, 0.5])
def test_thread(kernel_profile, wait):
    kernel_profile(thread, wait)

@pytest.mark.max_kernels(1)
@pytest.mark.parametrize("wait", [0.0, 0.003])
def test_dropped_future(kernel_profile, wait):
    kernel_profile(lambda: pool.submit(work, wait) and None)

@pytest.mark.max_kernels(1)
def test_dropped_task(kernel_profile):
    async def late():
        work()
    async def main():
        kernel_profile(lambda: asyncio.ensure_future(late()) and None)
    asyncio.run(main())

@pytest.mark.max_kernels(1)
def test_block(kernel_profile):
    with kernel_profile.region():
        thread(0.003)

@pytest.mark.max_kernels(1)
def test_without_the_fixture():
    thread(0.003)
"""
)
def test_work_that_goes_on_when_the_call_has_returned_is_no_pass(result: pytest.RunResult) -> None:
    # A thread may also be so quick that its work lies in the call: then it is counted.
    outcomes = result.parseoutcomes()
    assert outcomes.get("errors", 0) + outcomes.get("failed", 0) == 8
    assert "passed" not in outcomes
    result.stdout.fnmatch_lines(
        [
            # Of an error or, where so much is seen that the limit is broken, of a failure.
            "*the call returned while thread 'mine' had work to do; what it does is in no "
            "count: wait for it inside the *",
        ]
    )


@pytest.mark.project(
    LATE
    + """
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    kernel_profile(lambda: pool.submit(work, 0.003).result())

@pytest.mark.max_kernels(1)
def test_setup_on_threads(kernel_profile):
    def setup():
        return (pool.submit(work).result(),)
    kernel_profile.run(torch.relu, setup=setup)

@pytest.mark.max_kernels(0)
def test_pool_of_the_call(kernel_profile):
    def call():
        started.append(ThreadPoolExecutor(1))
        started[-1].submit(int).result()
        started[-1].join = started[-1].shutdown
    kernel_profile(call)
"""
)
def test_work_that_is_waited_for_counts(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_the_work_of_a_forked_child_is_its_own_and_is_told(run: Run) -> None:
    result = run(
        LATE
        + """
def forks():
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    os.waitpid(child, 0)
    return x + 1

@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    kernel_profile(forks)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["max_kernels: 1 > 0", "*, forked 2 times: what children do is not counted"]
    )
