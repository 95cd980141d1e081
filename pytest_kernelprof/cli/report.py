"""``kernelprof report``: run documents told again, as pytest tells a run at its end."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_kernelprof.errors import RunFileError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pytest_kernelprof.schema.run import Run

HELP = "report a recorded run again, as text or in other formats"
EXAMPLE = "report run.json --html=run.html"
STATUS = "0 if it was reported, 2 for an error"

_FORMS = {
    "html": "the results as a page for a browser",
    "markdown": "the results as Markdown, for a pull request",
    "benchmark_json": "the times as pytest-benchmark's JSON",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The documents, and how they are told."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN.json", help="run documents; several are reported as one run"
    )
    for form, words in _FORMS.items():
        flag = f"--{form.replace('_', '-')}"
        parser.add_argument(flag, dest=form, metavar="PATH", help=f"write {words}")
    parser.add_argument(
        "--github",
        action="store_true",
        help="add the results to the step summary and annotate lines (in GitHub Actions)",
    )
    parser.add_argument(
        "-v", "--verbose", action="count", default=0, help="list every profile; -vv also kernels"
    )


def run(chosen: argparse.Namespace) -> int:
    """Tell what the documents say.

    Raises:
        RunFileError: a file is no run document, or one cannot be written.
    """
    from pytest_kernelprof.cli.printing import print_lines, style_here
    from pytest_kernelprof.report.terminal import report_lines
    from pytest_kernelprof.summary.run import summary_of

    asked = {form: getattr(chosen, form) for form in _FORMS if getattr(chosen, form) is not None}
    _refuse_unwritable(asked, chosen.runs)
    found = _read(chosen.runs, with_timelines="html" in asked)
    if not asked and not chosen.github:
        style = replace(style_here(), verbosity=chosen.verbose)
        print_lines(report_lines(summary_of(found), style))
    problems = [why for form, path in asked.items() if (why := _written(form, path, found))]
    if chosen.github:
        _tell_github(found)
    if problems:
        raise RunFileError("; ".join(problems))
    return 0


def _read(paths: list[str], *, with_timelines: bool) -> Run:
    from pytest_kernelprof.baseline.run_documents import merge_runs
    from pytest_kernelprof.documents import read_run, read_whole_run
    from pytest_kernelprof.units import printable

    read = read_whole_run if with_timelines else read_run
    if len(paths) == 1:
        return read(paths[0])
    merged, twice = merge_runs({path: read(path) for path in paths})
    for test in twice:
        print(printable(f"{test}: in several documents; the last one counts"), file=sys.stderr)
    return merged


def _refuse_unwritable(asked: Mapping[str, str], documents: list[str]) -> None:
    """Before anything is read, which may take a while.

    Raises:
        RunFileError: nothing can be written there, or what makes it is not installed.
    """
    from pytest_kernelprof.report.files import why_no_file, why_no_form

    taken = {os.path.realpath(path): "it is an input" for path in documents}
    for form, path in asked.items():
        flag = f"--{form.replace('_', '-')}"
        if why := why_no_form(form):
            raise RunFileError(f"{flag}: {why}")
        why = why_no_file(path) or taken.get(os.path.realpath(path), "")
        if why:
            raise RunFileError(f"{flag}: {path!r} cannot be written ({why})")
        taken[os.path.realpath(path)] = f"{flag} writes it, too"


def _written(form: str, path: str, found: Run) -> str:
    """Write a file; hands back why that failed, empty if it did not."""
    from pytest_kernelprof.report.files import write_file
    from pytest_kernelprof.units import printable

    try:
        print(printable(f"{path}: {write_file(path, form, found)}"))
    except OSError as error:
        return f"{path}: cannot be written ({error.strerror or error})"
    return ""


def _tell_github(found: Run) -> None:
    """Places in a document are as seen from pytest's root folder, which has to be this one."""
    from pytest_kernelprof.report.github import (
        annotations_of,
        append_summary,
        commands,
        files_in_the_repository,
    )
    from pytest_kernelprof.units import printable

    problem = append_summary(found, os.environ)
    if problem:
        print(printable(f"kernelprof: {problem}"), file=sys.stderr)
    file_of = files_in_the_repository(os.getcwd(), os.environ)
    for command in commands(annotations_of(found), file_of):
        print(command)
