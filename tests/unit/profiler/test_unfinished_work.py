"""What a call leaves at work: threads that go on, tasks, forked children."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import queue
import re
import sys
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from unittest.mock import Mock

import pytest

from pytest_kernelprof.profiler import unfinished_work
from pytest_kernelprof.profiler.unfinished_work import at_work, forks_since, left_at_work
from pytest_kernelprof.system import Real

Starts = Callable[..., threading.Thread]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads get hardly any time to come to an end."""
    monkeypatch.setattr(unfinished_work, "_PATIENCE_NS", 20_000_000)


@pytest.fixture
def starts() -> Iterator[Starts]:
    """Start threads that are joined in the end."""
    started: list[threading.Thread] = []

    def start(target: Callable[[], object], thread: threading.Thread | None = None) -> object:
        started.append(thread or threading.Thread(target=target, name="mine"))
        started[-1].start()
        return started[-1]

    yield start  # type: ignore[misc]
    for one in started:
        one.join(10)


def left(call: Callable[[], object]) -> tuple[str, ...]:
    before = at_work()
    call()
    return left_at_work(before, patiently=True)


def busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("work", [lambda: busy(0.8), lambda: time.sleep(0.8)])
def test_a_thread_that_goes_on_is_named(work: Callable[[], object], starts: Starts) -> None:
    assert left(lambda: starts(work)) == ("thread 'mine'",)


@pytest.mark.usefixtures("impatient")
def test_a_timer_will_work_though_it_waits(starts: Starts) -> None:
    timer = threading.Timer(0.1, lambda: None)
    timer.name = "mine"
    assert left(lambda: starts(lambda: None, timer)) == ("thread 'mine'",)


@pytest.mark.usefixtures("impatient")
def test_a_thread_that_wakes_up_by_itself_is_at_work(starts: Starts) -> None:
    stop = threading.Event()

    def polls() -> None:
        while not stop.wait(0.01):
            pass

    assert left(lambda: starts(polls)) == ("thread 'mine'",)
    stop.set()


def test_a_thread_that_ends_soon_leaves_nothing(starts: Starts) -> None:
    assert left(lambda: starts(lambda: time.sleep(0.02))) == ()


def test_a_machine_that_stands_still_meanwhile_leaves_nothing(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All the time that a thread has to come to an end is over after the first look."""
    clock = iter(range(0, 10**12, 10**9))
    monkeypatch.setattr(unfinished_work, "now_ns", lambda: next(clock))
    assert left(lambda: starts(lambda: time.sleep(0.003))) == ()


@pytest.mark.usefixtures("impatient")
def test_a_thread_without_a_name_is_told_by_where_it_is() -> None:
    runs, done = Real.lock(), Real.lock()

    def nameless() -> None:
        runs.release()
        busy(0.8)
        done.release()

    def call() -> None:
        Real.start_thread(nameless, ())
        runs.acquire()

    runs.acquire()
    done.acquire()
    (words,) = left(call)
    assert re.fullmatch(r"a thread in busy \(.*test_unfinished_work\.py:\d+\)", words)
    done.acquire()


@pytest.mark.usefixtures("impatient")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has clocks of other threads")
def test_a_thread_that_computes_in_one_look_alone_is_not_busy_by_itself(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that polls for work does, if it is awake just then: it may be handed some."""
    handed: list[int] = []
    taken = threading.Event()

    def serves() -> None:
        while not handed:
            time.sleep(0.001)
        taken.set()
        busy(0.8)

    starts(serves)
    looks: Counter[int] = Counter()

    def computed_at_first(clock: int) -> int:
        looks[clock] += 1
        return 10**9 * (looks[clock] > 1)

    def hands_over() -> None:
        handed.append(1)
        taken.wait()  # a busy machine may let it sleep on

    monkeypatch.setattr(Real, "clock_ns", staticmethod(computed_at_first))
    assert left(hands_over) == ("thread 'mine'",)


def test_a_thread_that_was_at_work_before_is_not_of_the_call(starts: Starts) -> None:
    stop: list[int] = []

    def works() -> None:
        while not stop:
            time.sleep(0.001)

    starts(works)
    assert left(lambda: None) == ()
    stop.append(1)


@pytest.mark.parametrize("waits", ["event", "queue", "long wait", "join"])
def test_a_thread_that_waits_for_others_has_no_work(waits: str, starts: Starts) -> None:
    event, things = threading.Event(), queue.Queue[int]()
    other = starts(event.wait)
    wait: dict[str, Callable[[], object]] = {
        "event": event.wait,
        "queue": things.get,
        "long wait": lambda: event.wait(100),
        "join": other.join,
    }
    try:
        assert left(lambda: starts(wait[waits])) == ()
    finally:
        event.set()
        things.put(1)


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ThreadPool])
def test_an_idle_pool_has_no_work(kind: Callable[[int], object]) -> None:
    pools: list[object] = []

    def makes_one() -> None:
        pools.append(kind(2))
        pools[0].submit(int).result() if kind is ThreadPoolExecutor else None  # type: ignore[attr-defined]

    try:
        assert left(makes_one) == ()
    finally:
        stop = "shutdown" if kind is ThreadPoolExecutor else "terminate"
        getattr(pools[0], stop)()


