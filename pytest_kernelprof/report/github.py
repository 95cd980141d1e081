"""A step of GitHub Actions: its summary, and its annotations at files of the repository."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from pytest_kernelprof.records.document import Run
from pytest_kernelprof.records.profile import Place
from pytest_kernelprof.report.markdown import LIMIT, line, markdown_of
from pytest_kernelprof.summary import wording
from pytest_kernelprof.summary.advice import hint_of, task_of
from pytest_kernelprof.summary.records import FAILED_OTHERWISE, Problem
from pytest_kernelprof.summary.run import summary_of
from pytest_kernelprof.system import Real
from pytest_kernelprof.units import printable

SUMMARY = "GITHUB_STEP_SUMMARY"
MOST_BYTES = 1024 * 1024
"""GitHub drops the summary of a step that is larger."""
_LEAST_BYTES = 4096


def append_summary(run: Run, variables: Mapping[str, str], root: str) -> str:
    """Append the report of a run to the summary of this step, with links to its commit.

    Args:
        root: the folder that places are relative to.

    Returns:
        Why that failed, in words; empty if it did not.
    """
    if not (path := variables.get(SUMMARY, "")):
        return f"there is no step summary: {SUMMARY} is not set"
    try:
        there = os.path.getsize(path) if os.path.exists(path) else 0
        room = MOST_BYTES - there - len("\n\n")
        if room < _LEAST_BYTES:
            return f"the step summary is full: {there} of {MOST_BYTES} bytes"
        told = markdown_of(run, min(LIMIT, room), links(root, variables))
        with Real.buffered(Real.file(path, "ab")) as file:
            file.write(("\n" + told if there else told).encode())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return f"the step summary {path} cannot be written ({why})"
    return ""


def links(root: str, variables: Mapping[str, str]) -> Callable[[Place], str]:
    """Return a function that gives the address of a line at the commit of this step of GitHub
    Actions; empty outside of one.

    Args:
        root: the folder that places are relative to.
    """
    known = [variables.get(f"GITHUB_{one}", "") for one in ("SERVER_URL", "REPOSITORY", "SHA")]
    file_of, (server, repository, commit) = files_in_the_repository(root, variables), known

    def link(place: Place) -> str:
        file = quote(file_of(place)) if all(known) else ""
        return f"{server}/{repository}/blob/{commit}/{file}#L{place.line}" if file else ""

    return link


def files_in_the_repository(root: str, variables: Mapping[str, str]) -> Callable[[Place], str]:
    """Return a function that gives the path of a place in the repository, with forward slashes;
    empty if it is outside.

    Args:
        root: the folder that places are relative to.
    """
    here = Path(os.path.realpath(root))
    above = (one for one in (here, *here.parents) if (one / ".git").exists())
    top = os.path.realpath(variables.get("GITHUB_WORKSPACE") or next(above, here))

    def file_of(place: Place) -> str:
        try:
            found = Path(os.path.realpath(here / place.file)).relative_to(top)
        except (OSError, ValueError):  # outside; a NUL
            return ""
        return "" if "site-packages" in found.parts else found.as_posix()

    return file_of


MOST = 10
"""The most errors, and the most warnings, that GitHub shows of a step."""
_LONGEST_TITLE, _LONGEST_LINE, _WIDEST = 200, 500, 90


class Annotation(NamedTuple):
    """A message at one line of code.

    Attributes:
        failed: whether a test failed by it: an error, else a warning.
        warned: whether pytest has warned of it.
        tests: how many tests it is about.
        places: where it may stand, the best first. last: the last of the lines from there on that
            it is about; 0 if it is about none or about others between.
        title, lines: in words.
    """

    failed: bool
    warned: bool
    tests: int
    places: tuple[Place, ...]
    title: str
    lines: tuple[str, ...]
    last: int


def annotations_of(run: Run) -> list[Annotation]:
    """Return one for each problem, worst first: tests with one cause share one."""
    found = map(_annotation, summary_of(run).problems)
    return sorted(found, key=lambda one: not one.failed)


def _annotation(problem: Problem) -> Annotation:
    """What is wrong with which tests, why, what to do."""
    task, row = task_of(problem), problem.rows[0]
    failed = any(one.failed for one in problem.rows)
    is_foreign = row.told in FAILED_OTHERWISE and not any(hint_of(one.text) for one in row.causes)
    title = f"{'' if is_foreign else 'kernelprof: '}{task.what} ({task.test})"
    lines = [] if task.what in line(title, _LONGEST_TITLE) else [task.what]
    lines += [f"launched at {task.lines}"] if " or " in task.lines else []
    lines += (wording.without_lines(one, task.lines) for one in (*task.facts, *task.sure))
    lines += [""] if lines and task.remedy.steps else []
    for does, command in task.remedy.steps:
        both = f"{does}: {command}" if command else does
        lines += [both] if not command or len(both) <= _WIDEST else [f"{does}:", f"  {command}"]
    numbers = {one.line for one in task.places if one.file == task.places[0].file}
    last = max(numbers, default=0)
    adjoin = last - min(numbers, default=0) < len(numbers)  # no line between them is innocent
    return Annotation(
        failed,
        warned=not failed and row.told != "to update",
        tests=problem.tests,
        places=tuple(filter(None, dict.fromkeys((*task.places[:1], row.place, row.test.place)))),
        title=title,
        lines=tuple(lines),
        last=last if adjoin else 0,
    )


def notice_of(run: Run) -> str:
    """Return the command that notes what was not judged; empty if everything was."""
    title, left = _property("kernelprof: not judged"), summary_of(run).open
    return f"::notice title={title}::{_data(line(left, _LONGEST_LINE))}" if left else ""


def commands(
    found: Sequence[Annotation], file_of: Callable[[Place], str], most: int = MOST
) -> list[str]:
    """Return the lines that GitHub reads.

    Args:
        found: the worst first.
        file_of: the file of a place as seen from the root of the repository; empty outside of it.
        most: so many errors and so many warnings at most; the last says how many more there are.
    """
    told: list[Annotation] = []
    for failed, test in ((True, "more failed test"), (False, "more test")):
        ours = [one for one in found if one.failed is failed]
        told += ours[:most]
        if left := sum(one.tests for one in ours[most:]):
            last = f"and {wording.count(left, test)}"
            told[-1] = told[-1]._replace(lines=(*told[-1].lines, last))
    return [_command(one, file_of) for one in told]


def _command(one: Annotation, file_of: Callable[[Place], str]) -> str:
    known = ((file_of(place), place.line) for place in one.places)
    file, number = next(((file, line) for file, line in known if file), ("", 0))
    where = {"file": printable(file), "line": str(number)} if file else {}
    if where and number < one.last and file == file_of(one.places[0]):
        where["endLine"] = str(one.last)
    properties = {**where, "title": line(one.title, _LONGEST_TITLE)}
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    # Commands are indented, and whole.
    whole = (it if it.startswith("  ") else line(it, _LONGEST_LINE) for it in one.lines)
    data = "\n".join(map(printable, whole))
    return f"::{'error' if one.failed else 'warning'} {told}::{_data(data)}"


def _data(words: str) -> str:
    return words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(words: str) -> str:
    return _data(words).replace(":", "%3A").replace(",", "%2C")
