"""Work that a call leaves to a thread, beside busy processes: is it seen each time?

Two kinds of threads, each beside processes that keep all cores busy. One polls a queue, gets work
handed to it by the call and does it 0.3 s later: asked is that no profile of that call is complete.
One computes all the time by itself: asked is that every profile of another call is complete.
"""

from __future__ import annotations

import argparse
import contextlib
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from harness import met, place, table

import pytest_kernelprof
from pytest_kernelprof.errors import IncompleteProfile

PATIENCE_S = 0.3


def is_complete(call: Callable[..., object], *args: object) -> bool:
    """Whether a profile of the call is."""
    try:
        return pytest_kernelprof.profile(call, *args, device="cpu").integrity.complete
    except IncompleteProfile:
        return False


def left_to_a_poller() -> bool:
    """Whether a call that leaves work behind passes for complete."""
    jobs: queue.Queue[Callable[[], object] | None] = queue.Queue()
    x, done = torch.ones(8, 8), []

    def polled() -> Callable[[], object] | None:
        while True:
            with contextlib.suppress(queue.Empty):
                return jobs.get(timeout=0.05)

    def serve() -> None:
        while (job := polled()) is not None:
            time.sleep(PATIENCE_S)
            job()

    server = threading.Thread(target=serve)
    server.start()
    time.sleep(0.02)
    try:
        return is_complete(jobs.put, lambda: done.append(x @ x))
    finally:
        jobs.put(None)
        server.join()


def beside_a_thread_of_its_own() -> bool:
    """Whether a call is complete beside a thread that computes by itself."""
    x, stop = torch.ones(64, 64), threading.Event()

    def compute() -> None:
        sorted(range(1000))
        while not stop.is_set():
            sum(range(500))

    worker = threading.Thread(target=compute)
    worker.start()
    time.sleep(0.02)
    try:
        return is_complete(torch.relu, x)
    finally:
        stop.set()
        worker.join()


def main() -> int:
    """Returns the exit status: 1 if anything is not as asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--number", type=int, default=10, help="of profiles of each kind")
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 6], help="processes beside")
    options = parser.parse_args()
    rows, is_well = [], True
    for number in options.busy:
        spin = [sys.executable, "-c", "while True: pass"]
        others = [subprocess.Popen(spin) for _ in range(number)]
        try:
            passed = sum(left_to_a_poller() for _ in range(options.number))
            complete = sum(beside_a_thread_of_its_own() for _ in range(options.number))
        finally:
            for one in others:
                one.kill()
                one.wait()
        is_well &= passed == 0 and complete == options.number
        rows.append([str(number), f"{passed} of {options.number}", met(passed == 0)])
        rows[-1] += [f"{complete} of {options.number}", met(complete == options.number)]
    print(place("pytest-kernelprof"))
    print(table(["busy processes", "left behind, passed", "", "beside a thread", ""], rows))
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main())
