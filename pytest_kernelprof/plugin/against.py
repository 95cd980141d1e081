"""``--kernelprof-against``: each test that is measured is measured on a revision's code, too."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.against import folders
from pytest_kernelprof.against.imports import mapping_of
from pytest_kernelprof.against.invocation import arguments_for
from pytest_kernelprof.against.mapping import is_below
from pytest_kernelprof.against.overlay import Tests, lay_over
from pytest_kernelprof.against.reference import Process, Reference
from pytest_kernelprof.against.revision import CannotLayOut, find, lay_out
from pytest_kernelprof.against.verdict import judge
from pytest_kernelprof.capture.seeds import seed_by
from pytest_kernelprof.errors import LimitExceeded
from pytest_kernelprof.plugin.keys import TAKEN
from pytest_kernelprof.report.against import failure_words, is_failed, write_against
from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.against import AgainstTest, Done, Laid, Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import pluggy

    from pytest_kernelprof.schema.run import Profile

_ATTRIBUTE = "kernelprof_against"
_FLAG = "--kernelprof-against"


def begin(
    config: pytest.Config, given: str, timeout_s: float, concerns_us: Callable[[pytest.Item], bool]
) -> None:
    """Register what compares: in the process that reports, and in each that runs tests.

    Args:
        given: the revision or folder.
        concerns_us: whether a test is measured.

    Raises:
        pytest.UsageError: there is no such code to compare with.
    """
    sent = getattr(config, "workerinput", {}).get(_ATTRIBUTE)
    if sent is None:
        run = AgainstRun(config, given)
        config.pluginmanager.register(run, "kernelprof-against")
        launch = run.launch
    else:
        launch = codec.decode(sent.encode(), Launch)
    tests = AgainstTests(config, launch, timeout_s, concerns_us)
    config.pluginmanager.register(tests, "kernelprof-against-tests")


class AgainstRun:
    """In the process that reports: lays the revision out, and tells what came of all tests.

    Attributes:
        launch: how references are started.

    Raises:
        pytest.UsageError: there is no such code, or no place for it.
    """

    def __init__(self, config: pytest.Config, given: str) -> None:
        if sys.platform == "win32":
            raise pytest.UsageError(f"{_FLAG}: needs Linux or macOS")
        self._found: dict[str, AgainstTest] = {}  # of a test that is repeated, the last try
        folders.sweep()
        try:
            reference = find(given, str(config.rootpath), str(config.invocation_params.dir))
            folder = folders.make()
            config.add_cleanup(folder.let_go)
            notes = lay_out(reference, folder.tree, folder.scratch)
            tests = lay_over(_tests_of(config, reference.root), reference.root, str(folder.tree))
        except (CannotLayOut, OSError) as error:
            raise pytest.UsageError(f"{_FLAG}: {error}") from None
        tree = str(folder.tree.resolve())
        laid = Laid(reference.name, reference.root, tree, str(folder.path), tests, notes)
        mapping = mapping_of(laid.root, laid.tree)
        cwd = mapping.path(str(config.invocation_params.dir))
        self.launch = Launch(laid, arguments_for(config, mapping), cwd)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Tell a worker of pytest-xdist where it is."""
        node.workerinput[_ATTRIBUTE] = codec.encode(self.launch).decode()  # type: ignore[attr-defined]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what came of a test off its report."""
        sent = report.__dict__.pop(_ATTRIBUTE, None)
        if sent is not None:
            found = codec.decode(sent.encode(), AgainstTest)
            self._found[found.id] = found

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A run of which nothing was compared has failed."""
        if session.config.getoption("collectonly", False):
            return
        if is_failed(list(self._found.values())) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The section at the end."""
        write_against(terminalreporter, self.launch.laid, list(self._found.values()))


def _tests_of(config: pytest.Config, root: str) -> Tests:
    ini = str(config.inipath.resolve()) if config.inipath is not None else ""
    below = ini[len(root) + 1 :] if is_below(ini, root) else ""
    return Tests(tuple(config.getini("python_files")), below)


