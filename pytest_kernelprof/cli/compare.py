"""``kernelprof compare``: a run document against earlier ones, with an exit status for CI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.errors import RunFileError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


HELP = "compare a run with earlier runs"
EXAMPLE = "compare main.json today.json --fail-on=cuda_time:5%"
STATUS = "0 if nothing is worse, 1 if worse or nothing compared, 2 for an error"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The documents, what fails, and how it is told."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN.json", help="earlier runs, then the new one"
    )
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="METRIC:MARGIN",
        help="fail if this metric grew by more than MARGIN: cuda_time:5%%, kernels:0; may be "
        "repeated (default: any higher count fails)",
    )
    parser.add_argument(
        "--format",
        choices=("text", "markdown", "json"),
        default="text",
        help="print in this format (default: text)",
    )


def run(chosen: argparse.Namespace) -> int:
    """Print what is another; 1 if any of it fails or nothing was compared, else 0.

    Raises:
        RunFileError: a file is no run document, there are too few, or a margin is none.
    """
    from msgspec.structs import replace

    from pytest_kernelprof.baseline.run_documents import compare_runs, compared_run
    from pytest_kernelprof.cli.printing import print_lines, style_here
    from pytest_kernelprof.comparison.judge import allowances, parse_allowance
    from pytest_kernelprof.documents import read_run
    from pytest_kernelprof.report.markdown import markdown_of
    from pytest_kernelprof.report.terminal import report_lines
    from pytest_kernelprof.schema.codec import encode
    from pytest_kernelprof.summary.run import summary_of

    if len(chosen.runs) < 2:
        raise RunFileError(f"compare: got one run, {chosen.runs[0]}; give an earlier one before it")
    try:
        written = tuple(map(parse_allowance, chosen.fail_on))
        allowed = allowances(written)
    except ValueError as error:
        raise RunFileError(f"--fail-on: {error}") from None
    *olds, new = map(read_run, chosen.runs)
    found = replace(
        compare_runs(olds, new, allowed, name=chosen.runs[-2]),
        began=olds[-1].began.partition("T")[0],
        notes=_more_words(chosen.runs),
    )
    run = compared_run(new, found)
    summary = summary_of(run)
    if chosen.format == "json":
        print(encode(found).decode())
    elif chosen.format == "markdown":
        print(markdown_of(run))
    else:
        print_lines(report_lines(summary, style_here(), brief=True, ends="exit status 1"))
    return 1 if summary.compared[0].failure else 0


def _more_words(paths: Sequence[str]) -> tuple[str, ...]:
    """Which documents the metrics are held against beside the newest."""
    older = paths[:-2]
    return (f"also compared with {', '.join(older)}",) if older else ()
