"""``kernelprof diff``: what is another in the second of two recorded traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_kernelprof.cli.trace_files import add_max_size, max_bytes
from pytest_kernelprof.errors import TraceError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pytest_kernelprof.schema.run import Profile

HELP = "show what changed between two traces"
EXAMPLE = "diff old.json.gz new.json.gz"
STATUS = "0 also if they differ, 2 for a trace that cannot be read"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The traces, and how the difference is told."""
    parser.add_argument(
        "old",
        help="a Chrome trace of torch.profiler (.json or .json.gz), or a folder with one per rank",
    )
    parser.add_argument("new", help="the trace or folder to compare with it")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="how to print (default: text)"
    )
    parser.add_argument(
        "--lines",
        type=int,
        default=40,
        metavar="N",
        help="print at most N rows; if there are more, only the changes (default: %(default)s)",
    )
    add_max_size(parser)


def run(chosen: argparse.Namespace) -> int:
    """Print what differs, process by process.

    Raises:
        TraceError: a file is no trace that can be read, or an option's value is none.
    """
    from pytest_kernelprof.cli.printing import print_lines, style_here
    from pytest_kernelprof.comparison.judge import compare_traces
    from pytest_kernelprof.comparison.kernel_diff import side_by_side
    from pytest_kernelprof.report.commands import processes_words, side_by_side_lines
    from pytest_kernelprof.report.tables import Span
    from pytest_kernelprof.schema.codec import encode
    from pytest_kernelprof.schema.comparison import TracesComparison

    if chosen.lines < 0:
        raise TraceError(f"--lines: got {chosen.lines}; expected a number of lines, 0 or more")
    largest = max_bytes(chosen)
    old, new = _profiles(chosen.old, largest), _profiles(chosen.new, largest)
    named = _pairs(old, new)
    pairs = list(named.values())
    for pair in pairs:
        counts = {one.metrics["kernels"].why for one in pair if one.environment.kind == "cpu"}
        if len(counts) > 1:
            told = f"{chosen.old} and {chosen.new} count {' and '.join(sorted(counts))}"
            raise TraceError(f"{told}: record both with save_trace, or both with torch.profiler")
    found = TracesComparison(tuple(compare_traces(*pair) for pair in pairs), len(old), len(new))
    if chosen.format == "json":
        print(encode(found).decode())
        return 0
    style = style_here()
    for name, pair, one in zip(named, pairs, found.processes, strict=True):
        if max(len(old), len(new)) > 1:
            print_lines([(Span(style.say(f"{name}:")),)])
        print_lines(side_by_side_lines(one, side_by_side(*pair), style, most=chosen.lines))
    if processes_words(found):
        print(processes_words(found))
    return 0


def _profiles(path: str, largest: int) -> dict[str, Profile]:
    """The profile of each process of a trace, or of each rank of a folder, by what it is called.

    Raises:
        TraceError: one of them cannot be read.
    """
    from pytest_kernelprof.cli.rank_files import ranks_in

    ranks, unread = ranks_in([path], largest)
    for name, why in unread.items():
        raise TraceError(f"{path}: {name} cannot be read: {why}")
    if Path(path).is_dir():
        return {f"rank {one.name}": one.profile for one in ranks}
    return {f"process {number}": one.profile for number, one in enumerate(ranks, 1)}


def _pairs(
    old: Mapping[str, Profile], new: Mapping[str, Profile]
) -> dict[str, tuple[Profile, Profile]]:
    """Those of one name; without any, in their order, as of a folder and a file.

    Raises:
        TraceError: both are folders, and no rank is in both.
    """
    both = {name: (old[name], new[name]) for name in old if name in new}
    if both or not (old and new):
        return both
    if all(name.startswith("rank ") for name in (*old, *new)):
        raise TraceError(
            f"no rank is in both folders: {', '.join(old)} in one, {', '.join(new)} in the other"
        )
    return dict(zip(old, zip(old.values(), new.values(), strict=False), strict=False))
