"""``--kernelprof-against``: each test that is measured is measured on a revision's code, too."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_kernelprof.against import folders
from pytest_kernelprof.against.budget import Budget
from pytest_kernelprof.against.further import Further
from pytest_kernelprof.against.generated import NotPreparedError, copy_generated, prepare
from pytest_kernelprof.against.imports import compiled_of_today, mapping_of
from pytest_kernelprof.against.interpreter import NotUsableError, interpreter_at
from pytest_kernelprof.against.invocation import arguments_for, of_the_tree
from pytest_kernelprof.against.mapping import is_below
from pytest_kernelprof.against.overlay import Tests, give_back, lay_over
from pytest_kernelprof.against.reference import Process, Reference
from pytest_kernelprof.against.revision import CannotLayOut, find, lay_out
from pytest_kernelprof.against.verdict import judge
from pytest_kernelprof.capture.seeds import seed_by
from pytest_kernelprof.device import inventory
from pytest_kernelprof.digest.changes_verdict import is_failed
from pytest_kernelprof.errors import LimitExceeded, SnapshotError
from pytest_kernelprof.plugin.fixture import KernelprofWarning
from pytest_kernelprof.plugin.keys import AFTER_CALL, AGAINST, SETTINGS, SHEET, TAKEN
from pytest_kernelprof.plugin.sheets import has_snapshot
from pytest_kernelprof.plugin.snapshots import Snapshots
from pytest_kernelprof.plugin.turns import Turns
from pytest_kernelprof.report.against import failure_words, write_against
from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.against import AgainstTest, Done, Laid, Launch, Launches
from pytest_kernelprof.schema.before import RevisionComparison

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import pluggy

    from pytest_kernelprof.against.mapping import Mapping
    from pytest_kernelprof.plugin.settings import Settings
    from pytest_kernelprof.schema.run import Profile
    from pytest_kernelprof.schema.turns import Side

_ATTRIBUTE = "kernelprof_against"
_FLAG = "--kernelprof-against"
_GIVEN_BACK = "{}: there the revision's own, though named as tests are, since its code imports it"
_UNMEASURED = "tests that are not measured ran before it here, and not there: run it alone"
_WORKERS = 100
"""Each process of a further pair has a worker's number beyond those of all references."""


def begin(
    config: pytest.Config, settings: Settings, concerns_us: Callable[[pytest.Item], bool]
) -> None:
    """Register what compares: in the process that reports, and in each that runs tests.

    Args:
        concerns_us: whether a test is measured.

    Raises:
        pytest.UsageError: there is no such code to compare with.
    """
    sent = getattr(config, "workerinput", {}).get(_ATTRIBUTE)
    if sent is None:
        assert settings.against is not None, "asked for"
        run = AgainstRun(config, settings.against)
        config.pluginmanager.register(run, AGAINST)
        launches = run.launches
    else:
        launches = codec.decode(sent.encode(), Launches)
    tests = AgainstTests(config, launches, settings, concerns_us)
    config.pluginmanager.register(tests, "kernelprof-against-tests")


