"""Python code in a fresh process that can import this package."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


class NotFinished(Exception):  # noqa: N818 (what happened, not an error of ours)
    """The process did not start, or had no answer in time; the message says which."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that ended by itself.

    Attributes:
        status: its exit status. output: its standard output.
        last_words: the last line of its standard error, which says why it died.
    """

    status: int
    output: str
    last_words: str


def run_fresh(code: str, timeout_s: float) -> Finished:
    """Run Python code in a process of its own, without standard input, for so long at most.

    Raises:
        NotFinished: it was not over in time and was ended, or could not be started.
    """
    root = str(Path(__file__).parents[2])
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.append({root!r}); {code}"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise NotFinished(f"no answer within {timeout_s:.0f} s") from None
    except OSError as error:
        raise NotFinished(f"no process could be started: {error}") from error
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return Finished(done.returncode, done.stdout, last)
