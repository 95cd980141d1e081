"""``kernelprof show``: the kernels of a recorded trace, or several ranks side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_kernelprof.cli.trace_files import add_max_size, max_bytes
from pytest_kernelprof.errors import TraceError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_kernelprof.analysis.session_profile import SessionFacts
    from pytest_kernelprof.report.tables import Line, Style
    from pytest_kernelprof.schema.comparison import KernelDiff
    from pytest_kernelprof.schema.run import Profile
    from pytest_kernelprof.summary.ranks import Rank
    from pytest_kernelprof.trace.columns import Trace
    from pytest_kernelprof.trace.correlation import Reading

HELP = "print the kernels of a trace, or compare the traces of ranks"
EXAMPLE = "show trace.json.gz --top=10"
STATUS = "0 if the trace is complete, 1 if it is not, 2 for an error"
_SORTS = ("name", "calls", "each", "total", "order")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The traces, and how they are told."""
    parser.add_argument(
        "traces",
        nargs="+",
        metavar="TRACE",
        help="a Chrome trace of torch.profiler (.json, .json.gz); several, or a folder, for ranks",
    )
    parser.add_argument(
        "--sort",
        choices=_SORTS,
        help="sort the kernels' names by this column, or list each kernel in launch order "
        "(order). Default: launch order up to 50 kernels, else total time",
    )
    parser.add_argument("--top", type=int, metavar="N", help="print N rows")
    parser.add_argument("--all", action="store_true", help="print every row, without folding")
    parser.add_argument(
        "--operators", action="store_true", help="print the operators of one round as a tree"
    )
    parser.add_argument("--json", action="store_true", help="print the profile as JSON")
    add_max_size(parser)


def run(chosen: argparse.Namespace) -> int:
    """Print what there is; 1 if it is incomplete, else 0.

    Raises:
        TraceError: a file is no trace that can be read, or an option's value is none.
    """
    from pytest_kernelprof.trace.correlation import of_each_process
    from pytest_kernelprof.trace.reader import read_trace

    if chosen.top is not None and chosen.top < 1:
        raise TraceError(f"--top: got {chosen.top}; expected a number of rows, 1 or more")
    largest = max_bytes(chosen)
    if len(chosen.traces) > 1 or Path(chosen.traces[0]).is_dir():
        return _show_ranks(chosen, largest)
    trace = read_trace(chosen.traces[0], max_bytes=largest)
    processes = of_each_process(trace) if not (chosen.json or chosen.operators) else [trace]
    if len(processes) > 1:
        from pytest_kernelprof.cli.rank_files import ranks_of_file

        return _print_ranks(ranks_of_file(processes, chosen.traces[0]), {})
    return _show_one(chosen, trace)


def _show_one(chosen: argparse.Namespace, trace: Trace) -> int:
    from pytest_kernelprof.analysis.session_profile import profile_of, session_facts
    from pytest_kernelprof.cli.printing import print_lines, style_here
    from pytest_kernelprof.report.show import Wanted, trace_lines
    from pytest_kernelprof.schema.codec import encode
    from pytest_kernelprof.trace.correlation import reading_of
    from pytest_kernelprof.trace.vocabulary import origin_of

    reading = reading_of(trace)
    facts = session_facts(reading)
    profile = profile_of(facts, trace.recording)
    if chosen.json:
        print(encode(profile).decode())
    elif chosen.operators:
        print_lines(_operators(chosen, reading, facts, profile, style_here()))
    else:
        wanted = Wanted(chosen.sort, chosen.top, chosen.all)
        print_lines(trace_lines(profile, origin_of(trace), wanted, style_here()))
    return 0 if profile.integrity.complete else 1


def _operators(
    chosen: argparse.Namespace,
    reading: Reading,
    facts: SessionFacts,
    profile: Profile,
    style: Style,
) -> list[Line]:
    from pytest_kernelprof.analysis.round_events import operator_tree
    from pytest_kernelprof.report.show import Wanted, tree_lines, verdict_lines

    wanted = Wanted(top=chosen.top, everything=chosen.all)
    tree = tree_lines(operator_tree(reading, facts.fullest), profile, wanted, style)
    return [*verdict_lines(profile, style), (), *tree]


def _show_ranks(chosen: argparse.Namespace, largest: int) -> int:
    """A row for each process of each file; what cannot be read is told in a folder, and an error
    where it was named."""
    from pytest_kernelprof.cli.rank_files import ranks_in

    for option in ("json", "operators", "sort"):
        if getattr(chosen, option):
            raise TraceError(f"--{option} takes one trace, and {len(chosen.traces)} were given")
    return _print_ranks(*ranks_in(chosen.traces, largest))


def _print_ranks(ranks: Sequence[Rank], unread: dict[str, str]) -> int:
    from pytest_kernelprof.cli.printing import print_lines, style_here
    from pytest_kernelprof.comparison.kernel_diff import diff_profiles
    from pytest_kernelprof.report.show import rank_lines
    from pytest_kernelprof.summary.ranks import odd_ones

    diffs: dict[str, KernelDiff] = {
        one.rank.name: diff_profiles(one.like.profile, one.rank.profile) for one in odd_ones(ranks)
    }
    print_lines(rank_lines(ranks, unread, diffs, style_here()))
    complete = all(one.profile.integrity.complete for one in ranks)
    return 0 if complete and not unread else 1
