"""The exceptions that users may catch or name in ``raises=``."""

from __future__ import annotations

from _pytest.outcomes import Failed


class KernelprofError(Exception):
    """Base of the errors that are not verdicts: something kept a number from being had."""


class IncompleteProfile(KernelprofError):  # noqa: N818 (a state, and the design's name)
    """A profile could not be taken, or was taken and is known not to hold everything."""


class ProfilerUnavailable(IncompleteProfile):
    """The profiler cannot see the device at all; the message names the cause and the remedy."""


class GpuBusy(IncompleteProfile):
    """The GPU was not free to be timed on; the message says who holds it and what to do."""


class MarkerError(KernelprofError):
    """A marker or limit is malformed; the message shows the right form."""


class TraceError(KernelprofError):
    """A trace file cannot be read; the message names the file, the position and the reason."""


class LimitExceeded(Failed):
    """A measured value lies above its limit: a failure, as ``pytest.fail.Exception`` is."""
