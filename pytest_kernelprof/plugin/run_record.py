"""The run as a record, and what is made of it as it ends, however it ends: files
(``--kernelprof-json``), GitHub's summary, and the hook ``pytest_kernelprof_run``.

Also what of a test's record leaves its process: few kernels, and files below the root folder.
"""

from __future__ import annotations

import contextlib
import os
import sys
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pytest
from _pytest.outcomes import OutcomeException
from msgspec.structs import replace

from pytest_kernelprof.baselines.revision import asked
from pytest_kernelprof.plugin.collector import ATTRIBUTE, fail
from pytest_kernelprof.plugin.items import run_state, state_of
from pytest_kernelprof.plugin.settings import Settings, flag_of
from pytest_kernelprof.records import codec, comparison, profile
from pytest_kernelprof.records.document import Run, Test, bounded, grouped
from pytest_kernelprof.records.recording import Conditions, Environment, Integrity
from pytest_kernelprof.report.files import why_no_file, write_file
from pytest_kernelprof.summary.comparisons import baseline_summary
from pytest_kernelprof.summary.verdicts import explained

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from pytest_kernelprof.report.github import Annotation


def commit_of(folder: str) -> str:
    """The full name of the commit that is checked out in a folder; empty where there is none, or
    no git. A container job often runs as another user than the one who owns the repository."""
    commit = asked(folder, "-c", "safe.directory=*", "rev-parse", "--verify", "HEAD")
    return (commit or "").strip()


class RunRecord:
    """What ended the run, beside what its tests took; in the process that reports. As the run ends,
    it writes the files of the run, and hands the record to the hooks of others.

    Raises:
        pytest.UsageError: nothing can be written to a file, two are the same, one is compared
            with, or what makes one is not installed.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._state = config, run_state(config)
        self._collector, self._settings = self._state.collector, self._state.settings
        self._state.run_of = self.run_of
        self._files = _files_of(config, self._settings)
        self._began = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._unfinished: list[str] = []
        self._github_commands: list[str] = []

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Ctrl-C, ``pytest.exit``, errors of collection, a plugin that stops the run."""
        words = str(excinfo.value)
        self._unfinished.append(f"interrupted: {words}" if words else "interrupted")

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """A plugin has failed."""
        self._unfinished.append(f"internal error of pytest: {excinfo.exconly(tryshort=True)}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """A worker of pytest-xdist is gone; what its running test took went with it."""
        if error:
            name = getattr(getattr(node, "gateway", None), "id", "?")
            self._unfinished.append(f"worker {name} ended early: {error}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that could not be collected: its tests are missing."""
        if report.failed:
            self._unfinished.append(f"{report.nodeid} could not be collected")

    @pytest.hookimpl(wrapper=True, trylast=True)  # before the terminal's last lines
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, None, None]:
        """All reports are in: hand the record to those who wait for it, whatever other plugins do
        as the run ends."""
        if session.config.getoption("collectonly", False):
            yield
            return
        for found in self._baselines():  # of which nothing was compared, or not what was asked for
            summary = baseline_summary(Run(tuple(self._collector.tests())), found)
            fails = summary.fails(warn_only=self._settings.warn_only)
            if fails and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        try:
            yield
        finally:
            stopped = str(session.shouldfail or "")  # --maxfail
            if stopped and not any(one.endswith(stopped) for one in self._unfinished):
                self._unfinished.append(stopped)
            if exitstatus == pytest.ExitCode.USAGE_ERROR:
                self._unfinished.append("pytest reported a usage error")
            if self._settings.disable:
                self._unfinished.append("--kernelprof-disable: nothing was measured")
            self._hand_over(session)

    def _hand_over(self, session: pytest.Session) -> None:
        """Write each file, whatever becomes of the others. A run whose file is lost, or whose
        reader fails, has failed: its tests have not."""
        try:
            run = portable(self.run_of(self._collector.tests()), str(self._config.rootpath))
            for form, path in self._files.items():
                self._write(session, form, path, run)
            if self._settings.github:
                self._tell_github(run)
            self._config.hook.pytest_kernelprof_run(config=self._config, run=run)
        except (Exception, OutcomeException) as error:
            why = f"{type(error).__name__}: {error}"
            self._collector.say(f"kernelprof: a hook pytest_kernelprof_run raised {why}", red=True)
            fail(session)

    def _write(self, session: pytest.Session, form: str, path: str, run: Run) -> None:
        try:
            self._collector.say(f"kernelprof: {path}: {write_file(path, form, run)}")
        except Exception as error:
            why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            words = f"kernelprof: {flag_of(form)}: {path} cannot be written ({why})"
            self._collector.say(words, red=True)
            fail(session)
        else:
            for words in run.unfinished:
                self._collector.say(f"kernelprof: the run is not complete: {words}", yellow=True)

    def _tell_github(self, run: Run) -> None:
        """Append to the summary, and keep what is printed at the end. What cannot be told here
        fails nothing."""
        from pytest_kernelprof.report import github

        try:
            root = str(self._config.rootpath)
            problem = github.append_summary(run, os.environ, root)
            found = [one for one in github.annotations_of(run) if not self._another_tells(one)]
            file_of = github.files_in_the_repository(root, os.environ)
            told = [*github.commands(found, file_of), github.notice_of(run)]
            self._github_commands = list(filter(None, told))
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            self._collector.say(f"kernelprof: --kernelprof-github: {problem}", yellow=True)

    def _another_tells(self, found: Annotation) -> bool:
        """Whether pytest-github-actions-annotate-failures does."""
        has = self._config.pluginmanager.hasplugin
        other = has("pytest_github_actions_annotate_failures")
        if not other or os.environ.get("GITHUB_ACTIONS") != "true":
            return False
        return found.failed or (found.warned and has("annotate_warnings"))

    def pytest_unconfigure(self) -> None:
        """After all that pytest prints: GitHub reads commands where a line begins with them."""
        if self._github_commands:
            capture = self._config.pluginmanager.getplugin("capturemanager")
            with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
                encoding = sys.stdout.encoding or "utf-8"
                told = "\n".join(["", *self._github_commands, ""])
                sys.stdout.write(told.encode(encoding, "backslashreplace").decode(encoding))
                sys.stdout.flush()

    def run_of(self, tests: Iterable[Test]) -> Run:
        """The run, of these tests."""
        return Run(
            tuple(tests),
            began=self._began,
            versions={name: version(name) for name in ("pytest", "pytest-kernelprof")},
            unfinished=tuple(dict.fromkeys(self._unfinished)),
            baselines=tuple(self._baselines()),
            project=self._config.rootpath.name,
            commit=commit_of(str(self._config.rootpath)),
        )

    def _baselines(self) -> Iterator[comparison.RunComparison]:
        """What the run was compared with."""
        yield from filter(None, (comparison() for comparison in self._state.comparisons))


