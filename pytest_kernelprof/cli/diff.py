"""``kernelprof diff``: what is another in the second of two recorded traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.cli.trace_files import add_max_size, max_bytes
from pytest_kernelprof.errors import TraceError

if TYPE_CHECKING:
    import argparse

    from pytest_kernelprof.schema.run import Profile

HELP = "kernels added, removed, renamed, slower between two traces"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The traces, and how the difference is told."""
    parser.add_argument("old", help="a Chrome trace of torch.profiler, plain or .gz")
    parser.add_argument("new", help="another one")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="default: %(default)s"
    )
    parser.add_argument(
        "--lines",
        type=int,
        default=40,
        metavar="N",
        help="rows that are told; of more, the changes alone (default: %(default)s)",
    )
    add_max_size(parser)
    parser.epilog = "exit status: 0 whatever differs, since it judges nothing; 2 a bad trace"


def run(chosen: argparse.Namespace) -> int:
    """Print what differs, process by process.

    Raises:
        TraceError: a file is no trace that can be read, or an option's value is none.
    """
    from pytest_kernelprof.baseline.diff import diff_profiles
    from pytest_kernelprof.baseline.side_by_side import side_by_side
    from pytest_kernelprof.cli.printing import print_lines, style_here
    from pytest_kernelprof.report.diff import processes_words
    from pytest_kernelprof.report.side_by_side import side_by_side_lines
    from pytest_kernelprof.schema.codec import encode
    from pytest_kernelprof.schema.diff import ProfileDiffs

    if chosen.lines < 0:
        raise TraceError(f"--lines: {chosen.lines} is no number of lines; give 0 or more")
    largest = max_bytes(chosen)
    old, new = _profiles(chosen.old, largest), _profiles(chosen.new, largest)
    pairs = list(zip(old, new, strict=False))
    found = ProfileDiffs(tuple(diff_profiles(*pair) for pair in pairs), len(old), len(new))
    if chosen.format == "json":
        print(encode(found).decode())
        return 0
    style = style_here()
    for number, (pair, diff) in enumerate(zip(pairs, found.processes, strict=True), 1):
        if max(len(old), len(new)) > 1:
            print(f"process {number}:")
        print_lines(side_by_side_lines(diff, side_by_side(*pair), style, most=chosen.lines))
    if processes_words(found):
        print(processes_words(found))
    return 0


def _profiles(path: str, largest: int) -> list[Profile]:
    """The profile of each process of a trace."""
    from pytest_kernelprof.analysis.profile import profile_of, session_facts
    from pytest_kernelprof.trace.processes import of_each_process
    from pytest_kernelprof.trace.reader import read_trace
    from pytest_kernelprof.trace.reading import reading_of

    trace = read_trace(path, max_bytes=largest)
    return [
        profile_of(session_facts(reading_of(one)), trace.recording)
        for one in of_each_process(trace)
    ]
