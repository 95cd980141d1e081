"""What a call leaves at work when it has returned: threads, asyncio tasks, forked children."""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.clock import now_ns, sleep
from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

_PATIENCE_NS = 250_000_000
_TO_WAKE_UP_S = 0.0002
_POLL_S = 0.0005
_SHORT_WAIT_S = 1.0
_WAIT = ("threading.py", "wait")
_POOL = (os.path.join("concurrent", "futures", "thread.py"), "_worker")
# Where a thread that waits for others is found, by file of the standard library and function.
_IDLE = frozenset(
    {
        _WAIT,
        _POOL,
        ("threading.py", "join"),
        ("threading.py", "_wait_for_tstate_lock"),
        ("queue.py", "get"),
        ("selectors.py", "select"),
        ("socketserver.py", "serve_forever"),
        (os.path.join("multiprocessing", "connection.py"), "_recv"),
        (os.path.join("multiprocessing", "connection.py"), "wait"),
        *(
            (os.path.join("multiprocessing", "pool.py"), name)
            for name in ("worker", "_handle_tasks", "_handle_results", "_handle_workers")
        ),
    }
)
# Threads that libraries keep for themselves: of Inductor's compile workers, of loaders of data.
_HELPERS = tuple(
    path.replace("/", os.sep)
    for path in ("/torch/_inductor/compile_worker/", "/torch/utils/data/_utils/", "/tqdm/")
)
# The thread of a pytest-xdist worker that hears its controller: no test hands it work.
_XDIST = "/execnet/gateway_base.py".replace("/", os.sep)
_LIBRARY = sysconfig.get_path("stdlib") + os.sep

_forks: list[int] = []
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_parent=lambda: _forks.append(1))


@dataclass(frozen=True, slots=True)
class AtWork:
    """What is at work at one moment, this thread apart.

    Attributes:
        threads: the names of threads, by the thread and its job.
        tasks: the unfinished asyncio tasks of the loop that runs this code, by the task.
        forks: how often this process has forked so far.
    """

    threads: Mapping[Any, str]
    tasks: Mapping[Any, str]
    forks: int


def at_work() -> AtWork:
    """What is at work now."""
    return AtWork(_threads(), _tasks(), len(_forks))


def left_at_work(before: AtWork, *, patiently: bool) -> tuple[str, ...]:
    """What was begun since and still goes on, in words; threads get a moment to come to an end.

    What they do in that moment is in the trace, after the call: it shows whether work was left. A
    thread that was only just handed work still looks idle: it is let run first.

    Args:
        patiently: whether to wait at all.
    """
    if not all(map(_is_of_xdist, _other_threads().values())):
        sleep(_TO_WAKE_UP_S)
    deadline = now_ns() + (_PATIENCE_NS if patiently else 0)
    while (now := _new(before.threads, _threads())) and now_ns() < deadline:
        sleep(_POLL_S)
    tasks = _new(before.tasks, _tasks())
    return (*(f"thread {name!r}" for name in now), *(f"task {name!r}" for name in tasks))


def forks_since(before: AtWork) -> int:
    """How often this process has forked since."""
    return len(_forks) - before.forks


def _new(before: Mapping[Any, str], now: Mapping[Any, str]) -> list[str]:
    return [name for one, name in now.items() if one not in before]


def _threads() -> dict[Any, str]:
    """Threads that have work, by the thread and what it is at; work that is queued for a pool."""
    known = {one.ident: one for one in Real.threads()}
    found = dict[Any, str]()
    for number, frame in _other_threads().items():
        thread = known.get(number)
        if any(map(_is_helper, _outwards(frame))):
            continue
        name = thread.name if thread else str(number)
        pool = next(filter(_is_pool, _outwards(frame)), None)
        job = pool.f_locals.get("work_item") if pool else None
        if isinstance(thread, Real.timer) or job or not _is_idle(frame):
            found[thread or number, job] = name
        queue = pool.f_locals.get("work_queue") if pool else None
        if queue is not None and queue.qsize():
            found["queued", id(queue)] = name
    return found


def _other_threads() -> dict[int, FrameType]:
    """The innermost frame of each other thread, by number."""
    frames = Real.frames_of_threads()
    del frames[Real.this_thread()]  # a frame that holds itself would keep all of this stack
    return frames


def _outwards(innermost: FrameType) -> Iterator[FrameType]:
    """A thread's frames, the innermost first."""
    frame: FrameType | None = innermost
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_helper(frame: FrameType) -> bool:
    return any(folder in frame.f_code.co_filename for folder in _HELPERS)


def _is_of_xdist(innermost: FrameType) -> bool:
    return any(frame.f_code.co_filename.endswith(_XDIST) for frame in _outwards(innermost))


def _is_pool(frame: FrameType) -> bool:
    return _where(frame) == _POOL


def _is_idle(innermost: FrameType) -> bool:
    """Whether a thread waits for others; one that wakes up soon by itself does not."""
    where = _where(innermost)
    if where == _WAIT:
        timeout = innermost.f_locals.get("timeout")
        return timeout is None or timeout > _SHORT_WAIT_S
    return where in _IDLE


def _where(frame: FrameType) -> tuple[str, str]:
    return frame.f_code.co_filename.removeprefix(_LIBRARY), frame.f_code.co_name


def _tasks() -> dict[Any, str]:
    asyncio = sys.modules.get("asyncio")
    loop = asyncio and asyncio._get_running_loop()
    if asyncio is None or loop is None:
        return {}
    current = asyncio.current_task(loop)
    tasks = (one for one in asyncio.all_tasks(loop) if one is not current)
    return {one: one.get_name() for one in tasks}
