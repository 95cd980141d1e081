"""The command ``kernelprof``: one table of its subcommands, the parser, and exit statuses."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pytest_kernelprof.cli import doctor, noise, run_commands, trace_commands
from pytest_kernelprof.errors import KernelprofError
from pytest_kernelprof.units import printable

_DESCRIPTION = "Read recorded traces and runs, and check this machine, without pytest."
_EXAMPLES = """\
examples:
  kernelprof show trace.json.gz               print the kernels of a trace
  kernelprof diff old.json.gz new.json.gz     show what changed in a trace
  pytest --kernelprof-json=run.json           record a run
  kernelprof report run.json --html=run.html  report it again, as a web page
  kernelprof compare run.json later.json      compare a later run with it
  kernelprof doctor                           find out why there are no numbers

kernelprof COMMAND --help describes a command."""


class Command(NamedTuple):
    """A subcommand: how it is described, its options, and what runs it."""

    help: str
    example: str
    status: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


COMMANDS = {
    "show": Command(
        "print the kernels of a trace, or compare the traces of ranks",
        "show trace.json.gz --top=10",
        "0 if the trace is complete, 1 if it is not, 2 for an error",
        trace_commands.add_show_options,
        trace_commands.show,
    ),
    "open": Command(
        "open a trace in Perfetto, in the browser",
        "open trace.json.gz",
        "0 if the trace was read, 1 if not, 2 for an error",
        trace_commands.add_open_options,
        trace_commands.open_in_perfetto,
    ),
    "diff": Command(
        "show what changed between two traces",
        "diff old.json.gz new.json.gz",
        "0 also if they differ, 2 for a trace that cannot be read",
        trace_commands.add_diff_options,
        trace_commands.diff,
    ),
    "compare": Command(
        "compare a run with earlier runs",
        "compare main.json today.json --fail-on=cuda_time:5%",
        "0 if nothing is worse, 1 if worse or nothing compared, 2 for an error",
        run_commands.add_compare_options,
        run_commands.compare,
    ),
    "report": Command(
        "report a recorded run again, as text or in other formats",
        "report run.json --html=run.html",
        "0 if it was reported, 2 for an error",
        run_commands.add_report_options,
        run_commands.report,
    ),
    "update": Command(
        "write kernel snapshots from a run document",
        "update run.json",
        "0 if all snapshots were written, 1 if one was not, 2 for an error",
        run_commands.add_update_options,
        run_commands.update_snapshots,
    ),
    "doctor": Command(
        "find problems that prevent or distort measurements, with remedies",
        "doctor",
        "0 if measurements are possible, 1 if they are not",
        doctor.add_options,
        doctor.run,
    ),
    "noise": Command(
        "measure how much times vary on this machine, and print margins for limits",
        "noise --processes=5",
        "0 if it measured, 2 for an error",
        noise.add_options,
        noise.run,
    ),
}
"""In the order of the help page."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit status: 0; 1 if the numbers cannot be trusted or something failed; 2 for an error.
    """
    # A console's code page (cp1252, ASCII) need not have every character of a kernel's name.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help()
        return 2
    try:
        status: int = chosen.run(chosen)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has enough
        _forget_output()
        return 1
    except (OSError, KernelprofError) as error:
        print(f"kernelprof: {printable(str(error))}", file=sys.stderr)
        _forget_output()
        return 2
    return status


def _forget_output() -> None:
    """Nobody takes it: the interpreter's own flush at the end must not fail as well."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="kernelprof", description=_DESCRIPTION, epilog=_EXAMPLES, formatter_class=form
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        added = commands.add_parser(
            name,
            help=command.help,
            description=f"{command.help[0].upper()}{command.help[1:]}.",
            epilog=f"example: kernelprof {command.example}\n\nexit status: {command.status}",
            formatter_class=form,
        )
        command.add_options(added)
        added.set_defaults(run=command.run)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when it is asked for; argparse's own action has it looked up
    before."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        import pytest_kernelprof

        print(f"kernelprof {pytest_kernelprof.__version__}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
