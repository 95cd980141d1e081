"""Which GPUs this process shares with others while its code runs on them: tests, measured calls.

A process that has not brought up CUDA holds nothing and pays nothing; one that brings it up inside
of a test shares the GPU from its first measurement on, or from its next fixture, call or teardown.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_kernelprof.device.bindings import bound_already
from pytest_kernelprof.device.inventory import (
    devices_in_use,
    is_capturing,
    synchronize_in_use,
    uuid_of_index,
)
from pytest_kernelprof.errors import GpuBusy
from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_kernelprof.device.inventory import Device
    from pytest_kernelprof.device.whole_lock import WholeLock


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A stretch of code, and the locks that it shares by the index of their GPU."""

    who: str
    timeout_s: float
    process: int = field(default_factory=Real.getpid)
    locks: dict[int, WholeLock] = field(default_factory=dict)


_stretches: list[_Stretch] = []


def begin(who: str, timeout_s: float) -> None:
    """From here on code runs that may use the GPUs that are in use; wait for who times on them.

    Args:
        who: whose code it is, as others are told. timeout_s: how long to wait; then it runs anyway.
    """
    _stretches.append(_Stretch(who, timeout_s))
    if not _cuda_is_up():
        return
    try:
        with contextlib.suppress(RuntimeError):  # CUDA is broken: nothing runs on it
            for index in devices_in_use():
                _share(_stretches[-1], index)
    except BaseException:  # a time limit of the test, Ctrl-C
        end()
        raise


def end() -> None:
    """What began last is through: others may time once the device is done with it."""
    ended = _stretches.pop()
    if ended.locks and ended.process == Real.getpid():  # a forked child holds nothing
        finish_work()
        for lock in ended.locks.values():
            lock.leave()


@contextlib.contextmanager
def sharing(device: Device, timeout_s: float, who: str) -> Iterator[None]:
    """Share a GPU while the code that is measured runs on it; inside of a test until the test's
    fixture, call or teardown is through. Nothing on the CPU."""
    if device.kind != "cuda":
        yield
        return
    if _stretches:
        _share(_stretches[-1], device.index)
        yield
        return
    begin(who, timeout_s)
    try:
        _share(_stretches[-1], device.index)
        yield
    finally:
        end()


def stop() -> None:
    """A debugger has the process, for minutes or hours: nobody waits for it."""
    locks = _locks()
    if locks:
        finish_work()
        for lock in locks:
            lock.stop()


def go_on() -> None:
    """The debugger lets it go on."""
    for lock in _locks():
        lock.go_on(_stretches[-1].timeout_s, _stretches[-1].who)


@contextlib.contextmanager
def at_rest() -> Iterator[None]:
    """Share no GPU meanwhile: another process has it to itself, for this one, too."""
    stop()
    try:
        yield
    finally:
        go_on()


def finish_work() -> None:
    """Wait for what this process has queued: it must not run beside what another one times."""
    if _cuda_is_up() and not is_capturing():
        with contextlib.suppress(RuntimeError):  # CUDA is broken, and runs nothing
            synchronize_in_use()


def _locks() -> list[WholeLock]:
    ours = [one for one in _stretches if one.process == Real.getpid()]
    return list({id(lock): lock for one in ours for lock in one.locks.values()}.values())


def _share(stretch: _Stretch, index: int) -> None:
    from pytest_kernelprof.device.lock import lock_of

    if index in stretch.locks:
        return
    with contextlib.suppress(GpuBusy, RuntimeError):  # no lock, no CUDA: its code runs all the same
        lock = lock_of(uuid_of_index(index))
        lock.join(stretch.timeout_s, stretch.who)
        stretch.locks[index] = lock


def _cuda_is_up() -> bool:
    torch = bound_already()
    return torch is not None and torch.is_initialized()
