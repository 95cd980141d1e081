"""Which processes are ranks of torchrun, and what they leave for each other; the whole is in
``tests/integration/test_ranks_with_gloo.py``."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_kernelprof.distributed import agreement as ranks
from pytest_kernelprof.distributed import rendezvous
from pytest_kernelprof.distributed.rendezvous import Process
from pytest_kernelprof.gpu.procfs import started_at
from pytest_kernelprof.plugin import torchrun
from pytest_kernelprof.plugin.items import run_state
from pytest_kernelprof.plugin.measuring import MeasuredTest
from pytest_kernelprof.plugin.outcome import Request
from pytest_kernelprof.plugin.torchrun import FirstRank, Place, QuietRank, place_of_rank
from pytest_kernelprof.records import codec

SAID = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has no users by number")


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """What torchrun says to its second rank, in folders of our own."""
    for name, value in SAID.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(torchrun._INSIDE, "")
    monkeypatch.setattr(torchrun, "TEMPORARY_FOLDER", str(tmp_path))
    return monkeypatch


def test_a_rank_knows_its_number_and_the_folder_of_all_ranks() -> None:
    found = place_of_rank()
    assert found is not None
    assert (found.rank, found.size) == (1, 2)
    assert os.stat(found.folder).st_mode & 0o777 == 0o700
    assert place_of_rank() == found  # the same process asks again


def test_ranks_of_another_run_meet_elsewhere(said: pytest.MonkeyPatch) -> None:
    first = place_of_rank()
    said.setenv("MASTER_PORT", "29501")
    second = place_of_rank()
    assert first is not None
    assert second is not None
    assert first.folder != second.folder


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORLD_SIZE", "1"),
        ("LOCAL_WORLD_SIZE", "1"),  # the others are on other machines
        ("RANK", "first"),
        (torchrun._INSIDE, "1"),  # a process that a test of a rank has started
    ],
)
def test_other_processes_are_no_ranks(said: pytest.MonkeyPatch, name: str, value: str) -> None:
    said.setenv(name, value)
    assert place_of_rank() is None


def test_without_torchrun_there_are_no_ranks(said: pytest.MonkeyPatch) -> None:
    said.delenv("TORCHELASTIC_RUN_ID")
    assert place_of_rank() is None


def test_a_folder_that_is_none_of_ours_is_not_used(said: pytest.MonkeyPatch) -> None:
    found = place_of_rank()
    assert found is not None
    os.rmdir(found.folder)
    os.symlink("/", found.folder)
    assert place_of_rank() is None


def test_against_a_revision_is_refused(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--kernelprof-against=main")
    result.stderr.fnmatch_lines(["*--kernelprof-against: code on several ranks cannot be *"])


def test_a_rank_that_is_gone_is_told_from_one_of_an_earlier_run(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    place = Place(0, 3, str(tmp_path))
    Path(place.file(1)).write_text('{"process": {"host": "", "pid": 4194305, "started": "1"}}')
    first = FirstRank(pytester.parseconfigure(), place)
    assert torchrun.read(place.file(1)) == torchrun.RankState(Process("", 2**22 + 1, "1"))
    assert first._state_of(1) is None
    assert not first._has_died(1)
    Path(place.file(2)).write_text('{"process": {"host": "", "pid": 4194305, "started": "2"}}')
    assert first._has_died(2)


DEAD = {"host": "", "pid": 2**22 + 1, "started": "1"}


def end_quietly(
    pytester: pytest.Pytester, folder: Path, said: dict[str, object] | None
) -> QuietRank:
    """Rank 1, which measures and fails, has come to its end; rank 0 has said that, and is gone, or
    does not come."""
    folder.mkdir()
    limit = "kernelprof_rank_timeout=0.2"
    config = pytester.parseconfigure("-p", "no:terminal", "-o", limit)
    run_state(config).measures = True
    place = Place(1, 2, str(folder))
    rank = QuietRank(config, place)
    rank._session = SimpleNamespace(exitstatus=1)  # type: ignore[assignment]
    rank._writer = spoken = io.StringIO()
    rank._kept.write("what failed here")
    if said is not None:
        Path(place.file(0)).write_text(json.dumps({"process": DEAD, **said}))
    rank.pytest_unconfigure()
    rank._kept = spoken
    return rank


@pytest.mark.parametrize("said", [{}, {"exit": 0, "measures": False}])
def test_what_rank_0_does_not_report_is_told_by_its_rank(
    pytester: pytest.Pytester, tmp_path: Path, said: dict[str, object]
) -> None:
    rank = end_quietly(pytester, tmp_path / "ranks", said)
    assert rank._kept.getvalue() == "what failed here"
    assert rank._session is not None
    assert rank._session.exitstatus == 1
    assert not (tmp_path / "ranks").exists()


def test_a_rank_tells_what_failed_where_rank_0_does_not_come(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    rank = end_quietly(pytester, tmp_path / "ranks", None)
    assert rank._kept.getvalue() == "what failed here"


def test_what_rank_0_reports_is_told_once(pytester: pytest.Pytester, tmp_path: Path) -> None:
    rank = end_quietly(pytester, tmp_path / "ranks", {"exit": 5, "measures": True})
    assert rank._kept.getvalue() == ""
    assert rank._session is not None
    assert rank._session.exitstatus == 5


def test_rank_0_waits_for_none_that_measures_nothing(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    place = Place(0, 2, str(folder))
    config = pytester.parseconfigure("-p", "no:terminal")
    first = FirstRank(config, place)
    Path(place.file(1)).write_text(json.dumps({"process": DEAD, "exit": 1, "measures": False}))
    run_state(config).measures = True
    session: Any = SimpleNamespace(config=config, exitstatus=pytest.ExitCode.OK)
    first._session = session
    first.pytest_sessionfinish(session)
    assert session.exitstatus == pytest.ExitCode.OK
    first.pytest_unconfigure()
    assert not folder.exists()


def test_a_rank_may_have_ended_before_another_one_is_there(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    started = started_at(os.getpid())
    if not started:
        pytest.skip("this system does not say when a process was started")
    place = Place(0, 2, str(tmp_path))
    said = torchrun.RankState(Process("", 2**22 + 1, str(int(started) - 1)), exit=0)
    codec.write_atomically(place.file(1), codec.encode(said))
    found = FirstRank(pytester.parseconfigure("-p", "no:terminal"), place)._state_of(1)
    assert found == torchrun.read(place.file(1))
    assert found is not None
    assert (found.process, found.exit) == (said.process, 0)


def test_a_run_that_breaks_off_tells_the_other_ranks_while_there_is_a_process_group(
    pytester: pytest.Pytester, said: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    said.delenv("TORCHELASTIC_RUN_ID")
    said.setattr(ranks, "left_run", lambda: told.append("told"))
    said.setattr(sys, "told", told, raising=False)
    pytester.makepyfile(
        """
        import sys, pytest, torch
        @pytest.fixture(scope="session")
        def group():
            yield
            sys.told.append("destroyed")
        def test_a(kernel_profile, group): assert False
        def test_b(): pass
        """
    )
    pytester.runpytest_inprocess("-x", "-p", "no:randomly", "--kernelprof-device=cpu")
    assert told[:2] == ["told", "destroyed"]


def test_workers_under_torchrun_would_write_the_same_files(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("-n1", "--kernelprof-json=run.json")
    result.stderr.fnmatch_lines(["*pytest -n under torchrun: *each rank would write *run.json*"])


TESTS = """
def test_a(kernel_profile): kernel_profile(lambda: None)
def test_b(kernel_profile): kernel_profile(lambda: None)
def test_of_nobody(): pass
"""
A, B = "test_it.py::test_a", "test_it.py::test_b"


CONFTEST = """
import json
ended = {}
def pytest_runtest_logreport(report):
    if report.when == "call":
        ended[report.nodeid] = report.outcome
