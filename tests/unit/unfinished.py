"""A call that leaves work behind: each of its profiles is incomplete."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def leaving_work() -> Iterator[Callable[[], None]]:
    """A call whose work a thread does that nobody waits for, until this is left."""
    threads: list[threading.Thread] = []

    def call() -> None:
        threads.append(threading.Thread(target=lambda: torch.ones(4) + 1))
        threads[-1].start()

    yield call
    for thread in threads:
        thread.join()
