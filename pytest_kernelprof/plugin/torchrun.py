"""pytest in each rank of ``torchrun``, on one machine: rank 0 reports for all ranks, the others are
quiet, and all end with one exit status. Each rank writes a file for the others, in one folder."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import math
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from pytest_kernelprof.distributed.rendezvous import Process, note_missing
from pytest_kernelprof.plugin.collector import fail, why_ended
from pytest_kernelprof.plugin.items import run_state, state_of
from pytest_kernelprof.records import codec
from pytest_kernelprof.system import TEMPORARY_FOLDER, Real, now_s, sleep

_INSIDE = "KERNELPROF_INSIDE_RANK"


class Place(NamedTuple):
    """Which rank of how many this process is, and the folder for the files of the ranks."""

    rank: int
    size: int
    folder: str

    def file(self, rank: int) -> str:
        """The file that a rank writes."""
        return os.path.join(self.folder, f"rank{rank}.json")


class RankState(msgspec.Struct, frozen=True):
    """What a rank says to the others.

    Attributes:
        process: its own.
        tests: the tests that it runs, in order; None before they are collected.
        problems: reports of tests that failed on it.
        exit: its exit status, once it has ended. measures: whether it measured anything.
    """

    process: Process
    tests: tuple[str, ...] | None = None
    problems: tuple[dict[str, Any], ...] = ()
    exit: int | None = None
    measures: bool = False


def place_of_rank() -> Place | None:
    """The place of this process, if ``torchrun`` started it as one of several ranks on one machine;
    None for any other process, such as one that a test started."""
    ranks = said_by_torchrun()
    if ranks is None:
        return None
    rank, size, run = ranks
    os.environ[_INSIDE] = str(Real.getpid())
    name = hashlib.sha1("\n".join(run).encode(), usedforsecurity=False).hexdigest()[:16]
    folder = os.path.join(TEMPORARY_FOLDER, f"kernelprof-ranks-{os.getuid()}-{name}")
    return Place(rank, size, folder) if _is_ours(folder) else None


def said_by_torchrun() -> tuple[int, int, list[str]] | None:
    """The number of this rank, how many ranks there are, and what identifies their run."""
    said = os.environ
    try:
        rank, size = int(said["RANK"]), int(said["WORLD_SIZE"])
        run = [said["TORCHELASTIC_RUN_ID"], said["TORCHELASTIC_RESTART_COUNT"]]
        run += [said["MASTER_ADDR"], said["MASTER_PORT"]]
        on_one_machine = int(said["LOCAL_WORLD_SIZE"]) == size
    except (KeyError, ValueError):
        return None
    inside = said.get(_INSIDE, "")
    if size < 2 or not on_one_machine or inside not in ("", str(Real.getpid())):
        return None
    return rank, size, run


def _is_ours(folder: str) -> bool:
    """Whether only this user can write to the folder; it is made if it does not exist."""
    try:
        with contextlib.suppress(FileExistsError):
            Real.mkdir(folder, 0o700)
        found = Real.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


_REMEDY = (
    "give all ranks the same order: with pytest-randomly, use --randomly-seed=1 or -p no:randomly"
)

_POLL_S = 0.02
_TO_HEAR_S = 2.0
_AT_ONCE_S = 5.0
_QUIET_ENDS = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


def read(path: str) -> RankState | None:
    """What a rank wrote; None if there is no file, or not a whole one."""
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        return codec.decode(file.read(), RankState)
    return None


class Rank:
    """What all ranks have in common: they write to each other, and end together."""

    def __init__(self, config: pytest.Config, place: Place) -> None:
        self._config, self._place = config, place
        self._limit_s = run_state(config).settings.rank_timeout
        self._session: pytest.Session | None = None
        self._others = [rank for rank in range(place.size) if rank != place.rank]
        self._state = RankState(Process.of_this())
        said = {rank: read(place.file(rank)) for rank in self._others}
        self._old = {rank: one.process for rank, one in said.items() if one and self._is_old(one)}
        self._publish()

    @property
    def _reporter(self) -> Any:
        """pytest's terminal; None without it."""
        return self._config.pluginmanager.getplugin("terminalreporter")

    @property
    def _takes_part(self) -> bool:
        """Whether this run measures anything. If not, each rank runs as without this plugin."""
        return run_state(self._config).measures

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """If a rank dies, torchrun asks the others to end, and kills them after 30 s. So the test
        that runs is the last one, and the run reports what it has by then."""
        self._session = session
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._stop)

    @pytest.hookimpl(trylast=True)  # when it is known whether anything is measured
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Before the first test: refuse what would make ranks wait for each other in vain.

        Raises:
            pytest.UsageError: the ranks run their tests in different orders.
        """
        ids = tuple(item.nodeid for item in session.items if state_of(item).concerns_us)
        self._publish(tests=ids)
        if not self._takes_part or self._config.getoption("collectonly", False):
            return
        tests = {self._place.rank: ids, **self._tests_of_others()}
        if why := why_out_of_order(tests):
            self._refuse(why)
        note_missing(missing(tests))

    def _refuse(self, why: str) -> None:
        raise pytest.UsageError(why)

    def _tests_of_others(self) -> dict[int, tuple[str, ...]]:
        """The tests of the other ranks. A rank that has ended, or does not answer in time, is left
        out."""
        deadline, found = now_s() + self._limit_s, {}
        for rank in self._others:
            said = self._wait_for(rank, deadline, lambda one: one.tests is not None)
            if said is not None and said.tests is not None:
                found[rank] = said.tests
        return found

    def _stop(self, *_: object) -> None:
        if self._session is not None:
            self._session.shouldstop = "torchrun ended the ranks because one has ended (SIGTERM)"

    def _publish(self, **more: Any) -> None:
        self._state = replace(self._state, **more)
        with contextlib.suppress(OSError):
            codec.write_atomically(self._place.file(self._place.rank), codec.encode(self._state))

    def _state_of(self, rank: int) -> RankState | None:
        """What a rank of this run wrote last; None if it wrote nothing yet."""
        said = read(self._place.file(rank))
        return None if said is None or said.process == self._old.get(rank) else said

    def _wait_for(
        self, rank: int, deadline: float, is_enough: Callable[[RankState], bool] = lambda _: False
    ) -> RankState | None:
        """Wait until a rank wrote enough, has ended or died, or the time is over; what it wrote."""
        while True:
            said = self._state_of(rank)
            if said is not None and not said.process.lives:
                return self._state_of(rank)  # it may have written its end just now
            if said is not None and (is_enough(said) or said.exit is not None):
                return said
            if now_s() > deadline:
                return said
            sleep(_POLL_S)

    def _is_old(self, said: RankState) -> bool:
        """Whether an earlier run left this. A rank of this run may have ended before this one
        started, but torchrun starts all ranks at once."""
        if said.process.lives:
            return False
        ticks = int(self._state.process.started) - int(said.process.started)
        return ticks > _AT_ONCE_S * os.sysconf("SC_CLK_TCK")

    def _has_died(self, rank: int) -> bool:
        said = self._state_of(rank)
        return said is not None and not said.process.lives

    def _forget(self, *ranks: int) -> None:
        """Remove the files of ranks, and the folder with the last of them."""
        for rank in ranks:
            with contextlib.suppress(OSError):
                Real.unlink(self._place.file(rank))
        with contextlib.suppress(OSError):
            Real.rmdir(self._place.folder)

    def _end_alone(self, status: int) -> None:
        """End a rank that nobody reports for. It waits for no other; the last rank removes all."""
        self._publish(exit=status, measures=False)
        ranks = range(self._place.size)
        said = filter(None, (read(self._place.file(rank)) for rank in ranks))
        if all(one.exit is not None or not one.process.lives for one in said):
            self._forget(*ranks)


class FirstRank(Rank):
    """Rank 0: reports the failures of the other ranks, too."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Before the report: wait until all ranks have ended their tests."""
        if not self._takes_part:
            return
        deadline = now_s() + self._limit_s
        others = {rank: self._wait_for(rank, deadline) for rank in self._others}
        stats = getattr(self._reporter, "stats", {})
        failed = (*stats.get("failed", ()), *stats.get("error", ()))
        told = {one.nodeid: why_ended(one) for one in failed}
        for rank, said in others.items():
            for data in said.problems if said is not None else ():
                self._tell(session, rank, data, told)
            if said is None or said.exit is None:
                ended = "died" if self._has_died(rank) else f"did not end in {self._limit_s:g} s"
                self._tell_end(session, f"rank {rank} {ended}")
            elif said.measures and said.exit not in map(int, _QUIET_ENDS):
                self._tell_end(session, f"rank {rank} ended with exit status {said.exit}")

    def _tell(
        self, session: pytest.Session, rank: int, data: dict[str, Any], told: dict[str, str]
    ) -> None:
        hook = self._config.hook
        report = hook.pytest_report_from_serializable(config=self._config, data=data)
        here = told.get(report.nodeid)
        # All ranks exceed the same limit, and each has its own words for a rank that is missing.
        if here is not None and (here == why_ended(report) or hasattr(report, "kernelprof_error")):
            return
        report.nodeid = f"{report.nodeid} (rank {rank})"
        hook.pytest_runtest_logreport(report=report)
        session.testsfailed += 1
        fail(session)

    def _tell_end(self, session: pytest.Session, words: str) -> None:
        if self._reporter is not None:  # at once: this is why the run fails
            self._reporter.write_line(f"kernelprof: {words}", red=True)
        fail(session)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Everything is reported and written: the others may end."""
        status = int(self._session.exitstatus) if self._session is not None else 0
        if not self._takes_part:
            self._end_alone(status)
            return
        self._publish(exit=status, measures=True)
        deadline = now_s() + _TO_HEAR_S
        while now_s() <= deadline and any(
            one and one.process.lives for one in map(self._state_of, self._others)
        ):
            sleep(_POLL_S)
        self._forget(0, *filter(self._has_died, self._others))


class QuietRank(Rank):
    """Any other rank: keeps what it would print, and prints it if it does not end as usual."""

    def __init__(self, config: pytest.Config, place: Place) -> None:
        super().__init__(config, place)
        self._kept = io.StringIO()
        self._writer: Any = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the output from here on."""
        super().pytest_sessionstart(session)
        if self._reporter is not None:
            from _pytest.config import create_terminal_writer

            self._writer = self._reporter._tw
            self._reporter._tw = create_terminal_writer(self._config, self._kept)

    def _refuse(self, why: str) -> None:
        pytest.exit(why, returncode=pytest.ExitCode.TESTS_FAILED)  # rank 0 says so

    def pytest_runtestloop(self) -> None:
        """If nothing is measured, no rank is quiet."""
        if not self._takes_part:
            self._speak()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a failure to rank 0, which reports it."""
        if report.failed:
            hook = self._config.hook
            data = hook.pytest_report_to_serializable(config=self._config, report=report)
            self._publish(problems=(*self._state.problems, data))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Wait until rank 0 has reported: torchrun ends all ranks when one ends with a failure."""
        session = self._session
        if session is None:
            return
        status = int(session.exitstatus)
        ends_quietly = status in map(int, _QUIET_ENDS)
        if not self._takes_part or not ends_quietly:
            self._speak()
        if not self._takes_part:
            self._end_alone(status)
            return
        self._publish(exit=status, measures=True)
        first = self._wait_for(0, now_s() + self._limit_s, lambda _: True)
        if first is not None:  # as long as rank 0 runs
            first = self._wait_for(0, math.inf)
        if first is None or first.exit is None or not first.measures:
            self._speak()  # nobody else reports what failed here
            self._end_alone(status)
            return
        self._forget(self._place.rank)
        # torchrun names the first rank that ends with a failure: let that be rank 0.
        deadline = now_s() + _TO_HEAR_S
        while first.process.lives and now_s() < deadline:
            sleep(_POLL_S)
        if ends_quietly:
            session.exitstatus = first.exit

    def _speak(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.write(self._kept.getvalue())
            if self._reporter is not None:
                self._reporter._tw = writer


def why_no_worker(config: pytest.Config) -> str:
    """Why a worker of pytest-xdist must not measure here; empty if it may."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers < 2 or said_by_torchrun() is None:
        return ""
    return (
        f"pytest -n {workers} under torchrun: the workers of a rank would all act as that rank, "
        "and each would run different tests: use only one of the two"
    )


def takes_part(config: pytest.Config) -> bool:
    """Whether this process can be a rank. The processes of pytest-xdist cannot.

    Raises:
        pytest.UsageError: each rank distributes its tests to workers, and would write one file.
    """
    if sys.platform == "win32" or hasattr(config, "workerinput"):
        return False
    if config.getoption("dist", "no") == "no":
        return True
    files = run_state(config).settings.run_files
    if files and said_by_torchrun() is not None:
        raise pytest.UsageError(
            "pytest -n under torchrun: pytest-xdist workers are not ranks, and each rank would "
            f"write {next(iter(files.values()))}: use only one of the two"
        )
    return False


def why_out_of_order(tests: Mapping[int, Sequence[str]]) -> str:
    """Why ranks would wait for each other in vain, and what to do; empty if they have one order.

    Args:
        tests: node ids in the order in which they run, by rank. A rank may lack some.
    """
    for first, rank in itertools.combinations(sorted(tests), 2):
        both = {*tests[first]} & {*tests[rank]}
        ours, theirs = ([test for test in tests[one] if test in both] for one in (first, rank))
        for one, other in zip(ours, theirs, strict=False):
            if one != other:
                return (
                    "ranks must run their tests in the same order, because they wait for each "
                    f"other in each test: rank {rank} would run {other} where rank {first} runs "
                    f"{one}; {_REMEDY}"
                )
    return ""


def missing(tests: Mapping[int, Sequence[str]]) -> dict[str, frozenset[int]]:
    """By test, the ranks that do not run it although another rank does."""
    have = {rank: set(ids) for rank, ids in tests.items()}
    everywhere = set.intersection(*have.values())
    return {
        test: frozenset(rank for rank, ids in have.items() if test not in ids)
        for test in set.union(*have.values()) - everywhere
    }
