"""What a call leaves at work when it has returned: threads, event loops, child processes.

A thread works for the call if it is neither idle nor where it was before the call, as its frames
tell, and was not busy by itself. An event loop has more to run than before. The kernels of child
processes are in no count of ours, so those that work during a session are reported.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.process import BaseProcess
from traceback import walk_stack  # before a test can patch it
from types import FrameType
from typing import Any, NamedTuple

from pytest_kernelprof.gpu import procfs
from pytest_kernelprof.gpu.inventory import Device
from pytest_kernelprof.gpu.nvml import Unknown, gpu_of
from pytest_kernelprof.records.recording import ChildProcesses
from pytest_kernelprof.system import Real, now_ns, sleep
from pytest_kernelprof.units import first_of

_PATIENCE_NS = 250_000_000
_AT_MOST = 4
_TO_WAKE_UP_S = 0.0002
_TO_BE_SURE_S = 0.005
_BUSY_NS = 100_000  # meanwhile: a thread that only looks for work takes less
_LOOKS = 3
_POLL_S = 0.0005
_LEAST_POLLS = 20  # where the machine did not let us look in time
_SHORT_WAIT_S = 1.0
_WAIT = ("threading.py", "wait")
_POOL = ("concurrent/futures/thread.py", "_worker")
# Where a thread that waits for others is found: by file of the standard library the functions.
_IDLE = {
    "threading.py": ("join", "_wait_for_tstate_lock"),
    _POOL[0]: _POOL[1:],
    "queue.py": ("get",),
    "selectors.py": ("select",),
    "socket.py": ("accept",),
    "socketserver.py": ("serve_forever",),
    "multiprocessing/connection.py": ("_recv", "wait"),
    "multiprocessing/pool.py": ("worker", "_handle_tasks", "_handle_results", "_handle_workers"),
}
# Threads that libraries keep for themselves: of Inductor's compile workers, of loaders of data.
_HELPERS = ("/torch/_inductor/compile_worker/", "/torch/utils/data/_utils/", "/tqdm/")
# The thread of a pytest-xdist worker that hears its controller: no test hands it work. It may be at
# a message as a call begins, and wait for the next one as the call ends. A worker that --tx gives
# another Python or machine is sent the source of execnet: its code has no file.
_XDIST = (("/execnet/gateway_base.py", "<string>"), "_thread_receiver")
_LIBRARY = sysconfig.get_path("stdlib").replace(os.sep, "/") + "/"
_LOOP = ("asyncio/base_events.py", "run_forever")

# How much other event loops of this thread are to run yet, by the module that tells.
_OTHER_LOOPS: dict[str, Callable[[Any], int]] = {
    "trio.lowlevel": lambda it: (now := it.current_statistics()).tasks_living + now.tasks_runnable,
    "gevent._hub_local": lambda it: (
        (loop := it.get_hub_if_exists().loop).activecnt + len(loop._callbacks)
    ),
}

_forks: list[int] = []
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_parent=lambda: _forks.append(1))


class AtWork(NamedTuple):
    """What is at work at one moment, this thread apart.

    Attributes:
        threads: threads, and what loops of other threads are to run yet: in words, by the thread
            and its job or place; by the thread and None where it works by itself.
        tasks: what event loops of this thread are to run yet, in words.
        known: the numbers of all threads.
        forks: how often this process has forked so far.
    """

    threads: Mapping[Any, str]
    tasks: Mapping[Any, str]
    known: frozenset[int]
    forks: int


def at_work(first: AtWork | None = None) -> AtWork:
    """What is at work now. A thread that computes while nothing is called works by itself.

    Args:
        first: of a look before earlier calls: a thread that rested then works for one of these.
    """
    threads = _threads()
    if first is not None:
        gone_on = [key for key in threads if isinstance(key[1], _Place) and _is_older(key, first)]
        threads = {key: threads[key] for key in threads.keys() - gone_on} | dict(first.threads)
    busy = [key[0] for key in threads if isinstance(key[1], _Place)]
    for _ in range(_LOOKS):  # one that polls computes in one of them, if it wakes up there
        used = {one: _cpu_ns(one) for one in busy}
        if busy:
            sleep(_TO_WAKE_UP_S)
        busy = [one for one in busy if _cpu_ns(one) - used[one] > _BUSY_NS]
    threads |= {(one, None): "" for one in busy}
    return AtWork(threads, _tasks(), frozenset(_other_threads()), len(_forks))


def left_at_work(before: AtWork, *, patiently: bool) -> tuple[str, ...]:
    """What was begun since and still goes on, in words; threads get a moment to come to an end.

    What they do in that moment is in the trace, after the call: it shows whether work was left. A
    thread that was only just handed work still looks idle: it is let run first.

    Args:
        patiently: whether to wait at all.
    """
    _let_wake_up(before, _TO_WAKE_UP_S)
    deadline, polls = now_ns() + (_PATIENCE_NS if patiently else 0), 0
    least = _LEAST_POLLS if patiently else 0
    while (left := _new(before.threads, _threads())) and (now_ns() < deadline or polls < least):
        sleep(_POLL_S)
        polls += 1
    words = (*left.values(), *_new(before.tasks, _tasks()).values())
    _wait_until_done(before, (key for key in left if _is_older(key, before)))
    return tuple(dict.fromkeys(words))


def left_for_good(before: AtWork) -> tuple[str, ...]:
    """The same of a first call, as far as it does not end soon. A thread that the call itself has
    started is not among it: libraries keep such."""
    _let_wake_up(before, _TO_BE_SURE_S)
    if not left_at_work(before, patiently=True):
        return ()
    left = _new(before.threads, _threads())
    older = [words for key, words in left.items() if _is_older(key, before)]
    _wait_until_done(before, () if older else left)
    return tuple(dict.fromkeys((*older, *_new(before.tasks, _tasks()).values())))


def _let_wake_up(before: AtWork, seconds: float) -> None:
    """Wait until all that was woken up has had its turn, which a busy machine puts off."""
    others = _other_threads()
    if all(map(_hears_xdist, others.values())):
        return
    sleep(seconds)
    woken = [one for one in Real.threads() if one.ident in others]
    waking = [one.native_id or 0 for one in woken if (one, None) not in before.threads]
    deadline = now_ns() + _PATIENCE_NS
    while any(map(procfs.is_runnable, waking)) and now_ns() < deadline:
        sleep(_POLL_S)


def _wait_until_done(before: AtWork, left: Iterable[Any]) -> None:
    """Wait for what would look as if it had been at work before the next call."""
    threads, deadline = {key[0] for key in left}, now_ns() + _AT_MOST * _PATIENCE_NS
    while threads and now_ns() < deadline:
        sleep(_POLL_S)
        threads &= {key[0] for key in _new(before.threads, _threads())}


def _is_older(key: Any, before: AtWork) -> bool:
    """Whether a thread was there before."""
    return getattr(key[0], "ident", key[0]) in before.known


def forks_since(before: AtWork) -> int:
    """How often this process has forked since."""
    return len(_forks) - before.forks


def _new(before: Mapping[Any, str], now: Mapping[Any, str]) -> dict[Any, str]:
    return {k: words for k, words in now.items() if before.keys().isdisjoint((k, (k[0], None)))}


class _Place(tuple[Any, ...]):
    """Where a thread is, frame by frame."""


def _place(frame: FrameType) -> tuple[Any, ...]:
    """The code of a frame and where in its source it is: of one loop the compiler makes several."""
    code = frame.f_code
    if sys.version_info < (3, 11):
        return id(code), frame.f_lineno
    return id(code), *next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), ())


def _threads() -> dict[Any, str]:
    """Threads that have work, by the thread and what it is at; work that is queued for a pool or
    for an event loop of another thread."""
    found, others = dict[Any, str](), _other_threads()
    known = {one.ident: one for one in Real.threads()} if others else {}
    for number, frame in others.items():
        thread = known.get(number)
        if _passes(frame, _HELPERS) or _hears_xdist(frame):
            continue
        at = "a thread in {1} ({0}:{2})".format(*_where(frame), frame.f_lineno)
        words = f"thread {thread.name!r}" if thread else at  # which has no name
        pool = next((one for one in _outwards(frame) if _where(one) == _POOL), None)
        job = pool.f_locals.get("work_item") if pool else None
        if isinstance(thread, Real.timer) or job:
            found[thread or number, job] = words
        elif not _is_idle(frame):
            found[thread or number, _Place(map(_place, _outwards(frame)))] = words
        queue = pool.f_locals.get("work_queue") if pool else None
        if queue is not None and queue.qsize():
            found["queued", id(queue)] = words
    with contextlib.suppress(Exception):
        found |= _of_other_asyncio_loops(others.values())
    return found


def _cpu_ns(thread: Any) -> int:
    """How long a thread has computed so far; 0 where the system does not tell."""
    number = getattr(thread, "native_id", None)
    with contextlib.suppress(OSError, AttributeError):
        # As pthread_getcpuclockid has it on Linux, but safe where the thread has ended.
        return Real.clock_ns((~number << 3) | 6) if number and sys.platform == "linux" else 0
    return 0


def _other_threads() -> dict[int, FrameType]:
    """The innermost frame of each other thread, by number."""
    frames = Real.frames_of_threads()
    del frames[Real.this_thread()]  # a frame that holds itself would keep all of this stack
    return frames


def _outwards(innermost: FrameType) -> Iterator[FrameType]:
    """A thread's frames, the innermost first."""
    return (frame for frame, _ in walk_stack(innermost))


