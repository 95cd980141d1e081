"""The files that a run is written to: one table for options and commands; and the names of the
traces of ``--kernelprof-trace-dir``."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from pytest_kernelprof.schema import codec
from pytest_kernelprof.system import Real
from pytest_kernelprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_kernelprof.schema.document import Run


_LONGEST = 150
# Of such an id, label and number each hyphen in a file name can be told what it stands for.
_PLAIN_TEST = re.compile(r"(?:[A-Za-z_][\w.]*/)*[A-Za-z_]\w*\.py(?:::[A-Za-z_]\w*)+", re.ASCII)
_PLAIN_LABEL = re.compile(r"[\w.]*", re.ASCII)


def trace_path(folder: str, test: str, index: int, label: str = "", rank: int | None = None) -> str:
    """Return the file of a profile, a gzip Chrome trace; ``index`` counts a test's profiles from 1.

    No two profiles have the same file: where plain characters do not suffice, the name has a
    digest. Each rank has its own file.
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
    """Return why nothing can be written to a folder, which is made if needed; empty if it can."""
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


class Content(NamedTuple):
    """What is in a file, and a few words on how much that is."""

    data: bytes
    words: str


# Each loads its format when it is called: most runs write no file.
def _json(run: Run) -> Content:
    from pytest_kernelprof.schema.document import pack

    profiles = sum(len(test.profiles) for test in run.tests)
    return Content(codec.encode(pack(run)), f"tests {len(run.tests)}, profiles {profiles}")


def _benchmark_json(run: Run) -> Content:
    import json

    from pytest_kernelprof.report.exports import benchmarks_of

    found = benchmarks_of(run)
    left_out = [f"left out {why} {count}" for why, count in found.left_out.items()]
    words = ", ".join([f"benchmarks {len(found.document['benchmarks'])}", *left_out])
    return Content(json.dumps(found.document, indent=1, allow_nan=False).encode(), words)


def _markdown(run: Run) -> Content:
    from pytest_kernelprof.report.markdown import markdown_of

    return _text(markdown_of(run))


def _html(run: Run) -> Content:
    from pytest_kernelprof.report.html.page import html_of

    return _text(html_of(run))


def _text(told: str) -> Content:
    data = told.encode()
    return Content(data, format_bytes(len(data)))


FORMS: Mapping[str, Callable[[Run], Content]] = {
    "json": _json,
    "html": _html,
    "markdown": _markdown,
    "benchmark_json": _benchmark_json,
}
"""The function that makes a file's content, by the name of its option."""


def why_no_form(form: str) -> str:
    """Return why a format is not available here, and what to install; empty if it is.

    Args:
        form: a key of ``FORMS``.
    """
    if form != "html":
        return ""
    from pytest_kernelprof.report.html.page import why_no_html

    return why_no_html()


def why_no_file(path: str) -> str:
    """Return why nothing can be written to a path, as far as that is known before; empty if it can.
    Its folder is made if needed."""
    if not path:
        return "it is empty"
    if not os.path.basename(path):
        return "it names a folder"
    try:
        return why_unwritable(os.path.dirname(os.path.realpath(path))) or codec.why_no_target(path)
    except ValueError as error:  # a NUL
        return str(error)


def write_file(path: str, form: str, run: Run) -> str:
    """Write a run as a file, whole or not at all.

    Args:
        form: a key of ``FORMS``.

    Returns:
        How much is in it, in words.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    content = FORMS[form](run)
    codec.write_atomically(path, content.data)
    return content.words
