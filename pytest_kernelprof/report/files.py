"""The files that a run is written to: one table for options and commands."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pytest_kernelprof.records import codec
from pytest_kernelprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_kernelprof.records.document import Run
    from pytest_kernelprof.records.profile import Place


Content = tuple[bytes, str]
"""What is in a file, and a few words on how much that is."""


# Each loads its format when it is called: most runs write no file.
def _json(run: Run) -> Content:
    from pytest_kernelprof.records.document import pack

    profiles = sum(len(test.profiles) for test in run.tests)
    return codec.encode(pack(run)), f"tests {len(run.tests)}, profiles {profiles}"


def _benchmark_json(run: Run) -> Content:
    import json

    from pytest_kernelprof.report.exports import benchmarks_of

    document, left_out = benchmarks_of(run)
    without = [f"left out {why} {count}" for why, count in left_out.items()]
    words = ", ".join([f"benchmarks {len(document['benchmarks'])}", *without])
    return json.dumps(document, indent=1, allow_nan=False).encode(), words


def _link() -> Callable[[Place], str]:
    """Where lines of code lead to, if this is a step of GitHub Actions."""
    from pytest_kernelprof.report import github

    address_of = github.links(os.getcwd(), os.environ)
    return lambda place: address_of(place) if os.path.exists(place.file) else ""


def _markdown(run: Run) -> Content:
    from pytest_kernelprof.report.markdown import markdown_of

    return _text(markdown_of(run, link=_link()))


def _html(run: Run) -> Content:
    from pytest_kernelprof.report.html.page import html_of

    return _text(html_of(run, _link()))


def _text(told: str) -> Content:
    data = told.encode()
    return data, format_bytes(len(data))


FORMS: Mapping[str, Callable[[Run], Content]] = {
    "json": _json,
    "html": _html,
    "markdown": _markdown,
    "benchmark_json": _benchmark_json,
}
"""The function that makes a file's content, by the name of its option."""


def why_no_file(form: str, path: str) -> str:
    """Return why a form of a run cannot be written to a path; empty if it can. The path's folder is
    made if needed.

    Args:
        form: a key of ``FORMS``.
    """
    if form == "benchmark_json" and find_spec("pytest_benchmark") is None:
        return "it needs pytest-benchmark: pip install 'pytest-kernelprof[benchmark]'"
    return codec.why_no_file(path)


def write_file(path: str, form: str, run: Run) -> str:
    """Write a run as a file, whole or not at all.

    Args:
        form: a key of ``FORMS``.

    Returns:
        How much is in it, in words.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    data, words = FORMS[form](run)
    codec.write_atomically(path, data)
    return words
