"""``--kernelprof-against=REV`` and ``--kernelprof-against-python=EXE``: measure each test on the
code of a revision, or in another environment, too, call by call in turn, and compare."""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_kernelprof.baselines import protocol, revision, supervisor, timing, worker
from pytest_kernelprof.baselines.import_redirect import compiled_of_today, is_below, mapping_of
from pytest_kernelprof.baselines.verdict import judge, not_compared, why_judged
from pytest_kernelprof.comparison.judge import lost_words, status_of, verdict_of
from pytest_kernelprof.errors import IncompleteProfile, LimitExceeded, SnapshotError
from pytest_kernelprof.gpu import inventory, usage_lock
from pytest_kernelprof.gpu.conditions import alone
from pytest_kernelprof.plugin.items import run_state, state_of
from pytest_kernelprof.plugin.outcome import failure_of, told_test
from pytest_kernelprof.plugin.reporting import tell_properties
from pytest_kernelprof.plugin.run_record import portable
from pytest_kernelprof.profiler.unprofiled_rounds import seed_by
from pytest_kernelprof.records import codec, comparison
from pytest_kernelprof.stats.intervals import DEFAULT_MARGIN
from pytest_kernelprof.summary.comparisons import shown_name
from pytest_kernelprof.summary.records import FAILED
from pytest_kernelprof.system import now_s

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import pluggy

    from pytest_kernelprof.plugin.collector import Collector
    from pytest_kernelprof.plugin.measuring import MeasuredCall, MeasuredTest
    from pytest_kernelprof.plugin.settings import Settings
    from pytest_kernelprof.records.profile import Profile

    Launches = dict[comparison.Side, protocol.Launch]


_AT_WORK = 2
_OVER = "the test exceeds a limit of its own"
_REPEATED = "the test was repeated"
_NOT_MADE = "the baseline does not make this call"
_FAILS = "the test fails on your code"
_FLAG = "--kernelprof-against"
_MOST_VERSIONS = 12

_GIVEN_BACK = (
    "{}: taken from the revision, since its code imports it, though it is named like a test"
)

_UNMEASURED = (
    "tests that are not measured ran before it on your code, but not on the baseline: run it alone"
)

_WORKERS = 100
"""The numbers of fresh workers are larger than those of all references."""


def begin(config: pytest.Config) -> None:
    """In the process that reports, lay the revision out; in each that runs tests, compare.

    Raises:
        pytest.UsageError: there is no such code to compare with, or no place for it.
    """
    state = run_state(config)
    if sys.platform == "win32":
        raise pytest.UsageError(f"{_FLAG} and {_FLAG}-python: need Linux or macOS")
    if not hasattr(config, "workerinput"):
        try:
            launches = _laid_out(config, state.settings)
        except revision.CannotCompare as error:
            raise pytest.UsageError(f"{error.option}: {error}") from None
        except OSError as error:
            raise pytest.UsageError(f"{_FLAG}: {error}") from None
        sent = {side: codec.encode(launch).decode() for side, launch in launches.items()}
        state.collector.prepared["revision"] = sent
        compared = partial(_compared, launches["baseline"], _python_of(state.settings))
        state.comparisons.insert(0, partial(compared, state.collector))
    sent = state.collector.prepared["revision"]
    launches = {side: codec.decode(one.encode(), protocol.Launch) for side, one in sent.items()}
    runs_tests = not config.option.collectonly and config.getoption("dist", "no") == "no"
    if runs_tests:  # else no test runs, or workers of pytest-xdist run them
        config.pluginmanager.register(AgainstTests(config, launches))


def _python_of(settings: Settings) -> str:
    """The interpreter of another environment as it was given with a revision; else empty."""
    return (settings.revision and settings.against_python) or ""


def _compared(
    launch: protocol.Launch, python: str, collector: Collector
) -> comparison.RunComparison:
    """What the run was compared with, and the tests that failed before they were compared."""
    source = launch.source
    fails = comparison.ProfileComparison(source=source, change="not compared", reason=_FAILS)
    failed = (one for one in collector.tests() if one.outcome in FAILED and not one.profiles)
    profiles = tuple(replace(fails, test=one.id) for one in failed)
    return comparison.RunComparison(
        source=source, name=launch.name, python=python, notes=launch.notes, profiles=profiles
    )


