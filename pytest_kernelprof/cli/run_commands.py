"""The commands on run documents: ``kernelprof report``, ``compare`` and ``update``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from msgspec import structs

from pytest_kernelprof.baselines import run_documents, snapshots
from pytest_kernelprof.comparison.judge import allowances, parse_allowance
from pytest_kernelprof.errors import RunFileError
from pytest_kernelprof.records.codec import encode
from pytest_kernelprof.records.document import Run
from pytest_kernelprof.report import commands, files, github, markdown
from pytest_kernelprof.report.tables import print_lines, style_of_output
from pytest_kernelprof.report.terminal import report_lines
from pytest_kernelprof.summary.run import summary_of
from pytest_kernelprof.units import printable

# kernelprof report

_FORMS = ("html", "markdown", "benchmark_json")


def report(chosen: argparse.Namespace) -> int:
    """Print or write the results of the documents.

    Raises:
        RunFileError: a file is no run document, or one cannot be written.
    """
    asked = {form: getattr(chosen, form) for form in _FORMS if getattr(chosen, form) is not None}
    _refuse_unwritable(asked, chosen.runs)
    read = partial(run_documents.read_run, timelines="html" in asked)
    runs = {path: read(path) for path in chosen.runs}
    several = len(chosen.runs) > 1
    found, twice = run_documents.merge_runs(runs) if several else (runs[chosen.runs[0]], ())
    for test in twice:
        print(printable(f"{test}: in several documents; the last one counts"), file=sys.stderr)
    if not asked and not chosen.github:
        style = replace(style_of_output(), verbosity=chosen.verbose)
        print_lines(report_lines(summary_of(found), style))
    problems = [why for form, path in asked.items() if (why := _written(form, path, found))]
    if chosen.github:
        _tell_github(found)
    if problems:
        raise RunFileError("; ".join(problems))
    return 0


def _written(form: str, path: str, found: Run) -> str:
    """Write a file; return why that failed, or nothing."""
    try:
        print(printable(f"{path}: {files.write_file(path, form, found)}"))
    except OSError as error:
        return f"{path}: cannot be written ({error.strerror or error})"
    return ""


def _refuse_unwritable(asked: Mapping[str, str], documents: list[str]) -> None:
    """Refuse outputs before anything is read, which may take a while.

    Raises:
        RunFileError: a file cannot be written.
    """
    taken = {os.path.realpath(path): "it is an input" for path in documents}
    for form, path in asked.items():
        flag = f"--{form.replace('_', '-')}"
        if why := files.why_no_file(form, path) or taken.get(os.path.realpath(path), ""):
            raise RunFileError(f"{flag}: {path!r} cannot be written ({why})")
        taken[os.path.realpath(path)] = f"{flag} writes it, too"


def _tell_github(found: Run) -> None:
    """Report on GitHub. Paths in a document are relative to pytest's root folder, which must be
    this one."""
    if problem := github.append_summary(found, os.environ, os.getcwd()):
        print(printable(f"kernelprof: {problem}"), file=sys.stderr)
    file_of = github.files_in_the_repository(os.getcwd(), os.environ)
    for command in github.commands(github.annotations_of(found), file_of):
        print(command)


# kernelprof compare


def compare(chosen: argparse.Namespace) -> int:
    """Print what changed; return 1 if any change fails or nothing was compared, else 0.

    Raises:
        RunFileError: a file is no run document, there are too few, or a margin is malformed.
    """
    if len(chosen.runs) < 2:
        raise RunFileError(f"compare: got one run, {chosen.runs[0]}; give an earlier one before it")
    try:
        allowed = allowances(tuple(map(parse_allowance, chosen.fail_on)))
    except ValueError as error:
        raise RunFileError(f"--fail-on: {error}") from None
    *olds, new = map(run_documents.read_run, chosen.runs)
    older = ", ".join(chosen.runs[:-2])  # metrics are compared with these, too
    found = structs.replace(
        run_documents.compare_runs(olds, new, allowed, name=chosen.runs[-2]),
        began=olds[-1].began.partition("T")[0],
        notes=(f"also compared with {older}",) if older else (),
    )
    run = run_documents.compared_run(new, found)
    summary = summary_of(run)
    if chosen.format == "json":
        print(encode(found).decode())
    elif chosen.format == "markdown":
        print(markdown.markdown_of(run))
    else:
        style = replace(style_of_output(), verbosity=1)  # with the rows of what is worse
        print_lines(report_lines(summary, style, brief=True, ends="exit status 1"))
    return 1 if summary.compared[0].failure else 0


# kernelprof update


def update_snapshots(chosen: argparse.Namespace) -> int:
    """Write the snapshots of the tests that passed or failed only by their snapshot; remove none.

    Returns:
        1 if a snapshot could not be written, or a test has no file here; else 0.

    Raises:
        RunFileError: the file is no run document.
        SnapshotError: a file of snapshots cannot be read, or not be written.
    """
    found = run_documents.read_run(chosen.run_document)
    gathered, refused = snapshots.gather(found)
    edited, strange = [], []
    for (file, device), entries in sorted(gathered.items()):
        if not _is_below(chosen.root, file):
            strange.append(file)
            continue
        path = snapshots.path_of(os.path.join(chosen.root, file), device)
        edited.append((file, snapshots.update(path, entries, only_new=chosen.new)))
    for line in commands.update_lines(edited, refused):
        print(line)
    for file in strange:
        print(printable(f"no such test file below {chosen.root}: {file}"))
    for why in found.unfinished:
        print(printable(f"the run is not complete: {why}"))
    if not edited and not strange:
        print("snapshots: none: no test of the run has a profile to write")
    return 1 if strange or refused else 0


def _is_below(root: str, file: str) -> bool:
    """Whether a test's file exists below the root. A document may contain any path."""
    if "\0" in file:
        return False
    whole = os.path.realpath(os.path.join(root, file))
    inside = whole.startswith(os.path.realpath(root).rstrip(os.sep) + os.sep)
    return inside and os.path.isfile(whole)
