"""Long work shows a line on a terminal and leaves nothing behind; elsewhere it shows nothing."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass

import pyte
import pytest

ROWS, COLUMNS = 16, 80
SLOW = """
import contextlib, io, time, pytest
{quick}
def test_slow(kernel_profile, kernelprof_device):
    print("captured")
    with contextlib.redirect_stdout(io.StringIO()) as mine:
        kernel_profile.run(time.sleep, (0.08,), rounds=15)
    assert not mine.getvalue()
def test_last(): pass
"""
QUICK = "@pytest.mark.parametrize('n', range({count}))\ndef test_quick(n): pass"


@dataclass(frozen=True)
class Seen:
    """What a terminal showed: each line of progress, and what it showed at the end."""

    progress: list[str]
    lines: list[str]
    raw: str


def on_a_terminal(
    pytester: pytest.Pytester, *options: str, quick: int = 3, term: str = "xterm"
) -> Seen:
    pytester.makepyfile(test_it=SLOW.format(quick=QUICK.format(count=quick)))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "CI")}
    process = subprocess.Popen(
        [*command, "--kernelprof-device=cpu", *options],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=pytester.path,
        env={**env, "TERM": term, "PY_COLORS": "0"},
    )
    os.close(theirs)
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    shown: list[str] = []
    raw = b""
    while True:
        try:
            data = os.read(ours, 1 << 16)
        except OSError:  # so the end of the other side reads on Linux
            break
        if not data:
            break
        raw += data
        stream.feed(data)
        shown += [line.rstrip() for line in screen.display if "test_slow: " in line]
    os.close(ours)
    assert process.wait() == 0, raw.decode()
    lines = [line.rstrip() for line in screen.display]
    return Seen(list(dict.fromkeys(shown)), lines, raw.decode())


@pytest.mark.parametrize(
    ("quick", "options"),
    [(3, ()), (40, ("-v",)), (63, ())],
    ids=["in the middle of the screen", "at its bottom", "pytest's own line nearly full"],
)
def test_a_long_measurement_shows_a_line_and_leaves_none_behind(
    pytester: pytest.Pytester, quick: int, options: tuple[str, ...]
) -> None:
    seen = on_a_terminal(pytester, *options, quick=quick)
    assert any(line.startswith("test_slow: profiling 1") for line in seen.progress)
    assert any(line.startswith("test_slow: timing ") for line in seen.progress)
    assert seen.progress[-1].endswith("/15")
    assert not any("test_slow: " in line or "captured" in line for line in seen.lines)
    assert seen.lines == as_without_it(seen.raw)


def as_without_it(raw: str) -> list[str]:
    """The last screen of the same output without our part of it."""
    screen = pyte.Screen(COLUMNS, ROWS)
    parts = raw.split("\x1bD\x1b[A")
    rest = [part.split("\x1b8", 1)[1] for part in parts[1:]]
    pyte.Stream(screen).feed(parts[0] + "".join(rest))
    return [line.rstrip() for line in screen.display]


@pytest.mark.parametrize(
    "options",
    [
        ("-q",),
        ("-s",),
        ("--capture=tee-sys",),
        ("-o", "log_cli=true"),
        ("-n1",),
        ("-p", "no:terminal"),
    ],
    ids=" ".join,
)
def test_where_it_would_mix_with_other_output_there_is_none(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    seen = on_a_terminal(pytester, *options)
    assert not seen.progress
    assert "profiling" not in seen.raw


def test_a_dumb_terminal_gets_none(pytester: pytest.Pytester) -> None:
    seen = on_a_terminal(pytester, term="dumb")
    assert "profiling" not in seen.raw


def test_piped_there_is_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=SLOW.format(quick=QUICK.format(count=3)))
    result = pytester.runpytest_subprocess("--kernelprof-device=cpu")
    result.assert_outcomes(passed=5)
    assert "profiling" not in str(result.stdout)
    assert "\x1b" not in str(result.stdout)
