"""``kernelprof show``: the kernels, metrics and completeness of a recorded trace."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from pytest_kernelprof.cli.trace_files import add_max_size, max_bytes

if TYPE_CHECKING:
    import argparse

HELP = "kernels, metrics and completeness of a trace"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The trace."""
    parser.add_argument("trace", help="a Chrome trace of torch.profiler, plain or .gz")
    parser.add_argument("--json", action="store_true", help="print the profile's record instead")
    add_max_size(parser)
    parser.epilog = "exit status: 0 the profile is complete, 1 it is not, 2 the trace is unreadable"


def run(chosen: argparse.Namespace) -> int:
    """Print the profile; 1 if it is incomplete, else 0.

    Raises:
        TraceError: the file is no trace that can be read, or the size is none.
    """
    from pytest_kernelprof.api import Profile
    from pytest_kernelprof.report.words import footing, origin_words
    from pytest_kernelprof.schema.codec import encode
    from pytest_kernelprof.units import format_bytes, format_time, printable

    largest = max_bytes(chosen)
    profile = Profile.from_trace(chosen.trace, max_bytes=largest)
    if chosen.json:
        print(encode(profile.record).decode())
        return 0 if profile.integrity.complete else 1
    print(profile.table(shutil.get_terminal_size((100, 24)).columns))
    shown = {"us": format_time, "bytes": format_bytes, "count": "{:.0f}".format}
    for metric in profile.metrics.values():
        if metric.value is not None:
            print(f"{metric.name:24} {shown[metric.unit](metric.value)}")
    if profile.origin is not None:
        print(printable(origin_words(profile.origin)))
    print(printable(footing(profile.record)))
    return 0 if profile.integrity.complete else 1
