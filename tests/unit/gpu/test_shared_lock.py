"""The lock of a GPU, shared and alone, between real processes."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_kernelprof.errors import GpuBusy
from pytest_kernelprof.gpu import file_lock, usage_lock
from pytest_kernelprof.gpu.file_lock import can_lock_bytes
from pytest_kernelprof.gpu.usage_lock import GpuLock, lock_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs locks that can be shared")

UUID = "c9d0e785-39da-0bdc-778f-5f6a330f7f55"
LONG = 30.0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test's own, and processes that are strangers to each other."""
    monkeypatch.setattr(usage_lock, "TEMPORARY_FOLDER", str(tmp_path))
    usage_lock._identity(os.getpid())
    monkeypatch.setenv(usage_lock.PARTNER_OF, "")
    return tmp_path / "kernelprof-locks"


class Process:
    """A process that does with the lock what it is told to, line by line."""

    def __init__(self, works_for: str = "") -> None:
        inward, self._told = os.pipe()
        self._answers, outward = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._told)
                os.environ[usage_lock.PARTNER_OF] = works_for
                with os.fdopen(inward) as lines, os.fdopen(outward, "w", 1) as answers:
                    for line in lines:
                        answers.write(answer(line) + "\n")
            finally:
                os._exit(0)
        os.close(inward)
        os.close(outward)
        self._lines = os.fdopen(self._answers)

    @property
    def answers(self) -> int:
        """What is readable when it has answered."""
        return self._answers

    def begin(self, line: str) -> None:
        os.write(self._told, f"{line}\n".encode())

    def end(self) -> str:
        return self._lines.readline().strip()

    def does(self, line: str) -> str:
        self.begin(line)
        return self.end()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = 0

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGCONT)
            self.kill()
        os.close(self._told)
        self._lines.close()


files: list[Any] = []
"""What a process keeps open."""


def answer(line: str) -> str:
    try:
        names = {"lock": lock_of(UUID), "stream": stream, "LONG": LONG, "Path": Path}
        names["files"] = files
        return repr(eval(line, names))
    except GpuBusy as error:
        return f"{type(error).__name__}: {error}"


ENOUGH, MOST = 10, 200


def stream(hold: GpuLock, how: str, pause_s: float, turns: Path, name: str) -> int:
    """Ask for it again and again until all whose turns are counted have had it often enough; how
    often it was had. Counted in turns, not in seconds: on a busy machine all are slow."""
    with open(turns / name, "ab", buffering=0) as own:
        had = 0
        while had < MOST and any(file.stat().st_size < ENOUGH for file in turns.iterdir()):
            had += 1
            if how == "shared":
                hold.join(LONG, "a stream")
                time.sleep(pause_s)
                own.write(b"." * hold.shares)  # type: ignore[attr-defined]
                hold.leave()
            else:
                hold.take(LONG, "a stream")
                time.sleep(pause_s)
                own.write(b".")
                hold.give_back()
    return had


def turns_of(process: Start, turns: Path, *streams: tuple[str, float]) -> list[int]:
    """How many turns each had when all had enough of them, or it had the most that there are."""
    turns.mkdir()
    them = [(process(), f"{how!r}, {pause_s}") for how, pause_s in streams]
    for number, _ in enumerate(them):
        (turns / str(number)).touch()
    for number, (one, given) in enumerate(them):
        one.begin(f"stream(lock, {given}, Path({str(turns)!r}), '{number}')")
    return [int(one.end()) for one, _ in them]


@pytest.fixture
def process() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(works_for: str = "") -> Process:
        started.append(Process(works_for))
        return started[-1]

    yield start
    for one in started:
        one.close()


Start = Callable[..., Process]
JOIN, LEAVE = "lock.join(LONG, 'a test')", "lock.leave()"
TAKE, GIVE_BACK = "lock.take(LONG, 'a timed test')", "lock.give_back()"
TAKE_NOW, JOIN_NOW = "lock.take(0.05, 'a timed test')", "lock.join(0.05, 'a test')"
SHARES = "lock.shares"


def test_many_share_it_and_who_times_waits_for_all_of_them(process: Start) -> None:
    one, other, timing = process(), process(), process()
    assert (one.does(JOIN), other.does(JOIN)) == ("None", "None")
    assert one.does(SHARES) == other.does(SHARES) == "True"
    assert timing.does(TAKE_NOW).startswith("NotFree")
    one.does(LEAVE)
    assert timing.does(TAKE_NOW).startswith("NotFree")
    timing.begin(TAKE)
    other.does(LEAVE)
    assert timing.end() == "None"