def pytest_sessionfinish():
    with open("ended.json", "w") as file:
        json.dump(ended, file)
"""


def run_beside(
    pytester: pytest.Pytester, tests: list[str], code: str = TESTS, *more: str, exit: int = 0
) -> pytest.RunResult:
    """Run pytest as one rank of two; the other one has said which tests it runs, and its end."""
    place = place_of_rank()
    assert place is not None
    other, process = 1 - place.rank, Process("", os.getppid(), started_at(os.getppid()))
    said = torchrun.RankState(process, tuple(tests), exit=exit, measures=True)
    codec.write_atomically(place.file(other), codec.encode(said))
    pytester.makepyfile(test_it=code)
    pytester.makeconftest(CONFTEST)
    options = ("-p", "no:randomly", "--kernelprof-device=cpu", "-o", "kernelprof_rank_timeout=1")
    return pytester.runpytest_inprocess(*options, *more)


def test_an_order_that_differs_ends_the_run_before_its_first_test(
    pytester: pytest.Pytester, said: pytest.MonkeyPatch
) -> None:
    said.setenv("RANK", "0")
    said.setattr(torchrun, "_TO_HEAR_S", 0.0)
    result = run_beside(pytester, [B, A])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    words = f"*rank 1 would run {B} where rank 0 runs {A}; give all ranks the same order*"
    result.stderr.fnmatch_lines([words])
    result.assert_outcomes()


def test_tests_that_are_only_looked_at_may_run_in_any_order(
    pytester: pytest.Pytester, said: pytest.MonkeyPatch
) -> None:
    said.setenv("RANK", "0")
    said.setattr(torchrun, "_TO_HEAR_S", 0.0)
    code = "def test_a(): pass\ndef test_b(): pass"
    run_beside(pytester, [B, A], code, "--kernelprof-all").assert_outcomes(passed=2)


def test_a_whole_call_with_a_snapshot_is_agreed_on_and_one_that_is_looked_at_is_not(
    pytester: pytest.Pytester, said: pytest.MonkeyPatch
) -> None:
    said.setenv("WORLD_SIZE", "1")  # alone: who would answer?
    agreed: list[str] = []
    agreeing = MeasuredTest.agreeing

    def told(test: MeasuredTest, request: Request) -> AbstractContextManager[Any]:
        agreed.append(request.what)
        return agreeing(test, request)

    said.setattr(MeasuredTest, "agreeing", told)
    pytester.makepyfile(test_it="import torch\ndef test_it(): torch.ones(2) + 1")
    options = ("-p", "no:randomly", "--kernelprof-device=cpu")
    more = ("--kernelprof-all", "--kernelprof-update")
    pytester.runpytest_inprocess(*options, *more).assert_outcomes(passed=1)
    assert agreed == []
    pytester.runpytest_inprocess(*options).assert_outcomes(passed=1)
    assert agreed == ["the whole call of test_it.py::test_it"]


def test_another_rank_ends_as_rank_0_does_and_leaves_it_to_tell(
    pytester: pytest.Pytester, said: pytest.MonkeyPatch
) -> None:
    said.setattr(torchrun, "_TO_HEAR_S", 0.0)
    result = run_beside(pytester, [B, A], exit=4)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "order" not in result.stdout.str() + result.stderr.str()


def test_tests_of_one_rank_alone_are_run_and_known_as_such(
    pytester: pytest.Pytester, said: pytest.MonkeyPatch
) -> None:
    said.setenv("RANK", "0")
    said.setattr(torchrun, "_TO_HEAR_S", 0.0)
    run_beside(pytester, [B]).assert_outcomes(passed=3)
    assert rendezvous.first_missing(A, (0, 1)) == 1
    assert rendezvous.first_missing(A, (0,)) is None
    assert rendezvous.first_missing(B, (0, 1)) is None
    rendezvous.note_missing({})


def test_what_an_earlier_run_left_of_its_tests_is_not_believed(
    pytester: pytest.Pytester, said: pytest.MonkeyPatch
) -> None:
    place = place_of_rank()
    assert place is not None
    Path(place.file(0)).write_text(json.dumps({"process": DEAD, "tests": [B, A], "exit": 0}))
    config = pytester.parseconfigure("-p", "no:terminal", "-o", "kernelprof_rank_timeout=0.1")
    assert QuietRank(config, place)._tests_of_others() == {}


def test_what_was_before_is_compared_by_the_rank_that_reports(
    pytester: pytest.Pytester, said: pytest.MonkeyPatch
) -> None:
    """Another rank may make calls that this one does not, and has no snapshots of its own."""
    said.setattr(torchrun, "_TO_HEAR_S", 0.0)
    said.setenv("RANK", "0")
    code = """
        import os, torch
        x = torch.ones(2)
        def test_it(kernel_profile):
            kernel_profile(lambda: x + 1 if os.environ["RANK"] == "0" else (x + 1) * 2)
    """
    assert run_beside(pytester, ["test_it.py::test_it"], code, "--kernelprof-update").ret == 0
    assert list(pytester.path.glob("__kernelprof__/*/test_it.json"))
    said.setenv("RANK", "1")
    run_beside(pytester, ["test_it.py::test_it"], code)
    tests = json.loads((pytester.path / "ended.json").read_text())
    assert tests == {"test_it.py::test_it": "passed"}


@pytest.mark.parametrize(("workers", "refused"), [(2, True), (1, False)])
def test_a_worker_of_a_rank_measures_nothing_where_it_is_not_the_only_one(
    pytester: pytest.Pytester, workers: int, refused: bool
) -> None:
    config: Any = pytester.parseconfig()
    config.workerinput = {"workercount": workers}
    assert bool(torchrun.why_no_worker(config)) == refused


def test_tests_of_such_workers_are_errors_before_their_fixtures_run(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(test_it=TESTS)
    result = pytester.runpytest_inprocess("-n2", "--kernelprof-device=cpu")
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(
        ["*pytest -n 2 under torchrun: the workers of a rank would all act*"]
    )
