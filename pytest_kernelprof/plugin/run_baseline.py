"""A run document as baseline (``--kernelprof-against=RUN.json``): each profile is judged by the
profile of the same place in an earlier run, as soon as it is measured."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_kernelprof.baselines import run_documents
from pytest_kernelprof.baselines.supervisor import make_folder, sweep_folders
from pytest_kernelprof.comparison import judge
from pytest_kernelprof.errors import IncompleteProfile, RunFileError
from pytest_kernelprof.gpu.file_lock import can_share
from pytest_kernelprof.measure.policy import TIMED_ROUNDS
from pytest_kernelprof.records import codec, comparison
from pytest_kernelprof.records.document import Document, Run, Test, pack, unpack
from pytest_kernelprof.records.metrics import METRICS
from pytest_kernelprof.records.profile import Profile, Reason, Status, Verdict
from pytest_kernelprof.summary.verdicts import delta_words
from pytest_kernelprof.system import TEMPORARY_FOLDER

try:  # bound here: tests replace it
    from sqlite3 import Error, connect
except ImportError:  # a Python that was built without
    raise pytest.UsageError(
        "--kernelprof-against: a run document needs the module sqlite3, which this Python lacks; "
        "use another Python, or run kernelprof compare after the run"
    ) from None
from collections.abc import Callable, Iterable, Mapping

from pytest_kernelprof.plugin.collector import Collector
from pytest_kernelprof.plugin.settings import Settings

Compared = Callable[[], comparison.RunComparison | None]


_FLAG = "--kernelprof-against"
_LIMIT = comparison.LIMIT_OF["run"]


def begin(
    config: pytest.Config, settings: Settings, collector: Collector, comparisons: list[Compared]
) -> Callable[[str], Baseline | None]:
    """What looks up the baseline of a test; in the process that reports, register a plugin.

    Args:
        comparisons: gets what says how the run compares.

    Raises:
        pytest.UsageError: there is nothing to compare with, or a margin is malformed.
    """
    try:
        allowed = judge.allowances(tuple(map(judge.parse_allowance, settings.fail_on)))
    except ValueError as error:
        raise pytest.UsageError(f"ini key kernelprof_fail_on: {error}") from None
    if not hasattr(config, "workerinput"):
        baseline = RunBaseline(config, settings.run_document or "", collector, allowed)
        config.pluginmanager.register(baseline)
        comparisons.append(baseline.comparison)
    return partial(baseline_of, collector.prepared["profiles"], allowed)


def write_profiles(file: str, tests: Iterable[Test]) -> None:
    """Write the profiles of an earlier run to a file: memory holds only those of the test that
    runs."""
    packed = ((one.id, codec.encode(pack(Run((_lean(one),))))) for one in tests)
    with closing(connect(file)) as database, database:
        database.execute("CREATE TABLE tests (id TEXT PRIMARY KEY, profiles BLOB)")
        database.executemany("INSERT INTO tests VALUES (?, ?)", packed)


def baseline_of(file: str, allowed: Mapping[str, judge.Allowance], test: str) -> Baseline | None:
    """The profiles of a test in the earlier run; None if there are none.

    Raises:
        IncompleteProfile: the file cannot be read: it is gone, or on another machine than this
            worker of pytest-xdist.
    """
    asked = "SELECT profiles FROM tests WHERE id = ?"
    try:
        with closing(connect(f"{Path(file).as_uri()}?mode=ro", uri=True)) as database:
            row = database.execute(asked, (codec.text(test),)).fetchone()
    except Error as error:
        raise IncompleteProfile(
            f"{_FLAG}: {file} cannot be read here ({error}). It holds the profiles of the run "
            "document, on the machine that started pytest: start pytest-xdist workers on that "
            "machine (-n), and let no test remove files from the temporary folder"
        ) from None
    if row is None:
        return None
    run = unpack(codec.decode(row[0], Document))
    return Baseline(test, run_documents.profiles_of(run.tests), allowed)


def _lean(test: Test) -> Test:
    """A test without what no comparison reads."""
    less: dict[str, Any] = {"verdicts": (), "copies": (), "waits": (), "second_look": {}}
    return Test(test.id, tuple(replace(one, **less) for one in test.profiles))


@dataclass(slots=True)
class Baseline:
    """The profiles of a test in an earlier run.

    Attributes:
        test: its node id. profiles: those of the earlier run, by key.
        allowed: what each metric may grow by.
        seen: how many profiles of each label were compared.
    """

    test: str
    profiles: Mapping[run_documents.Key, Profile]
    allowed: Mapping[str, judge.Allowance]
    seen: Counter[str] = field(default_factory=Counter)

    def verdicts(self, profile: Profile) -> tuple[Verdict, ...]:
        """How the test's next profile compares; empty if the earlier run has no profile of its
        place."""
        found = self._compared(profile)
        if found is None:
            return ()
        return (judge.verdict_of(found, profile, *self._judgement(found, profile)),)

    def note(self, profile: Profile) -> None:
        """Count a profile: the next one is compared with the one after it."""
        self.seen[profile.label] += 1

    def times_so_far(self, profile: Profile) -> tuple[Verdict, ...]:
        """How the judged times compare while rounds are still taken. By this the engine decides on
        a second look and on more rounds."""
        found = self._compared(profile)
        return tuple(
            Verdict(limit=_LIMIT, metric=one.name, outcome=_outcome_so_far(one, profile))
            for one in (found.metrics if found is not None else ())
            if one.spec.kind == "timed" and one.judged and one.change != "better"
        )

    def _compared(self, profile: Profile) -> comparison.ProfileComparison | None:
        key = run_documents.Key(self.test, profile.label, self.seen[profile.label])
        old = self.profiles.get(key)
        if old is None:
            return None
        return run_documents.compare_profile(key, [old], profile, self.allowed)

    def _judgement(
        self, found: comparison.ProfileComparison, profile: Profile
    ) -> tuple[Status, str, Reason]:
        """Status, why of "incomplete" and "not judged", and the reason of "undecided"."""
        status, why = judge.status_of(found, profile)
        if status in ("failed", "incomplete", "not judged"):
            return status, why, ""
        undecided = [one for one in found.metrics if one.judged and one.change == "undecided"]
        if any(one.spec.kind == "exact" for one in undecided):
            return "not judged", f"{delta_words(found)}, but cold", ""
        if undecided:
            return "undecided", "", _why_undecided(undecided[0], profile)
        times = (one for one in self.allowed.values() if METRICS[one.metric].kind == "timed")
        is_disturbed = found.untimed == judge.DISTURBED and profile.conditions.disturbed
        if is_disturbed and any(one.judged for one in times):
            return "undecided", "", "disturbed"
        return "passed", "", ""


def _outcome_so_far(one: comparison.MetricDelta, profile: Profile) -> Status:
    """A second look at a time of the device is another session; then all rounds are judged."""
    looked_once = len(profile.metrics[one.name].rounds) < 2 * TIMED_ROUNDS
    if one.change == "undecided" or (one.spec.sources == ("profiled",) and looked_once):
        return "undecided"
    return "failed"


def _why_undecided(one: comparison.MetricDelta, profile: Profile) -> Reason:
    if one.interval is None:
        return "few" if len(profile.metrics[one.name].rounds) < TIMED_ROUNDS else "alike"
    return "second look" if one.name in profile.second_look else "interval"


class RunBaseline:
    """In the process that reports: refuses the document of another suite, and says what was
    compared.

    Raises:
        pytest.UsageError: there is nothing to compare with.
    """

    def __init__(
        self,
        config: pytest.Config,
        path: str,
        collector: Collector,
        allowed: Mapping[str, judge.Allowance],
    ) -> None:
        self._path, self._collector, self._allowed = path, collector, allowed
        self._refused = bool(config.getoption("collectonly", False))
        try:
            old = run_documents.read_run(os.path.join(config.invocation_params.dir, self._path))
            self._began, self._unfinished = old.began, old.unfinished
            # Of a repeated test, the last attempt that was measured.
            tests = {one.id: one for one in old.tests if one.profiles}.values()
            self._keys = dict.fromkeys(run_documents.profiles_of(tests))
            if not self._keys:
                raise RunFileError(f"{self._path}: it holds no profile to compare with")
            file = str(_folder(config) / "profiles")
            write_profiles(file, tests)
            self._collector.prepared |= {"run_document": self._path, "profiles": file}
        except (RunFileError, OSError, Error) as error:
            raise pytest.UsageError(f"{_FLAG}: {error}") from None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Before any test runs."""
        self._refuse_another_suite([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """The same where workers collect."""
        self._refuse_another_suite(ids)

    def _refuse_another_suite(self, ids: list[str]) -> None:
        """Raises pytest.UsageError: no test of this run is in the document."""
        tests = dict.fromkeys(key.test for key in self._keys)
        if not ids or not tests.keys().isdisjoint(ids):
            return
        self._refused = True
        raise pytest.UsageError(
            f"{_FLAG}: {self._path}: it has none of the {len(ids)} tests of this run ({ids[0]}, "
            f"...), but {next(iter(tests))} and others: give a run document of this test suite, "
            "made in the same root folder"
        )

    def comparison(self) -> comparison.RunComparison | None:
        """Of the tests that are in by now."""
        if self._refused:
            return None
        tests = tuple(self._collector.tests())
        every = ((one, v) for test in tests for one in test.profiles for v in one.verdicts)
        compared = (one for one, v in every if v.limit == _LIMIT and not v.is_uncompared)
        now = run_documents.profiles_of(tests)
        found = run_documents.comparison_of(
            self._keys, now, compared, self._allowed, self._unfinished
        )
        return replace(found, name=self._path, began=self._began)


def _folder(config: pytest.Config) -> Path:
    """A temporary folder, which this run removes at its end; if it is killed, the next run does."""
    if not can_share():  # Windows
        path = tempfile.mkdtemp(prefix="kernelprof-run-", dir=TEMPORARY_FOLDER or None)
        config.add_cleanup(partial(shutil.rmtree, path, ignore_errors=True))
        return Path(path)
    sweep_folders()
    folder = make_folder()
    config.add_cleanup(folder.let_go)
    return folder.scratch
