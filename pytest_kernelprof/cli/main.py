"""The command ``kernelprof``: hands its arguments to the subcommand that they name."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence

from pytest_kernelprof.cli import doctor, noise
from pytest_kernelprof.errors import IncompleteProfile, TraceError

_DESCRIPTION = "Looks at recorded traces and at this machine, without pytest."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; hands back the exit status: 0, 1 for what cannot be trusted (an incomplete
    trace, a machine on which counts cannot be had), 2 for an error."""
    parser = argparse.ArgumentParser(prog="kernelprof", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="kernels, metrics and completeness of a trace")
    show.add_argument("trace", help="a Chrome trace of torch.profiler, plain or .gz")
    show.set_defaults(run=lambda chosen: _show(chosen.trace))
    for name, command in (("doctor", doctor), ("noise", noise)):
        added = commands.add_parser(name, help=command.HELP, description=command.HELP)
        command.add_arguments(added)
        added.set_defaults(run=command.run)
    chosen = parser.parse_args(arguments)
    try:
        status: int = chosen.run(chosen)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has enough; the interpreter's own flush must not fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"kernelprof: {error}", file=sys.stderr)
        return 2
    except (TraceError, IncompleteProfile) as error:
        print(f"kernelprof: {error}", file=sys.stderr)
        return 2
    return status


def _show(path: str) -> int:
    from pytest_kernelprof.analysis.profile import Profile
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


if __name__ == "__main__":
    sys.exit(main())
