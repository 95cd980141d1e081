"""A call that leaves work behind: each of its profiles is incomplete."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def leaving_work() -> Iterator[Callable[[], None]]:
    """A call whose work a thread does that nobody waits for, until this is left."""
    threads: list[threading.Thread] = []

    def late() -> None:
        time.sleep(0.5)  # longer than a busy machine keeps the call from its end
        torch.ones(4).add(1)

    def call() -> None:
        threads.append(threading.Thread(target=late))
        threads[-1].start()

    yield call
    for thread in threads:
        thread.join()
