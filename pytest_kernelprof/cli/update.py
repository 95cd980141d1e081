"""``kernelprof update``: kernel snapshots of a run, from its document, which may be another
machine's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = "write kernel snapshots from a run document"
EXAMPLE = "update run.json"
STATUS = "0 if all snapshots were written, 1 if one was not, 2 for an error"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The document, and where the tests lie."""
    parser.add_argument("run_document", metavar="RUN.json", help="made by pytest --kernelprof-json")
    parser.add_argument(
        "--root",
        default=".",
        metavar="DIR",
        help="the root folder of the tests (default: the current folder)",
    )
    parser.add_argument("--new", action="store_true", help="add entries only; change none")


def run(chosen: argparse.Namespace) -> int:
    """Write what the tests of the run launched that passed, or failed by their snapshot alone;
    remove nothing.

    Returns:
        1 if a test could not be kept, or has no file here; else 0.

    Raises:
        RunFileError: the file is no run document.
        SnapshotError: a file of snapshots cannot be read, or not be written.
    """
    from pytest_kernelprof.baseline.snapshots import gather, path_of, update
    from pytest_kernelprof.documents import read_run
    from pytest_kernelprof.report.diff_text import update_lines
    from pytest_kernelprof.units import printable

    found = read_run(chosen.run_document)
    gathered, refused = gather(found)
    edited, strange = [], []
    for (file, device), entries in sorted(gathered.items()):
        if not _is_below(chosen.root, file):
            strange.append(file)
            continue
        path = path_of(os.path.join(chosen.root, file), device)
        edited.append((file, update(path, entries, only_new=chosen.new)))
    for line in update_lines(edited, refused):
        print(line)
    for file in strange:
        print(printable(f"no such test file below {chosen.root}: {file}"))
    for why in found.unfinished:
        print(printable(f"the run is not complete: {why}"))
    if not edited and not strange:
        print("snapshots: none: no test of the run has a profile to write")
    return 1 if strange or refused else 0


def _is_below(root: str, file: str) -> bool:
    """Whether a test's file is there. A document may come from anywhere, and say anything."""
    if "\0" in file:
        return False
    whole = os.path.realpath(os.path.join(root, file))
    inside = whole.startswith(os.path.realpath(root).rstrip(os.sep) + os.sep)
    return inside and os.path.isfile(whole)