def test_who_shares_it_is_named_to_who_times(process: Start) -> None:
    one, other = process(), process()
    one.does("lock.join(1, 'test_a.py::test_x')")
    other.does("lock.join(1, 'test_b.py::test_y')")
    said = process().does(TAKE_NOW)
    holder = r"pid {}( of user \S+)? \({}\) since [\d:]+, 0 min \d+ s ago"
    first, second = (str(one.pid), "test_a.py::test_x"), (str(other.pid), "test_b.py::test_y")
    assert re.search(
        rf"within 0\.05 s: held by {holder.format(*first)}, and by {holder.format(*second)}\. Wait",
        said,
    )


def test_of_many_some_are_named_and_the_others_counted(process: Start) -> None:
    for _ in range(6):
        process().does(JOIN)
    said = process().does(TAKE_NOW)
    assert said.count("(a test)") == 4
    assert "and by 2 more." in said


def test_code_waits_while_another_process_times(process: Start) -> None:
    timing, one = process(), process()
    timing.does(TAKE)
    one.begin(JOIN)
    time.sleep(0.05)
    timing.does(GIVE_BACK)
    assert one.end() == "None"
    assert one.does(SHARES) == "True"


def test_code_that_waits_too_long_goes_on_without_and_waits_no_second_time(process: Start) -> None:
    timing, one = process(), process()
    timing.does(TAKE)
    assert one.does(JOIN_NOW) == "None"
    assert one.does(SHARES) == "False"
    one.does(LEAVE)
    start = time.monotonic()
    one.does(JOIN)
    assert time.monotonic() - start < LONG / 2
    one.does(LEAVE)
    timing.does(GIVE_BACK)
    one.does(JOIN)
    assert one.does(SHARES) == "True"


def test_two_that_share_it_may_both_ask_to_be_alone(process: Start) -> None:
    """What would be a deadlock if one went from sharing to alone in one step."""
    both = [process(), process()]
    for one in both:
        one.does(JOIN)
    for one in both:  # who was first sits again, and leaves as its test ends
        one.begin("(lock.take(LONG, 'x'), lock.give_back(), lock.shares, lock.leave())")
    assert [one.end() for one in both] == ["(None, None, True, None)"] * 2


def test_who_was_kept_out_shares_it_again(process: Start) -> None:
    one, other = process(), process()
    one.does(JOIN)
    other.does(JOIN)
    assert one.does(TAKE_NOW).startswith("NotFree")
    assert one.does(SHARES) == "True"


def test_it_may_be_asked_for_again_and_counts(process: Start) -> None:
    one, other = process(), process()
    for line in (JOIN, JOIN, LEAVE, TAKE, TAKE, GIVE_BACK):
        one.does(line)
    assert other.does(TAKE_NOW).startswith("NotFree")
    one.does(GIVE_BACK)
    assert other.does(TAKE_NOW).startswith("NotFree")  # it shares it again
    one.does(LEAVE)
    assert other.does(TAKE_NOW) == "None"


def test_a_stream_of_code_does_not_starve_who_times(process: Start, tmp_path: Path) -> None:
    turns = turns_of(process, tmp_path / "turns", *[("shared", 0.01)] * 3, ("alone", 0.01))
    assert max(turns) < MOST


def test_a_stream_of_those_who_time_does_not_starve_code_nor_each_other(
    process: Start, tmp_path: Path
) -> None:
    *timing, _ = turns_of(process, tmp_path / "turns", *[("alone", 0.01)] * 3, ("shared", 0.01))
    assert max(timing) < MOST


def test_nobody_is_inside_with_who_is_alone(process: Start, tmp_path: Path) -> None:
    """Each leaves a file while it is inside; who is alone sees none."""
    code = (
        "[(lock.{0}(LONG, 'x'), __import__('pathlib').Path({2!r}, str(i)).touch() if {3} else "
        "seen.append(len(__import__('os').listdir({2!r}))), "
        "__import__('time').sleep(0.002), "
        "__import__('pathlib').Path({2!r}, str(i)).unlink() if {3} else "
        "seen.append(len(__import__('os').listdir({2!r}))), "
        "lock.{1}()) for i in range({4}, {4} + 40)]"
    )
    inside = tmp_path / "inside"
    inside.mkdir()
    codes = [code.format("join", "leave", str(inside), True, i * 100) for i in range(3)]
    timing = code.format("take", "give_back", str(inside), False, 0)
    them = [process() for _ in codes]
    for one, line in zip(them, codes, strict=True):
        one.begin(line)
    two = [process(), process()]
    for one in two:
        one.begin(f"(lambda seen: {timing} and max(seen))([])")
    assert [one.end() for one in two] == ["0", "0"]
    assert all(one.end().startswith("[(None") for one in them)


