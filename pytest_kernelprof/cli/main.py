"""The command ``kernelprof``: its parser and exit statuses; each subcommand has its own file."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from pytest_kernelprof.cli import compare, diff, doctor, noise, report, show, update
from pytest_kernelprof.cli import open as open_
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
_COMMANDS = {
    "show": show,
    "open": open_,
    "diff": diff,
    "compare": compare,
    "report": report,
    "update": update,
    "doctor": doctor,
    "noise": noise,
}


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
    for name, command in _COMMANDS.items():
        added = commands.add_parser(
            name,
            help=command.HELP,
            description=f"{command.HELP[0].upper()}{command.HELP[1:]}.",
            epilog=f"example: kernelprof {command.EXAMPLE}\n\nexit status: {command.STATUS}",
            formatter_class=form,
        )
        command.add_arguments(added)
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
