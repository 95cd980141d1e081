"""The command ``kernelprof``: looks at recorded traces without pytest and without a GPU."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence

from pytest_kernelprof.errors import TraceError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; hands back the exit status: 0, 1 for an incomplete trace, 2 for an error."""
    parser = argparse.ArgumentParser(prog="kernelprof", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="kernels, metrics and completeness of a trace")
    show.add_argument("trace", help="a Chrome trace of torch.profiler, plain or .gz")
    chosen = parser.parse_args(arguments)
    try:
        return _show(chosen.trace)
    except TraceError as error:
        print(f"kernelprof: {error}", file=sys.stderr)
        return 2


def _show(path: str) -> int:
    from pytest_kernelprof.profiles import Profile
    from pytest_kernelprof.report.failure import footing
    from pytest_kernelprof.units import format_bytes, format_time

    profile = Profile.from_trace(path)
    print(profile.table(shutil.get_terminal_size((100, 24)).columns))
    shown = {"us": format_time, "bytes": format_bytes, "count": "{:.0f}".format}
    for metric in profile.metrics.values():
        if metric.value is not None:
            print(f"{metric.name:24} {shown[metric.unit](metric.value)}")
    print(footing(profile))
    return 0 if profile.integrity.complete else 1
