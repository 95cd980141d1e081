"""What a user asks for: of a run, on the command line and by ini keys; of a test, by the marker
``kernelprof``. ``Settings`` is the table of them.

No class here is a dataclass: each run loads them, also of users who measure nothing, and Python
takes four times as long to make a class of a frozen dataclass.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeGuard, TypeVar

import pytest

from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.limits.marks import OPTIONS_MARKER
from pytest_kernelprof.units import WHOLE_NUMBER, parse_percent, parse_times, whole_number


class Kind(NamedTuple):
    """A kind of value.

    Attributes:
        ini_type: pytest's name of it. In TOML mode pytest takes that native type alone, and from
            text (ini files, ``-o``) it converts to it.
        expected: the words for what is of this kind.
        convert: makes the setting of a value, or raises ValueError; text is no number here.
        accepts: whether a value is of this kind, as far as ``convert`` does not say so.
        read: the value that text on the command line stands for, or the text, for ``check`` to
            refuse.
        unset: the setting if nothing is given.
        metavar: the name of the value on the command line; None makes the option a switch.
    """

    ini_type: Literal["string", "bool", "int", "float", "linelist", "args"]
    expected: str
    convert: Callable[[Any], Any] = lambda value: value
    accepts: Callable[[Any], object] = lambda value: True
    read: Callable[[str], object] = str
    unset: Any = None
    metavar: str | None = None

    def check(self, value: object) -> Any:
        """The setting that a value makes.

        Raises:
            ValueError: it is not of this kind.
        """
        if not self.accepts(value):
            raise ValueError
        return self.convert(value)


Group = Literal["measure", "compare", "report", "environment"]
GROUPS: dict[Group, str] = {
    "measure": "kernelprof: measure (limits are markers: pytest --markers; ini keys: kernelprof_*)",
    "compare": "kernelprof: compare",
    "report": "kernelprof: report",
    "environment": "kernelprof: environment",
}
"""The parts of ``pytest --help``, in its order, with their headings."""
T = TypeVar("T")


def flag_of(name: str) -> str:
    """An option on the command line, by its name."""
    return "--kernelprof-" + name.replace("_", "-")


class Option(Generic[T]):
    """A field of ``Settings``, and how a user says it.

    Attributes:
        name: the field; ``--kernelprof-NAME`` on the command line, ``kernelprof_NAME`` as ini key.
        kind: the kind of value on the command line and of the ini key; None for neither.
        help: the text for ``pytest --help``; argparse formats it, so a ``%`` is ``%%``.
        group: the part of ``pytest --help`` that has it; None for an ini key alone.
        default: the setting if nothing is given; else that of its kind.
        example: a value in the form of the marker, which takes what has an example.
        marked: the kind of value that the marker takes, if not ``kind``; None where it takes none.
    """

    def __init__(
        self,
        kind: Kind | None,
        help: str,
        group: Group | None = None,
        *,
        default: Any = None,
        example: str = "",
        marked: Kind | None = None,
    ) -> None:
        self.name, self.kind, self.help, self.group = "", kind, help, group
        self.default = kind.unset if kind is not None and default is None else default
        self.example, self.marked = example, marked or (kind if example else None)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, settings: Settings, owner: type) -> T:
        value: T = settings.values[self.name]
        return value

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return flag_of(self.name)

    @property
    def key(self) -> str:
        """The ini key, which pytest also keeps the command line's value under."""
        return f"kernelprof_{self.name}"


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())


def _is_glob(value: object) -> bool:
    return _is_text(value) and not os.path.isabs(value) and os.pardir not in value.split("/")


def _one_of(*choices: str) -> Kind:
    words, metavar = f"one of {', '.join(choices)}", "|".join(choices)
    return Kind("string", words, accepts=choices.__contains__, unset=choices[0], metavar=metavar)


def _digits(text: str) -> object:
    """Only plain digits: int() would take 1_2 and digits of other scripts too."""
    with contextlib.suppress(ValueError):  # there is a limit to how many digits int() takes
        if text.strip().isascii() and text.strip().isdigit():
            return int(text)
    return text


def _margin(value: object) -> float:
    from pytest_kernelprof.stats.intervals import SMALLEST_MARGIN

    fraction = parse_percent(value) if isinstance(value, str) else 0.0
    if fraction < SMALLEST_MARGIN:
        raise ValueError
    return fraction