def _passes(innermost: FrameType, paths: Sequence[str]) -> bool:
    """Whether any frame of a thread is in code below one of these paths."""
    files = {_where(frame)[0] for frame in _outwards(innermost)}
    return any(path in file for file in files for path in paths)


def _hears_xdist(innermost: FrameType) -> bool:
    places = map(_where, _outwards(innermost))
    return any(file.endswith(_XDIST[0]) and name == _XDIST[1] for file, name in places)


def _is_idle(innermost: FrameType) -> bool:
    """Whether a thread waits for others; one that wakes up soon by itself does not."""
    where = _where(innermost)
    if where == _WAIT:
        timeout = innermost.f_locals.get("timeout")
        return timeout is None or timeout > _SHORT_WAIT_S
    return where[1] in _IDLE.get(where[0], ())


def _where(frame: FrameType) -> tuple[str, str]:
    """The file of a frame's code, of the standard library from there on, and the function."""
    file = frame.f_code.co_filename.replace(os.sep, "/")
    return file.removeprefix(_LIBRARY), frame.f_code.co_name


def _tasks() -> dict[Any, str]:
    """What event loops of this thread are to run yet, as far as they tell."""
    found = dict[Any, str]()
    asyncio: Any = sys.modules.get("asyncio")
    loop = asyncio and asyncio._get_running_loop()
    if loop is not None:
        with contextlib.suppress(Exception):
            found = _of_asyncio_loop(asyncio, loop)
            found |= {("callback", one): _callback_words(one._callback) for one in _callbacks(loop)}
            found.pop(("task", asyncio.current_task(loop)), None)
    for name in _OTHER_LOOPS.keys() & sys.modules.keys():
        with contextlib.suppress(Exception):
            waiting = range(_OTHER_LOOPS[name](sys.modules[name]))
            found |= {(name, one): f"the event loop of {name.partition('.')[0]}" for one in waiting}
    return found


