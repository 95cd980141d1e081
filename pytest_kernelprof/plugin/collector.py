"""Gather what tests took, from the processes that ran them, in the one that reports."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_kernelprof.records.document import Test, TestOutcome

    Expected = tuple[Sequence[str], str, int]
    """The names of a test's limits, and the file and line where the test stands."""


EXPECTED_ATTRIBUTE = "kernelprof_expected"
"""Where the tests that this run has to account for stand, on the first report of an xdist worker:
JSON of each node id and ``Expected``."""

ATTRIBUTE = "kernelprof"
"""Where a test's report has what the test took: the JSON of a ``Test``, one string, which any
encoder of reports takes and which is the same with and without workers."""

PREPARED = "kernelprof"
"""Where a worker of pytest-xdist is told what its controller has prepared: ``Collector.prepared``.
"""

END_NOTES = "kernelprof_end_notes"
"""Where a test's last report has its notes, each of which the run prints once at its end, also if
a worker of pytest-xdist ran the test. ``{tests}`` in a note stands for the tests that have it."""


class _Attempt:
    """One execution of a test: what it sent, how it ended so far, the first line of what ended it,
    and the line of the test's file that this came from."""

    def __init__(self, test: str, worker: str = "") -> None:
        self.test, self.worker = test, worker
        self.sent: list[bytes] = []
        self.outcome: TestOutcome = "passed"
        self.why = ""
        self.line: int | None = None
        self.called = False

    def see(self, report: pytest.TestReport) -> None:
        """Take in the report of one phase."""
        self.called |= report.when == "call"
        outcome = outcome_of(report)
        if _WORST_FIRST.index(outcome) < _WORST_FIRST.index(self.outcome):
            self.outcome, self.why = outcome, why_ended(report)
            self.line = line_that_raised(report)

    @property
    def ended(self) -> TestOutcome:
        """How it ended. A set-up that passed is no test that ran."""
        return self.outcome if self.called or self.outcome != "passed" else "not run"


class Collector:
    """Gathers what all tests took, those of this process or those that xdist workers sent, and how
    they ended: the call's own report does not know yet what teardown raises or a plugin repeats.

    Attributes:
        prepared: by feature, what the process that reports has prepared for all that run tests.
    """

    def __init__(self, prepared: dict[str, Any] | None = None) -> None:
        self.prepared = prepared or {}
        self._running: dict[str, _Attempt] = {}
        self._attempts: list[_Attempt] = []
        self._expected: dict[str, Expected] = {}
        self._noted: dict[str, dict[str, None]] = {}
        self._said: dict[str, dict[str, bool]] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of pytest-xdist."""
        node.workerinput[PREPARED] = self.prepared

    def expect(self, tests: Mapping[str, Expected]) -> None:
        """Note the tests that this run has to account for, whether or not they run."""
        self._expected.update(tests)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what the test took off the report, which pytest keeps to the end of the run."""
        for note in getattr(report, END_NOTES, ()):
            self._noted.setdefault(note, {})[report.nodeid] = None
        worker = _worker_of(report)
        expected = json.loads(report.__dict__.pop(EXPECTED_ATTRIBUTE, "{}"))
        self.expect({f"{test}{worker}": one for test, one in expected.items()})
        sent, test = report.__dict__.pop(ATTRIBUTE, None), f"{report.nodeid}{worker}"
        if report.when == "setup":
            self._running.pop(test, None)
        if (this := self._running.get(test)) is None:
            if sent is None and report.passed and test not in self._expected:
                return  # as most reports of most runs
            this = self._running[test] = _Attempt(test, worker)
            self._attempts.append(this)
        this.see(report)
        if sent is not None:
            this.sent.append(sent.encode())
        if report.when == "teardown":
            del self._running[test]

    def say(self, words: str, **markup: bool) -> None:
        """Print a line at the end of the run, once; those without a colour come first."""
        self._said[printable(words)] = markup

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what there is to say, each note once; no notes with ``-qq``."""
        for note, tests in self._noted.items() if terminalreporter.verbosity > -2 else ():
            more = ", ..." if len(tests) > 1 else ""
            told = f"{len(tests)} test{'s' if more else ''} ({next(iter(tests))}{more})"
            self.say(f"kernelprof: {note.replace('{tests}', told)}", yellow=True)
        for line, markup in sorted(self._said.items(), key=lambda one: len(one[1])):
            terminalreporter.write_line(line, **markup)

    def tests(self) -> Iterator[Test]:
        """What was gathered, in the order in which tests began; then the tests that did not run."""
        last = {this.test: this for this in self._attempts}
        attempts = [
            this
            for this in self._attempts
            if this.sent or (this.test in self._expected and last[this.test] is this)
        ]
        attempts += [_Attempt(test) for test in self._expected if test not in last]
        return map(self._test, sorted(attempts, key=lambda this: this.ended == "not run"))

    def _test(self, this: _Attempt) -> Test:
        from msgspec.structs import replace

        from pytest_kernelprof.records import codec
        from pytest_kernelprof.records.document import Test
        from pytest_kernelprof.records.profile import Place

        # Several phases may bring something each.
        parts = [codec.decode(sent, Test) for sent in this.sent] or [Test(this.test)]
        limits, file, line = self._expected.get(this.test, ((), "", 0))
        not_judged = [one.not_judged for one in parts if one.not_judged]
        place = parts[0].place or (Place(file, line) if file else None)
        if this.line is not None and place is not None:
            place = replace(place, line=this.line)
        return replace(
            parts[0],
            id=f"{parts[0].id.removesuffix(this.worker)}{this.worker}",
            profiles=tuple(one for part in parts for one in part.profiles),
            comparisons=tuple(one for part in parts for one in part.comparisons),
            outcome=this.ended,
            limits=tuple(dict.fromkeys((*limits, *(one for part in parts for one in part.limits)))),
            place=place,
            why=this.why,
            not_judged="did not run" if this.ended == "not run" else "".join(not_judged[:1]),
        )


def _worker_of(report: pytest.TestReport) -> str:
    """Of pytest-xdist's --dist=each, where each worker runs all tests, which one ran this."""
    node = getattr(report, "node", None)
    return f"@{node.gateway.id}" if node and node.config.option.dist == "each" else ""