class AgainstRun:
    """In the process that reports: lays the revision out, and tells what came of all tests.

    Attributes:
        launches: how references, and fresh processes beside them, are started.
        found: what came of each test, by its id.

    Raises:
        pytest.UsageError: there is no such code, or no place for it.
    """

    def __init__(self, config: pytest.Config, given: str) -> None:
        if sys.platform == "win32":
            raise pytest.UsageError(f"{_FLAG}: needs Linux or macOS")
        self.found: dict[str, AgainstTest] = {}  # of a test that is repeated, the last try
        self._session: pytest.Session | None = None
        settings = config.stash[SETTINGS]
        self._warn_only = settings.warn_only
        started_in = str(config.invocation_params.dir)
        folders.sweep()
        try:
            named = settings.against_python
            python = interpreter_at(named, started_in) if named else ""
            reference = find(given, str(config.rootpath), str(config.invocation_params.dir))
            folder = folders.make()
            config.add_cleanup(folder.let_go)
            if is_below(str(folder.path.resolve()), reference.root):
                raise CannotLayOut(f"the temporary folder (TMPDIR) is in {reference.root}: move it")
            notes = lay_out(reference, folder.tree, folder.scratch)
            tree = str(folder.tree.resolve())
            tests = lay_over(_tests_of(config, reference.root), reference.root, tree)
            copied, told = copy_generated(
                settings.against_copy, str(config.rootpath), reference.root, tree
            )
        except (CannotLayOut, OSError) as error:
            raise pytest.UsageError(f"{_FLAG}: {error}") from None
        except NotUsableError as error:
            raise pytest.UsageError(f"{_FLAG}-python: {error}") from None
        files = tuple(sorted({*tests, *copied}))
        laid = Laid(reference.name, reference.root, tree, str(folder.path), files, (*notes, *told))
        mapping = mapping_of(laid.root, laid.tree)
        own = mapping_of(laid.root, laid.root)
        there = mapping.path(started_in)
        self.launches = Launches(
            Launch(laid, arguments_for(config, mapping), there, python),
            Launch(replace(laid, tree=laid.root), arguments_for(config, own), started_in),
        )
        if settings.against_prepare:
            _prepare(config, settings.against_prepare, self.launches.reference, mapping)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Tell a worker of pytest-xdist where it is."""
        node.workerinput[_ATTRIBUTE] = codec.encode(self.launches).decode()  # type: ignore[attr-defined]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what came of a test off its report."""
        sent = report.__dict__.pop(_ATTRIBUTE, None)
        if sent is not None:
            found = codec.decode(sent.encode(), AgainstTest)
            self.found[found.id] = found

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A run of which nothing was compared has failed."""
        self._session = session
        if session.config.getoption("collectonly", False):
            return
        failed = is_failed(list(self.found.values()), warn_only=self._warn_only)
        if failed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def comparison(self) -> RevisionComparison:
        """What came of all, for the run's record."""
        from pytest_kernelprof.plugin.portable import portable

        laid, tests = self.launches.reference.laid, tuple(self.found.values())
        counts = Counter(test.result for test in tests)
        found = RevisionComparison(laid.name, laid.notes, dict(counts), tests)
        return portable(found, laid.tree)  # the reference's files as seen from its root folder

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The section at the end."""
        write_against(
            terminalreporter,
            self.launches.reference.laid,
            list(self.found.values()),
            warn_only=self._warn_only,
            run_fails=bool(self._session and self._session.exitstatus),
        )


def _prepare(config: pytest.Config, command: str, launch: Launch, mapping: Mapping) -> None:
    """Run the user's command in the tree.

    Raises:
        pytest.UsageError: it fails.
    """
    environment = of_the_tree(os.environ, mapping, launch.python or sys.executable)
    where = mapping.path(str(config.rootpath))
    late = config.stash[SETTINGS].against_timeout
    try:
        prepare(command, where, launch.laid.folder, environment, late)
    except (NotPreparedError, OSError) as error:
        raise pytest.UsageError(f"kernelprof_against_prepare: {error}") from None


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
        launches: Launches,
        settings: Settings,
        concerns_us: Callable[[pytest.Item], bool],
    ) -> None:
        self._config = config
        self._launches = launches
        self._settings = settings
        self._concerns_us = concerns_us
        laid = launches.reference.laid
        self._mapping = mapping_of(laid.root, laid.tree)
        self._seed = _seed(config)
        self._path = sys.path[:]
        self._files: dict[Side, tuple[str, ...]] = {}
        self._reference: Reference | None = None
        self._turns: Turns | None = None
        self._further: Further | None = None
        self._running = ""
        self._found: dict[str, AgainstTest] = {}
        self._snapshots = Snapshots(config, settings)
        self._code: tuple[str, ...] = ()
        self._ran_unmeasured = False

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Start the reference, which comes up while tests are collected here."""
        if self._config.option.collectonly or self._config.pluginmanager.hasplugin("dsession"):
            return
        self._seed, self._path = _seed(self._config), sys.path[:]
        start = partial(self._process, "reference", 0)
        self._reference = Reference(start, inventory.cuda_is_up)
        self._further = further = Further(self._process, self._files.__getitem__)
        self._config.add_cleanup(further.end)
        self._config.add_cleanup(self._reference.end)
        self._turns = Turns(self._reference, further, self._budget(), times=self._is_timed())
        self._reference.start()

    def _process(self, side: Side, number: int) -> Process:
        """Start a process; number 0 is the reference, others are of further pairs."""
        launch = self._launches.candidate
        if side == "reference":
            launch = self._launches.reference
            launch = replace(launch, laid=give_back(self._code, launch.laid))
        worker = _worker_number(self._config) + _WORKERS * number
        timeout_s = self._settings.against_timeout
        path = self._users_path() if launch.python else self._path
        return Process(launch, worker, path, self._seed, timeout_s)

    def _users_path(self) -> list[str]:
        """What another environment, which has its own, imports from besides: the user's folders."""
        return [entry for entry in self._path if entry and self._mapping.is_users(entry)]

    def _budget(self) -> Budget:
        folder = Path(self._launches.reference.laid.folder)
        return Budget(folder / "scratch" / "spent", self._settings.against_budget)

    def _is_timed(self) -> bool:
        return not self._settings.against_exact

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Have the reference collect the files of all tests that are measured."""
        if self._reference is None or self._turns is None:
            return
        measured = [item for item in session.items if self._concerns_us(item)]
        files = tuple(dict.fromkeys(str(item.path) for item in measured))
        if not files:
            self._reference.end()
            self._reference = self._turns = None
            return
        self._files["candidate"] = files
        self._files["reference"] = there = tuple(map(self._mapping.path, files))
        kept = tuple(item.nodeid for item in measured if has_snapshot(item))
        self._reference.collect(there, kept)
        shared = set(self._reference.collected.shared)
        shared -= {os.path.relpath(one, self._mapping.tree) for one in there}
        self._code = tuple(sorted(one for one in shared if "conftest.py" not in one))
        if self._code:  # which then is its own there
            self._reference.end()
            self._reference.start()
            self._reference.collect(there, kept)
        # What was built beside the code would be sought in the tree; another environment has it.
        compiled = compiled_of_today(list(sys.modules.items()), sys.path, self._mapping)
        if compiled and not self._launches.reference.python:
            self._reference.refuse(compiled)
        self._config.stash[AFTER_CALL] = self._turns.after_call
        # Registered after all others, it is around what they do in the call phase.
        self._config.pluginmanager.register(_AroundCalls(self), "kernelprof-against-calls")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """The reference runs the test, up to its first call that is timed, before it is run
        here; then both go on from call to call."""
        if self._turns is not None and self._concerns_us(item):
            self._running = item.nodeid
            self._turns.begin(item.nodeid, self._following(item, nextitem))
        self._ran_unmeasured |= not self._running
        try:
            done = yield
            if self._running and self._turns is not None:
                self._turns.answer()
            return done
        finally:  # at Ctrl-C nobody waits for the reference
            self._running = ""
            self._found.pop(item.nodeid, None)

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
        if item.nodeid == self._running and self._turns is not None:
            self._turns.set_up()
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
        if item.nodeid != self._running or self._turns is None:
            why = "kernel_profile was asked for as the test ran, which cannot be foreseen"
            self._found[item.nodeid] = AgainstTest(item.nodeid, "not compared", why)
            return
        answer = self._turns.answer()
        if isinstance(answer, Done) and answer.wrong and self._reference is not None:
            self._reference.refuse(answer.wrong)
            answer = answer.wrong
        if not self._is_reviewed(item):
            profiles = [replace(one, verdicts=()) for one in profiles]
        found = judge(item.nodeid, profiles, answer, self._turns.timed)
        notes = [_GIVEN_BACK.format(", ".join(self._code))] if self._code else []
        if found.result == "worse" and self._ran_unmeasured:
            notes.append(_UNMEASURED)
        self._found[item.nodeid] = found = replace(found, notes=(*found.notes, *notes))
        if found.result == "worse":
            place = next(one.place for one in found.profiles if one.is_worse)
            words = failure_words(found, self._launches.reference.laid.name)
            if self._settings.warn_only:
                item.warn(KernelprofWarning(words))
                return
            raise LimitExceeded(words, pytrace=False, place=place)

    def _is_reviewed(self, item: pytest.Item) -> bool:
        """Whether the revision has another snapshot of a test, or none: reviewers see a change."""
        sheet = item.stash.get(SHEET, None)
        if sheet is None or sheet.entry.kept is None:
            return False
        try:
            there = self._snapshots.kept(self._mapping.path(str(item.path)), sheet.entry.device)
        except SnapshotError:
            return True
        before = there.get(sheet.entry.key)
        return before is None or before.profiles != sheet.entry.kept.profiles

    def note_failed(self, item: pytest.Item) -> None:
        """A test that fails by itself is not compared."""
        if item.nodeid == self._running:
            self._found[item.nodeid] = AgainstTest(
                item.nodeid, "not compared", "the test fails on your code"
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
            if self._further is not None:
                self._further.finish()
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
        """Compare when the test has passed, or has failed by a limit of its own alone: then what is
        worse follows in the same failure."""
        outcome = yield
        error = outcome.exception
        if error is not None and not isinstance(error, pytest.skip.Exception):
            self._tests.note_failed(item)
        if error is not None and not isinstance(error, LimitExceeded):
            return
        try:
            self._tests.compare(item)
        except LimitExceeded as worse:
            if error is None:
                outcome.force_exception(worse)
            else:
                error.msg = f"{error.msg}\n{worse.msg}"


def _worker_number(config: pytest.Config) -> int:
    """The N of the worker gwN; 0 without workers."""
    found = re.fullmatch(r"gw(\d+)", getattr(config, "workerinput", {}).get("workerid", ""))
    return int(found[1]) if found else 0


def _seed(config: pytest.Config) -> int | None:
    """What pytest-randomly seeds with, once it is configured."""
    seed = getattr(config.option, "randomly_seed", None)
    return seed if isinstance(seed, int) else None
