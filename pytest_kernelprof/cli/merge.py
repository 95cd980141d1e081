"""``kernelprof merge``: one run document of those that parts of a run have written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pytest_kernelprof.errors import RunFileError

if TYPE_CHECKING:
    import argparse

HELP = "one run document of several, as of CI jobs that share the tests"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The documents."""
    parser.add_argument("runs", nargs="+", metavar="RUN.json", help="of pytest --kernelprof-json")
    parser.add_argument("-o", "--output", required=True, metavar="ALL.json", help="what is written")
    parser.epilog = "exit status: 0 it is written, 2 a document is unreadable"


def run(chosen: argparse.Namespace) -> int:
    """Write the document of all; a test that several have is kept as the last of them has it.

    Raises:
        RunFileError: a file is no run document, or the result cannot be written.
    """
    from pytest_kernelprof.baseline.merge import merge_runs
    from pytest_kernelprof.documents import read_whole_run
    from pytest_kernelprof.schema.codec import encode, write_atomically
    from pytest_kernelprof.schema.packing import pack
    from pytest_kernelprof.units import printable

    merged, twice = merge_runs({path: read_whole_run(path) for path in chosen.runs})
    try:
        write_atomically(chosen.output, encode(pack(merged)))
    except OSError as error:
        why = error.strerror or str(error)
        raise RunFileError(f"{chosen.output}: it cannot be written ({why})") from None
    print(printable(f"{chosen.output}: tests {len(merged.tests)} of {len(chosen.runs)} runs"))
    for test in twice:
        print(printable(f"{test}: in several, kept of the last"), file=sys.stderr)
    return 0
