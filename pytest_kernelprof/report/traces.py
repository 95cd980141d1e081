"""Where the traces of ``--kernelprof-trace-dir`` lie."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys

from pytest_kernelprof.system import Real

_LONGEST = 150
# Of such an id, label and number each hyphen in a file name can be told what it stands for.
_PLAIN_TEST = re.compile(r"(?:[A-Za-z_][\w.]*/)*[A-Za-z_]\w*\.py(?:::[A-Za-z_]\w*)+", re.ASCII)
_PLAIN_LABEL = re.compile(r"[\w.]*", re.ASCII)


def trace_path(folder: str, test: str, index: int, label: str = "", rank: int | None = None) -> str:
    """The file of one of a test's profiles, whose ``index`` counts from 1: a gzip Chrome trace.

    No two profiles have the same; where plain characters alone would not tell, a digest does. Of
    several ranks each has its own.
    """
    name = f"{test}-{index}-{label}" if label else f"{test}-{index}"
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name.replace("::", "-").replace("/", "-")).strip("-")
    if not _is_told_apart(test, label) or len(plain) > _LONGEST:
        whole = f"{test}\n{index}\n{label}".encode("utf-8", "backslashreplace")
        plain = f"{plain[-_LONGEST:]}-{hashlib.sha1(whole, usedforsecurity=False).hexdigest()[:8]}"
    of_rank = "" if rank is None else f".rank{rank}"
    return os.path.join(folder, f"{plain}{of_rank}.json.gz")


def _is_told_apart(test: str, label: str) -> bool:
    """Whether the name in plain characters is that of no other profile."""
    if sys.platform in ("darwin", "win32") and (test + label).lower() != test + label:
        return False  # there A and a are one
    folders = test.partition("::")[0].split("/")[:-1]
    plain = _PLAIN_TEST.fullmatch(test) and _PLAIN_LABEL.fullmatch(label)
    return bool(plain) and not any(folder.endswith(".py") for folder in folders)


def why_unwritable(folder: str) -> str:
    """Why nothing can be written to a folder, which is made if it is not there; empty where it
    can."""
    beside = f"{folder}/.kernelprof-{Real.urandom(6).hex()}"
    try:
        os.makedirs(folder, exist_ok=True)
        try:
            with Real.file(beside, "xb") as file:
                file.write(b"x")
        finally:
            with contextlib.suppress(OSError):
                Real.unlink(beside)
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""
