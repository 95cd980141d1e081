"""How far a measurement is: what measuring code calls, and the form of it that says nothing."""

from __future__ import annotations

import contextlib
from typing import Protocol


class Progress(Protocol):
    """Told now and then how far a measurement is; called outside of everything that is timed."""

    def __call__(self, what: str, done: int, of: int, reason: str = "") -> None:
        """Note how far it is.

        Args:
            what: what is being done, for example "profiling". done, of: rounds.
            reason: why it takes more than usual, in words; empty otherwise.
        """


def no_progress(what: str, done: int, of: int, reason: str = "") -> None:
    """Say nothing."""


def silently() -> contextlib.AbstractContextManager[Progress]:
    """Where nothing is told: the form of a context that says nothing."""
    return contextlib.nullcontext(no_progress)
