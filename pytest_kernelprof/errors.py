"""The exceptions that users may catch or name in ``raises=``.

A module of its own, though it is short: every room raises them, and it loads nothing but pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _pytest.outcomes import Failed, Skipped

if TYPE_CHECKING:
    from pytest_kernelprof.records.profile import Place


NO_GPU = "--kernelprof-require-gpu: "
"""Begins why a test that must have a GPU has none."""


def first_line(error: BaseException | str) -> str:
    """Return the first line of an error's message; its type if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def said_by(error: BaseException) -> str:
    """Return an error in one line: its type, and the first line of its message if it has one."""
    return ": ".join(dict.fromkeys((type(error).__name__, first_line(error))))


class KernelprofError(Exception):
    """Base of the errors that are not verdicts: something prevented a measurement.

    Attributes:
        page: of the docs, with what helps; it ends the message.
    """

    page = ""

    def __str__(self) -> str:
        return " ".join(filter(None, [super().__str__(), self.page and f"(see {self.page})"]))


class IncompleteProfile(KernelprofError):  # noqa: N818 (a state, and the design's name)
    """A profile could not be taken, or is known to be incomplete."""


class ProfilerUnavailable(IncompleteProfile):
    """The profiler cannot see the device at all; the message names the cause and the remedy."""


class GpuBusy(IncompleteProfile):
    """The GPU could not be locked for timing; the message says why and what to do."""


class MarkerError(KernelprofError):
    """A marker or limit is malformed; the message shows the correct form."""

    page = "docs/reference.md#markers"


class CannotMeasureError(KernelprofError, TypeError):
    """The given object cannot be measured, or not in this way; the message says what can."""

    page = "docs/reference.md#fixtures"


class TraceError(KernelprofError):
    """A trace file cannot be read; the message names the file, the position and the reason."""


class RunFileError(KernelprofError):
    """A run document cannot be read, or compared; the message names the file and the reason."""


class SnapshotError(KernelprofError):
    """A file of snapshots cannot be read or written; the message names the file, the line, and what
    to do."""


class LimitExceeded(Failed):
    """A measured value lies above its limit: a failure, as ``pytest.fail.Exception`` is.

    Attributes:
        place: the line of the test that made the call, if no line of the test raises this.
    """

    def __init__(self, msg: str, pytrace: bool = True, place: Place | None = None) -> None:
        super().__init__(msg, pytrace)
        self.place = place


class WrongResult(Failed):
    """A candidate of a comparison returned another result than the reference, or computed nothing.
    A failure, as ``pytest.fail.Exception`` is."""


class NotJudged(Skipped):
    """A test is skipped as its limits cannot be judged here. The message begins with the reason in
    a few words and a colon, for example ``no CUDA device: torch sees none``."""

    @property
    def why(self) -> str:
        """The reason in a few words."""
        return str(self.msg).partition(":")[0]
