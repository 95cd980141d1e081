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

GROUPS = {
    "measure": "kernelprof: measure (limits are markers: see pytest --markers)",
    "compare": "kernelprof: compare",
    "report": "kernelprof: report",
    "environment": "kernelprof: environment",
}
"""The parts of ``pytest --help``, in its order, with their headings."""


class Kind(NamedTuple):
    """A kind of value.

    Attributes:
        ini_type: pytest's name of it. In TOML mode pytest takes that native type alone, and from
            text (ini files, ``-o``) it converts to it.
        expected: the words for what is of this kind.
        check: the value, or ValueError; text is no number here.
        read: the value that text on the command line stands for, or the text, for ``check`` to
            refuse.
        unset: the setting if nothing is given.
        metavar: the name of the value on the command line; None makes the option a switch.
    """

    ini_type: Literal["string", "bool", "int", "float", "linelist"]
    expected: str
    check: Callable[[object], Any]
    read: Callable[[str], object] = str
    unset: Any = None
    metavar: str | None = None


def flag_of(name: str) -> str:
    """An option on the command line, by its name."""
    return "--kernelprof-" + name.replace("_", "-")


class Option(NamedTuple):
    """One option, an ini key wherever else it may be said.

    Attributes:
        name: the field of ``Settings``; ``--kernelprof-NAME`` and ``kernelprof_NAME``.
        kind: the kind of value on the command line and of the ini key.
        help: the text for ``pytest --help``; argparse formats it, so it has no ``%``.
        group: the part of ``pytest --help`` that has it; None for an ini key alone.
        default: the setting if nothing is given; None for that of the kind.
        marked: the kind of value that the marker and keyword arguments take; None where they
            cannot say it.
        example: a value in the marker's form.
    """

    name: str
    kind: Kind
    help: str
    group: Literal["measure", "compare", "report", "environment"] | None = None
    default: Any = None
    marked: Kind | None = None
    example: str = ""

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

    return Kind("string", f"one of {', '.join(choices)}", check, metavar="|".join(choices))


def _digits(text: str) -> object:
    """Only plain digits: int() would take 1_2 and digits of other scripts too."""
    with contextlib.suppress(ValueError):  # there is a limit to how many digits int() takes
        if text.strip().isascii() and text.strip().isdigit():
            return int(text)
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


_FLAG = Kind("bool", "true or false", _switch, unset=False)
_FLAG_IN_PYTHON = _FLAG._replace(expected="True or False")
_RUN_FILE = Kind("string", "a file", _path, metavar="PATH")
_COUNT = Kind("int", whole_number_words(), whole_number, _digits, metavar="N")
_LINES = Kind("linelist", "METRIC:MARGIN, for example cuda_time:5% or kernels:0", _lines, unset=())
_GLOBS = _LINES._replace(
    expected="globs below the root folder, one a line, for example src/*/_version.py", check=_globs
)
_SECONDS = Kind("float", "a number of seconds above zero, for example 600", parse_times)

_MARGIN = Kind(
    "string",
    'a percentage of 2% or more, for example "5%": two processes that run the same code differ by '
    "up to 2%",
    _margin,
    metavar="PERCENT",
)

