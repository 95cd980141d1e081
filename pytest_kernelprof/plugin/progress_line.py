"""The line on a terminal that says what is being measured while it takes long."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from typing import TYPE_CHECKING

from pytest_kernelprof.clock import now_s
from pytest_kernelprof.measure.policy import Progress, no_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import TextIO

    import pytest

_QUIET_SECONDS = 1.0
_BETWEEN_SECONDS = 0.1

# The line stands below the one that pytest is writing, and the cursor always goes back to where
# pytest left it, so that nothing of pytest's own output is lost or written twice. "Index" and up
# again first: at the bottom of the screen that makes room and keeps the column, as a line feed
# would not; only then may the position be saved.
_MAKE_ROOM = "\x1bD\x1b[A"
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_BELOW, _ERASE_REST = "\x1b[B\r", "\x1b[K"


def measuring(config: pytest.Config, test: str) -> Callable[[], AbstractContextManager[Progress]]:
    """What opens a progress line for one measurement of a test, and erases it at its end.

    The line appears after a second of work. It is there on a terminal only: not when standard
    output is piped, in an xdist worker, with ``-q``, or where what tests or loggers print goes to
    the terminal at once (``-s``, ``--capture=tee-sys``, ``log_cli``) and would mix with it.
    """
    if not _can_show(config):
        return lambda: contextlib.nullcontext(no_progress)
    capture = config.pluginmanager.getplugin("capturemanager")
    out = sys.__stdout__  # not sys.stdout, which the test may have redirected into a buffer
    assert capture is not None
    assert out is not None
    return lambda: _shown(_Line(test, out, capture.global_and_fixture_disabled))


def _can_show(config: pytest.Config) -> bool:
    plugins = config.pluginmanager
    terminal = plugins.getplugin("terminalreporter")
    return (
        terminal is not None
        and plugins.hasplugin("capturemanager")
        and bool(getattr(terminal, "isatty", False))
        and sys.__stdout__ is not None
        and not hasattr(config, "workerinput")
        and config.get_verbosity() >= 0
        and config.getoption("capture") in ("fd", "sys")
        and not _logs_live(config)
        and os.environ.get("TERM") != "dumb"
        and sys.platform != "win32"  # its consoles know the control sequences only on request
    )


def _logs_live(config: pytest.Config) -> bool:
    if not config.pluginmanager.hasplugin("logging-plugin"):
        return False
    return bool(config.getini("log_cli")) or config.getoption("log_cli_level") is not None


@contextlib.contextmanager
def _shown(line: _Line) -> Iterator[Progress]:
    try:
        yield line
    finally:
        line.erase()


class _Line:
    """One line of progress, rewritten in place."""

    def __init__(
        self, test: str, out: TextIO, uncaptured: Callable[[], AbstractContextManager[object]]
    ) -> None:
        self._test = test
        self._out = out
        self._uncaptured = uncaptured
        self._next = now_s() + _QUIET_SECONDS
        self._visible = False

    def __call__(self, what: str, done: int, of: int, reason: str = "") -> None:
        if now_s() < self._next:
            return
        text = f"{self._test}: {what} {done}/{of}" + (f" ({reason})" if reason else "")
        text = text.encode("ascii", "backslashreplace").decode()  # one column a character
        text = "".join(char if char.isprintable() else "?" for char in text)
        columns = shutil.get_terminal_size().columns
        self._write(text if len(text) < columns else text[: columns - 4] + "...")
        self._visible = True
        self._next = now_s() + _BETWEEN_SECONDS

    def erase(self) -> None:
        """Leave nothing of the line behind."""
        if self._visible:
            self._write("")
            self._visible = False

    def _write(self, text: str) -> None:
        with self._uncaptured():
            self._out.write(_MAKE_ROOM + _SAVE + _BELOW + text + _ERASE_REST + _RESTORE)
            self._out.flush()
