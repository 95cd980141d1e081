"""Several GPUs for one test, or for the ranks of one call, which others do not use meanwhile."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pytest_kernelprof.clock import now_s, sleep
from pytest_kernelprof.device.lock import lock_by_uuid
from pytest_kernelprof.device.nvml import Unknown, gpu_uuids
from pytest_kernelprof.device.whole_lock import NotFree
from pytest_kernelprof.device.workers import visible, visible_to_all
from pytest_kernelprof.errors import GpuBusy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_kernelprof.device.whole_lock import WholeLock

_POLL_S = 0.2
_MOMENT_S = 1.0


@contextlib.contextmanager
def lock_all(
    gpus: Sequence[str], timeout_s: float, who: str, name: str
) -> Iterator[dict[str, WholeLock]]:
    """Have these GPUs alone, by UUID.

    Who has the first waits for the others for a moment only, and then begins again: ranks of
    another run that share these may wait for one of them that waits for the first. The moment
    doubles, since a GPU that many share is free for who waits at its lock alone.

    Raises:
        NotFree: the time is up, with who holds one of them.
        GpuBusy: they cannot be locked at all.
    """
    deadline, moment_s = now_s() + timeout_s, _MOMENT_S
    while True:
        with contextlib.ExitStack() as held:
            locks: dict[str, WholeLock] = {}
            try:
                for gpu in gpus:
                    left_s = deadline - now_s()
                    patience_s = min(moment_s, left_s) if locks else left_s
                    locks[gpu] = held.enter_context(lock_by_uuid(gpu, patience_s, who, name))
            except NotFree as busy:
                if not locks or now_s() >= deadline:
                    together = f"{len(gpus)} GPUs were not free together in {timeout_s:g} s: "
                    raise NotFree(f"{together if locks else ''}{busy}") from busy
            if len(locks) == len(gpus):
                yield locks
                return
        moment_s *= 2
        sleep(_POLL_S)


@contextlib.contextmanager
def several_gpus(number: int, timeout_s: float, who: str) -> Iterator[tuple[str, ...]]:
    """Have so many of the GPUs to oneself, as soon as so many are free; their UUIDs.

    Others may take one while this waits for another: it holds none while it waits, so that two
    that want several do not wait for each other.

    Raises:
        GpuBusy: the time is up, or there are not so many.
    """
    if not number:
        yield ()
        return
    gpus = _gpus()
    if len(gpus) < number:
        raise GpuBusy(
            f"{number} ranks need {number} GPUs, and this process may use {len(gpus)} (see "
            "CUDA_VISIBLE_DEVICES): run the test on a machine that has them, or fewer ranks"
        )
    deadline = now_s() + timeout_s
    while True:
        with contextlib.ExitStack() as held:
            taken = _take_free(gpus, number, who, held)
            if len(taken) == number:
                yield taken
                return
        if now_s() >= deadline:
            raise GpuBusy(
                f"{number} of {len(gpus)} GPUs were not free within {timeout_s:g} s: wait for the "
                "tests that use them, or allow more time with -o kernelprof_lock_timeout=SECONDS"
            )
        sleep(_POLL_S)


def _take_free(
    gpus: Sequence[str], number: int, who: str, held: contextlib.ExitStack
) -> tuple[str, ...]:
    taken: list[str] = []
    for gpu in gpus:
        with contextlib.suppress(NotFree):
            held.enter_context(lock_by_uuid(gpu.partition("-")[2] or gpu, 0.0, who))
            taken.append(gpu)
        if len(taken) == number:
            break
    return tuple(taken)


def _gpus() -> tuple[str, ...]:
    """What ``CUDA_VISIBLE_DEVICES`` may name, by UUID."""
    all_of_machine = gpu_uuids()
    known = () if isinstance(all_of_machine, Unknown) else tuple(all_of_machine)
    given = visible_to_all()
    if given is None:
        return known
    return tuple(
        known[int(one)] if one.isdecimal() and int(one) < len(known) else one
        for one in visible(given)
    )
