"""Workers: pytest processes that run tests of one side's code, and the environment they run in.

pytest is called as the user called it, in the tree, without what a second run must not have:
reports, coverage, workers of pytest-xdist, selections, debuggers. Whatever goes wrong with a worker
is an answer ("the reference died"), never an error of the run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as Environment
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from pytest_kernelprof.baselines import protocol
from pytest_kernelprof.baselines.import_redirect import Mapping, mapping_of
from pytest_kernelprof.baselines.revision import CannotCompare, local_variables, without
from pytest_kernelprof.baselines.supervisor import CODE, PACKAGE_ROOT, end, last_lines, start
from pytest_kernelprof.comparison.judge import Difference
from pytest_kernelprof.gpu.inventory import installed_version
from pytest_kernelprof.gpu.procfs import note_ours
from pytest_kernelprof.gpu.usage_lock import tell_children
from pytest_kernelprof.records.comparison import Side
from pytest_kernelprof.system import now_s

R = TypeVar("R")
Answer = Callable[[], Any]
"""Waits for the answer to what a worker was asked."""

StartStep = Literal["start", "collect", "run"]
"""How a worker comes to a call: its process "starts" with pytest, "collects" the tests, which
loads the code, and "runs" the test up to the call."""
START_STEPS: tuple[StartStep, ...] = ("start", "collect", "run")

_START_S = 300.0
_SENT_S = 30.0
_END_S = 10.0
_LOG_LINES = 4
_MOST_DEATHS = 2
PLUGIN = "pytest-kernelprof"
_PATIENCE_S = 60.0
_SHOWN = 300
# The last line that it prints; the first of two packages with one name is what is imported.
_PROBE = """
import json, os, platform, re, sys
from importlib.metadata import distributions
found = {}
for one in distributions():
    name = re.sub("[-_.]+", "-", str(one.metadata["Name"])).lower()
    found.setdefault(name, str(one.version))
try:
    import pytest_kernelprof.plugin.baseline_pytest
    problem = ""
except BaseException as error:
    problem = f"{type(error).__name__}: {error}"
