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

_DESCRIPTION = "Looks at recorded traces, runs and this machine, without pytest."
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
    """Run the command; hands back the exit status: 0, 1 for what cannot be trusted (an incomplete
    trace, a machine on which counts cannot be had), 2 for an error."""
    # A console's code page (cp1252, ASCII) need not have every character of a kernel's name.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    chosen = _parser().parse_args(arguments)
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
    parser = argparse.ArgumentParser(prog="kernelprof", description=_DESCRIPTION)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, command in _COMMANDS.items():
        added = commands.add_parser(name, help=command.HELP, description=command.HELP)
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