def _laid_out(config: pytest.Config, settings: Settings) -> Launches:
    """Lay the revision out below today's tests, if there is one; how both sides' processes are
    started.

    Raises:
        CannotCompare: there is no such code, or it cannot be laid out, or no such environment.
        OSError: a file cannot be read or written.
    """
    rootdir, started_in = str(config.rootpath), str(config.invocation_params.dir)
    supervisor.sweep_folders()
    named = settings.against_python
    python, versions = worker.interpreter_at(named, started_in) if named else ("", ())
    words = [one.words for one in versions]
    if named and not settings.revision:
        if not python:
            raise worker.NotUsableError(
                f"{named} runs these tests already, with the same packages: give the python of "
                f"another environment, or the code to compare with by {_FLAG}"
            )
        folder, root = supervisor.make_folder(), revision.root_of(rootdir)
        config.add_cleanup(folder.let_go)
        own = protocol.Launch(
            *(named, root, root, str(folder.path)),
            arguments=worker.arguments_for(config, mapping_of(root, root)),
            cwd=started_in,
        )
        name = f"{named} ({revision.named(words) or 'the same versions of all packages'})"
        notes = _versions("another environment", words) if len(words) > 3 else ()
        other = replace(own, name=name, python=python, notes=notes, source="environment")
        return {"baseline": other, "current": own}
    assert settings.revision is not None, "asked for"
    found = revision.find(settings.revision, rootdir, started_in)
    folder, root = supervisor.make_folder(), found.root
    config.add_cleanup(folder.let_go)
    tree = str(folder.tree.resolve())
    if is_below(tree, root):
        raise revision.CannotCompare(f"the temporary folder (TMPDIR) is in {root}: move it")
    notes = revision.lay_out(found, folder.tree, folder.scratch)
    ini = os.path.relpath(config.inipath.resolve(), root) if config.inipath is not None else ""
    patterns = (*config.getini("python_files"), *settings.benchmarks)
    is_ours = partial(revision.is_test, patterns=patterns, ini=ini)
    tests = revision.lay_over(is_ours, root, tree)
    copied, told = revision.copy_generated(settings.against_copy, rootdir, root, tree)
    mapping = mapping_of(root, tree)
    launch = protocol.Launch(
        *(found.name, root, tree, str(folder.path)),
        tests=tuple(sorted({*tests, *copied})),
        notes=(*notes, *told, *_versions(f"code and environment ({named}) differ", words)),
        arguments=worker.arguments_for(config, mapping),
        cwd=mapping.path(started_in),
        python=python,
    )
    if settings.against_prepare:
        environment = worker.of_the_tree(os.environ, mapping, python or sys.executable)
        where, late = mapping.path(rootdir), settings.against_timeout
        revision.prepare(settings.against_prepare, where, launch.folder, environment, late)
    given_here = worker.arguments_for(config, mapping_of(root, root))
    own = replace(launch, tree=root, arguments=given_here, cwd=started_in, python="")
    return {"baseline": launch, "current": own}


def _versions(what: str, words: Sequence[str]) -> tuple[str, ...]:
    """A note of the versions that differ; none where none does."""
    return (f"{what}: {revision.named(words, _MOST_VERSIONS)}",) if words else ()