OPTIONS = (
    Option(
        "report", _FLAG, "print a kernel summary after the tests; -v lists every profile", "report"
    ),
    Option("all", _FLAG, "profile tests that have no marker or fixture, too", "measure"),
    Option("only", _FLAG, "run only the tests that use pytest-kernelprof", "measure"),
    Option(
        "disable", _FLAG, "run the code once, without profiling it; check no limits", "environment"
    ),
    Option(
        "require_gpu", _FLAG, "fail tests that need a GPU if there is none (for CI)", "environment"
    ),
    Option(
        "warmup",
        _COUNT,
        "make this number of calls before the first profiled one (default: 1)",
        default=1,
        marked=_COUNT,
        example="3",
    ),
    Option(
        "rounds",
        _COUNT,
        "take this number of profiled rounds per call (default: 2, with timed limits 12)",
        "measure",
        marked=_COUNT,
        example="24",
    ),
    Option(
        "device",
        _one_of("auto", "cuda", "cpu"),
        "measure on this device; cpu counts compute operators, not kernels (default: auto)",
        "environment",
        default="auto",
        marked=_one_of("cuda", "cpu")._replace(expected='"cuda" or "cpu"'),
        example='"cpu"',
    ),
    Option(
        "flush_l2",
        _FLAG,
        "flush the GPU's L2 cache before each timed round (default: true)",
        default=True,
        marked=_FLAG_IN_PYTHON,
        example="False",
    ),
    Option(
        "stacks",
        _FLAG,
        "record Python stacks, so that regions and whole tests name source lines too",
        "measure",
        marked=_FLAG_IN_PYTHON,
        example="True",
    ),
    Option(
        "undecided",
        _one_of("warn", "fail", "pass"),
        "warn (default), fail or pass when a time is too close to its limit to call",
        default="warn",
    ),
    Option(
        "blind",
        _one_of("error", "not-judged"),
        "report a test as error (default) or not-judged if its device cannot be profiled",
        default="error",
    ),
    Option(
        "warn_only", _FLAG, "warn about limits, snapshots and comparisons, fail no test", "compare"
    ),
    Option(
        "trace_dir",
        Kind("string", "a folder", _path, metavar="DIR"),
        "write the Chrome trace of each profile (.json.gz) into this folder",
        "report",
    ),
    Option("json", _RUN_FILE, "write all results of the run as JSON, the run document", "report"),
    Option("html", _RUN_FILE, "write the results as a page for a browser", "report"),
    Option("markdown", _RUN_FILE, "write the results as Markdown, for a pull request", "report"),
    Option(
        "github",
        _FLAG,
        "add results to the step summary, annotate lines (GitHub Actions)",
        "report",
    ),
    Option(
        "benchmark_json",
        _RUN_FILE,
        "write the times as pytest-benchmark's JSON, for trackers",
        "report",
    ),
    Option(
        "against",
        _LINES._replace(
            expected="a revision, a folder or a run document", metavar="REV|DIR|RUN.json"
        ),
        "fail tests that are worse than a git revision, another checkout or an earlier run "
        "(--kernelprof-json)",
        "compare",
    ),
    Option(
        "against_timeout",
        _SECONDS,
        "end a test on the other code after this many seconds (default: 600)",
        default=600.0,
    ),
    Option(
        "against_exact", _FLAG, "compare only counts with a revision, no times (default: false)"
    ),
    Option(
        "margin",
        _MARGIN,
        "allow a test to be this much slower than the other revision (default: 5 per cent)",
        "compare",
        marked=_MARGIN,
        example='"8%"',
    ),
    Option(
        "against_python",
        Kind("string", "the python of an environment", _path, metavar="EXE"),
        "run the other code with this Python interpreter (default: this one)",
        "compare",
    ),
    Option(
        "against_copy", _GLOBS, "copy these untracked, generated files to the other code (globs)"
    ),
    Option(
        "against_prepare",
        Kind("string", "a command", _path),
        "run this shell command in the folder of the other code before the tests",
    ),
    Option(
        "fail_on",
        _LINES,
        "fail by METRIC:MARGIN of an earlier run, one a line, as kernels:0 (default: any count "
        "that grew)",
    ),
    Option(
        "update",
        _FLAG,
        "write kernel snapshots into __kernelprof__ beside the tests; later runs check them",
        "compare",
    ),
    Option(
        "require_snapshots",
        _FLAG,
        "fail profiled tests that have no snapshot, or none that could fail (for CI)",
        "compare",
    ),
    Option(
        "lock_timeout",
        _SECONDS,
        "wait this many seconds for other tests on the same GPU (default: 600)",
        default=600.0,
    ),
    Option(
        "rank_timeout",
        _SECONDS,
        "wait this many seconds for a rank of torch.distributed (default: 120)",
        default=120.0,
    ),
    Option(
        "spread_workers",
        _FLAG,
        "give each pytest-xdist worker one of the GPUs, in turn (default: true)",
        default=True,
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
