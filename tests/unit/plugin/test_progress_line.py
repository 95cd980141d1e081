"""The progress line's text, and how often it is written."""

from __future__ import annotations

import contextlib
import io

import pytest

from pytest_kernelprof.plugin.measuring import _Line


@pytest.fixture
def out(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a line writes to that is visible from the start."""
    monkeypatch.setattr("pytest_kernelprof.plugin.measuring._QUIET_SECONDS", -1.0)
    monkeypatch.setenv("COLUMNS", "40")
    return io.StringIO()


def line_on(out: io.StringIO) -> _Line:
    return _Line("test_ä\n", out, contextlib.nullcontext)


def text_of(written: str) -> str:
    return written.removeprefix("\x1bD\x1b[A\x1b7\x1b[B\r").removesuffix("\x1b[K\x1b8")


def test_it_says_test_what_round_and_reason(out: io.StringIO) -> None:
    line_on(out)("timing", 3, 24, "why")
    assert text_of(out.getvalue()) == r"test_\xe4?: timing 3/24 (why)"


def test_it_never_reaches_the_last_column(out: io.StringIO) -> None:
    line_on(out)("profiling", 24, 48, "interval holds the limit: 24 -> 48 rounds")
    text = text_of(out.getvalue())
    assert len(text) == 39
    assert text.endswith("...")


def test_it_is_rewritten_now_and_then_and_erased_once(out: io.StringIO) -> None:
    line = line_on(out)
    line("timing", 1, 24)
    line("timing", 2, 24)
    line.close()
    line.close()
    assert out.getvalue().count("\x1b7") == 2


def test_nothing_is_written_in_the_first_second() -> None:
    out = io.StringIO()
    line = line_on(out)
    line("timing", 1, 24)
    line.close()
    assert out.getvalue() == ""
