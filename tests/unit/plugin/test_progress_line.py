"""The progress line's text, and how often it is written."""

from __future__ import annotations

import contextlib
import io
from contextlib import AbstractContextManager

import pytest

from pytest_kernelprof.measure.policy import Progress
from pytest_kernelprof.plugin.measuring import progress_line


@pytest.fixture
def out(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a line writes to that is visible from the start."""
    monkeypatch.setattr("pytest_kernelprof.plugin.measuring._QUIET_SECONDS", -1.0)
    monkeypatch.setenv("COLUMNS", "40")
    return io.StringIO()


def line_on(out: io.StringIO) -> AbstractContextManager[Progress]:
    return progress_line("test_ä\n", out, contextlib.nullcontext)


def text_of(written: str) -> str:
    """What was written first."""
    return written.removeprefix("\x1bD\x1b[A\x1b7\x1b[B\r").partition("\x1b[K\x1b8")[0]


def test_it_says_test_what_round_and_reason(out: io.StringIO) -> None:
    with line_on(out) as line:
        line("timing", 3, 24, "why")
    assert text_of(out.getvalue()) == r"test_\xe4?: timing 3/24 (why)"


def test_it_never_reaches_the_last_column(out: io.StringIO) -> None:
    with line_on(out) as line:
        line("profiling", 24, 48, "interval holds the limit: 24 -> 48 rounds")
    text = text_of(out.getvalue())
    assert len(text) == 39
    assert text.endswith("...")


def test_it_is_rewritten_now_and_then_and_erased_once(out: io.StringIO) -> None:
    with line_on(out) as line:
        line("timing", 1, 24)
        line("timing", 2, 24)
    assert out.getvalue().count("\x1b7") == 2


def test_in_the_first_second_only_what_takes_long_is_written() -> None:
    out = io.StringIO()
    with line_on(out) as line:
        line("timing", 1, 24)
        assert out.getvalue() == ""
        line("reading", 24, 24)  # which takes long
        assert text_of(out.getvalue()) == r"test_\xe4?: reading 24/24"
