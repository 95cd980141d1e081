"""How pytest tells what was raised: without our frames, and ours at the line of the test."""

from __future__ import annotations

import contextlib
import os
import re
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import _pytest
import pluggy
from _pytest._code.code import (
    ReprEntry,
    ReprExceptionInfo,
    ReprFileLocation,
    ReprTraceback,
    Traceback,
)
from _pytest.outcomes import OutcomeException

from pytest_kernelprof.errors import (
    CannotMeasureError,
    IncompleteProfile,
    KernelprofError,
    LimitExceeded,
    MarkerError,
    NotJudged,
    SnapshotError,
    WrongResult,
)
from pytest_kernelprof.plugin.devices import CUDA_HINT, why_unmeasured
from pytest_kernelprof.plugin.places import place_of_test

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import pytest

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INNER = (
    _PACKAGE,
    os.path.dirname(_pytest.__file__) + os.sep,
    os.path.dirname(pluggy.__file__) + os.sep,
    contextlib.__file__,
)
# Deliberate errors of ours; any other that our own code raises is a fault of it, told with frames.
_DELIBERATE = (KernelprofError, OutcomeException, TypeError, RuntimeError)
# After which nothing is known of what the test was to show: an ERROR, whatever it expects.
_NO_NUMBER = (IncompleteProfile, MarkerError, CannotMeasureError, SnapshotError)
_OURS = (KernelprofError, LimitExceeded, WrongResult)
# What torch, Triton and libraries on them say where there is no device.
_NEEDS_CUDA = re.compile(r"cuda|nvidia|active drivers?\b|\bgpus?\b", re.IGNORECASE)


def hide_our_frames(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Take our frames out of what was raised, so that no way to show it has them: of the user's
    code that we called, and of our own errors, whose last frame is then the line that called us."""
    for error in _chain(excinfo.value):
        _without_our_frames(error)
    excinfo.traceback = Traceback(excinfo.tb)
    if isinstance(excinfo.value, _OURS) and _by_a_hook(excinfo.value):
        # Told without frames (below); pytest would read the source of each before.
        excinfo.traceback = excinfo.traceback[-1:]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those before it; what only tells how we found our own error is cut off."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        yield error
        before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if before is None:
            return
        if isinstance(error, KernelprofError) and all(map(_is_ours, _entries(before))):
            error.__cause__, error.__suppress_context__ = None, True
            return
        error = before


def _without_our_frames(error: BaseException) -> None:
    entries = _entries(error)
    if not entries or (_is_ours(entries[-1]) and not isinstance(error, _DELIBERATE)):
        return
    ours = [_is_ours(entry) for entry in entries]
    for i in reversed(range(len(entries))):  # our context managers come with frames of contextlib
        beside = ours[i - 1 : i] + ours[i + 1 : i + 2]
        ours[i] |= entries[i].tb_frame.f_code.co_filename == contextlib.__file__ and any(beside)
    kept = [entry for entry, is_ours in zip(entries, ours, strict=True) if not is_ours]
    if kept:
        for entry, following in pairwise([*kept, None]):
            if entry is not None:
                entry.tb_next = following
        error.__traceback__ = kept[0]


def _entries(error: BaseException) -> list[TracebackType]:
    found, entry = [], error.__traceback__
    while entry is not None:
        found.append(entry)
        entry = entry.tb_next
    return found


def _is_ours(entry: TracebackType) -> bool:
    return entry.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def tell(report: pytest.TestReport, item: pytest.Item, error: BaseException) -> None:
    """Have a report tell an error of ours as what it is: one that could not be judged is an ERROR,
    also under ``xfail``; its summary begins with what is wrong; its place is the test's line, also
    where we skip it."""
    if isinstance(report.longrepr, tuple):
        path, line, words = report.longrepr
        where = _place(item, error) if _by_a_hook(error) else (path, line)
        report.longrepr = (*where, f"Skipped: {error}" if isinstance(error, NotJudged) else words)
    if isinstance(error, _NO_NUMBER):
        report.outcome = "failed"
        if hasattr(report, "wasxfail"):
            del report.wasxfail
        if report.when == "call":
            report.kernelprof_error = True  # type: ignore[attr-defined]
    if not isinstance(error, _OURS) or not report.failed:
        return
    says_all = isinstance(error, LimitExceeded) or type(error) is IncompleteProfile
    words = str(error) if says_all else f"{type(error).__name__}: {error}"
    if _by_a_hook(error) or not getattr(error, "pytrace", True):
        path, line = _place(item, error)
        crash = ReprFileLocation(path, line, _first_line(words))
        report.longrepr = ReprExceptionInfo(ReprTraceback(_entries_of(words), None, "value"), crash)
    elif getattr(report.longrepr, "reprcrash", None) is not None:
        report.longrepr.reprcrash.message = _first_line(words)  # type: ignore[union-attr]


def _first_line(words: str) -> str:
    """What pytest's short summary has, which on CI and with -vv repeats all that it is given."""
    return next(iter(words.splitlines()), "")


def _entries_of(words: str) -> list[ReprEntry]:
    """What is wrong as pytest's own failures tell it, in red; the rest as it is."""
    from pytest_kernelprof.report.failure import INDENT

    entries = []
    for wrong, lines in groupby(words.splitlines(), lambda line: not line.startswith(INDENT)):
        told = [f"E   {line}" if wrong else line for line in lines]
        entries.append(ReprEntry(told, None, None, None, "short" if wrong else "value"))
    return entries


def skip_unexpected_pass(report: pytest.TestReport, item: pytest.Item, why: str) -> None:
    """Skip a test that is expected to fail and passed while its limits were not judged, which may
    be what it is expected to fail by.

    Args:
        why: why they were not judged.
    """
    strict = str(report.longrepr).startswith("[XPASS(strict)]")
    if not (strict or (report.passed and hasattr(report, "wasxfail"))):
        return
    if hasattr(report, "wasxfail"):
        del report.wasxfail
    place = place_of_test(item)
    words = f"Skipped: not judged: {why}; the test is marked xfail, and its body passed"
    report.outcome, report.longrepr = "skipped", (place.file, place.line, words)


def hint_at_cuda(report: pytest.TestReport, item: pytest.Item, error: BaseException) -> None:
    """Tell what to do beside an error that looks as if it came of a missing CUDA device."""
    is_missing = _NEEDS_CUDA.search(f"{type(error).__name__}: {error}")
    if report.failed and is_missing and why_unmeasured(item).startswith("no CUDA device"):
        add = getattr(report.longrepr, "addsection", None)
        if add is not None:
            add("kernelprof", CUDA_HINT)


def _by_a_hook(error: BaseException) -> bool:
    """Whether no line of the test raised it: its frames would only show pytest's code and ours."""
    files = [entry.tb_frame.f_code.co_filename for entry in _entries(error)]
    return all(file.startswith(_INNER) for file in files)


def _place(item: pytest.Item, error: BaseException) -> tuple[str, int]:
    """The line that made the call, as far as the error knows it, else the test's first."""
    frames = _entries(error)
    if frames and not _by_a_hook(error):
        return frames[-1].tb_frame.f_code.co_filename, frames[-1].tb_lineno
    place = error.place if isinstance(error, LimitExceeded) else None
    place = place or place_of_test(item)
    return place.file, place.line
