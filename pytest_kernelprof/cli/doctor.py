"""``kernelprof doctor``: looks at this machine and prints what it finds, each with its remedy."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from pytest_kernelprof.cli.diagnosis import Finding

HELP = "what on this machine keeps counts from being had or disturbs them, with the remedy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes none."""
    parser.epilog = "exit status: 0 all is well or warnings only, 1 counts could not be had"


def run(_: argparse.Namespace) -> int:
    """Print the findings; 1 if counts could not be had, else 0."""
    from pytest_kernelprof.cli.checks import examine_machine
    from pytest_kernelprof.cli.diagnosis import diagnose, has_failure

    if sys.stderr.isatty():
        words = "asking the driver, torch, CUPTI and the profiler (half a minute with a GPU) ..."
        print(words, file=sys.stderr, flush=True)
    findings = diagnose(examine_machine())
    print("\n".join(lines_of(findings)))
    return int(has_failure(findings))


def lines_of(findings: list[Finding]) -> list[str]:
    """A line for each finding, and one for its remedy where there is something to do."""
    wide = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:7}  {finding.name:{wide}}  {finding.text}")
        if finding.remedy:
            lines.append(f"{'':7}  {'':{wide}}  -> {finding.remedy}")
    return lines