class AgainstTests:
    """In a process that runs tests: has the reference run each test first, and compares.

    First, because time limits and the clocks of other plugins begin with the test itself.
    """

    def __init__(self, config: pytest.Config, launches: Launches) -> None:
        self._config = config
        self._launches = launches
        self._source = launches["baseline"].source
        self._settings = run_state(config).settings
        self._mapping = mapping_of(launches["baseline"].root, launches["baseline"].tree)
        self._files: dict[comparison.Side, tuple[str, ...]] = {}
        self._brings_up: dict[comparison.Side, worker.StartStep] = {}
        self._code: tuple[str, ...] = ()
        self._ran_unmeasured = False

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Start the reference, which comes up while tests are collected here."""
        # Another environment has a path of its own, and needs only the user's folders.
        users = tuple(one for one in sys.path if one and self._mapping.is_users(one))
        seed = getattr(self._config.option, "randomly_seed", None)  # once it is configured
        seed = seed if isinstance(seed, int) else None
        self._launches = {
            side: replace(one, path=users if one.python else tuple(sys.path), seed=seed)
            for side, one in self._launches.items()
        }
        self._brings_up["current"] = "start" if inventory.cuda_is_up() else "run"
        start = partial(self._process, "baseline", 0)
        self._reference = worker.Reference(start, inventory.cuda_is_up)
        self._fresh = timing.FreshPairs(self._process, self._files, self._brings_up)
        # What is added last is called first.
        for end in (self._fresh.end, self._reference.end, self._fresh.leave, self._reference.leave):
            self._config.add_cleanup(end)
        times = not self._settings.against_exact
        self._turns = Turns(self._reference, self._fresh, times=times, source=self._source)
        self._reference.come_up()

    def _process(self, side: comparison.Side, number: int) -> worker.Process:
        """Start a worker; number 0 is the reference, others are fresh."""
        launch = self._launches[side]
        if side == "baseline":
            launch = revision.give_back(self._code, launch)
        name = getattr(self._config, "workerinput", {}).get("workerid", "")  # gwN under xdist
        of_worker = re.fullmatch(r"gw(\d+)", name)
        number = _WORKERS * number + (int(of_worker[1]) if of_worker else 0)
        return worker.Process(launch, number, self._settings.against_timeout)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Have the reference collect the files of all tests that are measured."""
        measured = [item for item in session.items if state_of(item).is_measured]
        files = tuple(dict.fromkeys(str(item.path) for item in measured))
        if not files:
            self._reference.end()
            self._config.pluginmanager.unregister(self)
            return
        self._files["current"] = files
        self._files["baseline"] = there = tuple(map(self._mapping.path, files))
        kept = [item.nodeid for item in measured if state_of(item).has_snapshot]
        # The tree lacks what was built beside the user's code; another environment has it.
        compiled = compiled_of_today(list(sys.modules.items()), sys.path, self._mapping)
        if compiled and not self._launches["baseline"].python:
            self._reference.refuse(compiled)
        shared = set(self._reference.collect(there, kept).shared)
        shared -= {os.path.relpath(one, self._mapping.tree) for one in there}
        self._code = tuple(sorted(one for one in shared if "conftest.py" not in one))
        if self._code:  # the reference then runs the revision's own files
            self._reference.end()
            self._reference.collect(there, kept)
        self._brings_up["baseline"] = self._reference.brings_up
        if self._brings_up["current"] == "run" and inventory.cuda_is_up():
            self._brings_up["current"] = "collect"
        run_state(self._config).after_call = self._turns.after_call
        # Registered last, it wraps what all others do in the call phase.
        self._config.pluginmanager.unregister(self)
        self._config.pluginmanager.register(self)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """The reference runs the test up to its first call that is timed. Then the test runs here,
        and both go on from call to call."""
        if state_of(item).is_measured:
            following = _next_measured(item, nextitem)
            self._turns.begin(item.nodeid, following, partial(self._is_reviewed, item))
        else:
            self._ran_unmeasured = True
        try:
            done = yield
            if self._turns.test:
                self._reference.answer()
            return done
        finally:  # at Ctrl-C nobody waits for the reference
            self._turns.test = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """The same random numbers as on the other side."""
        if item.nodeid == self._turns.test:
            self._turns.set_up()
            seed_by(item.nodeid)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(
        self, item: pytest.Item
    ) -> Generator[None, pluggy.Result[object], None]:
        """Compare if the test passed, or failed only by a limit of its own: then its failure also
        says what is worse."""
        outcome = yield  # afterwards no lock is held
        error = outcome.exception
        if error is None or isinstance(error, LimitExceeded):
            found = self._compare(item, str(error.msg) if error is not None else "")
            if found is not None and error is None:
                outcome.force_exception(found)
            elif isinstance(found, LimitExceeded) and error is not None:
                error.msg = found.msg
        elif item.nodeid == self._turns.test and not isinstance(error, pytest.skip.Exception):
            _put(item, not_compared(_profiles_of(item), _FAILS, self._source))

    def _compare(self, item: pytest.Item, broken: str) -> LimitExceeded | IncompleteProfile | None:
        """Compare the profiles of a test, each time that it is repeated.

        Args:
            broken: the message of the limits that it breaks, if it does.

        Returns:
            What fails the test: it is worse, or a metric is missing that the revision has.
        """
        profiles = _profiles_of(item)
        if not profiles:
            return None
        found = self._judged(item, profiles)
        _put(item, found)
        name = self._launches["baseline"].name
        worse = [one for one, it in zip(profiles, found, strict=True) if it.change == "worse"]
        if worse:
            state, settings = state_of(item), state_of(item).settings
            python = _python_of(self._settings)
            base = comparison.RunComparison(source=self._source, name=name, python=python)
            test = told_test(state.as_told(), _profiles_of(item), accepts=False)
            told, warns = failure_of(test, settings, base), settings.warn_only
            accepts = state.snapshot is not None and state.snapshot.accepts
            before = failure_of(told_test(test, profiles, accepts=accepts), settings)
            both = f"{broken}\n{told}" if broken else told
            message = broken.replace(before, told) if before and before in broken else both
            if not warns:
                return LimitExceeded(message, pytrace=False, place=worse[0].place)
            state.warn(told)
        if lost := list(dict.fromkeys(metric for one in found for metric in one.lost)):
            return IncompleteProfile(
                f"{comparison.LIMIT_OF[self._source]}: "
                f"{lost_words(lost, shown_name(name, self._source))}"
            )
        return None

    def _judged(
        self, item: pytest.Item, profiles: Sequence[Profile]
    ) -> tuple[comparison.ProfileComparison, ...]:
        if item.nodeid != self._turns.test:
            why = (
                "the test requested kernel_profile while it ran, so the baseline did not measure it"
            )
            return not_compared(profiles, why, self._source)
        answer = self._reference.answer()
        if isinstance(answer, protocol.Done) and answer.wrong:
            self._reference.refuse(answer.wrong)
            answer = answer.wrong
        if not self._is_reviewed(item):
            profiles = [replace(one, verdicts=()) for one in profiles]
        found = judge(profiles, answer, self._turns.timed, self._source)
        notes = [_GIVEN_BACK.format(", ".join(self._code))] if self._code else []
        if self._ran_unmeasured and any(one.change == "worse" for one in found):
            notes.append(_UNMEASURED)
        # The revision's files are named relative to its root folder.
        noted = replace(found[0], notes=(*found[0].notes, *notes))
        return portable((noted, *found[1:]), self._mapping.tree)

    def _is_reviewed(self, item: pytest.Item) -> bool:
        """Whether a review shows a change of the test's snapshot: the revision has another one, or
        none."""
        judge = state_of(item).snapshot
        snapshots = run_state(self._config).snapshots
        if judge is None or judge.kept is None or snapshots is None:
            return False
        try:
            there = snapshots.kept(self._mapping.path(str(item.path)), judge.entry.device)
        except SnapshotError:
            return True
        before = there.get(judge.entry.key)
        return before is None or before.profiles != judge.kept.profiles

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """After a whole run the processes end their fixtures, and exit while this one reports."""
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self._fresh.finish()
            self._reference.finish()


