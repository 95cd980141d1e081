"""Long work shows a line on a terminal and leaves nothing behind; elsewhere it shows nothing."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
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
# Runs pytest once for each case, all on one terminal: to load torch each time would take longer.
PYTESTS = """
import json, os, sys, pytest
terminal = os.dup(1)
for case in json.load(open("cases.json")):
    os.chdir(case["folder"])
    os.environ["TERM"] = case["term"]
    if case["piped"]:
        read, write = os.pipe()
        os.dup2(write, 1)
        os.close(write)
    ended = pytest.main(case["arguments"])
    sys.stdout.flush()
    os.dup2(terminal, 1)
    if case["piped"]:
        with open(read) as pipe:
            sys.stdout.write(pipe.read())
    print(f"\\0{ended:d}\\0", end="", flush=True)
    os.chdir("..")
"""


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
# So many terminals at once, each with every so-manieth case: nearly all of their time is sleep.
TERMINALS = 3


@dataclass(frozen=True)
class Seen:
    """What a terminal showed: each line of progress, and what it showed at the end."""

    progress: list[str]
    lines: list[str]
    raw: str


def run_cases(folder: Path) -> None:
    """Run pytest for all cases, and keep what the terminals were sent."""
    with ThreadPoolExecutor(TERMINALS) as pool:
        for terminal in range(TERMINALS):
            (folder / str(terminal)).mkdir()
        folders = [folder / str(terminal) for terminal in range(TERMINALS)]
        list(pool.map(run_on_a_terminal, folders, [CASES[i::TERMINALS] for i in range(TERMINALS)]))


def run_on_a_terminal(folder: Path, cases_here: Sequence[Case]) -> None:
    """Run pytest for some cases on one terminal, and keep what it was sent, piece by piece."""
    for number, case in enumerate(cases_here):
        (folder / f"case{number}").mkdir()
        file = folder / f"case{number}" / f"test_it{number}.py"
        file.write_text(SLOW.format(quick=QUICK.format(count=case.quick), sleep=case.sleep))
    cases = [
        {
            "folder": f"case{number}",
            "term": case.term,
            "piped": case.piped,
            "arguments": [
                *("-p", "no:cacheprovider", "--rootdir=.", "--kernelprof-device=cpu"),
                *case.options,
            ],
        }
        for number, case in enumerate(cases_here)
    ]
    (folder / "cases.json").write_text(json.dumps(cases))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "CI")}
    process = subprocess.Popen(
        [sys.executable, "-c", PYTESTS],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**env, "PY_COLORS": "0"},
    )
    os.close(theirs)
    pieces: list[bytes] = []
    while True:
        try:
            data = os.read(ours, 1 << 16)
        except OSError:  # so the end of the other side reads on Linux
            break
        if not data:
            break
        pieces.append(data)
    os.close(ours)
    assert process.wait() == 0, b"".join(pieces).decode()
    (folder / "pieces.json").write_text(json.dumps([piece.decode("latin-1") for piece in pieces]))


@pytest.fixture
def on_a_terminal(once: Once) -> Callable[[Case], Seen]:
    """What a case showed; all cases are run at the first call."""

    def seen(case: Case) -> Seen:
        number, terminal = divmod(CASES.index(case), TERMINALS)
        folder = once("progress", run_cases) / str(terminal)
        return replay(json.loads((folder / "pieces.json").read_text()), number)

    return seen


def replay(pieces: list[str], number: int) -> Seen:
    """The part of one case, as it came, on a screen of its own; it must have ended well."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    shown: list[str] = []
    raw, ended = b"", ""
    at = 0  # each case is followed by its exit code, between two zeros
    for piece in pieces:
        for i, part in enumerate(piece.split("\0")):
            at += i > 0
            if at == 2 * number + 1:
                ended += part
            if at != 2 * number:
                continue
            raw += part.encode("latin-1")
            stream.feed(part.encode("latin-1"))
            shown += [line.rstrip() for line in screen.display if "test_slow: " in line]
    assert ended == "0", raw.decode()
    lines = [line.rstrip() for line in screen.display]
    return Seen(list(dict.fromkeys(shown)), lines, raw.decode())


@pytest.mark.parametrize("case", SHOWN.values(), ids=SHOWN)
def test_a_long_measurement_shows_a_line_and_leaves_none_behind(
    on_a_terminal: Callable[[Case], Seen], case: Case
) -> None:
    seen = on_a_terminal(case)
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
