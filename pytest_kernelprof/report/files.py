"""The files that a run is told as: one table, of which the options and the commands make use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from pytest_kernelprof.report.traces import why_unwritable
from pytest_kernelprof.schema import codec
from pytest_kernelprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_kernelprof.schema.run import Run


class Content(NamedTuple):
    """What is in a file, and a few words on how much that is."""

    data: bytes
    words: str


# Each loads what it is made with when it is asked for: of most runs no file is made.
def _json(run: Run) -> Content:
    from pytest_kernelprof.schema.packing import pack

    profiles = sum(len(test.profiles) for test in run.tests)
    return Content(codec.encode(pack(run)), f"tests {len(run.tests)}, profiles {profiles}")


def _benchmark_json(run: Run) -> Content:
    import json

    from pytest_kernelprof.report.benchmark_json import benchmarks_of

    found = benchmarks_of(run)
    counts = {"benchmarks": len(found.document["benchmarks"])}
    counts.update({f"left out {why}": count for why, count in found.left_out.items()})
    words = ", ".join(f"{what} {count}" for what, count in counts.items())
    return Content(json.dumps(found.document, indent=1, allow_nan=False).encode(), words)


def _markdown(run: Run) -> Content:
    from pytest_kernelprof.report.markdown import markdown_of

    data = markdown_of(run).encode()
    return Content(data, format_bytes(len(data)))


def _html(run: Run) -> Content:
    from pytest_kernelprof.report.html.page import html_of

    data = html_of(run).encode()
    return Content(data, format_bytes(len(data)))


FORMS: Mapping[str, Callable[[Run], Content]] = {
    "json": _json,
    "html": _html,
    "markdown": _markdown,
    "benchmark_json": _benchmark_json,
}
"""How a run is made a file, by the name of the option that asks for it."""


def why_no_form(form: str) -> str:
    """Why a run cannot be told in a form here, and what to install; empty where it can.

    Args:
        form: a key of ``FORMS``.
    """
    if form != "html":
        return ""
    from pytest_kernelprof.report.html.page import why_no_html

    return why_no_html()


def why_no_file(path: str) -> str:
    """Why nothing can be written to a path, as far as that can be known before; empty where it
    can. Its folder is made if it is not there."""
    if not path:
        return "it is empty"
    if not os.path.basename(path):
        return "it names a folder"
    try:
        return why_unwritable(os.path.dirname(os.path.realpath(path))) or codec.why_no_target(path)
    except ValueError as error:  # a NUL
        return str(error)


def write_file(path: str, form: str, run: Run) -> str:
    """Write a run as a file that is whole or not there.

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