def _files_of(config: pytest.Config, settings: Settings) -> dict[str, str]:
    """The path of each file of the run, by its option. It is relative to where pytest was started:
    tests may change their directory.

    Raises:
        pytest.UsageError: as of ``RunRecord``.
    """
    started_in, files = config.invocation_params.dir, {}
    compared = settings.run_document
    seen = {os.path.realpath(started_in / compared): "against"} if compared else {}
    for form, given in settings.run_files.items():
        files[form] = path = os.path.join(started_in, given)
        if why := why_no_file(form, path):
            raise pytest.UsageError(f"{flag_of(form)}: {given!r} cannot be written ({why})")
        first = seen.setdefault(os.path.realpath(path), form)
        if first != form:
            flags = f"{flag_of(first)}, {flag_of(form)}"
            raise pytest.UsageError(f"{flags}: both name {path!r}; give two different files")
    return files


MOST_KERNELS = 40
"""Kernels, copies and waits that are listed one by one."""
MOST_NAMES = 32
"""Names of kernels that are listed with their number."""
LONGEST_NAME = 2_000
_OPERATORS = 6
"""Operators that are kept at each end of a chain: the innermost, and those that the user called."""


def attach_taken(item: pytest.Item, report: pytest.TestReport, not_judged: str) -> None:
    """Put what a test took since its last report on this one.

    Args:
        not_judged: why none of its limits was judged; empty if some were.
    """
    state, config = state_of(item), item.config
    taken, state.taken = state.taken, None  # a rerun of the test brings its own
    left_out: tuple[str, ...] = ()
    if not_judged:  # also of limits that came as the test ran
        left_out = state.promises if state.test is None else state.test.ledger.left_out
    test = replace(
        taken or Test(item.nodeid),
        place=portable(state.place, str(config.rootpath)),
        snapshot=state.snapshot.report() if state.snapshot is not None else None,
        limits=left_out,
        not_judged=not_judged,
    )
    whole, one_by_one = state.run.serves or state.run.is_wanted_whole, config.get_verbosity() > 1
    attach(report, test, bounded if whole else partial(for_tables, kernels=one_by_one))


