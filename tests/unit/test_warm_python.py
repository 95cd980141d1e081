"""The interpreter of the tests that has torch loaded: it hands on what it was started with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="hands files on")


@pytest.mark.parametrize("least", [63, 64, 300])
def test_a_file_is_handed_on_whatever_its_number(python: str, least: int) -> None:
    """Where hundreds of tests have run, files that are opened have high ones."""
    fcntl = pytest.importorskip("fcntl")
    read, write = os.pipe()
    number = fcntl.fcntl(write, fcntl.F_DUPFD, least)  # one that is free
    code = "import os, sys; os.write(int(sys.argv[1]), b'handed on')"
    try:
        subprocess.run([python, "-c", code, str(number)], pass_fds=(number,), check=True)
        assert os.read(read, 99) == b"handed on"
    finally:
        for file in (read, write, number):
            os.close(file)


def test_what_runs_is_asked_to_end_where_who_asked_for_it_is(python: str) -> None:
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7));"
        "print('there', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([python, "-c", code], stdout=subprocess.PIPE, text=True) as asked:
        assert asked.stdout is not None
        assert asked.stdout.readline() == "there\n"
        asked.terminate()
        assert asked.wait(30) == 7


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_who_asked_ends_by_the_signal_that_what_ran_has_ended_by(python: str, number: int) -> None:
    code = f"import os; os.kill(os.getpid(), {int(number)})"
    assert subprocess.run([python, "-c", code]).returncode == -number


def test_what_runs_ends_with_who_asked_for_it(python: str) -> None:
    """Who ends a process of a test, or its group, ends the one that was asked for it alone."""
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with subprocess.Popen([python, "-c", code], stdout=subprocess.PIPE, text=True) as asked:
        assert asked.stdout is not None
        running = int(asked.stdout.readline())
        assert running != asked.pid
        asked.kill()
    late = time.monotonic() + 30
    while True:
        try:
            os.kill(running, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < late
        time.sleep(0.05)