def _of_other_asyncio_loops(innermost: Iterable[FrameType]) -> dict[Any, str]:
    """What loops that this thread does not run are to run yet. Their callbacks come and go: more
    than before are new. ``innermost``: the frames of the other threads."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return {}
    tasks: Any = asyncio.tasks
    every: Any = getattr(tasks, "_scheduled_tasks", getattr(tasks, "_all_tasks", ()))
    loops = {task.get_loop() for task in list(every)}
    frames = itertools.chain.from_iterable(map(_outwards, innermost))
    loops |= {frame.f_locals["self"] for frame in frames if _where(frame) == _LOOP}
    found = dict[Any, str]()
    for loop in loops - {asyncio._get_running_loop()}:
        found |= _of_asyncio_loop(asyncio, loop)
        words = "an event loop of another thread"
        found |= {(id(loop), number): words for number in range(len(_callbacks(loop)))}
    return found


def _of_asyncio_loop(asyncio: Any, loop: Any) -> dict[Any, str]:
    return {("task", one): f"task {one.get_name()!r}" for one in asyncio.all_tasks(loop)}


def _callbacks(loop: Any) -> list[Any]:
    """The callbacks that wait for their turn or time; uvloop does not show its own."""
    waiting = (*getattr(loop, "_ready", ()), *getattr(loop, "_scheduled", ()))
    return [one for one in waiting if not one._cancelled]


def _callback_words(call: Any) -> str:
    """What is to be called, in words: a task goes on by a callback."""
    owner: Any = getattr(call, "__self__", None)
    if hasattr(owner, "get_name"):
        return f"task {owner.get_name()!r}"
    return f"callback {getattr(call, '__name__', type(call).__name__)!r}"


_MOST_NAMED = 3
_LONGEST = 60
# Processes that libraries keep for themselves: workers that load data or compile, managers.
_HELPER_PROCESSES = (
    "torch.utils.data.",
    "torch._inductor.",
    "multiprocessing.managers",
    "pytest_kernelprof.",  # ranks
)
# Programs that compile: they bring up CUDA to ask it for the properties of the GPU, or to autotune.
_COMPILES = "/torch/_inductor/"
# Of threads other than the first: those of CUDA and NCCL wake up now and then, with nothing to do.
_LEAST_NS, _LEAST_SHARE = 1_000_000, 0.01
# What ends sooner has not imported torch.
_SHORT_S = 0.3


class _Started(NamedTuple):
    """A process that was started through ``multiprocessing``.

    Attributes:
        runs: the name of its function. forked: whether it began as a copy of this one.
        helps: whether a library keeps it for itself.
    """

    pid: int
    runs: str
    forked: bool
    helps: bool


class Children:
    """Looks at the children of this process as long as they are watched.

    A child that ``multiprocessing`` starts and that has ended by then could have done anything:
    the one function that starts them is watched. Of others that have ended nothing is known.

    Attributes:
        seen: what was seen, once the watch is over.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._started: list[_Started] = []
        self.seen = ChildProcesses(checked=procfs.TELLS_CHILDREN)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch them until the block ends."""
        if not procfs.TELLS_CHILDREN:
            yield
            return
        begun_ns, ended_s, before = now_ns(), _seconds_of_ended(), procfs.processes_below()
        start, started = BaseProcess.start, self._started

        def start_and_tell(process: BaseProcess) -> None:
            target = getattr(process, "_target", None) or type(process)
            start(process)
            started.append(_started(process, target))

        BaseProcess.start = start_and_tell  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            if BaseProcess.start is start_and_tell:
                BaseProcess.start = start  # type: ignore[method-assign]
            at_work = list(dict.fromkeys((*self._living(before, begun_ns), *self._gone())))
            seconds = _seconds_of_ended() - ended_s
            is_known = bool(at_work or started)
            self.seen = ChildProcesses(
                at_work=tuple(first_of(at_work, _MOST_NAMED, "and {} more")),
                ended_s=seconds if seconds > _SHORT_S and not is_known else 0.0,
            )

    def _living(self, before: Mapping[int, procfs.Process], begun_ns: int) -> Iterator[str]:
        """Those that worked meanwhile, and still live."""
        now = procfs.processes_below()
        for pid, earlier in before.items():  # another process may have taken it in
            process = procfs.process_of(pid)
            if process is not None and process.started == earlier.started:
                now.setdefault(pid, process)
        least = max(_LEAST_NS, _LEAST_SHARE * (now_ns() - begun_ns))
        ran = [one for one in sorted(now.items()) if _ran(one[1], before.get(one[0]), least)]
        own = procfs.process_of(Real.getpid()) if ran else None
        has = "uses the GPU; its kernels are not counted"
        if self._device.kind == "cpu":
            has = "has loaded torch and ran during the call; its operators are not counted"
        for pid, process in ran:
            is_fork = own is not None and own.image == process.image
            parent = own if is_fork else now.get(process.parent)
            is_copy = parent is not None and parent.image == process.image
            if self._computes(pid, is_copy=is_copy):
                what = "forked from this one" if is_fork else _cut(procfs.command_of(pid))
                yield f"process {pid} ({what}) {has}"

    def _computes(self, pid: int, *, is_copy: bool) -> bool:
        """Whether it has started CUDA itself; on the CPU, whether it has loaded torch.

        Args:
            is_copy: whether it runs what its parent runs, and may have its open files from there.
        """
        if _COMPILES in procfs.command_of(pid):
            return False
        if self._device.kind == "cpu":
            helps = any(one.helps for one in self._started if one.pid == pid)
            return not helps and any("libtorch" in path for path in procfs.mapped_files(pid))
        if not procfs.holds_gpu(pid):
            return False
        return not is_copy or procfs.has_cuda_threads(pid) or self._driver_lists(pid)

    def _driver_lists(self, pid: int) -> bool:
        gpu = gpu_of(self._device)
        if isinstance(gpu, Unknown) or not gpu.numbers_like_us:
            return False
        with contextlib.suppress(gpu.nvml.NVMLError):
            return pid in gpu.processes()
        return False

    def _gone(self) -> Iterator[str]:
        """Those that the call started through ``multiprocessing``, and that have ended. After CUDA
        came up no fork can use it."""
        for one in self._started:
            harmless = one.helps or (one.forked and self._device.kind == "cuda")
            if not harmless and procfs.process_of(one.pid) is None:
                what = "operators" if self._device.kind == "cpu" else "kernels"
                yield (
                    f"a process that the call started ({one.runs}) ended before it could be "
                    f"checked; its {what} are not counted"
                )


def _ran(now: procfs.Process, before: procfs.Process | None, least_ns: float) -> bool:
    if before is None or before.started != now.started:
        return True
    return now.main_ns > before.main_ns or now.all_ns - before.all_ns > least_ns


def _started(process: BaseProcess, target: object) -> _Started:
    name = getattr(target, "__qualname__", type(target).__qualname__)  # a partial has none
    runs = f"{target.__module__}.{name}"
    is_forked = getattr(getattr(process, "_popen", None), "method", "") == "fork"
    return _Started(process.pid or 0, _cut(runs), is_forked, runs.startswith(_HELPER_PROCESSES))


def _seconds_of_ended() -> float:
    """How long the children ran that have ended and been waited for."""
    times = Real.times()
    return times.children_user + times.children_system


def _cut(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}..."