@pytest.mark.parametrize("line", [JOIN, TAKE], ids=["shared", "alone"])
def test_a_kill_frees_it_for_one_that_waits(process: Start, line: str) -> None:
    holder, timing = process(), process()
    holder.does(line)
    timing.begin(TAKE)
    time.sleep(0.05)
    holder.kill()
    assert timing.end() == "None"


def test_a_kill_of_one_that_waits_leaves_the_way_free(process: Start, folder: Path) -> None:
    holder, waiting = process(), process()
    holder.does(JOIN)
    waiting.begin(TAKE)  # it has the room, and waits for the holder
    notes = folder / f"{UUID}.notes"
    while "a timed test" not in notes.read_text():
        time.sleep(0.01)
    waiting.kill()
    assert process().does(JOIN) == "None"
    holder.does(LEAVE)


def test_the_place_of_a_killed_process_is_taken_by_the_next(process: Start, folder: Path) -> None:
    first, holder = process(), process()
    first.does(JOIN)
    holder.does(JOIN)
    size = (folder / f"{UUID}.notes").stat().st_size
    holder.kill()
    first.does(LEAVE)
    for _ in range(3):
        other = process()
        assert other.does(TAKE) == "None"
        assert first.does(TAKE_NOW).startswith("NotFree")
        other.kill()
    assert (folder / f"{UUID}.notes").stat().st_size == size
    assert {path.name for path in folder.iterdir()} == {f"{UUID}.lock", f"{UUID}.notes"}


def test_a_process_that_is_stopped_is_named_and_frees_it_when_it_goes_on(process: Start) -> None:
    holder, timing = process(), process()
    holder.does("lock.join(1, 'test_a.py::test_stopped')")
    os.kill(holder.pid, signal.SIGSTOP)
    assert "test_a.py::test_stopped" in timing.does(TAKE_NOW)
    os.kill(holder.pid, signal.SIGCONT)
    holder.does(LEAVE)
    assert timing.does(TAKE) == "None"


@pytest.mark.parametrize("line", [JOIN, TAKE], ids=["shared", "alone"])
def test_a_stop_in_the_debugger_frees_it(process: Start, line: str) -> None:
    holder, other = process(), process()
    holder.does(line)
    assert other.does(TAKE_NOW).startswith("NotFree")
    holder.does("lock.stop()")
    assert other.does(TAKE_NOW) == "None"
    other.does(GIVE_BACK)
    holder.does("lock.go_on(LONG, 'a test')")
    assert holder.does("lock.lost") == "''"
    assert other.does(TAKE_NOW).startswith("NotFree")


def test_what_another_took_during_a_stop_in_the_debugger_is_told(process: Start) -> None:
    holder, other = process(), process()
    holder.does(TAKE)
    holder.does("lock.stop()")
    other.does(TAKE)
    holder.does("lock.go_on(0.05, 'a test')")
    assert "after a stop in the debugger the GPU was not free" in holder.does("lock.lost")
    assert f"pid {other.pid}" in holder.does("lock.lost")
    assert holder.does(GIVE_BACK) == "None"
    assert process().does(TAKE_NOW).startswith("NotFree")  # the other one's is untouched


# Partners.


def token_of(process: Process) -> str:
    return process.does("lock._token").strip("'")


@pytest.mark.parametrize("line", [JOIN, TAKE], ids=["shared", "alone"])
def test_a_child_is_told_whose_partner_it_is(process: Start, line: str) -> None:
    owner = process()
    owner.does(line)
    told = owner.does("__import__('os').environ['KERNELPROF_PARTNER_OF']").strip("'")
    assert told == token_of(owner)


def test_a_partner_shares_what_its_owner_shares_though_another_waits(process: Start) -> None:
    owner, timing = process(), process()
    owner.does(JOIN)
    timing.begin(TAKE)  # holds back whoever comes now
    time.sleep(0.05)
    partner = process(token_of(owner))
    assert partner.does(JOIN) == "None"
    partner.does(LEAVE)
    owner.does(LEAVE)
    assert timing.end() == "None"