def _next_measured(item: pytest.Item, following: pytest.Item | None) -> str:
    """The test that the reference runs next; empty for none."""
    if following is None:
        return ""
    items = item.session.items
    later = items[items.index(following) :]
    return next((one.nodeid for one in later if state_of(one).is_measured), "")


def _profiles_of(item: pytest.Item) -> tuple[Profile, ...]:
    taken = state_of(item).taken
    return taken.profiles if taken is not None else ()


def _put(item: pytest.Item, found: Sequence[comparison.ProfileComparison]) -> None:
    """Add to each profile of a test how it compares."""
    state = state_of(item)
    if state.taken is not None:
        profiles = []
        for profile, told in zip(state.taken.profiles, found, strict=True):
            one = replace(told, test=item.nodeid)
            verdict = verdict_of(one, profile, *status_of(one, profile))
            profiles.append(replace(profile, verdicts=(*profile.verdicts, verdict)))
        state.taken = replace(state.taken, profiles=tuple(profiles))
        tell_properties(item, state.taken.profiles, state.taken.comparisons)


class Turns:
    """Runs each test on the reference, call by call, and times the calls of it.

    Args:
        times: whether anything is to be timed. source: what the baseline is.

    Attributes:
        test: that runs; empty between tests, and while one runs that is not measured.
        timed: the times of its calls, by the labels of their profiles.
    """

    def __init__(
        self,
        reference: worker.Reference,
        fresh: timing.FreshPairs,
        *,
        times: bool,
        source: comparison.Source = "revision",
    ) -> None:
        self.timed: dict[str, timing.Timed] = {}
        self._reference = reference
        self._fresh = fresh
        self._is_reviewed: Callable[[], bool] = bool
        self._times, self._source = times, source
        self.test = ""
        self._tries = 0
        self._fails = ""

    def begin(self, test: str, following: str, is_reviewed: Callable[[], bool] = bool) -> None:
        """Have the reference run a test, up to the first of its calls.

        Args:
            is_reviewed: whether the revision has another snapshot of the test, or none.
        """
        self.test, self._tries, self._fails = test, 0, ""
        self._is_reviewed = is_reviewed
        self.timed.clear()
        self._reference.begin(test, following, holds=self._times)

    def set_up(self) -> None:
        """The test begins here, or is repeated; the times of a repeated test are not compared."""
        self._tries += 1
        if self._tries > 1:
            self.timed = {label: timing.Timed(timing.not_timed(_REPEATED)) for label in self.timed}
            self._reference.answer()

    def after_call(self, test: MeasuredTest, call: MeasuredCall) -> None:
        """Time a call, if the reference holds in the same; then the reference goes on."""
        if test.id != self.test or not self._times:
            return
        at = self._reference.at
        if at is None or at.label != call.profile.label:
            why = call.more.why_untimed() or (_REPEATED if self._tries > 1 else _NOT_MADE)
            self.timed[call.profile.label] = timing.Timed(timing.not_timed(why))
            return
        fails = not test.settings.warn_only
        if call.profile.outcome == "failed" and fails:
            other = timing.first_difference(call.more.work(call.result), at.work)
            self.timed[call.profile.label] = timing.Timed(timing.not_timed(_OVER), other)
            self._fails = _OVER
        else:
            own = why_judged(
                at.profile, call.profile, is_reviewed=self._is_reviewed(), source=self._source
            )
            self.timed[call.profile.label] = self._time(test, call, own)
            self._fails = (own or self._fails) if fails else ""
        usage_lock.finish_work()  # from here on the reference is at work
        self._reference.go(holds=True)

    def _time(self, test: MeasuredTest, call: MeasuredCall, own: str) -> timing.Timed:
        """Time a call. ``own``: why its own counts have judged it; empty if they have not."""
        more, settings, begun_s = call.more, test.settings, now_s()
        judged = timing.not_timed(own) if own else None
        if self._fails and not own:
            judged = comparison.Paired("undecided", self._fails)
        timed = timing.time_call(
            protocol.RunTest(test.id, holds=True, call=call.profile.label),
            more.work(call.result),
            settings.margin or DEFAULT_MARGIN,
            timing.own_rounds(more),
            self._reference,
            self._fresh,
            partial(alone, more.repeated.device, settings.lock_timeout, test.id, at_work=_AT_WORK),
            judged,
        )
        return timed._replace(paired=replace(timed.paired, took_s=now_s() - begun_s))