path = [os.path.realpath(one) for one in sys.path if one]
found["python"] = platform.python_version()
home = os.path.realpath(sys.prefix)
print("\\n" + json.dumps({"home": home, "path": path, "found": found, "problem": problem}))
"""
_FIRST = ("python", "torch", "triton")
"""The packages that are told first; then those that both have, by name."""
# Variables of those who run tests or measure coverage, which this run's are not.
_DROPPED = (
    *("COV_CORE_SOURCE", "COV_CORE_CONFIG", "COV_CORE_DATAFILE", "COV_CORE_CONTEXT"),
    *("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "PYTEST_CURRENT_TEST"),
    *("PYTEST_XDIST_WORKER_COUNT", "PYTHONSTARTUP"),
)
# Variables that tie a process to the interpreter that started it.
_INTERPRETERS = frozenset({"PYTHONHOME", "PYTHONEXECUTABLE", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"})
# Fixtures tell the ports, databases and files of workers apart by this; xdist gives no such number.
_FIRST_WORKER = 90

# The values of options that were not given, after pytest and its plugins have read them.
RESET: dict[str, object] = {
    # of selection: the user's process has selected
    **dict.fromkeys(("keyword", "markexpr"), ""),
    **dict.fromkeys(("lf", "failedfirst", "newfirst", "stepwise", "collectonly"), False),
    "deselect": None,
    "stepwise_skip": False,
    "continue_on_collection_errors": True,
    # of debugging and time limits
    **dict.fromkeys(("usepdb", "trace"), False),
    **dict.fromkeys(("maxfail", "timeout", "session_timeout", "reruns"), 0),
    # of reports
    **dict.fromkeys(("xmlpath", "htmlpath", "report_log", "allure_report_dir", "pastebin")),
    **dict.fromkeys(("benchmark_json", "benchmark_save", "benchmark_compare")),
    **dict.fromkeys(("benchmark_autosave", "benchmark_compare_fail", "json_report"), False),
    "log_file": os.devnull,
    # of workers
    "numprocesses": None,
    "dist": "no",
    "tx": [],
    "looponfail": False,
}


def arguments_for(config: pytest.Config, mapping: Mapping) -> tuple[str, ...]:
    """The arguments of the reference, but for its folders."""
    given = [mapping.text(os.fspath(argument)) for argument in config.invocation_params.args]
    added = [f"--rootdir={mapping.path(str(config.rootpath))}"]
    if config.inipath is not None:
        added.append(f"--config-file={mapping.path(str(config.inipath))}")
    if any(map(config.pluginmanager.hasplugin, ("_cov", "pytest_cov"))):
        added.append("--no-cov")
    return (*added, *given)


def of_the_tree(
    environment: Environment[str, str], mapping: Mapping, python: str = ""
) -> dict[str, str]:
    """The variables of what runs in the tree.

    Whatever asks git there finds no repository: neither that of a hook which runs the tests, nor
    one around the temporary folder.

    Args:
        python: another interpreter than this one, whose folder then comes first in the path.
    """
    kept = without(environment, frozenset(_DROPPED) | local_variables())
    kept |= {name: mapping.text(kept[name]) for name in ("PYTEST_ADDOPTS", "PWD") if name in kept}
    if python:
        kept = without(kept, _INTERPRETERS)
        kept["PATH"] = os.pathsep.join([os.path.dirname(python), kept.get("PATH", os.defpath)])
    kept["GIT_CEILING_DIRECTORIES"] = os.path.dirname(mapping.tree)
    return kept


class _Answer(msgspec.Struct, frozen=True):
    """What an interpreter says of itself: its prefix, its ``sys.path``, the versions of Python and
    of packages, and why the plugin cannot be imported."""

    home: str
    path: tuple[str, ...]
    found: dict[str, str]
    problem: str


class Interpreter(NamedTuple):
    """The interpreter of the baseline.

    Attributes:
        program: to start; empty if it is that of this environment.
        differences: versions of Python and packages that are not those of this environment.
    """

    program: str
    differences: tuple[Difference, ...]


class NotUsableError(CannotCompare):
    """An interpreter cannot run the baseline; the message says why and what to do."""

    option = "--kernelprof-against-python"


def interpreter_at(given: str, started_in: str) -> Interpreter:
    """What another environment's Python is.

    Args:
        given: a path, or the name of a program. started_in: what a path is relative to.

    Raises:
        NotUsableError: there is none, it does not run, or it lacks pytest or this plugin.
    """
    expanded = os.path.expanduser(given)
    named = os.sep not in expanded
    # The python of an environment is a link: it must not be followed.
    program = shutil.which(expanded) if named else os.path.join(started_in, expanded)
    if program is None or not os.path.isfile(program) or not os.access(program, os.X_OK):
        raise NotUsableError(
            f"{given!r} is not a program: give the python of an environment where pytest and "
            f"{PLUGIN} are installed, for example .venv-old/bin/python"
        )
    program = os.path.abspath(program)
    about, own = _asked(program, given), _asked(sys.executable, sys.executable)
    ours = installed_version(PLUGIN)  # it may be in reach all the same where it is not installed
    found = about.found
    wanted = f"{given} -m pip install pytest {PLUGIN}" + (f"=={ours}" if ours else "")
    for name in ("pytest", PLUGIN):
        if not found.get(name):
            raise NotUsableError(f"{given} has no {name}: {wanted}")
    if ours and found[PLUGIN] != ours:
        raise NotUsableError(
            f"{given} has {PLUGIN} {found[PLUGIN]}, and this run {ours}; both sides need one: "
            f"{wanted}"
        )
    if about.problem:
        raise NotUsableError(
            f"{given} cannot load {PLUGIN} ({about.problem[:_SHOWN]}); install it there with what "
            f"it needs: {wanted}"
        )
    if (about.home, about.path) == (own.home, own.path):
        return Interpreter("", ())
    both = found.keys() & own.found
    names = sorted(found | own.found, key=lambda one: (one not in _FIRST, one not in both, one))
    sides = (Difference(name, found.get(name, ""), own.found.get(name, "")) for name in names)
    return Interpreter(program, tuple(one for one in sides if one.baseline != one.current))


def _asked(program: str, given: str) -> _Answer:
    environment = dict(os.environ)
    if program != sys.executable:
        environment = without(environment, _INTERPRETERS)
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(
            [program, "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=environment,
            start_new_session=True,
        ) as process:
            try:
                printed, errors = process.communicate(timeout=_PATIENCE_S)
            except subprocess.TimeoutExpired:  # what it has started goes with it
                os.killpg(process.pid, signal.SIGKILL)
                raise NotUsableError(
                    f"{given} gave no answer in {_PATIENCE_S:.0f} s: give the python of an "
                    "environment, and see what it does when it starts"
                ) from None
    except OSError as error:
        raise NotUsableError(f"{given} cannot be run ({error.strerror or error})") from None
    try:
        return msgspec.json.decode((printed.splitlines() or [b""])[-1], type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        lines = errors.decode(errors="replace").strip().splitlines() or ["it gave no answer"]
        raise NotUsableError(
            f"{given} does not run as a Python (status {process.returncode}: {lines[-1][:_SHOWN]})"
        ) from None


class WorkerError(Exception):
    """A worker cannot do what it was asked; the message says why."""


class Process:
    """A worker's process.

    Args:
        number: identifies it within the run. timeout_s: how long a test may take in it, without
            the time for which it holds.

    Attributes:
        launch: the first record to send. wire: to send it over.
    """

    def __init__(self, launch: protocol.Launch, number: int, timeout_s: float) -> None:
        scratch = os.path.join(launch.folder, "scratch", str(number))
        os.makedirs(scratch, exist_ok=True)
        own = (f"--basetemp={scratch}/temp", "-o", f"cache_dir={scratch}/cache")
        self.launch = replace(launch, arguments=(*launch.arguments, *own))
        self.timeout_s = timeout_s
        self.wire, ends = protocol.Wire.to_a_child(protocol.FromWorker)
        self._log = os.path.join(scratch, "log")
        mapping = mapping_of(launch.root, launch.tree)
        tell_children()  # it shares the GPU with this process
        environment = of_the_tree(os.environ, mapping, launch.python)
        environment["PYTEST_XDIST_WORKER"] = f"gw{_FIRST_WORKER + number}"
        environment["TORCH_EXTENSIONS_DIR"] = os.path.join(scratch, "extensions")  # of its code
        command = _command(launch.python, ends)
        self._supervisor = start(launch.folder, self._log, ends, command, environment)
        note_ours(self._supervisor.pid)
        for one in ends:
            os.close(one)

    def wait(self) -> None:
        """Wait until all has run that Python runs at its exit, but not for long: then it closes the
        wire, and is spared the end of CUDA."""
        with contextlib.suppress(protocol.Lost):
            self.wire.receive(_END_S)
        self._supervisor.terminate()

    def end(self) -> None:
        """End it at once."""
        end(self._supervisor)
        self.wire.close()

    def last_words(self) -> str:
        """The end of its log, after a colon; empty where there is none."""
        lines = [line.strip() for line in last_lines(self._log, 4000) if line.strip()]
        return ": " + " | ".join(lines[-_LOG_LINES:]) if lines else ""


def _command(python: str, ends: tuple[int, int]) -> list[str]:
    """The command of a worker; another interpreter has its own plugin."""
    started = CODE.format(module="pytest_kernelprof.plugin.baseline_pytest")
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    package = "" if python else PACKAGE_ROOT
    given = ",".join(map(str, ends))
    return [python or sys.executable, *flags, "-c", started, package, given]


class Worker:
    """A worker, whose process is started again where it died, once.

    Args:
        start: starts a process. name: the worker in messages.

    Attributes:
        why: why it has no process: it died, was refused or was interrupted; else empty.
        collected: its tests; None before they are collected.
        cuda: whether CUDA was up in it when it last answered.
        at: the call that it holds in; None outside of one.
    """

    def __init__(self, start: Callable[[], Process], name: str) -> None:
        self.name = name
        self.why = ""
        self._start = start
        self._process: Process | None = None
        self._deaths = 0
        self._is_refused = False
        self._forget()

    def _forget(self) -> None:
        """Forget all that an earlier process said."""
        self._taken = 0
        self.collected: protocol.Collected | None = None
        self.cuda = False
        self.at: protocol.At | None = None
        self._is_last = False
        self._test = ""
        self._left_s = 0.0

    @property
    def left(self) -> tuple[StartStep, ...]:
        """The steps that it still has to take to come to a call; none where it holds in one."""
        return START_STEPS[self._taken :] if self.at is None else ()

    @property
    def is_there(self) -> bool:
        """Whether it has a process."""
        return self._process is not None

    def raise_if_given_up(self) -> None:
        """Raise ``WorkerError`` if it must not be started any more."""
        if self._deaths >= _MOST_DEATHS and not self._is_refused:
            self.refuse(f"{self.why}; it had already been restarted once")
        if self._is_refused:
            raise WorkerError(self.why)

    def start(self) -> Answer:
        """Start its process; it answers when its pytest has started.

        Raises:
            WorkerError: it cannot be started, or has been too often.
        """
        self.raise_if_given_up()
        try:
            self._process = self._start()
        except OSError as error:
            self.why = f"{self.name} cannot be started ({error})"
            raise WorkerError(self.why) from None
        self.why = ""
        return self.ask(self._process.launch)

    def ask(self, asked: protocol.ToWorker) -> Answer:
        """Ask it for something.

        Raises:
            WorkerError: it is gone or refuses. The answer raises that, too.
        """
        if isinstance(asked, protocol.RunTest) and self._process is not None:
            self._test, self._left_s = asked.id, self._process.timeout_s
        if not isinstance(asked, protocol.DoStep):
            self.at, self._is_last = None, asked == protocol.RunTest()
        sent_s = _START_S if isinstance(asked, protocol.Launch) else _SENT_S
        self._do(asked, lambda process: process.wire.send(asked, sent_s))
        begun_s = now_s()
        return lambda: self._do(asked, lambda process: self._answer(process, asked, begun_s))

    def _answer(
        self, process: Process, asked: protocol.ToWorker, begun_s: float
    ) -> protocol.FromWorker:
        limit_s = process.timeout_s
        if isinstance(asked, (protocol.Launch, protocol.Collect)):
            limit_s = max(_START_S, limit_s)
        elif isinstance(asked, (protocol.RunTest, protocol.Go)):
            limit_s = max(0.0, self._left_s)
        answer: protocol.FromWorker = process.wire.receive(limit_s)
        expected = protocol.ANSWERS[type(asked)]
        if isinstance(answer, protocol.Refused):
            self.refuse(f"{answer.why}{process.last_words() if answer.printed else ''}")
            raise WorkerError(self.why)
        if not isinstance(answer, expected):
            names = " or ".join(kind.__name__ for kind in expected)
            raise protocol.Lost(f"it sent {type(answer).__name__}, expected {names}")
        if isinstance(asked, (protocol.RunTest, protocol.Go)):
            self._left_s -= now_s() - begun_s
        if isinstance(answer, protocol.At):
            self.cuda, self.at = answer.cuda, answer
        elif isinstance(answer, protocol.Collected):
            self.cuda = answer.cuda
            self.collected = answer if isinstance(asked, protocol.Collect) else None
            self._taken += 1
        return answer

    def _do(self, asked: protocol.ToWorker, step: Callable[[Process], R]) -> R:
        process = self._process
        if process is None:
            raise WorkerError(self.why or f"{self.name} has ended")
        try:
            return step(process)
        except protocol.Lost as error:
            self._deaths += 1
            self.why = self._death(process, asked, error)
            self.end()
            raise WorkerError(self.why) from None
        except WorkerError:
            raise
        except BaseException:  # Ctrl-C, a time limit of the test: its answer belongs to nothing
            self.why = f"the test was interrupted while {self.name} worked"
            self.end()
            raise

    def _death(self, process: Process, asked: protocol.ToWorker, error: protocol.Lost) -> str:
        does = "took rounds of" if isinstance(asked, protocol.DoStep) else "ran"
        starts = isinstance(asked, (protocol.Launch, protocol.Collect))
        doing = "it was starting" if starts else f"it {does} {self._test}"
        if isinstance(error, protocol.TooLong):
            return f"{self.name} was ended: {doing} for more than {process.timeout_s:g} s"
        return f"{self.name} died while {doing} ({error}){process.last_words()}"

    def refuse(self, why: str) -> None:
        """Use it no more, for this reason."""
        self.end()
        self.why, self._is_refused = why, True

    def finish(self) -> None:
        """Have it end its fixtures."""
        with contextlib.suppress(WorkerError):
            self.ask(protocol.RunTest())()

    def leave(self) -> None:
        """Begin to end it: where it has ended its fixtures, once it has exited."""
        if self._process is not None and self._is_last:
            self._process.wait()

    def end(self) -> None:
        """End it at once."""
        process, self._process = self._process, None
        self._forget()
        if process is not None:
            process.end()


class ContextOrder:
    """Whose CUDA context was made first, by what is seen of both sides between their steps.

    Attributes:
        first: None until one is up, and where both were up when they were first seen.
    """

    def __init__(self) -> None:
        self.first: Side | None = None
        self._is_settled = False

    def see(self, current: bool, baseline: bool) -> None:
        """Note whether each has a context now."""
        if self._is_settled or not (current or baseline):
            return
        self._is_settled = True
        if not (current and baseline):
            self.first = "current" if current else "baseline"


class Reference(Worker):
    """The worker of the first pair, which runs each test as this process does.

    It runs a test up to a call in which it holds, and on when it is told to, so only one of the
    two works at any time.

    Args:
        cuda_is_up: whether CUDA is up in this process.

    Attributes:
        brings_up: the first step after which CUDA was up in it.
        order: whose CUDA context was made first.
    """

    def __init__(self, start: Callable[[], Process], cuda_is_up: Callable[[], bool]) -> None:
        super().__init__(start, "the reference")
        self._cuda_is_up = cuda_is_up
        self.order = ContextOrder()
        self._collect = protocol.Collect()
        self._is_up: Answer = lambda: None
        self._done: protocol.Done | str = ""
        self.brings_up: StartStep = "run"

    def come_up(self) -> None:
        """Start it, and have it collect what its arguments name, without waiting for it."""
        with contextlib.suppress(WorkerError):  # which ``collect`` tells
            self._begin_to_start()
            self.ask(self._collect)

    def _begin_to_start(self) -> None:
        self.order = ContextOrder()
        self._is_up = self.start()

    def collect(self, files: Sequence[str], kept: Iterable[str] = ()) -> protocol.Collected:
        """Have it collect, and wait for that; empty if it cannot.

        Args:
            kept: as of ``Collect``.
        """
        self._collect = protocol.Collect(tuple(files), frozenset(kept))
        for _ in range(_MOST_DEATHS):
            with contextlib.suppress(WorkerError):
                self._get_ready()
        return self.collected or protocol.Collected()

    def _get_ready(self) -> protocol.Collected:
        """Start it, if it has no process, and have it collect.

        Raises:
            WorkerError: it dies, or refuses.
        """
        if not self.is_there:
            self._begin_to_start()
        if self.collected is None:
            self._is_up()
            was_up = self.cuda
            self.ask(self._collect)()
            self.brings_up = "start" if was_up else "collect" if self.cuda else "run"
            self._look()
        assert self.collected is not None, "it has answered"
        return self.collected

    def begin(self, test: str, following: str, *, holds: bool = False) -> None:
        """Have it run a test, up to a call in which it holds or to its end."""
        self._done = ""
        with contextlib.suppress(WorkerError):  # which ``answer`` tells
            collected = self._get_ready()
            if test in collected.ids:
                self._step(protocol.RunTest(test, following, holds))
            else:
                self._done = _why_missing(test, collected.errors)

    def go(self, *, holds: bool) -> None:
        """Let it run on, if it holds."""
        if self.at is not None:
            with contextlib.suppress(WorkerError):
                self._step(protocol.Go(holds))

    def answer(self) -> protocol.Done | str:
        """Let it run to the end of the test; how the test ended, or why it did not run."""
        self.go(holds=False)
        return self.why or self._done

    def _step(self, asked: protocol.RunTest | protocol.Go) -> None:
        self._look()
        answer = self.ask(asked)()
        self._look()
        if isinstance(answer, protocol.Done):
            self._done = answer

    def _look(self) -> None:
        self.order.see(self._cuda_is_up(), self.cuda)


def _why_missing(test: str, errors: Environment[str, str]) -> str:
    """Why a worker does not have a test."""
    file = test.partition("::")[0]
    found = errors.get(file) or next((w for f, w in errors.items() if test.startswith(f)), "")
    return found or protocol.NO_SUCH_TEST