def test_a_partner_may_be_alone_while_its_owner_is(process: Start) -> None:
    owner = process()
    owner.does(TAKE)
    partner = process(token_of(owner))
    for line in (TAKE_NOW, JOIN_NOW, LEAVE, GIVE_BACK):
        assert partner.does(line) == "None"
    assert process().does(TAKE_NOW).startswith("NotFree")


def test_a_partner_that_times_under_its_owner_shares_it_all_the_while(process: Start) -> None:
    owner, timing = process(), process()
    owner.does(TAKE)
    partner = process(token_of(owner))
    partner.does(JOIN)
    assert partner.does(TAKE) == "None"
    owner.does(GIVE_BACK)
    timing.begin(TAKE)  # it has the lock, and waits for the partner
    time.sleep(0.05)
    start = time.monotonic()
    assert partner.does(GIVE_BACK) == "None"
    assert time.monotonic() - start < LONG / 2
    assert partner.does(SHARES) == "True"
    partner.does(LEAVE)
    assert timing.end() == "None"


def test_a_partner_is_alone_while_its_owner_waits_and_others_are_kept_out(process: Start) -> None:
    owner, other = process(), process()
    owner.does(JOIN)
    partner = process(token_of(owner))
    assert partner.does(TAKE_NOW) == "None"
    assert other.does(TAKE_NOW).startswith("NotFree")
    other.does(JOIN_NOW)
    assert other.does(SHARES) == "False"
    partner.does(GIVE_BACK)
    assert other.does(TAKE_NOW).startswith("NotFree")  # the owner shares it as before
    owner.does(LEAVE)
    assert other.does(TAKE_NOW) == "None"


def test_partners_of_one_owner_come_up_at_the_same_time_and_time_one_after_the_other(
    process: Start,
) -> None:
    """As fresh workers of a run against a revision do, while a test that waits shares the lock."""
    owner = process()
    owner.does(JOIN)
    partners = [process(token_of(owner)) for _ in range(3)]
    begun = time.monotonic()
    for one in partners:
        one.begin(f"({JOIN}, {TAKE}, {GIVE_BACK}, {SHARES}, lock.stop())")
    for one in partners:
        assert one.end() == "(None, None, None, True, None)"
    assert time.monotonic() - begun < LONG / 3
    assert process().does(TAKE_NOW).startswith("NotFree")  # the owner shares it as before


def test_partners_of_two_owners_do_not_wait_for_each_others_owner(process: Start) -> None:
    owners = [process(), process()]
    for one in owners:
        one.does(JOIN)
    partners = [process(token_of(one)) for one in owners]
    for one in partners:
        one.begin("(lock.take(LONG, 'x'), lock.give_back())")
    # The owner of whoever was first sits again, until its test ends.
    first = select.select([one.answers for one in partners], [], [], LONG)[0][0]
    begun = [one.answers for one in partners].index(first)
    assert partners[begun].end() == "(None, None)"
    owners[begun].does(LEAVE)
    assert partners[1 - begun].end() == "(None, None)"


def test_a_partner_that_is_killed_leaves_its_owner_as_it_was(process: Start) -> None:
    owner, other = process(), process()
    owner.does(JOIN)
    partner = process(token_of(owner))
    partner.does(TAKE)
    partner.kill()
    assert other.does(TAKE_NOW).startswith("NotFree")
    owner.does(LEAVE)
    assert other.does(TAKE_NOW) == "None"


def pids(line: str) -> set[int]:
    found = eval(line)
    assert isinstance(found, frozenset)
    return set(found)


def test_partners_know_each_other_where_their_owner_is_alone(process: Start) -> None:
    owner, stranger = process(), process()
    for one in (owner, stranger):
        for line in (JOIN, LEAVE):
            one.does(line)
    owner.does(TAKE)
    one, other = process(token_of(owner)), process(token_of(owner))
    for partner in (one, other):
        partner.does(JOIN)
        assert partner.does(SHARES) == "True"
        assert partner.does(TAKE) == "None"
    assert pids(owner.does("lock.partners()")) >= {one.pid, other.pid}
    assert pids(one.does("lock.partners()")) >= {owner.pid, other.pid}
    assert stranger.pid not in pids(one.does("lock.partners()"))
    assert stranger.does("lock.partners()") == "frozenset()"
    one.kill()
    assert one.pid not in pids(owner.does("lock.partners()"))


