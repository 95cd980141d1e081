"""How the ranks of a distributed program decide alike: what each has seen is told to all, before
any of them goes on. Of one rank there is nothing to tell."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol, TypeVar

from pytest_kernelprof.device.conditions import own_lock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pytest_kernelprof.device.inventory import Device
    from pytest_kernelprof.device.whole_lock import WholeLock

T = TypeVar("T")


class Agreement(Protocol):
    """What the ranks of one call tell each other. All of them ask the same, in the same order."""

    @property
    def rank(self) -> int | None:
        """The number of this rank; None where it is the only one."""

    def gather(self, what: str, own: T, *, patience_s: float = 0.0) -> Sequence[T]:
        """What each rank has, by number; a barrier, too.

        Args:
            what: which question it is, the same on all ranks.
            own: a record (msgspec's, a dataclass), or builtins.
            patience_s: how long others may take beyond the usual limit.

        Raises:
            IncompleteProfile: a rank does not come; the message names it.
        """

    def gpu_lock(
        self, device: Device, timeout_s: float, who: str
    ) -> AbstractContextManager[WholeLock | None]:
        """Have the GPUs of all ranks alone; None of those that another rank has locked.

        Raises:
            NotFree: a rank could not have its GPU in time.
            GpuBusy: it cannot be locked at all.
        """

    def begin(self) -> None:
        """Wait for the instant at which all ranks begin."""

    def broke(self, error: BaseException) -> None:
        """Tell the others that this rank does not go on."""


class Alone:
    """The agreement of the only rank, with itself."""

    rank: int | None = None

    def gather(self, what: str, own: T, *, patience_s: float = 0.0) -> Sequence[T]:
        """What it has."""
        return (own,)

    def gpu_lock(
        self, device: Device, timeout_s: float, who: str
    ) -> AbstractContextManager[WholeLock | None]:
        """Have its own GPU alone."""
        return own_lock(device, timeout_s, who)

    def begin(self) -> None:
        """Do so at once."""

    def broke(self, error: BaseException) -> None:
        """Nobody waits."""


ALONE = Alone()


def nobody_else() -> AbstractContextManager[Agreement]:
    """How a call begins that is made by this process alone."""
    return contextlib.nullcontext(ALONE)