_WORST_FIRST: tuple[TestOutcome, ...] = (
    *("failed", "error", "rerun", "not run", "skipped", "xfailed", "passed"),
)

_LONGEST_LINE = 300


def why_ended(report: pytest.CollectReport | pytest.TestReport) -> str:
    """The line that says what ended a test or a collection: the first one of its exception's
    message, or of the reason of a skip; else the last error of what pytest shows; or nothing."""
    told: Any = report.longrepr
    message = getattr(getattr(told, "reprcrash", None), "message", None)
    known = getattr(report, "wasxfail", told[-1] if isinstance(told, tuple) else message)
    if known is None:
        lines = [line.strip() for line in str(told or "").splitlines() if line.strip()]
        errors = [line.removeprefix("E ").strip() for line in lines if line.startswith("E ")]
        known = next(reversed(errors or lines), "")
    return printable("".join(known.strip().splitlines()[:1])[:_LONGEST_LINE])


def line_that_raised(report: pytest.TestReport) -> int | None:
    """The last line of the test's own file in the traceback of what ended it; None without any."""
    traceback = getattr(report.longrepr, "reprtraceback", None)
    file = os.path.basename(report.nodeid.partition("::")[0])
    places = (getattr(one, "reprfileloc", None) for one in getattr(traceback, "reprentries", ()))
    lines = [one.lineno for one in places if one and os.path.basename(one.path) == file]
    return lines[-1] if lines else None


def outcome_of(report: pytest.TestReport) -> TestOutcome:
    """What the report of one phase says of the test."""
    outcome: str = report.outcome  # plugins that repeat tests say "rerun"
    if outcome == "failed":
        is_error = report.when != "call" or getattr(report, "kernelprof_error", False)
        return "error" if is_error else "failed"
    if outcome == "skipped":
        return "xfailed" if hasattr(report, "wasxfail") else "skipped"
    return "rerun" if outcome == "rerun" else "passed"


def fail(session: pytest.Session) -> None:
    """Have a run fail that would have passed: its tests have not."""
    if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