def test_partners_of_one_owner_that_sits_keep_each_other_out(process: Start) -> None:
    """The workers of a run that a test starts: each is as much a stranger to the next."""
    owner = process()
    owner.does(JOIN)
    one, other = process(token_of(owner)), process(token_of(owner))
    one.does(JOIN)
    assert other.does(TAKE_NOW).startswith("NotFree")
    one.does(LEAVE)
    assert other.does(TAKE_NOW) == "None"
    one.does(JOIN_NOW)
    assert one.does(SHARES) == "False"
    assert other.does("lock.partners()") == "frozenset()"
    assert pids(other.does("lock.kept_at_rest()")) == {owner.pid, one.pid}
    one.does(LEAVE)
    other.does(GIVE_BACK)
    one.does(JOIN)
    assert one.does(SHARES) == "True"


def test_a_partner_that_holds_in_a_call_leaves_the_gpu_to_its_owner(process: Start) -> None:
    """Two that take rounds in turn: the partner in a test of its own, at rest in the middle."""
    owner, stranger = process(), process()
    partner, other = process(token_of(owner)), process(token_of(owner))
    owner.does(JOIN)
    for one in (partner, other):
        one.does(JOIN)
        one.does("lock.stop()")
    assert owner.does(TAKE_NOW) == "None"
    assert pids(owner.does("lock.partners()")) == {partner.pid, other.pid}
    stranger.does(JOIN_NOW)
    assert stranger.does(SHARES) == "False"
    assert stranger.does(TAKE_NOW).startswith("NotFree")
    owner.does(GIVE_BACK)
    partner.does("lock.go_on(0.05, 'a test')")  # its owner sits, so it may whenever it wants
    assert partner.does(SHARES) == "True"
    assert stranger.does(TAKE_NOW).startswith("NotFree")
    for one in (partner, other, owner):
        one.does(LEAVE)
    assert stranger.does(TAKE_NOW) == "None"


def test_workers_that_take_turns_with_partners_of_their_own_do_not_wait_for_each_other(
    process: Start,
) -> None:
    """Several workers of a run against a revision: each test is begun by the partner, which holds
    while both take rounds in turn, and goes on while its owner waits for it."""

    def run_tests(owner: Process, partner: Process) -> list[str]:
        a_test = [(partner, JOIN), (partner, "lock.stop()"), (owner, JOIN)]
        a_test += [(owner, TAKE), (owner, GIVE_BACK)]
        a_test += [(partner, "lock.go_on(LONG, 'a test')"), (partner, LEAVE)]
        a_test += [(partner, JOIN), (partner, LEAVE), (owner, LEAVE)]
        return [one.does(line) for _ in range(20) for one, line in a_test]

    owners = [process() for _ in range(3)]
    partners = [process(token_of(owner)) for owner in owners]
    with ThreadPoolExecutor() as workers:
        for answers in workers.map(run_tests, owners, partners):
            assert set(answers) == {"None"}


def test_a_partner_waits_for_a_stranger_that_is_alone_while_its_owner_stands(
    process: Start,
) -> None:
    owner, timing = process(), process()
    owner.does(JOIN)
    one, other = process(token_of(owner)), process(token_of(owner))
    timing.begin(TAKE)
    time.sleep(0.05)
    one.begin(TAKE)  # has the owner stand, so that the stranger is alone
    assert timing.end() == "None"
    other.does(JOIN_NOW)
    assert other.does(SHARES) == "False"
    timing.does(GIVE_BACK)
    assert one.end() == "None"


def test_a_partner_whose_owner_is_at_rest_is_as_any_other(process: Start) -> None:
    owner = process()
    owner.does(JOIN)
    owner.does(LEAVE)
    partner = process(token_of(owner))
    partner.does(JOIN)
    assert partner.does(SHARES) == "True"


# What may go wrong with files and forks.


def test_a_forked_child_that_lives_on_holds_nothing(process: Start) -> None:
    holder = process()
    for line in (JOIN, TAKE):
        holder.does(line)
        child = int(holder.does("__import__('os').fork() or __import__('time').sleep(60)"))
        try:
            holder.does(LEAVE if line == JOIN else GIVE_BACK)
            other = process()
            assert other.does(TAKE_NOW) == "None"
            other.does(GIVE_BACK)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_holder_that_is_killed_frees_it_although_its_child_lives(process: Start) -> None:
    holder = process()
    holder.does(TAKE)
    child = int(holder.does("__import__('os').fork() or __import__('time').sleep(60)"))
    try:
        time.sleep(0.05)
        holder.kill()
        assert process().does(TAKE_NOW) == "None"
    finally:
        os.kill(child, signal.SIGKILL)