_FLAG = Kind("bool", "true or false", accepts=lambda value: isinstance(value, bool), unset=False)
_FLAG_IN_PYTHON = _FLAG._replace(expected="True or False")
_RUN_FILE = Kind("string", "a file", accepts=_is_text, metavar="PATH")
_COUNT = Kind("int", WHOLE_NUMBER, whole_number, read=_digits, metavar="N")
_LINES = Kind(
    "linelist",
    "METRIC:MARGIN, for example cuda_time:5% or kernels:0",
    tuple,
    lambda value: isinstance(value, list) and all(map(_is_text, value)),
    unset=(),
)
_GLOBS = _LINES._replace(
    expected="globs below the root folder, one a line, for example src/*/_version.py",
    accepts=lambda value: isinstance(value, list) and all(map(_is_glob, value)),
)
_FILES = _GLOBS._replace(ini_type="args", expected="globs of files, for example bench_*.py")
_GPUS = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121"]
_GPUS += ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1200", "gfx1201"]
"""Those that Triton compiles for. LLVM ends the process where it does not know one."""


def _targets(value: object) -> tuple[str, ...]:
    given = (value,) if isinstance(value, str) else value
    if not isinstance(given, (tuple, list)) or not given or not {*map(str, given)} <= {*_GPUS}:
        raise ValueError
    return tuple(dict.fromkeys(given))


_SECONDS = Kind("float", "a number of seconds above zero, for example 600", parse_times)
_MARGIN = Kind(
    "string",
    'a percentage of 2% or more, for example "5%": two processes that run the same code differ by '
    "up to 2%",
    _margin,
    metavar="PERCENT",
)


def _flag(
    help: str, group: Group | None = None, *, default: bool = False, example: str = ""
) -> Option[bool]:
    marked = _FLAG_IN_PYTHON if example else None
    return Option(_FLAG, help, group, default=default, example=example, marked=marked)


def _file(help: str) -> Option[str | None]:
    return Option(_RUN_FILE, help, "report")


def _seconds(help: str, default: float = 600.0) -> Option[float]:
    return Option(_SECONDS, help, default=default)


