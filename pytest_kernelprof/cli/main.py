"""The command ``kernelprof``: one table of its subcommands and their options, and exit statuses."""

from __future__ import annotations

import argparse
import functools
import io
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any

from pytest_kernelprof.errors import KernelprofError
from pytest_kernelprof.limits.kinds import JUDGED
from pytest_kernelprof.records.metrics import COMPARED_KINDS, DIRECTIONS, METRICS
from pytest_kernelprof.units import parse_bytes, parse_duration, printable

_DESCRIPTION = """\
Read traces and runs that were recorded, and check this machine, without pytest.

A trace is what torch.profiler exports; --kernelprof-trace-dir keeps those of
tests. A run is what pytest --kernelprof-json=run.json writes.
"""
_EXAMPLES = """\
examples:
  kernelprof show trace.json.gz               print the kernels of a trace
  kernelprof check trace.json.gz --max-kernels 400     judge it by limits
  kernelprof diff old.json.gz new.json.gz     show what changed in a trace
  pytest --kernelprof-against=main            fail tests worse than main
  pytest --kernelprof-json=run.json           record a run
  kernelprof report run.json --html=run.html  report it again, as a web page
  kernelprof compare run.json later.json      show what is worse in a later run
  kernelprof update run.json                  accept its kernels as snapshots
  kernelprof doctor                           find out why there are no numbers
  kernelprof noise                            see how close time limits can be

kernelprof COMMAND --help describes a command."""


_NAMES = [k for k, v in METRICS.items() if v.kind in COMPARED_KINDS and not k.endswith(DIRECTIONS)]

AddOption = Callable[[argparse.ArgumentParser], object]


AddCommand = Callable[[str, Any], object]


