"""``--kernelprof-against=REV``: measure each test on the code of a revision too, call by call in
turn, and compare."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_kernelprof.against import supervisor
from pytest_kernelprof.against.import_redirect import compiled_of_today, is_below, mapping_of
from pytest_kernelprof.against.protocol import Done, Launch, RunTest
from pytest_kernelprof.against.revision import (
    CannotLayOut,
    NotPreparedError,
    copy_generated,
    find,
    give_back,
    is_test,
    lay_out,
    lay_over,
    prepare,
)
from pytest_kernelprof.against.timing import (
    FreshPairs,
    Timed,
    first_difference,
    not_timed,
    own_rounds,
    time_call,
)
from pytest_kernelprof.against.verdict import judge, not_compared, why_judged
from pytest_kernelprof.against.worker import (
    NotUsableError,
    Process,
    Reference,
    arguments_for,
    interpreter_at,
    of_the_tree,
)
from pytest_kernelprof.capture.unprofiled_rounds import seed_by
from pytest_kernelprof.comparison.judge import lost_words, status_of, verdict_of
from pytest_kernelprof.device import inventory
from pytest_kernelprof.device.conditions import alone
from pytest_kernelprof.device.usage_lock import finish_work
from pytest_kernelprof.errors import IncompleteProfile, LimitExceeded, SnapshotError
from pytest_kernelprof.plugin.fixture import KernelprofWarning
from pytest_kernelprof.plugin.items import AGAINST, run_state, state_of
from pytest_kernelprof.plugin.reporting import tell_properties
from pytest_kernelprof.plugin.run_record import portable
from pytest_kernelprof.plugin.run_snapshots import Snapshots
from pytest_kernelprof.report.failure import worse_message
from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.comparison import LIMIT_OF, ProfileComparison, RunComparison
from pytest_kernelprof.stats.intervals import DEFAULT_MARGIN
from pytest_kernelprof.summary.records import FAILED
from pytest_kernelprof.system import now_s

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import pluggy

    from pytest_kernelprof.against.import_redirect import Mapping
    from pytest_kernelprof.against.protocol import At
    from pytest_kernelprof.against.schedule import StartStep
    from pytest_kernelprof.plugin.measuring import MeasuredCall, MeasuredTest
    from pytest_kernelprof.schema.comparison import Side
    from pytest_kernelprof.schema.profile import Profile

    Launches = dict[Side, Launch]


_AT_WORK = 2
_OVER = "the test exceeds a limit of its own"
_REPEATED = "the test was repeated"
_ATTRIBUTE = "kernelprof_against"
_FAILS = "the test fails on your code"
_FLAG = "--kernelprof-against"

_GIVEN_BACK = (
    "{}: taken from the revision, since its code imports it, though it is named like a test"
)

_UNMEASURED = (
    "tests that are not measured ran before it on your code, but not on the baseline: run it alone"
)

_WORKERS = 100
"""The numbers of fresh workers begin beyond those of all references."""


def begin(config: pytest.Config) -> None:
    """Register what compares: in the process that reports, and in each that runs tests.

    Raises:
        pytest.UsageError: there is no such code to compare with.
    """
    sent = getattr(config, "workerinput", {}).get(_ATTRIBUTE)
    if sent is None:
        run = AgainstRun(config)
        config.pluginmanager.register(run, AGAINST)
        launches = run.launches
    else:
        launches = {side: codec.decode(one.encode(), Launch) for side, one in sent.items()}
    config.pluginmanager.register(AgainstTests(config, launches), "kernelprof-against-tests")


class AgainstRun:
    """In the process that reports: lays the revision out, and tells what came of all tests.

    Attributes:
        launches: how references, and fresh processes of today's code, are started.

    Raises:
        pytest.UsageError: there is no such code, or no place for it.
    """

    def __init__(self, config: pytest.Config) -> None:
        if sys.platform == "win32":
            raise pytest.UsageError(f"{_FLAG}: needs Linux or macOS")
        settings, self._collector = run_state(config).settings, run_state(config).collector
        assert settings.revision is not None, "asked for"
        started_in = str(config.invocation_params.dir)
        supervisor.sweep_folders()
        try:
            named = settings.against_python
            python = interpreter_at(named, started_in) if named else ""
            reference = find(settings.revision, str(config.rootpath), started_in)
            folder = supervisor.make_folder()
            config.add_cleanup(folder.let_go)
            if is_below(str(folder.path.resolve()), reference.root):
                raise CannotLayOut(f"the temporary folder (TMPDIR) is in {reference.root}: move it")
            notes = lay_out(reference, folder.tree, folder.scratch)
            tree = str(folder.tree.resolve())
            ini = str(config.inipath.resolve()) if config.inipath is not None else ""
            below = ini[len(reference.root) + 1 :] if is_below(ini, reference.root) else ""
            is_ours = partial(is_test, patterns=config.getini("python_files"), ini=below)
            tests = lay_over(is_ours, reference.root, tree)
            copied, told = copy_generated(
                settings.against_copy, str(config.rootpath), reference.root, tree
            )
        except (CannotLayOut, OSError) as error:
            raise pytest.UsageError(f"{_FLAG}: {error}") from None
        except NotUsableError as error:
            raise pytest.UsageError(f"{_FLAG}-python: {error}") from None
        files = tuple(sorted({*tests, *copied}))
        root, mapping = reference.root, mapping_of(reference.root, tree)
        launch = Launch(
            *(reference.name, root, tree, str(folder.path), files, (*notes, *told)),
            *(arguments_for(config, mapping), mapping.path(started_in), python),
        )
        given_here = arguments_for(config, mapping_of(root, root))
        own = replace(launch, tree=root, arguments=given_here, cwd=started_in, python="")
        self.launches: Launches = {"baseline": launch, "current": own}
        if settings.against_prepare:
            _prepare(config, settings.against_prepare, launch, mapping)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Tell a worker of pytest-xdist where it is."""
        sent = {side: codec.encode(launch).decode() for side, launch in self.launches.items()}
        node.workerinput[_ATTRIBUTE] = sent  # type: ignore[attr-defined]

    def comparison(self) -> RunComparison:
        """What the run was compared with, and which tests failed before they could be."""
        launch = self.launches["baseline"]
        failed = tuple(
            ProfileComparison(source="revision", test=test.id, change="not compared", reason=_FAILS)
            for test in self._collector.tests()
            if test.outcome in FAILED and not test.profiles
        )
        return RunComparison(
            source="revision", name=launch.name, notes=launch.notes, profiles=failed
        )


