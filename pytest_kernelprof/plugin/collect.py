"""What tests took, from the process that ran them to the one that reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

# The records load late: every run of every user has a collector, few have anything to collect.
if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from pytest_kernelprof.schema import run

ATTRIBUTE = "kernelprof"
"""Where it stands on a test's report: the JSON of a ``run.Test``, one string, which any encoder of
reports takes and which is the same with and without workers."""


def attach(report: pytest.TestReport, test: run.Test) -> None:
    """Put what a test took on its report."""
    from pytest_kernelprof.plugin.rows import row_of
    from pytest_kernelprof.schema import codec

    expected = report.skipped and hasattr(report, "wasxfail")
    setattr(report, ATTRIBUTE, codec.encode(row_of(test, expected=expected)).decode())


class Collector:
    """Gathers what all tests took, those of this process or those that xdist workers sent."""

    def __init__(self) -> None:
        self._tests: list[bytes] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take it off the report, which pytest keeps to the end of the run."""
        sent = report.__dict__.pop(ATTRIBUTE, None)
        if sent is not None:
            self._tests.append(sent.encode())

    def tests(self) -> Iterator[run.Test]:
        """What was gathered, in the order in which tests ended."""
        from pytest_kernelprof.schema import codec, run

        return (codec.decode(sent, run.Test) for sent in self._tests)
