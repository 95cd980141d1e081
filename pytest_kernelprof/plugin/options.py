"""The table of options: what the command line, ini keys and the marker ``kernelprof`` may say.

Its classes are named tuples, as those of ``limits`` are: a run of a user who measures nothing loads
them, and Python takes four times as long to make a class of a frozen dataclass.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_kernelprof.limits.marks import OPTIONS_MARKER
from pytest_kernelprof.units import (
    parse_percent,
    parse_times,
    whole_number,
    whole_number_words,
)

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICES = ("auto", "cuda", "cpu")
POLICIES = ("warn", "fail", "pass")


class Kind(NamedTuple):
    """A kind of value.

    Attributes:
        ini_type: pytest's name of it. In TOML mode pytest takes that native type alone, and from
            text (ini files, ``-o``) it converts to it.
        expected: the words for what is of this kind.
        check: the value, or ValueError; text is no number here.
        read: the value that text on the command line stands for, or the text, for ``check`` to
            refuse.
    """

    ini_type: Literal["string", "bool", "int", "float", "linelist"]
    expected: str
    check: Callable[[object], Any]
    read: Callable[[str], object] = str


def flag_of(name: str) -> str:
    """An option on the command line, by its name."""
    return "--kernelprof-" + name.replace("_", "-")


class Option(NamedTuple):
    """One option, an ini key wherever else it may be said.

    Attributes:
        name: the field of ``Settings``; ``--kernelprof-NAME`` and ``kernelprof_NAME``.
        kind: the kind of value on the command line and of the ini key.
        help: one line for ``pytest --help``.
        default: the setting where nobody says anything.
        metavar: what stands for the value on the command line; None makes a switch of the option.
        on_command_line: whether it may be said there.
        marked: the kind of value that the marker and keyword arguments take; None where they
            cannot say it.
        example: a value in the marker's form.
        several: whether it may be said several times on the command line; the value is a list.
    """

    name: str
    kind: Kind
    help: str
    default: Any = None
    metavar: str | None = None
    on_command_line: bool = True
    marked: Kind | None = None
    example: str = ""
    several: bool = False

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return flag_of(self.name)

    @property
    def key(self) -> str:
        """The ini key, which pytest also keeps the command line's value under."""
        return f"kernelprof_{self.name}"


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _path(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value


def _lines(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(map(_path, value))


def _one_of(*choices: str) -> Kind:
    def check(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError
        return value

    return Kind("string", f"one of {', '.join(choices)}", check)


def _digits(text: str) -> object:
    """Only plain digits: int() would take 1_2 and digits of other scripts too."""
    with contextlib.suppress(ValueError):  # there is a limit to how many digits int() takes
        if text.strip().isascii() and text.strip().isdigit():
            return int(text)
    return text


def _decimal(text: str) -> object:
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def _margin(value: object) -> float:
    from pytest_kernelprof.stats.pairs import SMALLEST_MARGIN

    fraction = parse_percent(value) if isinstance(value, str) else 0.0
    if fraction < SMALLEST_MARGIN:
        raise ValueError
    return fraction


def _globs(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError
    for one in value:
        if not isinstance(one, str) or not one.strip():
            raise ValueError
        if os.path.isabs(one) or os.pardir in one.split("/"):
            raise ValueError
    return tuple(value)


_FLAG = Kind("bool", "true or false", _switch)
_FLAG_IN_PYTHON = _FLAG._replace(expected="True or False")
_RUN_FILE = Kind("string", "a file", _path)
_COUNT = Kind("int", whole_number_words(), whole_number, _digits)
_GLOBS = Kind(
    "linelist", "globs below the root folder, one a line, for example src/*/_version.py", _globs
)
_SECONDS = Kind("float", "a number of seconds above zero, for example 600", parse_times, _decimal)

_MARGIN = Kind(
    "string",
    'a percentage of 2% or more, for example "5%": two processes that run the same code differ by '
    "up to 2%",
    _margin,
)

OPTIONS = (
    Option("report", _FLAG, "tell at the end what the tests launched", default=False),
    Option("report_all", _FLAG, "the same with a row for each profile", default=False),
    Option("all", _FLAG, "profile the call phase of every test, no code changed", default=False),
    Option("only", _FLAG, "run only the tests that use pytest-kernelprof", default=False),
    Option(
        "disable",
        _FLAG,
        "run the wrapped code plainly, once; profile and limit nothing",
        default=False,
    ),
    Option(
        "require_gpu",
        _FLAG,
        "fail tests whose limits would not be judged, or on the CPU, without a GPU (for CI)",
        default=False,
    ),
    Option(
        "warmup",
        _COUNT,
        "calls before the first profiled one (default: 1); more if cold",
        default=1,
        metavar="N",
        marked=_COUNT,
        example="3",
    ),
    Option(
        "rounds",
        _COUNT,
        "profiled rounds of each call (default: 2, with timed limits 12)",
        metavar="N",
        marked=_COUNT,
        example="24",
    ),
    Option(
        "device",
        _one_of(*DEVICES),
        "auto (default), cuda, or cpu, which counts compute operators instead of kernels",
        default="auto",
        metavar="|".join(DEVICES),
        marked=_one_of("cuda", "cpu")._replace(expected='"cuda" or "cpu"'),
        example='"cpu"',
    ),
    Option(
        "flush_l2",
        _FLAG,
        "flush the GPU's L2 cache before each timed round (default: true)",
        default=True,
        on_command_line=False,
        marked=_FLAG_IN_PYTHON,
        example="False",
    ),
    Option(
        "stacks",
        _FLAG,
        "record Python frames, so that one-shot profiles name source lines too",
        default=False,
        marked=_FLAG_IN_PYTHON,
        example="True",
    ),
    Option(
        "undecided",
        _one_of(*POLICIES),
        "what a time does whose interval still holds its limit after 96 rounds: warn (default), "
        "fail or pass",
        default="warn",
        metavar="|".join(POLICIES),
    ),
    Option(
        "blind",
        _one_of("error", "not-judged"),
        "what becomes of a test whose device cannot be profiled: error (default) or not-judged",
        default="error",
        on_command_line=False,
    ),
    Option(
        "warn_only",
        _FLAG,
        "warn of broken limits and snapshots, and of what is worse than a revision; fail nothing",
        default=False,
    ),
    Option(
        "trace_dir",
        Kind("string", "a folder", _path),
        "write every profile's Chrome trace (json.gz) into this folder",
        metavar="DIR",
    ),
    Option(
        "json",
        _RUN_FILE,
        "write all that the run took into this file, as JSON",
        metavar="PATH",
    ),
    Option(
        "html",
        _RUN_FILE,
        "write what the run says into this file, as a page for a browser",
        metavar="PATH",
    ),
    Option(
        "markdown",
        _RUN_FILE,
        "write what the run says into this file, as Markdown for a pull request",
        metavar="PATH",
    ),
    Option(
        "github",
        _FLAG,
        "in GitHub Actions: append what the run says to the summary of the step, annotate lines",
        default=False,
    ),
    Option(
        "benchmark_json",
        _RUN_FILE,
        "write the times of the run into this file, in pytest-benchmark's JSON, for trackers",
        metavar="PATH",
    ),
    Option(
        "against",
        Kind("linelist", "a revision, a folder or a run document", _lines),
        "run each test on the code of a git revision (main, HEAD~1, merge-base:main) or of another "
        "checkout, too, and fail where this one takes more kernels, waits, copies or memory; or "
        "judge by an earlier run, the file of --kernelprof-json; may be given twice, one of each",
        default=(),
        metavar="REV|PATH|RUN.json",
        several=True,
    ),
    Option(
        "against_timeout",
        _SECONDS,
        "seconds that one test may take on the other code (default: 600)",
        default=600.0,
        metavar="SECONDS",
    ),
    Option(
        "against_exact",
        _FLAG,
        "with --kernelprof-against=REV: compare counts alone, no times",
        default=False,
    ),
    Option(
        "margin",
        _MARGIN,
        "with --kernelprof-against=REV: how much slower a test may be (5 per cent; at least 2)",
        metavar="PERCENT",
        marked=_MARGIN,
        example='"8%"',
    ),
    Option(
        "against_python",
        Kind("string", "the python of an environment", _path),
        "the interpreter for the other code, where that is installed in an environment of its own",
        metavar="EXE",
    ),
    Option(
        "against_copy",
        _GLOBS,
        "generated files that git does not track, to be copied beside the other code",
        default=(),
        on_command_line=False,
    ),
    Option(
        "against_prepare",
        Kind("string", "a command", _path),
        "a command to run in the folder of the other code before the tests",
        on_command_line=False,
    ),
    Option(
        "fail_on",
        Kind("linelist", "METRIC:MARGIN, for example cuda_time:5% or kernels:0", _lines),
        "with --kernelprof-against=RUN.json: what fails, METRIC:MARGIN, one a line, for example "
        "kernels:0 or cuda_time:20us (default: any count that grew)",
        default=(),
        on_command_line=False,
    ),
    Option(
        "update",
        _FLAG,
        "write what the tests launch into __kernelprof__ beside them, to be checked from then on",
        default=False,
    ),
    Option(
        "require_snapshots",
        _FLAG,
        "fail profiled tests that have no snapshot, or none that could fail (for CI)",
        default=False,
    ),
    Option(
        "lock_timeout",
        _SECONDS,
        "seconds that timed rounds and other tests on one GPU wait for each other (default: 600)",
        default=600.0,
        metavar="SECONDS",
    ),
    Option(
        "rank_timeout",
        _SECONDS,
        "seconds that ranks of torch.distributed wait for one that does not come (default: 120)",
        default=120.0,
        metavar="SECONDS",
    ),
    Option(
        "spread_workers",
        _FLAG,
        "give each pytest-xdist worker one of the GPUs, in turn (default: true)",
        default=True,
        on_command_line=False,
    ),
)

RUN_FILES = tuple(option.name for option in OPTIONS if option.kind is _RUN_FILE)
# What the marker alone says, since it is of one test: how many ranks that starts, and whether what
# its child processes do is checked.
_ONLY_MARKED = {
    "ranks": (_COUNT, "2"),
    "other_processes": (
        _one_of("check", "ignore")._replace(expected='"check" or "ignore"'),
        '"ignore"',
    ),
}
MARKED = {
    **{option.name: option.marked for option in OPTIONS if option.marked},
    **{name: kind for name, (kind, _) in _ONLY_MARKED.items()},
}
_EXAMPLES = (
    *(f"{option.name}={option.example}" for option in OPTIONS if option.marked),
    *(f"{name}={example}" for name, (_, example) in _ONLY_MARKED.items()),
)
OPTIONS_FORM = f"{OPTIONS_MARKER}({', '.join(_EXAMPLES)})"
# For ``pytest --markers``.
MARKER_LINE = f"{OPTIONS_FORM}: how a test is profiled"