def attach(
    report: pytest.TestReport, test: Test, reduced: Callable[[profile.Profile], profile.Profile]
) -> None:
    """Put what a test took on its report.

    Args:
        reduced: what of a profile anybody will read.
    """
    is_expected = report.skipped and hasattr(report, "wasxfail")
    told = map(_expected if is_expected else explained, test.profiles)
    row = replace(test, profiles=tuple(map(reduced, told)))
    setattr(report, ATTRIBUTE, codec.encode(row).decode())


def for_tables(taken: profile.Profile, *, kernels: bool = False) -> profile.Profile:
    """What the report at the end tells of a profile: where nothing is wrong with it its kernels by
    name, else some of them one by one.

    Args:
        kernels: whether some are listed one by one in any case.
    """
    most = MOST_KERNELS if kernels or taken.outcome == "failed" else 0
    there = [metric for metric in taken.metrics.values() if metric.value is not None]
    return replace(
        taken,
        metrics={metric.name: replace(metric, rounds=(), allowed=()) for metric in there},
        second_look={},
        kernels=tuple(map(_with_less, taken.kernels[:most])),
        more_kernels=_groups(taken, most),
        variants=(),
        copies=tuple(map(_with_less, taken.copies[:most])),
        waits=tuple(map(_with_less, taken.waits[:most])),
        gaps=profile.Gaps(),
        timeline=None,
    )


def _groups(taken: profile.Profile, kept: int) -> tuple[profile.KernelGroup, ...]:
    """The other kernels by name, those that take most; the rest as one group without a name."""
    others = (*grouped(taken.kernels[kept:]), *taken.more_kernels)
    groups = sorted(others, key=lambda one: -one.duration_us)
    told = [replace(one, name=one.name[:LONGEST_NAME]) for one in groups[:MOST_NAMES]]
    if rest := groups[MOST_NAMES:]:
        number, us = sum(one.count for one in rest), sum(one.duration_us for one in rest)
        told.append(profile.KernelGroup("", number, us))
    return tuple(told)


_One = TypeVar("_One", profile.Kernel, profile.Copy, profile.Wait)


def _with_less(one: _One) -> _One:
    """With a name and a chain of bounded length: that of a template may have 100 kB."""
    chain: tuple[str, ...] = one.operators
    if len(chain) > 2 * _OPERATORS:
        one = replace(one, operators=(*chain[:_OPERATORS], *chain[-_OPERATORS:]))
    if isinstance(one, profile.Wait) or len(one.name) <= LONGEST_NAME:
        return one
    return replace(one, name=one.name[:LONGEST_NAME])


def _expected(taken: profile.Profile) -> profile.Profile:
    verdicts = (
        replace(one, outcome="expected failure") if one.outcome == "failed" else one
        for one in taken.verdicts
    )
    return replace(taken, verdicts=tuple(verdicts))


T = TypeVar("T")
# Which field of a record is a file.
_FILES: dict[type, str] = {
    **dict.fromkeys((profile.Kernel, profile.Copy, profile.Wait, comparison.KernelSide), "source"),
    profile.Place: "file",
    profile.Profile: "trace",
}

# Without any: most of what a profile holds, by number.
_WITHOUT_FILES = (profile.MetricValues, profile.Timeline, Environment, Integrity, Conditions)


def portable(found: T, root: str) -> T:
    """A run, or a record of one, with files below ``root`` relative to it, with forward slashes;
    others stay. What a test would be kept as is left out: its profiles say that."""
    if isinstance(found, tuple):
        return tuple(portable(part, root) for part in found)  # type: ignore[return-value]
    if not isinstance(found, msgspec.Struct) or isinstance(found, _WITHOUT_FILES):
        return found
    if isinstance(found, comparison.SnapshotReport):
        found = replace(found, entry=None)
    file, changed = _FILES.get(type(found), ""), {}
    for name in (file,) if file == "source" else found.__struct_fields__:
        value = getattr(found, name)
        now = _below(root, value) if name == file else portable(value, root)
        if now is not value:
            changed[name] = now
    return replace(found, **changed) if changed else found


def _below(root: str, path: str) -> str:
    below = root.rstrip(os.sep) + os.sep
    return path[len(below) :].replace(os.sep, "/") if path.startswith(below) else path