class Settings:
    """What the user asks for, or the defaults: of a run; or of a test, whose marker comes first.
    None means "not said"."""

    __slots__ = ("values",)

    report = _flag("print a kernel summary after the tests; -v lists every profile", "report")
    all = _flag("also profile tests without a marker or fixture", "measure")
    only = _flag("run only the tests that use pytest-kernelprof", "measure")
    disable = _flag("run the code once, without profiling it; check no limits", "environment")
    require_gpu = _flag("fail tests that need a GPU if there is none (for CI)", "environment")
    warmup = Option[int](
        _COUNT, "calls before the first profiled one (default: 1)", default=1, example="3"
    )
    rounds = Option[int | None](
        _COUNT, "profile each call in N rounds (default: 2; 12 for times)", "measure", example="24"
    )
    device = Option[str](
        _one_of("auto", "cuda", "cpu"),
        "measure on this device; cpu counts compute operators, not kernels (default: auto)",
        "environment",
        example='"cpu"',
        marked=_one_of("cuda", "cpu")._replace(expected='"cuda" or "cpu"'),
    )
    flush_l2 = _flag(
        "flush the L2 cache before timed rounds (default: true)", default=True, example="False"
    )
    stacks = _flag(
        "record Python stacks: blocks and whole tests name lines too", "measure", example="True"
    )
    undecided = Option[str](
        _one_of("warn", "fail", "pass"), "undecided times: warn, fail or pass (default: warn)"
    )
    blind = Option[str](
        _one_of("error", "not-judged"), "unprofilable devices: error (default) or not-judged"
    )
    warn_only = _flag("only warn: limits, snapshots and comparisons fail no test", "compare")
    trace_dir = Option[str | None](
        Kind("string", "a folder", accepts=_is_text, metavar="DIR"),
        "write the Chrome trace of each profile (.json.gz) into this folder",
        "report",
    )
    json = _file("write all results of the run as JSON, the run document")
    html = _file("write the results as a page for a browser")
    markdown = _file("write the results as Markdown, for a pull request")
    github = _flag("add results to the step summary, annotate lines (GitHub Actions)", "report")
    benchmark_json = _file("write the times as pytest-benchmark's JSON, for trackers")
    against = Option[tuple[str, ...]](
        _LINES._replace(expected="a revision, folder or run document", metavar="REV|DIR|RUN.json"),
        "fail tests worse than a git revision (main, HEAD~1), another checkout or an earlier run",
        "compare",
    )
    against_timeout = _seconds("end a test on the other code after N seconds (default: 600)")
    against_exact = _flag("compare only counts with a revision, no times (default: false)")
    margin = Option[float | None](
        _MARGIN, "allow tests to be slower by this much (default: 5 %%)", "compare", example='"8%"'
    )
    against_python = Option[str | None](
        Kind("string", "the python of an environment", accepts=_is_text, metavar="EXE"),
        "compare with another environment: its python runs the same code, or the revision's",
        "compare",
    )
    against_copy = Option[tuple[str, ...]](_GLOBS, "also copy these untracked files (globs)")
    against_prepare = Option[str | None](
        Kind("string", "a command", accepts=_is_text),
        "run this shell command in the folder of the other code before the tests",
    )
    fail_on = Option[tuple[str, ...]](
        _LINES, "fail by METRIC:MARGIN of an earlier run (default: any count that grew)"
    )
    update = _flag("accept each test's kernels as its snapshot (in __kernelprof__)", "compare")
    require_snapshots = _flag("fail tests whose snapshot is missing or not judged (CI)", "compare")
    benchmarks = Option[tuple[str, ...]](
        _FILES, "collect files with Triton's perf_report as tests (globs, as bench_*.py)"
    )
    benchmark_configs = Option[int](
        _COUNT, "test at most N configurations of a benchmark's plot (default: 12)", default=12
    )
    lock_timeout = _seconds("wait this many seconds for other tests on the same GPU (default: 600)")
    rank_timeout = _seconds("wait this many seconds for a rank (default: 120)", 120.0)
    spread_workers = _flag("give each xdist worker a GPU, in turn (default: true)", default=True)
    revision = Option[str | None](
        None, "the revision or folder that ``against`` names; empty for another environment alone"
    )
    run_document = Option[str | None](None, "the run document that ``against`` names")
    ranks = Option[int | None](
        None, "the number of ranks that a test starts", example="2", marked=_COUNT
    )
    targets = Option[tuple[str, ...]](
        None,
        "what Triton kernels are compiled for where there is no GPU",
        default=(),
        example='("sm_90", "gfx942")',
        marked=Kind("args", f"one or a tuple of {', '.join(_GPUS)}", _targets),
    )
    other_processes = Option[str](
        None,
        "whether the work of child processes of a test is checked",
        default="check",
        example='"ignore"',
        marked=_one_of("check", "ignore")._replace(expected='"check" or "ignore"'),
    )

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = {**_DEFAULTS, **values}

    def changed(self, **values: Any) -> Settings:
        """The same, with other values of some."""
        return Settings({**self.values, **values})

    @classmethod
    def of(cls, config: pytest.Config) -> Settings:
        """Those of a run: the command line wins over the ini key, and that over the default.

        Raises:
            pytest.UsageError: a value is not of its form; the message names option and form.
        """
        return cls({one.name: _setting(config, one, kind) for one, kind in OPTIONS.items()})

    @property
    def in_turn(self) -> bool:
        """Whether tests run in turn with a revision, or with another environment alone."""
        return self.revision is not None

    @property
    def compares(self) -> bool:
        """Whether a run has a baseline beside its snapshots."""
        return bool(self.against or self.against_python)

    def quiet(self) -> Settings:
        """Those of a run for which another one reports: it writes no files and shows no rows."""
        return self.changed(**dict.fromkeys(RUN_FILES), report=False, github=False)

    def of_a_baseline(self) -> Settings:
        """Those of a run that serves another one (--kernelprof-against): that one reports, and
        what would fail here fails nothing."""
        return self.quiet().changed(trace_dir=None, only=False, undecided="pass")

    def with_markers(self, marks: Iterable[pytest.Mark]) -> Settings:
        """Those of a test, with the options of its ``kernelprof(...)`` markers, the innermost given
        first.

        Raises:
            MarkerError: an unknown option or a value of the wrong form.
        """
        merged: dict[str, Any] = {}
        for mark in marks:
            if mark.args:
                raise MarkerError(
                    f"{OPTIONS_MARKER}: takes keyword arguments only, got {mark.args!r}. "
                    f"Write {OPTIONS_FORM}"
                )
            for name, value in mark.kwargs.items():
                merged.setdefault(name, check_option(name, value))
        return self.changed(**merged)

    @property
    def run_files(self) -> dict[str, str]:
        """The files that are made of the run as it ends: the path by the option that asks."""
        return {name: self.values[name] for name in RUN_FILES if self.values[name]}