def _command(
    words: str, example: str, status: str, function: str, *options: AddOption
) -> AddCommand:
    """Return what adds a subcommand of that name to those of a parser.

    Args:
        words: its help. function: of this room, runs it; its module is loaded only then.
    """

    def add(name: str, commands: Any) -> None:
        added = commands.add_parser(
            name,
            help=words,
            description=f"{words[0].upper()}{words[1:]}.",
            epilog=f"example: kernelprof {example}\n\nexit status: {status}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(function=function)
        for add_option in options:
            add_option(added)

    return add


def _option(
    flags: str,
    words: str,
    usual: object = None,
    parse: Callable[[str], object] | None = None,
    **form: Any,
) -> AddOption:
    """Return what adds an option or an argument to a parser, by ``add_argument``.

    Args:
        flags: its names, separated by spaces, the last with what help pages show for its value
            ("--top=N"). words: its help. usual: its default, which the help tells, if any.
        parse: returns the value of a text; raises ValueError if it has none.
    """
    names, _, shown = flags.partition("=")

    def value(text: str) -> object:
        try:
            return parse(text) if parse else text
        except ValueError as error:
            raise KernelprofError(f"{names}: {error}") from None

    form |= {"metavar": shown} if shown else {}
    form |= {"type": value} if parse else {}
    if usual is not None:
        form["default"], words = usual, f"{words} (default: %(default)s)"
    return methodcaller("add_argument", *names.split(), help=words, **form)


def _at_least(least: int) -> Callable[[str], int]:
    """What parses a whole number that is not less than this."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise ValueError(f"got {text!r}; expected a whole number of {least} or more")
        return int(text)

    return parse


_flag = functools.partial(_option, action="store_true")
_MAX_SIZE = _option(
    "--max-size=SIZE", "refuse a file that is larger than SIZE when unpacked", "8 GB", parse_bytes
)

COMMANDS = {
    "show": _command(
        "print the kernels of a trace, or compare the traces of ranks",
        "show trace.json.gz --top=10",
        "0 if the trace is complete, 1 if it is not, 2 for an error",
        "trace_commands:show",
        _option(
            "traces=TRACE",
            "a Chrome trace of torch.profiler (.json, .json.gz); several, or a folder, for ranks",
            nargs="+",
        ),
        _option(
            "--sort",
            "sort the kernels' names by this column, or list each kernel in launch order "
            "(order). Default: launch order up to 50 kernels, else total time",
            choices=("name", "calls", "each", "total", "order"),
        ),
        _option("--top=N", "print N rows", parse=_at_least(1)),
        _flag("--all", "print every row, without folding"),
        _flag("--operators", "print the operators of one round as a tree"),
        _flag("--json", "print the profile as JSON"),
        _MAX_SIZE,
    ),
    "check": _command(
        "judge a trace by limits, as the markers of a test do",
        "check trace.json.gz --max-kernels 400 --forbid-kernels aten::clone",
        "0 if all limits are kept, 1 if one is broken, 2 if one was not judged or for an error",
        "trace_commands:check",
        _option("trace", "a Chrome trace of torch.profiler; write it before the options"),
        _option("--process=N", "the process, of several in the file", parse=_at_least(0)),
        _option("--step=N", "the step (ProfilerStep#N), of several", parse=_at_least(0)),
        *(
            _option(
                f"{kind.flag}=VALUE",
                f"{kind.help.replace('%', '%%')}; may be repeated",
                nargs="+",
                action="append",
                default=[],
            )
            for kind in JUDGED
        ),
        _MAX_SIZE,
    ),
    "open": _command(
        "open a trace in Perfetto, in the browser",
        "open trace.json.gz",
        "0 if the trace was read, 1 if not, 2 for an error",
        "trace_commands:open_in_perfetto",
        _option("trace", "a Chrome trace of torch.profiler; no other machine gets it"),
        _flag("--no-browser", "print the address and open nothing"),
        _option("--timeout=TIME", "stop if nothing has read it after TIME", "5min", parse_duration),
        _MAX_SIZE,
    ),
    "diff": _command(
        "show what changed between two traces",
        "diff old.json.gz new.json.gz",
        "0 also if they differ, 2 for a trace that cannot be read",
        "trace_commands:diff",
        _option(
            "old",
            "a Chrome trace of torch.profiler (.json or .json.gz), or a folder with one per rank",
        ),
        _option("new", "the trace or folder to compare with it"),
        _flag("--json", "print the comparison as JSON"),
        _option(
            "--lines=N",
            "print at most N rows; if there are more, only the changes",
            40,
            _at_least(0),
        ),
        _MAX_SIZE,
    ),
    "compare": _command(
        "compare a run with earlier runs",
        "compare main.json today.json --fail-on=cuda_time:5%",
        "0 if nothing is worse, 1 if worse or none compared, 2 for an error",
        "run_commands:compare",
        _option("runs=RUN.json", "earlier runs, then the new one", nargs="+"),
        _option(
            "--fail-on=METRIC:MARGIN",
            "fail if this metric grew by more than MARGIN, as cuda_time:5%% or kernels:0; may be "
            f"repeated (default: any higher count fails). METRIC: {', '.join(_NAMES)}",
            action="append",
            default=[],
        ),
        _option("--format", "print in this format", "text", choices=("text", "markdown", "json")),
    ),
    "report": _command(
        "report a recorded run again, as text or in other formats",
        "report run.json --html=run.html",
        "0 if it was reported, 2 for an error",
        "run_commands:report",
        _option("runs=RUN.json", "run documents; several are reported as one run", nargs="+"),
        _option("--html=PATH", "write the results as a page for a browser"),
        _option("--markdown=PATH", "write the results as Markdown, for a pull request"),
        _option("--benchmark-json=PATH", "write the times as pytest-benchmark's JSON"),
        _flag(
            "--github", "add the results to the step summary and annotate lines (in GitHub Actions)"
        ),
        _option("-v --verbose", "list every profile; -vv also kernels", action="count", default=0),
    ),
    "update": _command(
        "write kernel snapshots from a run document",
        "update run.json",
        "0 if all snapshots were written, 1 if one was not, 2 for an error",
        "run_commands:update_snapshots",
        _option("run_document=RUN.json", "made by pytest --kernelprof-json"),
        _option(
            "--root=DIR", "the root folder of the tests (default: the current folder)", default="."
        ),
        _flag("--new", "add entries only; change none"),
    ),
    "doctor": _command(
        "find what prevents or distorts measurements",
        "doctor",
        "0 if measurements are possible, 1 if they are not",
        "doctor:run",
    ),
    "noise": _command(
        "measure how much times vary here; print margins for limits",
        "noise --processes=5",
        "0 if it measured, 2 for an error",
        "noise:run",
        _option("--rounds=N", "take N rounds of each workload in each process", 48, _at_least(2)),
        _option(
            "--processes=N",
            "compare N new processes (default: 3; more give smaller margins); 1 measures in "
            "this process and gives no margins",
            parse=_at_least(1),
            default=3,
        ),
        _option(
            "--device",
            "measure on this device (default: the GPU if there is one); the CPU has only latency",
            choices=("auto", "cuda", "cpu"),
            default="auto",
        ),
        _flag("--json", "print one JSON object"),
    ),
}
"""In the order of the help page."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit status: 0; 1 if the numbers cannot be trusted or something failed; 2 for an error.
    """
    # A console's code page (cp1252, ASCII) may lack characters of a kernel's name.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    parser = _parser()
    try:
        chosen = parser.parse_args(arguments)
        if chosen.version:
            from pytest_kernelprof import __version__  # which looks it up

            print(f"kernelprof {__version__}")
            return 0
        if chosen.function is None:
            parser.print_help()
            return 2
        status: int = pkgutil.resolve_name(f"pytest_kernelprof.cli.{chosen.function}")(chosen)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe
        _forget_output()
        return 1
    except (OSError, KernelprofError) as error:
        print(f"kernelprof: {printable(str(error))}", file=sys.stderr)
        _forget_output()
        return 2
    return status


def _forget_output() -> None:
    """Drop output that nobody reads, so that the interpreter's flush at the end does not fail."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help with the commands alone in their list, without what stands for any of them."""

    def _format_action(self, action: argparse.Action) -> str:
        told = super()._format_action(action)
        return told.partition("\n")[2] if action.nargs == argparse.PARSER else told


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kernelprof", description=_DESCRIPTION, epilog=_EXAMPLES, formatter_class=_Help
    )
    parser.set_defaults(function=None)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, add in COMMANDS.items():
        add(name, commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