@pytest.mark.usefixtures("impatient")
def test_a_pool_that_was_only_just_handed_work_is_at_work() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        for _ in range(8):
            end = threading.Event()
            (name,) = left(functools.partial(pool.submit, end.wait))
            assert name.startswith("thread 'ThreadPoolExecutor")
            end.set()
            pool.submit(int).result()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_pool_that_is_handed_more_work_than_it_had_is_at_work(workers: int) -> None:
    end = threading.Event()
    with ThreadPoolExecutor(workers) as pool:
        pool.submit(end.wait)
        while not at_work().threads:
            time.sleep(0.001)
        assert left(lambda: pool.submit(end.wait)) != ()
        end.set()


def test_the_next_job_of_a_thread_is_another() -> None:
    ends = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        first, _ = [pool.submit(end.wait) for end in ends]
        while len(at_work().threads) < 2:  # one at work, one queued
            time.sleep(0.001)
        before = at_work()
        assert left_at_work(before, patiently=False) == ()
        ends[0].set()
        first.result()
        assert len(left_at_work(before, patiently=False)) == 1
        ends[1].set()


@pytest.mark.usefixtures("impatient")
def test_a_thread_that_a_library_keeps_for_itself_has_no_work(starts: Starts) -> None:
    code = compile(
        "def works(busy):\n    busy(0.1)", "/torch/_inductor/compile_worker/x.py", "exec"
    )
    names: dict[str, Callable[..., object]] = {}
    exec(code, names)
    assert left(lambda: starts(lambda: names["works"](busy))) == ()


@pytest.mark.parametrize(
    ("file", "name", "waits"),
    [
        ("/x/execnet/gateway_base.py", "_thread_receiver", False),
        ("<string>", "_thread_receiver", False),
        ("/x/execnet/gateway_base.py", "hears", True),
        ("/execnet/tests/test_it.py", "_thread_receiver", True),
    ],
)
def test_a_thread_of_xdist_is_not_waited_for(
    file: str, name: str, waits: bool, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker has one; any other thread gets a moment to begin what it was handed."""
    waited: list[float] = []
    all_threads = unfinished_work._other_threads
    names: dict[str, Callable[..., object]] = {}
    exec(compile(f"def {name}(done):\n    done.wait()", file, "exec"), names)
    done = threading.Event()
    thread = starts(lambda: names[name](done)).ident
    assert thread is not None
    # Whatever else this process has, a worker of Inductor's for one, is not what is asked about.
    monkeypatch.setattr(unfinished_work, "_other_threads", lambda: {thread: all_threads()[thread]})
    before = at_work()
    monkeypatch.setattr(unfinished_work, "sleep", waited.append)
    left_at_work(before, patiently=False)
    done.set()
    assert bool(waited) == waits


@pytest.mark.usefixtures("impatient")
def test_a_task_that_is_not_awaited_is_named() -> None:
    async def nothing() -> None:
        pass

    async def main() -> tuple[str, ...]:
        mine = asyncio.create_task(asyncio.sleep(0.01), name="before")
        tasks: list[asyncio.Task[None]] = []
        found = left(lambda: tasks.append(asyncio.create_task(nothing(), name="late")))
        await mine
        await tasks[0]
        return found

    assert asyncio.run(main()) == ("task 'late'",)


def test_looking_keeps_nothing_alive() -> None:
    class Kept:
        pass

    def looks() -> weakref.ref[Kept]:
        kept = Kept()
        at_work()
        return weakref.ref(kept)

    gc.disable()
    try:
        assert looks()() is None
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forks_are_counted() -> None:
    before = at_work()
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forks beside threads
            child = os.fork()
        if child == 0:
            os._exit(0)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
    assert forks_since(before) == 2


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", ["Timer", "Thread", "enumerate", "get_ident", "active_count"])
def test_what_a_test_puts_in_place_of_threads_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, starts: Starts, name: str
) -> None:
    started = starts(lambda: time.sleep(0.1))
    before = at_work()
    with monkeypatch.context() as patched:  # undone before threads are joined, which asks them
        patched.setattr(threading, name, Mock())
        assert left_at_work(before, patiently=True) == ()
    assert any(one is started for one, _ in before.threads)


HEARS = """
def read(fd):
    reading.set()
    return os.read(fd, 1)
def handle(sent):
    reading.clear()
    at_a_message.set()
    handled.wait()
def {name}():
    while sent := read(fd):
        handle(sent)
"""


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("file", ["/site-packages/execnet/gateway_base.py", "<string>"])
@pytest.mark.parametrize(
    ("name", "words"), [("_thread_receiver", ()), ("of_a_test", ("thread 'mine'",))]
)
def test_the_thread_that_hears_the_controller_of_xdist_works_for_no_call(
    starts: Starts, name: str, words: tuple[str, ...], file: str
) -> None:
    """It may be at a message as the call begins, and wait for the next one as it ends. ``--tx
    popen//python=...`` sends a worker the source of execnet, which then has no file."""
    reads, writes = os.pipe()
    handled, at_a_message, reading = (threading.Event() for _ in range(3))
    names = {"os": os, "fd": reads, "handled": handled}
    names |= {"at_a_message": at_a_message, "reading": reading}
    source = HEARS.format(name=name)
    exec(compile(source, file, "exec"), names)
    os.write(writes, b".")
    starts(names[name])  # type: ignore[arg-type]
    assert at_a_message.wait(10)
    try:
        assert left(lambda: (handled.set(), reading.wait(10))) == words
    finally:
        os.close(writes)
