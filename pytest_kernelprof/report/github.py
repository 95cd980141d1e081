"""A step of GitHub Actions: its summary, its annotations, and where files are as seen from the
repository."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, NamedTuple

from pytest_kernelprof.report.comparison import ending_words
from pytest_kernelprof.report.gfm import line
from pytest_kernelprof.report.markdown import LIMIT, markdown_of
from pytest_kernelprof.report.snapshots import accept_words, line_changes
from pytest_kernelprof.summary.findings import findings_of
from pytest_kernelprof.summary.records import NEEDS_A_LOOK, severity
from pytest_kernelprof.summary.whole import summary_of
from pytest_kernelprof.summary.words import first_of, parts_of
from pytest_kernelprof.system import Real
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_kernelprof.schema.run import Place, Run, Test
    from pytest_kernelprof.summary.records import Ending, Row


SUMMARY = "GITHUB_STEP_SUMMARY"
MOST_BYTES = 1024 * 1024
"""GitHub drops the summary of a step that is larger."""
_LEAST_BYTES = 4096


def append_summary(run: Run, variables: Mapping[str, str]) -> str:
    """Append what a run says to the summary of this step.

    Returns:
        Why that was not done, in words; empty where it was.
    """
    path = variables.get(SUMMARY, "")
    if not path:
        return f"there is no step summary: {SUMMARY} is not set"
    try:
        there = os.path.getsize(path) if os.path.exists(path) else 0
        room = MOST_BYTES - there - len("\n\n")
        if room < _LEAST_BYTES:
            return f"the step summary is full: {there} of {MOST_BYTES} bytes"
        told = markdown_of(run, min(LIMIT, room))
        with Real.buffered(Real.file(path, "ab")) as file:
            file.write(("\n" + told if there else told).encode())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return f"the step summary {path} cannot be written ({why})"
    return ""


def files_in_the_repository(root: str, variables: Mapping[str, str]) -> Callable[[Place], str]:
    """What gives the file of a place as seen from the root of the repository, with forward
    slashes; nothing for one that is not in it.

    Args:
        root: the folder that places are relative to.
    """
    top = os.path.realpath(variables.get("GITHUB_WORKSPACE") or _repository_of(root))

    def file_of(place: Place) -> str:
        try:
            found = os.path.relpath(os.path.realpath(os.path.join(root, place.file)), top)
        except (OSError, ValueError):  # a NUL; another drive
            return ""
        parts = found.split(os.sep)
        outside = parts[0] == os.pardir or "site-packages" in parts
        return "" if outside else "/".join(parts)

    return file_of


def _repository_of(folder: str) -> str:
    """The nearest folder from here up that is a repository; else this one."""
    here = os.path.realpath(folder)
    while not os.path.exists(os.path.join(here, ".git")):
        above = os.path.dirname(here)
        if above == here:
            return folder
        here = above
    return here


MOST = 10
"""GitHub shows so many errors, and as many warnings, of a step."""
_MOST_CAUSES = 5
_LONGEST_TITLE, _LONGEST_LINE = 200, 500
_FAILED = {"failed", "error"}


class Annotation(NamedTuple):
    """What is told at one line.

    Attributes:
        failed: whether its test has failed: an error, else a warning.
        warned: whether pytest has warned of it.
        places: where it may stand, the best first.
        title, lines: in words.
    """

    failed: bool
    warned: bool
    places: tuple[Place, ...]
    title: str
    lines: tuple[str, ...]


def annotations_of(run: Run) -> list[Annotation]:
    """One for each test that somebody should look at, worst first; rows that are told as one have
    one together."""
    tests, digest = {test.id: test for test in run.tests}, summary_of(run)
    rows = [row for row in digest.folded if row.told in NEEDS_A_LOOK]
    worst: dict[str, Row] = {}
    for row in sorted(rows, key=lambda one: severity(one.told)):
        worst.setdefault(row.test, row)
    endings = {one.test.id: one for one in reversed(digest.endings)}
    found = [
        *(_of_row(row, tests[id]) for id, row in worst.items()),
        *(_of_ending(one) for id, one in endings.items() if id not in worst),
        *(one for test in run.tests if test.id not in worst for one in _of_stale(test)),
    ]
    return sorted(found, key=lambda one: not one.failed)


def notice_of(run: Run) -> str:
    """The command that tells GitHub what was not judged; empty if all was."""
    digest = summary_of(run)
    if not digest.open:
        return ""
    title = _property("kernelprof: not judged")
    return f"::notice title={title}::{_data(line(digest.sentence, _LONGEST_LINE))}"


def commands(
    found: Sequence[Annotation], file_of: Callable[[Place], str], most: int = MOST
) -> list[str]:
    """The lines that tell GitHub.

    Args:
        found: the worst first.
        file_of: the file of a place as seen from the root of the repository; empty outside of it.
        most: so many at most; the last says how many more there are.
    """
    told = list(found[:most])
    left = len(found) - len(told)
    if left > 0:
        told[-1] = told[-1]._replace(lines=(*told[-1].lines, f"and {left} more tests"))
    return [_command(one, file_of) for one in told]


def _of_row(row: Row, test: Test) -> Annotation:
    places = [cause.place for cause in row.causes if cause.place and cause.sign != "-"]
    title = "; ".join(one.words for one in findings_of(row)[:2])
    causes = [f"{cause.sign}{cause.text}" for cause in row.causes] or [title]
    first, *more = first_of(causes, _MOST_CAUSES, "and {} more")
    lines = [f"{row.name}: {first}", *more]
    if test.snapshot is not None and test.snapshot.accepts:
        lines.append(accept_words(test.id, test.snapshot.device))
    verdicts = row.profile.verdicts
    over = [one for one in verdicts if one.outcome == "failed"]
    has_baseline = not all(one.of_limit for one in verdicts)
    if not has_baseline and any(one.metric == "kernels" and one.allowed for one in over):
        command = f"pytest {shlex.quote(test.id)} --kernelprof-against=HEAD~1"
        lines.append(f"to see which kernels the last commit added: {command}")
    known = [place for place in (*places, row.profile.place, test.place) if place is not None]
    failed = test.outcome in _FAILED
    return Annotation(failed, not failed, tuple(known), title, tuple(lines))


def _of_ending(one: Ending) -> Annotation:
    known = (one.verdict.place if one.verdict is not None else None, one.test.place)
    places = tuple(place for place in known if place is not None)
    words = f"{one.name}: {ending_words(one)}"
    return Annotation(one.failed, not one.failed, places, one.found.words, (words,))


def _of_stale(test: Test) -> Iterator[Annotation]:
    if test.snapshot is not None and test.snapshot.state == "changed":
        lines = (
            f"{parts_of(test.id)[1]}: its kernels differ from the snapshot, with no more of them",
            *line_changes(test.snapshot.changes),
            accept_words(test.id, test.snapshot.device),
        )
        known = (test.place,) if test.place is not None else ()
        yield Annotation(False, False, known, "snapshot: changed (stale)", lines)


def _command(one: Annotation, file_of: Callable[[Place], str]) -> str:
    known = ((file_of(place), place.line) for place in one.places)
    file, number = next(((file, line) for file, line in known if file), ("", 0))
    where = {"file": printable(file), "line": str(number)} if file else {}
    properties = {**where, "title": line(one.title, _LONGEST_TITLE)}
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    data = "\n".join(line(words, _LONGEST_LINE) for words in one.lines)
    return f"::{'error' if one.failed else 'warning'} {told}::{_data(data)}"


def _data(words: str) -> str:
    return words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(words: str) -> str:
    return _data(words).replace(":", "%3A").replace(",", "%2C")
