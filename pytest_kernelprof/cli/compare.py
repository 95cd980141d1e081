"""``kernelprof compare``: a run document against earlier ones, with an exit status for CI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_kernelprof.errors import RunFileError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_kernelprof.schema.run import Run

HELP = "what a run has more of than earlier ones"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The documents, what fails, and how it is told."""
    parser.add_argument("runs", nargs="+", metavar="RUN.json", help="earlier ones, then the new")
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="METRIC:MARGIN",
        help="what fails, for example cuda_time:5%% or kernels:0; without, any count that grew",
    )
    parser.add_argument(
        "--format", choices=("text", "markdown", "json"), default="text", help="default: text"
    )
    parser.epilog = "exit status: 0 nothing fails, 1 a regression or nothing to compare, 2 bad use"


def run(chosen: argparse.Namespace) -> int:
    """Print what is another; 1 if any of it fails or nothing was compared, else 0.

    Raises:
        RunFileError: a file is no run document, there are too few, or a margin is none.
    """
    from pytest_kernelprof.baseline.run_documents import compare_runs
    from pytest_kernelprof.cli.printing import print_lines, style_here
    from pytest_kernelprof.comparison.judge import allowances, parse_allowance
    from pytest_kernelprof.documents import read_run
    from pytest_kernelprof.report.baselines import baseline_lines, markdown_lines
    from pytest_kernelprof.schema.codec import encode
    from pytest_kernelprof.summary.comparisons import BaselineDigest

    if len(chosen.runs) < 2:
        raise RunFileError(f"compare: got one run, {chosen.runs[0]}; give an earlier one before it")
    try:
        written = tuple(map(parse_allowance, chosen.fail_on))
        allowed = allowances(written)
    except ValueError as error:
        raise RunFileError(f"--fail-on: {error}") from None
    *olds, new = map(read_run, chosen.runs)
    found = compare_runs(olds, new, allowed, name=_than(chosen.runs, olds))
    compared = BaselineDigest(found, found.profiles)
    if chosen.format == "json":
        print(encode(found).decode())
    elif chosen.format == "markdown":
        print("\n".join(markdown_lines(compared)))
    else:
        print_lines(baseline_lines(compared, style_here(), ends="exit status 1"))
    return 1 if compared.failure else 0


def _than(paths: Sequence[str], olds: Sequence[Run]) -> str:
    """What the last run is compared with: the newest of the others by its name and day."""
    day = olds[-1].began.partition("T")[0]
    named = f"{Path(paths[-2]).name} of {day}" if day else Path(paths[-2]).name
    return f"{named} and {len(olds) - 1} before it" if len(olds) > 1 else named
