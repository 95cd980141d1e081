"""What tests took, from the process that ran them to the one that reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

# The records load late: every run of every user has a collector, few have anything to collect.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from pytest_kernelprof.schema import run

ATTRIBUTE = "kernelprof"
"""Where it stands on a test's report: the JSON of a ``run.Test``, one string, which any encoder of
reports takes and which is the same with and without workers."""


def attach(
    report: pytest.TestReport, test: run.Test, reduced: Callable[[run.Profile], run.Profile]
) -> None:
    """Put what a test took on its report.

    Args:
        reduced: what of a profile anybody will read.
    """
    from pytest_kernelprof.plugin.rows import row_of
    from pytest_kernelprof.schema import codec

    expected = report.skipped and hasattr(report, "wasxfail")
    row = row_of(test, reduced, expected=expected)
    setattr(report, ATTRIBUTE, codec.encode(row).decode())


class _Try:
    """One execution of a test, until its last report, and how it ended so far."""

    def __init__(self) -> None:
        self.outcome: run.TestOutcome = "passed"


class Collector:
    """Gathers what all tests took, those of this process or those that xdist workers sent, and how
    they ended: the call's own report does not know yet what teardown raises or a plugin repeats."""

    def __init__(self) -> None:
        self._tests: list[tuple[bytes, _Try]] = []
        self._running: dict[str, _Try] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what the test took off the report, which pytest keeps to the end of the run."""
        sent = report.__dict__.pop(ATTRIBUTE, None)
        if report.when == "setup":
            self._running.pop(report.nodeid, None)
        if sent is None and report.passed and report.nodeid not in self._running:
            return  # as most reports of most runs
        this = self._running.setdefault(report.nodeid, _Try())
        this.outcome = min(this.outcome, outcome_of(report), key=_WORST_FIRST.index)
        if report.when == "teardown":
            del self._running[report.nodeid]
        if sent is not None:
            self._tests.append((sent.encode(), this))

    def tests(self) -> Iterator[run.Test]:
        """What was gathered, in the order in which tests ended."""
        if not self._tests:
            return iter(())
        from msgspec.structs import replace

        from pytest_kernelprof.schema import codec, run

        # Of one try the call and the teardown may bring something each.
        tries: dict[int, list[run.Test]] = {}
        outcomes: dict[int, run.TestOutcome] = {}
        for sent, this in self._tests:
            tries.setdefault(id(this), []).append(codec.decode(sent, run.Test))
            outcomes[id(this)] = this.outcome
        return (
            replace(
                parts[0],
                profiles=tuple(one for part in parts for one in part.profiles),
                comparisons=tuple(one for part in parts for one in part.comparisons),
                outcome=outcomes[which],
            )
            for which, parts in tries.items()
        )


_WORST_FIRST: tuple[run.TestOutcome, ...] = (
    *("failed", "error", "rerun", "skipped", "xfailed", "passed"),
)


def outcome_of(report: pytest.TestReport) -> run.TestOutcome:
    """What the report of one phase says of the test."""
    outcome: str = report.outcome  # plugins that repeat tests say "rerun"
    if outcome == "failed":
        is_error = report.when != "call" or getattr(report, "kernelprof_error", False)
        return "error" if is_error else "failed"
    if outcome == "skipped":
        return "xfailed" if hasattr(report, "wasxfail") else "skipped"
    return "rerun" if outcome == "rerun" else "passed"