def test_whose_file_was_swept_away_makes_another(process: Start, folder: Path) -> None:
    one, other = process(), process()
    one.does(JOIN)
    one.does(LEAVE)
    for path in folder.iterdir():
        path.unlink()
    one.does(JOIN)
    assert other.does(TAKE_NOW).startswith("NotFree")


@pytest.mark.parametrize("first", [True, False], ids=["before", "meanwhile"])
def test_who_locks_the_whole_file_keeps_nobody_waiting_for_good(
    process: Start, folder: Path, first: bool
) -> None:
    one, other = process(), process()
    path = str(folder / f"{UUID}.lock")
    other.does(f"files.append(open({path!r}, 'a+'))")
    if not first:
        one.does(JOIN)
        one.does(LEAVE)
    # To the end of any file; where another process holds its place, all that lies before that.
    length = 0 if first else 8192
    assert other.does(f"__import__('fcntl').lockf(files[0], 2 | 4, {length})") == "None"
    assert one.does(JOIN_NOW) == "None"
    assert one.does(SHARES) == "False"
    assert one.does(TAKE_NOW).startswith("GpuBusy" if first else "NotFree")


def test_a_handle_that_a_test_closed_is_not_taken_for_ours(process: Start, folder: Path) -> None:
    one, other = process(), process()
    one.does(JOIN)
    one.does(LEAVE)
    handle = one.does("lock._bytes._handle")
    assert one.does(f"__import__('os').close({handle})") == "None"
    strangers = str(folder.parent / "a file of the test")
    Path(strangers).touch()
    assert one.does(f"__import__('os').open({strangers!r}, 0)") == handle
    assert one.does(JOIN) == "None"
    assert one.does(SHARES) == "True"
    assert other.does(TAKE_NOW).startswith("NotFree")
    assert "st_mode" in one.does(f"__import__('os').fstat({handle})")


def test_code_runs_although_there_can_be_no_lock(folder: Path) -> None:
    hold = lock_of(UUID)
    (folder / f"{UUID}.lock").mkdir()
    hold.join(1, "a test")
    assert not hold.shares  # type: ignore[attr-defined]
    hold.leave()
    with pytest.raises(GpuBusy, match="cannot be created"):
        hold.take(1, "a timed test")


def test_who_is_kept_from_working_is_known_to_who_is_alone(process: Start) -> None:
    one, timing = process(), process()
    one.does(JOIN)
    assert timing.does("lock.kept_at_rest()") == "frozenset()"
    one.does(LEAVE)
    timing.does(TAKE)
    assert timing.does("lock.kept_at_rest()") == f"frozenset({{{one.pid}}})"
    one.kill()
    assert timing.does("lock.kept_at_rest()") == "frozenset()"


def test_numbers_of_another_container_are_no_processes_of_ours(
    process: Start, folder: Path
) -> None:
    one, timing = process(), process()
    for line in (JOIN, LEAVE):
        one.does(line)
    notes = folder / f"{UUID}.notes"
    notes.write_text(notes.read_text().replace("pid:[", "pid:[9"))
    timing.does(TAKE)
    assert timing.does("lock.kept_at_rest()") == "frozenset()"


def test_without_locks_that_can_be_shared_it_is_held_alone_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, process: Start
) -> None:
    monkeypatch.setattr(file_lock, "can_lock_bytes", lambda: False)
    hold = lock_of(UUID)
    assert type(hold) is GpuLock
    other = process()
    other.does(JOIN)
    hold.take(0.05, "a timed test")
    hold.take(0.05, "the same")
    assert hold.kept_at_rest() == frozenset()
    said = process().does(TAKE_NOW)
    assert f"held by pid {os.getpid()}" in said
    hold.give_back()
    hold.give_back()
    assert process().does(TAKE_NOW) == "None"


def test_this_system_has_locks_that_can_be_shared() -> None:
    assert can_lock_bytes()


def test_an_interrupt_while_it_waits_leaves_nothing_held(
    process: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = process()
    holder.does(JOIN)
    hold = lock_of(UUID)

    def interrupted(*_: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(usage_lock.SharedGpuLock, "_others_that_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            hold.take(1, "a timed test")
    holder.does(LEAVE)
    assert process().does(TAKE_NOW) == "None"
