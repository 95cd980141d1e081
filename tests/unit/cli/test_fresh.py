"""Code in a fresh process: what it answers, and how it ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_kernelprof.cli.doctor import NotFinished, last_words, run_fresh


def test_it_can_import_this_package_from_anywhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import pytest_kernelprof.units; print('here')"
    done = run_fresh(code, 60)
    assert (done.returncode, done.stdout, last_words(done)) == (0, "here\n", "no message")


def test_one_that_dies_leaves_its_status_and_last_words() -> None:
    code = "print('before'); print('a traceback', file=sys.stderr); sys.exit('the reason')"
    done = run_fresh(code, 60)
    assert (done.returncode, done.stdout, last_words(done)) == (1, "before\n", "the reason")


def test_it_cannot_eat_our_standard_input() -> None:
    assert run_fresh("print(repr(sys.stdin.read()))", 60).stdout == "''\n"


def test_one_that_hangs_is_ended() -> None:
    with pytest.raises(NotFinished, match="no answer within 0 s"):
        run_fresh("import time; time.sleep(60)", 0.2)


def test_one_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(NotFinished, match=r"could be started: .*/no/such/python"):
        run_fresh("", 60)