class AgainstTests:
    """In a process that runs tests: has each run by a reference first, and compares.

    First, as time limits and the clocks of other plugins begin with the test itself.
    """

    def __init__(
        self,
        config: pytest.Config,
        launch: Launch,
        timeout_s: float,
        concerns_us: Callable[[pytest.Item], bool],
    ) -> None:
        self._config = config
        self._launch = launch
        self._timeout_s = timeout_s
        self._concerns_us = concerns_us
        self._mapping = mapping_of(launch.laid.root, launch.laid.tree)
        self._reference: Reference | None = None
        self._answers: dict[str, Done | str] = {}
        self._found: dict[str, AgainstTest] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Start the reference, which comes up while tests are collected here."""
        if self._config.option.collectonly or self._config.pluginmanager.hasplugin("dsession"):
            return
        start = partial(
            Process,
            self._launch,
            _worker_number(self._config),
            sys.path[:],
            _seed(self._config),
            self._timeout_s,
        )
        self._reference = Reference(start)
        self._config.add_cleanup(self._reference.end)
        self._reference.start()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Have the reference collect the files of all tests that are measured."""
        if self._reference is None:
            return
        measured = filter(self._concerns_us, session.items)
        files = dict.fromkeys(self._mapping.path(str(item.path)) for item in measured)
        if not files:
            self._reference.end()
            self._reference = None
            return
        self._reference.collect(tuple(files))
        # Registered after all others, it is around what they do in the call phase.
        self._config.pluginmanager.register(_AroundCalls(self), "kernelprof-against-calls")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """The reference runs the test before it is run here."""
        if self._reference is not None and self._concerns_us(item):
            following = self._following(item, nextitem)
            self._answers[item.nodeid] = answer = self._reference.run(item.nodeid, following)
            if isinstance(answer, Done) and answer.wrong:
                self._reference.refuse(answer.wrong)
                self._answers[item.nodeid] = answer.wrong
        try:
            return (yield)
        finally:
            for kept in (self._answers, self._found):
                kept.pop(item.nodeid, None)

    def _following(self, item: pytest.Item, following: pytest.Item | None) -> str:
        """The test that the reference runs next."""
        if following is None:
            return ""
        items = item.session.items
        later = items[items.index(following) :]
        return next((one.nodeid for one in later if self._concerns_us(one)), "")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """The same random numbers as on the other side."""
        if item.nodeid in self._answers:
            seed_by(item.nodeid)

    def compare(self, item: pytest.Item) -> None:
        """Compare what a test took, each time that it is repeated: what is worse stays so.

        Raises:
            LimitExceeded: it is worse.
        """
        profiles: list[Profile] = [
            profile for one in item.stash.get(TAKEN, []) for profile in one.profiles
        ]
        if not profiles:
            return
        answer = self._answers.get(item.nodeid)
        if answer is None:
            why = "kernel_profile was asked for as the test ran, which cannot be foreseen"
            self._found[item.nodeid] = AgainstTest(item.nodeid, "not compared", why)
            return
        self._found[item.nodeid] = found = judge(item.nodeid, profiles, answer)
        if found.result == "worse":
            place = next(one.place for one in found.profiles if one.worse)
            words = failure_words(found, self._launch.laid.name)
            raise LimitExceeded(words, pytrace=False, place=place)

    def note_failed(self, item: pytest.Item) -> None:
        """A test that fails by itself is not compared."""
        if item.nodeid in self._answers:
            self._found[item.nodeid] = AgainstTest(
                item.nodeid, "not compared", "the test fails here, whatever it takes"
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Send what came of the test along with its report."""
        report = yield
        if call.when == "call" and item.nodeid in self._found:
            setattr(report, _ATTRIBUTE, codec.encode(self._found.pop(item.nodeid)).decode())
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The reference ends its fixtures; of a run that was ended it is ended as it stands."""
        if self._reference is None:
            return
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self._reference.finish()
        self._reference.end()


class _AroundCalls:
    """Around the call phase and all that others do in it, so that no lock is held any more."""

    def __init__(self, tests: AgainstTests) -> None:
        self._tests = tests

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(
        self, item: pytest.Item
    ) -> Generator[None, pluggy.Result[object], None]:
        """Compare when the test has passed by itself."""
        outcome = yield
        if outcome.exception is not None:
            if not isinstance(outcome.exception, pytest.skip.Exception):
                self._tests.note_failed(item)
            return
        try:
            self._tests.compare(item)
        except LimitExceeded as error:
            outcome.force_exception(error)


def _worker_number(config: pytest.Config) -> int:
    """The N of the worker gwN; 0 without workers."""
    found = re.fullmatch(r"gw(\d+)", getattr(config, "workerinput", {}).get("workerid", ""))
    return int(found[1]) if found else 0


def _seed(config: pytest.Config) -> int | None:
    """What pytest-randomly seeds with, once it is configured."""
    seed = getattr(config.option, "randomly_seed", None)
    return seed if isinstance(seed, int) else None
