"""Long work shows a line on a terminal and leaves nothing behind; elsewhere it shows nothing."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyte
import pytest

Once = Callable[[str, Callable[[Path], None]], Path]

ROWS, COLUMNS = 16, 80
SLOW = """
import contextlib, io, time, pytest
{quick}
def test_slow(kernel_profile, kernelprof_device):
    print("captured")
    with contextlib.redirect_stdout(io.StringIO()) as mine:
        kernel_profile.run(time.sleep, ({sleep},), rounds=15)
    assert not mine.getvalue()
def test_last(): pass
"""
QUICK = "@pytest.mark.parametrize('n', range({count}))\ndef test_quick(n): pass"
PYTEST = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"


@dataclass(frozen=True)
class Case:
    """A run of pytest: its options, how many tests come before the slow one, and where.

    Each takes longer than the second after which a line would appear, all calls together.
    """

    options: tuple[str, ...] = ()
    quick: int = 3
    sleep: float = 0.05
    term: str = "xterm"
    piped: bool = False


SHOWN = {
    "in the middle of the screen": Case(sleep=0.08),
    "at its bottom": Case(("-v",), quick=40, sleep=0.08),
    "pytest's own line nearly full": Case(quick=63, sleep=0.08),
}
MIXED = {
    " ".join(options): Case(options)
    for options in (
        ("-q",),
        ("-s",),
        ("--capture=tee-sys",),
        ("-o", "log_cli=true"),
        ("-n1",),
        ("-p", "no:terminal"),
    )
}
DUMB = Case(term="dumb")
PIPED = Case(piped=True)
CASES = [*SHOWN.values(), *MIXED.values(), DUMB, PIPED]


@dataclass(frozen=True)
class Seen:
    """What a terminal showed: each line of progress, and what it showed at the end."""

    progress: list[str]
    lines: list[str]
    raw: str


def run_cases(folder: Path, python: str) -> None:
    """Run pytest for all cases at once, nearly all of whose time is sleep."""
    folders = [folder / str(number) for number in range(len(CASES))]
    with ThreadPoolExecutor(len(CASES)) as pool:
        seen = list(pool.map(run_on_a_terminal, folders, CASES, [python] * len(CASES)))
    (folder / "seen.json").write_text(json.dumps(seen))


def run_on_a_terminal(folder: Path, case: Case, python: str) -> tuple[int, list[str]]:
    """Its exit status, and what a terminal of its own was sent, piece by piece."""
    folder.mkdir()
    code = SLOW.format(quick=QUICK.format(count=case.quick), sleep=case.sleep)
    (folder / "test_it.py").write_text(code)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "CI")}
    options = case.options
    if "-n1" in options:  # with a worker that has torch loaded
        options = (f"--tx=popen//python={python}", "--dist=load")
    process = subprocess.Popen(
        [python, "-c", PYTEST, "-p", "no:cacheprovider", "--kernelprof-device=cpu", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if case.piped else theirs,
        stderr=theirs,
        cwd=folder,
        env={**env, "PY_COLORS": "0", "TERM": case.term},
    )
    os.close(theirs)
    if process.stdout is not None:
        pieces = [process.stdout.read().decode("latin-1")]
        process.stdout.close()
    else:
        pieces = []
        while piece := read(ours):
            pieces.append(piece.decode("latin-1"))
    os.close(ours)
    return process.wait(), pieces


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # so the end of the other side reads on Linux
        return b""


@pytest.fixture
def on_a_terminal(once: Once, python: str, pytester: pytest.Pytester) -> Callable[[Case], Seen]:
    """What a case showed; all cases are run at the first call."""

    def seen(case: Case) -> Seen:
        if "-n1" in case.options:
            pytest.importorskip("xdist")
        folder = once("progress", lambda path: run_cases(path, python))
        of_all = json.loads((folder / "seen.json").read_text())
        return replay(*of_all[CASES.index(case)])

    return seen


def replay(ended: int, pieces: list[str]) -> Seen:
    """What came, as it came, on a screen; it must have ended well."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    shown: list[str] = []
    for piece in pieces:
        stream.feed(piece.encode("latin-1"))
        shown += [line.rstrip() for line in screen.display if "test_slow: " in line]
    raw = "".join(pieces).encode("latin-1").decode()
    assert ended == 0, raw
    lines = [line.rstrip() for line in screen.display]
    return Seen(list(dict.fromkeys(shown)), lines, raw)


def as_without_it(raw: str) -> list[str]:
    """The last screen of the same output without our part of it."""
    screen = pyte.Screen(COLUMNS, ROWS)
    parts = raw.split("\x1bD\x1b[A")
    rest = [part.split("\x1b8", 1)[1] for part in parts[1:]]
    pyte.Stream(screen).feed(parts[0] + "".join(rest))
    return [line.rstrip() for line in screen.display]


@pytest.mark.parametrize("case", SHOWN.values(), ids=SHOWN)
def test_a_long_measurement_shows_a_line_and_leaves_none_behind(
    on_a_terminal: Callable[[Case], Seen], case: Case
) -> None:
    seen = on_a_terminal(case)
    assert any(line.startswith("test_slow: profiling 1") for line in seen.progress)
    assert any(line.startswith("test_slow: timing ") for line in seen.progress)
    assert "test_slow: reading the trace of round 15/15" in seen.progress
    assert seen.progress[-1].endswith("/15")
    assert not any("test_slow: " in line or "captured" in line for line in seen.lines)
    assert seen.lines == as_without_it(seen.raw)


@pytest.mark.parametrize("case", MIXED.values(), ids=MIXED)
def test_where_it_would_mix_with_other_output_there_is_none(
    on_a_terminal: Callable[[Case], Seen], case: Case
) -> None:
    seen = on_a_terminal(case)
    assert not seen.progress
    assert "profiling" not in seen.raw


def test_a_dumb_terminal_gets_none(on_a_terminal: Callable[[Case], Seen]) -> None:
    assert "profiling" not in on_a_terminal(DUMB).raw


def test_piped_there_is_none(on_a_terminal: Callable[[Case], Seen]) -> None:
    raw = on_a_terminal(PIPED).raw
    assert "5 passed" in raw
    assert "profiling" not in raw
    assert "\x1b" not in raw