def _prepare(config: pytest.Config, command: str, launch: Launch, mapping: Mapping) -> None:
    """Run the user's command in the tree.

    Raises:
        pytest.UsageError: it fails.
    """
    environment = of_the_tree(os.environ, mapping, launch.python or sys.executable)
    where = mapping.path(str(config.rootpath))
    late = run_state(config).settings.against_timeout
    try:
        prepare(command, where, launch.folder, environment, late)
    except (NotPreparedError, OSError) as error:
        raise pytest.UsageError(f"kernelprof_against_prepare: {error}") from None


class AgainstTests:
    """In a process that runs tests: has each run by a reference first, and compares.

    First, as time limits and the clocks of other plugins begin with the test itself.
    """

    def __init__(self, config: pytest.Config, launches: Launches) -> None:
        self._config = config
        self._launches = launches.copy()
        self._settings = run_state(config).settings
        self._mapping = mapping_of(launches["baseline"].root, launches["baseline"].tree)
        self._files: dict[Side, tuple[str, ...]] = {}
        self._reference: Reference | None = None
        self._turns: Turns | None = None
        self._fresh: FreshPairs | None = None
        self._brings_up: dict[Side, StartStep] = {}
        self._running = ""
        self._snapshots = Snapshots(config, self._settings)
        self._code: tuple[str, ...] = ()
        self._ran_unmeasured = False

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Start the reference, which comes up while tests are collected here."""
        if self._config.option.collectonly or self._config.pluginmanager.hasplugin("dsession"):
            return
        for side, launch in self._launches.items():
            # Another environment has its own: it imports from the user's folders besides.
            users = [one for one in sys.path if one and self._mapping.is_users(one)]
            path = tuple(users if launch.python else sys.path)
            self._launches[side] = replace(launch, path=path, seed=_seed(self._config))
        self._brings_up["current"] = "start" if inventory.cuda_is_up() else "run"
        start = partial(self._process, "baseline", 0)
        self._reference = Reference(start, inventory.cuda_is_up)
        self._fresh = fresh = FreshPairs(self._process, self._files, self._brings_up)
        self._config.add_cleanup(fresh.end)
        self._config.add_cleanup(self._reference.end)
        times = not self._settings.against_exact
        self._turns = Turns(self._reference, fresh, times=times)
        self._reference.come_up()

    def _process(self, side: Side, number: int) -> Process:
        """Start a worker; number 0 is the reference, others are fresh."""
        launch = self._launches[side]
        if side == "baseline":
            launch = give_back(self._code, launch)
        worker = _worker_number(self._config) + _WORKERS * number
        return Process(launch, worker, self._settings.against_timeout)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Have the reference collect the files of all tests that are measured."""
        if self._reference is None or self._turns is None:
            return
        measured = [item for item in session.items if state_of(item).is_measured]
        files = tuple(dict.fromkeys(str(item.path) for item in measured))
        if not files:
            self._reference.end()
            self._reference = self._turns = None
            return
        self._files["current"] = files
        self._files["baseline"] = there = tuple(map(self._mapping.path, files))
        kept = tuple(item.nodeid for item in measured if state_of(item).has_snapshot)
        shared = set(self._reference.collect(there, kept).shared)
        shared -= {os.path.relpath(one, self._mapping.tree) for one in there}
        self._code = tuple(sorted(one for one in shared if "conftest.py" not in one))
        if self._code:  # which then is its own there
            self._reference.end()
            self._reference.collect(there, kept)
        self._brings_up["baseline"] = self._reference.brings_up
        if self._brings_up["current"] == "run" and inventory.cuda_is_up():
            self._brings_up["current"] = "collect"
        # What was built beside the code would be sought in the tree; another environment has it.
        compiled = compiled_of_today(list(sys.modules.items()), sys.path, self._mapping)
        if compiled and not self._launches["baseline"].python:
            self._reference.refuse(compiled)
        run_state(self._config).after_call = self._turns.after_call
        # Registered after all others, it is around what they do in the call phase.
        self._config.pluginmanager.register(_AroundCalls(self), "kernelprof-against-calls")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """The reference runs the test, up to its first call that is timed, before it is run
        here; then both go on from call to call."""
        if self._turns is not None and state_of(item).is_measured:
            self._running = item.nodeid
            following = self._following(item, nextitem)
            self._turns.begin(item.nodeid, following, partial(self._is_reviewed, item))
        self._ran_unmeasured |= not self._running
        try:
            done = yield
            if self._running and self._turns is not None:
                self._turns.answer()
            return done
        finally:  # at Ctrl-C nobody waits for the reference
            self._running = ""

    def _following(self, item: pytest.Item, following: pytest.Item | None) -> str:
        """The test that the reference runs next."""
        if following is None:
            return ""
        items = item.session.items
        later = items[items.index(following) :]
        return next((one.nodeid for one in later if state_of(one).is_measured), "")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """The same random numbers as on the other side."""
        if item.nodeid == self._running and self._turns is not None:
            self._turns.set_up()
            seed_by(item.nodeid)

    def compare(
        self, item: pytest.Item, broken: str = ""
    ) -> LimitExceeded | IncompleteProfile | None:
        """Compare what a test took, each time that it is repeated: what is worse stays so.

        Args:
            broken: the message of the limits that it breaks, if it does.

        Returns:
            What fails the test: it is worse, or a number is missing that the revision has.
        """
        profiles = _profiles_of(item)
        if not profiles:
            return None
        found = self._judged(item, profiles)
        _put(item, found)
        name = self._launches["baseline"].name
        lost = list(dict.fromkeys(metric for one in found for metric in one.lost))
        pairs = zip(_profiles_of(item), found, strict=True)
        worse = [profile for profile, one in pairs if one.change == "worse"]
        if worse and self._settings.warn_only:
            item.warn(KernelprofWarning(worse_message("", worse, name)))
        elif worse:
            message = worse_message(broken, worse, name)
            return LimitExceeded(message, pytrace=False, place=worse[0].place)
        if lost:
            return IncompleteProfile(f"{LIMIT_OF['revision']}: {lost_words(lost, name)}")
        return None

    def _judged(
        self, item: pytest.Item, profiles: Sequence[Profile]
    ) -> tuple[ProfileComparison, ...]:
        if item.nodeid != self._running or self._turns is None:
            why = (
                "the test requested kernel_profile while it ran, so the baseline did not measure it"
            )
            return not_compared(profiles, why)
        answer = self._turns.answer()
        if isinstance(answer, Done) and answer.wrong and self._reference is not None:
            self._reference.refuse(answer.wrong)
            answer = answer.wrong
        if not self._is_reviewed(item):
            profiles = [replace(one, verdicts=()) for one in profiles]
        found = judge(profiles, answer, self._turns.timed)
        notes = [_GIVEN_BACK.format(", ".join(self._code))] if self._code else []
        if self._ran_unmeasured and any(one.change == "worse" for one in found):
            notes.append(_UNMEASURED)
        # The revision's files as seen from its root folder.
        return portable(
            (replace(found[0], notes=(*found[0].notes, *notes)), *found[1:]), self._mapping.tree
        )

    def _is_reviewed(self, item: pytest.Item) -> bool:
        """Whether the revision has another snapshot of a test, or none: reviewers see a change."""
        judge = state_of(item).snapshot
        if judge is None or judge.kept is None:
            return False
        try:
            there = self._snapshots.kept(self._mapping.path(str(item.path)), judge.entry.device)
        except SnapshotError:
            return True
        before = there.get(judge.entry.key)
        return before is None or before.profiles != judge.kept.profiles

    def note_failed(self, item: pytest.Item) -> None:
        """A test that fails by itself is not compared."""
        if item.nodeid == self._running:
            _put(item, not_compared(_profiles_of(item), _FAILS))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The reference ends its fixtures; of a run that was ended it is ended as it stands."""
        if self._reference is None:
            return
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            if self._fresh is not None:
                self._fresh.finish()
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
        if error is not None and not isinstance(error, LimitExceeded):
            if not isinstance(error, pytest.skip.Exception):
                self._tests.note_failed(item)
            return
        found = self._tests.compare(item, str(error.msg) if error is not None else "")
        if found is not None and error is None:
            outcome.force_exception(found)
        elif isinstance(found, LimitExceeded) and error is not None:
            error.msg = found.msg


def _profiles_of(item: pytest.Item) -> tuple[Profile, ...]:
    taken = state_of(item).taken
    return taken.profiles if taken is not None else ()


def _put(item: pytest.Item, found: Sequence[ProfileComparison]) -> None:
    """Add how each profile compares to what the test took."""
    state = state_of(item)
    if state.taken is not None:
        pairs = zip(state.taken.profiles, found, strict=True)
        state.taken = replace(state.taken, profiles=tuple(_with(item, *pair) for pair in pairs))
        tell_properties(item, state.taken.profiles, state.taken.comparisons)


def _with(item: pytest.Item, profile: Profile, found: ProfileComparison) -> Profile:
    found = replace(found, test=item.nodeid)
    status, why = status_of(found, profile)
    return replace(profile, verdicts=(*profile.verdicts, verdict_of(found, profile, status, why)))


def _worker_number(config: pytest.Config) -> int:
    """The N of the worker gwN; 0 without workers."""
    found = re.fullmatch(r"gw(\d+)", getattr(config, "workerinput", {}).get("workerid", ""))
    return int(found[1]) if found else 0


def _seed(config: pytest.Config) -> int | None:
    """What pytest-randomly seeds with, once it is configured."""
    seed = getattr(config.option, "randomly_seed", None)
    return seed if isinstance(seed, int) else None


class Turns:
    """Runs each test on the reference, call by call, and times the calls of it.

    Args:
        times: whether anything is to be timed.

    Attributes:
        timed: what came of the calls of the test that runs, by the labels of their profiles.
    """

    def __init__(self, reference: Reference, fresh: FreshPairs, *, times: bool) -> None:
        self.timed: dict[str, Timed] = {}
        self._reference = reference
        self._fresh = fresh
        self._is_reviewed: Callable[[], bool] = bool
        self._times = times
        self._test = ""
        self._tries = 0

    def begin(self, test: str, following: str, is_reviewed: Callable[[], bool] = bool) -> None:
        """Have the reference run a test, up to the first of its calls.

        Args:
            is_reviewed: whether the test's snapshot is another one in the revision.
        """
        self._test, self._tries, self._is_reviewed = test, 0, is_reviewed
        self.timed.clear()
        self._reference.begin(test, following, holds=self._times)

    def set_up(self) -> None:
        """The test begins here, or is repeated: then its times are no comparison any more."""
        self._tries += 1
        if self._tries > 1:
            self.timed = {label: Timed(not_timed(_REPEATED)) for label in self.timed}
            self._reference.answer()

    def answer(self) -> Done | str:
        """What became of the test there, once it has run to its end."""
        return self._reference.answer()

    def after_call(self, test: MeasuredTest, call: MeasuredCall) -> None:
        """Time a call, if the reference holds in the same; then the reference goes on."""
        if test.id != self._test or not self._times:
            return
        at = self._reference.at
        if at is None or at.label != call.label:
            self._note_why(call)
            return
        if call.profile.outcome == "failed" and not test.settings.warn_only:
            other = first_difference(call.more.work(call.result), at.work)
            self.timed[call.label] = Timed(not_timed(_OVER), other)
        else:
            begun = now_s()
            timed = self._time(test, call, at)
            paired = replace(timed.paired, took_s=now_s() - begun)
            self.timed[call.label] = dataclasses.replace(timed, paired=paired)
        finish_work()  # from here on the reference is at work
        self._reference.go(holds=True)

    def _time(self, test: MeasuredTest, call: MeasuredCall, at: At) -> Timed:
        more, settings = call.more, test.settings
        margin = settings.margin or DEFAULT_MARGIN
        return time_call(
            RunTest(test.id, holds=True, call=call.label),
            more.work(call.result),
            margin,
            own_rounds(more.series()),
            self._reference,
            self._fresh,
            partial(alone, more.device, settings.lock_timeout, test.id, at_work=_AT_WORK),
            lambda: why_judged(at.profile, call.profile, is_reviewed=self._is_reviewed()),
        )

    def _note_why(self, call: MeasuredCall) -> None:
        """Why a call is not timed that the reference does not hold in."""
        why = call.more.why_untimed()
        if self._tries > 1:
            why = why or _REPEATED
        self.timed[call.label] = Timed(not_timed(why or "the revision does not make this call"))