_FIELDS = [field for field in vars(Settings).values() if isinstance(field, Option)]
_DEFAULTS = {field.name: field.default for field in _FIELDS}
OPTIONS = {field: field.kind for field in _FIELDS if field.kind is not None}
"""The options of the command line and the ini keys, each with its kind of value."""
RUN_FILES = tuple(option.name for option, kind in OPTIONS.items() if kind is _RUN_FILE)
MARKED = {field.name: field.marked for field in _FIELDS if field.marked is not None}
_EXAMPLES = ", ".join(f"{field.name}={field.example}" for field in _FIELDS if field.marked)
OPTIONS_FORM = f"{OPTIONS_MARKER}({_EXAMPLES})"
# For ``pytest --markers``.
MARKER_LINE = (
    f"{OPTIONS_FORM}: how to profile a test, each value optional. warmup is calls before the first "
    "round; flush_l2=False leaves the L2 cache as it is; stacks name lines of blocks, too; margin "
    "is of comparisons; ranks are those that the test starts; targets are the GPUs that Triton "
    "kernels are compiled for where there is none; other_processes accepts work of child "
    "processes. Limits are for one call of fn by the fixture kernel_profile(fn, *args), "
    "without it for the whole test"
)

# What pytest's own conversions say last: the value that was given. Its versions raise different
# exceptions, and none tells the value apart from the words around it.
_GIVEN = r"(?s:(?:, (?:but )?got:? |base 10: |to float: |truth value )(.*)\Z)"


def add_options(parser: pytest.Parser) -> None:
    """Register the options and ini keys. Options default to None, so that ini keys count."""
    groups = {name: parser.getgroup(heading) for name, heading in GROUPS.items()}
    for option, kind in OPTIONS.items():
        if option.group:
            form: dict[str, Any] = {"metavar": kind.metavar}
            if kind.metavar is None:
                form = {"action": "store_const", "const": True}
            if kind.ini_type == "linelist":
                form["action"] = "append"
            groups[option.group].addoption(
                option.flag, dest=option.key, default=None, help=option.help, **form
            )
        # Without this default, pytest's is 0 or False, which could have been said, too.
        parser.addini(option.key, option.help.replace("%%", "%"), type=kind.ini_type, default=None)


def _setting(config: pytest.Config, option: Option[Any], kind: Kind) -> Any:
    given, where = config.getoption(option.key, default=None), option.flag
    value = kind.read(given) if isinstance(given, str) else given
    if given is None:
        given = value = _ini(config, option.key, kind)
        where = f"ini key {option.key}"
    if given is None:
        return option.default
    try:
        return kind.check(value)
    except ValueError:
        raise pytest.UsageError(f"{where}: got {given!r}; expected {kind.expected}") from None


def _ini(config: pytest.Config, key: str, kind: Kind) -> object:
    """The ini key's value, or None. It has pytest's type, which need not be what we expect."""
    try:
        value = config.getini(key)
    except (TypeError, ValueError, pytest.UsageError) as error:
        found = re.search(_GIVEN, str(error))
        given = f"got {found[1]}" if found else str(error)
        raise pytest.UsageError(f"ini key {key}: {given}; expected {kind.expected}") from error
    return None if value == "" else value


def check_option(name: str, value: object) -> Any:
    """The value of an option that a marker or a keyword argument gives, checked.

    Raises:
        MarkerError: with the right form.
    """
    if name not in MARKED:
        raise MarkerError(f"{OPTIONS_MARKER}: unknown option {name!r}. Write {OPTIONS_FORM}")
    kind = MARKED[name]
    try:
        return kind.check(value)
    except ValueError:
        raise MarkerError(
            f"{name}={value!r}: expected {kind.expected}. Write {OPTIONS_FORM}"
        ) from None
