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
        thread(0.05)

@pytest.mark.max_kernels(1)
def test_without_the_fixture():
    thread(0.05)
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
            "*the call returned while thread 'mine' had work to do; its work is not counted: "
            "wait for it inside the *",
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
        [
            "E   max_kernels: 1 > limit 0",
            "  at test_it.py:35",
            "    35 | return x + 1",
            "*, forked 2*",
        ]
    )


SERVED = '''
import asyncio, os, queue, threading, time
DONE = []

def work():
    DONE.append(x @ x)

def serve(get, wait):
    while (job := get()) is not None:
        time.sleep(wait)
        job()

def polled(jobs):
    while True:
        try:
            return jobs.get(timeout=0.05)
        except queue.Empty:
            pass

def by_queue():
    jobs = queue.Queue()
    return jobs.put, jobs.get

def by_simple_queue():
    jobs = queue.SimpleQueue()
    return jobs.put, jobs.get

def by_polling():
    jobs = queue.Queue()
    return jobs.put, lambda: polled(jobs)

def by_pipe():
    read, write = os.pipe()
    jobs = []
    return (lambda job: (jobs.append(job), os.write(write, b"x"))), (
        lambda: (os.read(read, 1), jobs.pop(0))[1]
    )

ways = pytest.mark.parametrize("way", [by_queue, by_simple_queue, by_polling, by_pipe])

# Longer than what is waited for here at most.
LATE_S, VERY_LATE_S = 0.06, 0.4

@pytest.fixture
def hasty(monkeypatch):
    """What is waited for is waited for 50 ms, not 250."""
    from pytest_kernelprof.profiler import unfinished_work
    monkeypatch.setattr(unfinished_work, "_PATIENCE_NS", 50_000_000)

@pytest.fixture
def server():
    threads = []
    def start(way, wait):
        put, get = way()
        threads.append((threading.Thread(target=serve, args=(get, wait)), put))
        threads[-1][0].start()
        time.sleep(0.02)
        return put
    yield start
    for thread, put in threads:
        put(None)
        thread.join()

@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    time.sleep(LATE_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
'''


@pytest.mark.project(
    SERVED
    + """
pytestmark = pytest.mark.max_kernels(0)

@ways
@pytest.mark.usefixtures("hasty")
def test_server_that_gathers_requests(kernel_profile, server, way):
    kernel_profile(server(way, LATE_S), work)

def test_server_that_the_first_call_starts(kernel_profile, server):
    begun = []
    def call():
        if not begun:
            begun.append(server(by_queue, 0.3))
        begun[0](work)
    kernel_profile(call)

@pytest.mark.usefixtures("hasty")
def test_server_that_takes_long(kernel_profile, server):
    kernel_profile(server(by_queue, VERY_LATE_S), work)

def test_callback(kernel_profile):
    async def main():
        kernel_profile(lambda: asyncio.get_running_loop().call_soon(work) and None)
    asyncio.run(main())

def test_callback_that_is_asked_for_once(kernel_profile):
    later = []
    async def main():
        loop = asyncio.get_running_loop()
        kernel_profile(lambda: later or later.append(loop.call_later(0.01, work)))
    asyncio.run(main())

def test_consumer_that_waited(kernel_profile):
    async def main():
        jobs = asyncio.Queue()
        async def consume():
            (await jobs.get())()
        consumer = asyncio.create_task(consume())
        await asyncio.sleep(0)
        kernel_profile(jobs.put_nowait, work)
        await consumer
    asyncio.run(main())

@pytest.mark.usefixtures("hasty")
def test_loop_of_another_thread(kernel_profile, loop):
    async def later():
        await asyncio.sleep(LATE_S)
        work()
    kernel_profile(lambda: asyncio.run_coroutine_threadsafe(later(), loop) and None)

@pytest.mark.usefixtures("hasty")
def test_callback_of_another_thread(kernel_profile, loop):
    kernel_profile(lambda: loop.call_soon_threadsafe(loop.call_later, LATE_S, work) and None)
"""
)
def test_work_that_is_left_to_others_is_no_pass(result: pytest.RunResult) -> None:
    # A callback may also run in the next round, which counts what it does.
    outcomes = result.parseoutcomes()
    assert outcomes.get("errors", 0) + outcomes.get("failed", 0) == 11
    assert "passed" not in outcomes
    assert result.stdout.str().count("its work is not counted: wait for it inside") >= 10


@pytest.mark.project(
    """
import sys
pytestmark = pytest.mark.max_kernels(0)

def test_trio(kernel_profile):
    trio = pytest.importorskip("trio")
    async def work():
        x @ x
    async def main():
        async with trio.open_nursery() as nursery:
            try:
                kernel_profile(lambda: nursery.start_soon(work))
            except IncompleteProfile as error:
                assert "the event loop of trio had work to do" in str(error)
    trio.run(main)

def test_gevent(kernel_profile):
    gevent = pytest.importorskip("gevent")
    try:
        kernel_profile(lambda: gevent.spawn(torch.matmul, x, x) and None)
    except IncompleteProfile as error:
        assert "the event loop of gevent had work to do" in str(error)
    gevent.sleep(0.01)
"""
)
def test_loops_of_other_libraries_tell_what_they_are_to_run(result: pytest.RunResult) -> None:
    outcomes = result.parseoutcomes()
    assert outcomes.get("errors", 0) + outcomes.get("skipped", 0) == 2


@pytest.mark.project(
    SERVED
    + """
@pytest.fixture
def ticks():
    stop, made = threading.Event(), []
    def start(tick):
        def go():
            while not stop.is_set():
                tick()
        made.append(threading.Thread(target=go))
        made[-1].start()
    yield start
    stop.set()
    for thread in made:
        thread.join()

def busy():
    for wait in range(300):
        sum(range(wait))
        sorted(range(wait))

@ways
@pytest.mark.max_kernels(1)
def test_server_that_is_waited_for(kernel_profile, server, way):
    put = server(way, 0)
    def call():
        done = threading.Event()
        put(lambda: (work(), done.set()))
        done.wait()
    kernel_profile(call)

@pytest.mark.max_kernels(1)
@pytest.mark.parametrize("tick", [lambda: time.sleep(0.001), lambda: time.sleep(0.02), busy])
def test_thread_that_ticks(kernel_profile, ticks, tick):
    ticks(tick)
    kernel_profile(torch.relu, x)

@pytest.mark.max_kernels(1)
def test_thread_that_ticks_since_the_first_call(kernel_profile, ticks):
    begun = []
    def call():
        begun or begun.append(ticks(lambda: time.sleep(0.005)))
        x @ x
    kernel_profile(call)

@pytest.mark.max_kernels(1)
def test_loop_of_another_thread_that_ticks(kernel_profile, loop):
    async def tick():
        for _ in range(20):
            await asyncio.sleep(0.01)
    asyncio.run_coroutine_threadsafe(tick(), loop)
    kernel_profile(torch.relu, x)

@pytest.mark.max_kernels(1)
def test_loop_that_has_work_of_others(kernel_profile):
    async def main():
        sleeps = asyncio.create_task(asyncio.sleep(0.01))
        asyncio.get_running_loop().call_soon(print)
        kernel_profile(torch.relu, x)
        await sleeps
    asyncio.run(main())
"""
)
def test_threads_and_loops_with_work_of_their_own_harm_no_profile(
    result: pytest.RunResult,
) -> None:
    result.assert_outcomes(passed=10)
