"""Ranks that meet through a store: here they are threads, and the store is made up."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pytest_kernelprof.distributed import rendezvous
from pytest_kernelprof.distributed.agreement import Watchdog
from pytest_kernelprof.distributed.rendezvous import (
    Call,
    LostRank,
    Meeting,
    Process,
    note_key,
    run_key,
)
from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.measure import policy
from pytest_kernelprof.measure.policy import (
    Judge,
    Needs,
    Plan,
    Shown,
    Step,
    next_step,
    plan_of,
    plan_of_ranks,
)
from pytest_kernelprof.records.profile import Verdict
from pytest_kernelprof.system import now_ns

TEST = "test_ddp.py::test_step\n1"
CALL = Call(TEST, (0, 1), 1, "kernel_profile at test_ddp.py:9")


PAIRS = ((0, 1), (2, 3))
_DEAD: set[int] = set()
_LONE: dict[str, Any] = {
    "myself": Process("here", 0, "then"),
    "limit_s": 1.0,
    "known": {},
}


class MadeUp:
    """A store in memory, of the kind that torch has."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.gone = False
        self._lock = threading.Lock()

    def set(self, key: str, value: Any, /) -> None:
        self._ask()
        self.kept[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key: str, /) -> bytes:
        self._ask()
        return self.kept[key]

    def check(self, keys: list[str], /) -> bool:
        self._ask()
        return all(key in self.kept for key in keys)

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        self._ask()
        assert not expected
        with self._lock:
            return self.kept.setdefault(key, desired.encode())

    def delete_key(self, key: str, /) -> bool:
        self._ask()
        return self.kept.pop(key, None) is not None

    def _ask(self) -> None:
        if self.gone:
            raise RuntimeError("Connection reset by peer")


class Ranks:
    """Several ranks at one store."""

    def __init__(self, number: int = 2, limit_s: float = 20.0) -> None:
        self.store = MadeUp()
        self.number, self.limit_s = number, limit_s
        self.known: list[dict[int, Process]] = [{} for _ in range(number)]

    def at(self, rank: int, call: Call = CALL, pid: int | None = None) -> Meeting:
        return Meeting(
            self.store,
            call._replace(ranks=tuple(range(self.number))),
            rank,
            myself=Process("here", rank if pid is None else pid, "then"),
            limit_s=self.limit_s,
            known=self.known[rank],
        )

    def all_do(self, do: Callable[[int, Meeting], Any], *ranks: int) -> list[Any]:
        """What each gives back, or raises."""
        found: list[Any] = [None] * self.number

        def run(rank: int) -> None:
            try:
                found[rank] = do(rank, self.at(rank))
            except IncompleteProfile as error:
                found[rank] = str(error)

        threads = [threading.Thread(target=run, args=(i,)) for i in ranks or range(self.number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to settle for a second, and no process is dead by itself."""
    _DEAD.clear()
    started_at = {True: "", False: "then"}
    monkeypatch.setattr(rendezvous, "started_at", lambda pid: started_at[pid in _DEAD])
    monkeypatch.setattr(rendezvous, "SETTLE_S", 0.05)


@pytest.mark.parametrize("number", [2, 4])
def test_each_gets_what_all_have_by_number(number: int) -> None:
    ranks = Ranks(number)
    found = ranks.all_do(lambda rank, here: [here.gather("numbers", rank * k) for k in (1, 2)])
    assert found == [[tuple(range(number)), tuple(2 * one for one in range(number))]] * number


def test_records_arrive_as_they_were() -> None:
    own = [Verdict(limit="max_kernels", outcome="failed", measured=n, ranks=(n,)) for n in (0, 1)]
    found = Ranks().all_do(lambda rank, here: here.gather("verdicts", own[rank]))
    assert found == [tuple(own)] * 2


def test_plans_become_the_one_that_takes_what_any_of_them_needs() -> None:
    own = [
        plan_of("cpu", Needs()),
        plan_of("cpu", Needs(host_times=True, spills=True))._replace(warmup=3, who="b"),
    ]
    found = Ranks().all_do(lambda rank, here: plan_of_ranks(here.gather("the plan", own[rank])))
    assert [one.who for one in found] == ["", ""]
    assert [(one.warmup, one.rounds, one.host_rounds, one.sample_on) for one in found] == [
        (3, 12, 12, True)
    ] * 2
    assert all(one.spills for one in found)


def test_plans_for_different_kinds_of_devices_are_refused() -> None:
    with pytest.raises(Exception, match="some ranks measure on cpu, others on cuda"):
        plan_of_ranks([Plan("cuda"), Plan("cpu")])


@pytest.mark.parametrize("seed", range(6))
def test_whatever_each_sees_all_take_the_same_steps(seed: int) -> None:
    """The property that keeps collectives from waiting for a rank that is done."""
    plan = plan_of("cuda", Needs(device_times=True, host_times=True, memory=True))

    def measure(rank: int, here: Meeting) -> list[Step]:
        chance, history = random.Random(f"{seed} {rank}"), list[Shown]()
        while (step := next_step(plan, history)) is not None:
            shown = Shown(
                step,
                complete=chance.random() > 0.2,
                cold=chance.random() < 0.2,
                throttled=chance.random() < 0.2,
                bound=chance.choice(["gpu", "overhead"]),
                verdicts=tuple(
                    Verdict(
                        limit="x",
                        outcome=chance.choice(["undecided", "failed", "passed"]),
                        metric=m,
                    )
                    for m in ("cuda_time", "latency")
                )
                if isinstance(step, Judge)
                else (),
            )
            history.append(policy.shown_on_ranks(here.gather(repr(step), shown)))
        return [one.step for one in history]

    one, other, third = Ranks(3).all_do(measure)
    assert len(one) > 5
    assert one == other == third


def test_they_begin_at_one_instant() -> None:
    ranks = Ranks(3)

    def begin(rank: int, here: Meeting) -> list[tuple[int, int]]:
        seen = []
        for _ in range(5):
            time.sleep(0.003 * rank)
            came = now_ns()
            here.begin()
            seen.append((came, now_ns()))
        return seen

    for of_ranks in zip(*ranks.all_do(begin), strict=True):
        came, began = zip(*of_ranks, strict=True)
        assert min(began) >= max(came) + rendezvous._TO_READ_NS


def test_nobody_waits_for_an_instant_of_another_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_LONGEST_SPIN_NS", 1_000_000)
    monkeypatch.setattr(rendezvous, "_TO_READ_NS", 3_600_000_000_000)
    assert Ranks().all_do(lambda rank, here: here.begin()) == [None, None]


def test_a_rank_of_another_host_has_another_clock() -> None:
    ranks = Ranks()

    def begin(rank: int, here: Meeting) -> bool:
        here.myself = Process(f"host {rank}", rank, "then")
        here.begin()
        return True

    assert ranks.all_do(begin) == [True, True]


def test_a_rank_that_does_not_come_is_named_with_test_and_call() -> None:
    found = Ranks(3, limit_s=0.2).all_do(lambda rank, here: here.gather("x", rank), 0, 1)
    assert found[0] == found[1]
    assert found[0].startswith(
        "rank 2 did not arrive within 0.2 s, so ranks 0 to 2 could not continue together in "
        "kernel_profile at test_ddp.py:9 (call 1 of test_ddp.py::test_step): all ranks must "
        "make the same calls"
    )


def test_who_comes_too_late_hears_that_the_others_have_gone() -> None:
    ranks = Ranks(limit_s=0.1)
    ranks.all_do(lambda rank, here: here.gather("x", rank), 0)
    late = ranks.at(1)
    late.gather("x", 1)  # the other's word is there still
    with pytest.raises(
        IncompleteProfile, match=r"rank 1 \(this one\) did not arrive within 0\.1 s"
    ):
        late.gather("y", 1)


def test_where_a_rank_was_last_is_told() -> None:
    ranks = Ranks(limit_s=0.1)
    ranks.at(1, Call("test_ddp.py::test_other\n1", (0, 1), 2, "a comparison at test_ddp.py:30"))
    found = ranks.all_do(lambda rank, here: here.gather("x", rank), 0)
    assert (
        "; it was last seen in a comparison at test_ddp.py:30 (call 2 of test_ddp.py::test_"
        in found[0]
    )


def test_a_rank_that_raises_is_named_at_once() -> None:
    def run(rank: int, here: Meeting) -> Any:
        here.gather("x", rank)
        if rank == 1:
            return here.lose(LostRank(1, "raised ValueError: boom"))
        return here.gather("y", rank)

    found = Ranks(3).all_do(run)
    assert found[0] == found[2]
    assert found[0].startswith("rank 1 raised ValueError: boom, so ranks 0 to 2 could not continue")
    assert "group=" not in found[0]


def test_a_rank_that_has_ended_the_test_is_named_at_once() -> None:
    ranks = Ranks()
    ranks.store.set(note_key(TEST, "left", 1), "has ended the test (Skipped: not here)")
    found = ranks.all_do(lambda rank, here: here.gather("x", rank), 0)
    assert found[0].startswith("rank 1 has ended the test (Skipped: not here), so ranks 0 and 1")


def test_a_rank_that_has_ended_its_run_is_named_at_once_until_it_is_back() -> None:
    ranks = Ranks()
    ranks.store.set(run_key(1), "has ended its run")
    found = ranks.all_do(lambda rank, here: here.gather("x", rank), 0)
    assert found[0].startswith("rank 1 has ended its run, so ranks 0 and 1 could not continue")
    ranks.store.delete_key(run_key(1))
    call = Call(TEST, (0, 1), 2, CALL.words)
    assert ranks.at(0, call).look() is None


def test_a_rank_that_has_ended_its_call_well_is_not_missed() -> None:
    ranks = Ranks()

    def run(rank: int, here: Meeting) -> Any:
        found = here.gather("x", rank)
        here.end()
        _DEAD.add(rank)
        ranks.store.set(note_key(TEST, "left", rank), "has ended the test")
        ranks.store.set(run_key(rank), "has ended its run")
        return found

    assert ranks.all_do(run) == [(0, 1), (0, 1)]


def test_a_process_that_is_gone_is_named_at_once() -> None:
    ranks = Ranks()

    def run(rank: int, here: Meeting) -> Any:
        here.gather("x", rank)
        if rank == 1:
            return _DEAD.add(1)
        return here.gather("y", rank)

    found = ranks.all_do(run)
    assert found[0].startswith("rank 1 has died (process 1 is gone), so ranks 0 and 1")


def test_different_calls_are_told_apart() -> None:
    ranks = Ranks()

    def run(rank: int, here: Meeting) -> Any:
        here.call = Call(TEST, (0, 1), 1, f"kernel_profile at test_ddp.py:{9 + rank}")
        return here.gather("the plan" if rank else "latency of f, g", rank)

    for found in ranks.all_do(run):
        assert "is at kernel_profile at test_ddp.py:" in found
        assert "all ranks must make the same calls" in found


def test_ranks_that_are_threads_are_refused() -> None:
    ranks = Ranks()
    found = ranks.all_do(lambda rank, _: ranks.at(rank, pid=7).gather("x", rank))
    assert all("ranks that are threads of one process cannot be profiled" in one for one in found)


def test_a_store_that_is_gone_is_told() -> None:
    ranks = Ranks()
    here = ranks.at(1)
    ranks.store.gone = True
    with pytest.raises(IncompleteProfile, match="rank 0 has ended, and with it the store of torch"):
        here.gather("x", 1)


def test_of_many_steps_nothing_stays() -> None:
    ranks = Ranks()

    def run(rank: int, here: Meeting) -> None:
        for _ in range(50):
            here.gather("x", "long" * 1_000)
        here.end()

    ranks.all_do(run)
    assert sorted(ranks.store.kept) == ["at/0", "at/1"]


def test_what_is_longer_than_a_store_takes_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_LONGEST_VALUE", 1_000)
    ranks = Ranks()
    long = [random.Random(rank).randbytes(3_000).hex() for rank in (0, 1)]
    found = ranks.all_do(lambda rank, here: [here.gather("x", long[rank]) for _ in range(3)])
    assert found == [[tuple(long)] * 3] * 2
    assert max(map(len, ranks.store.kept.values())) < 1_100


def test_a_collective_that_waited_too_long_names_who_did_not_come_to_it() -> None:
    ranks = Ranks(4)

    def run(rank: int, here: Meeting) -> Any:
        here.gather("x", rank)
        return here.stuck() if rank != 2 else None

    found = ranks.all_do(run)
    assert found[0] == found[1] == found[3]
    assert found[0] == LostRank(2, "did not reach a collective in which others waited")


def test_who_left_a_collective_out_is_named_by_itself_too_though_it_has_waited_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rendezvous, "SETTLE_S", 0.3)
    ranks = Ranks(limit_s=0.8)

    def run(rank: int, here: Meeting) -> Any:
        here.gather("x", rank)
        if rank == 0:
            time.sleep(0.85)  # until its collective times out
            return here.stuck().rank
        return here.gather("y", rank)

    who, told = ranks.all_do(run)
    assert who == 1
    assert "rank 1 (this one) did not reach a collective in which others waited" in told


def test_what_became_of_one_group_of_ranks_is_nothing_to_another_one() -> None:
    ranks = Ranks()
    pairs = [Meeting(ranks.store, Call(TEST, pair, 1, "f"), pair[0], **_LONE) for pair in PAIRS]
    pairs[0].lose(LostRank(1, "raised ValueError: boom"))
    assert pairs[1].look() is None
    assert pairs[0].look() == LostRank(1, "raised ValueError: boom")


def test_collectives_that_wait_for_each_other_are_told() -> None:
    found = Ranks().all_do(lambda _, here: here.stuck())
    assert found[0] == found[1]
    assert "waits for other ranks, which wait in another one" in found[0].why


def looked_after(
    monkeypatch: pytest.MonkeyPatch,
    inside: Callable[[], None],
    lost: bool,
    here: Meeting | None = None,
) -> bool:
    """Whether the call of a rank was broken off."""
    monkeypatch.setattr("pytest_kernelprof.distributed.agreement._WATCH_S", 0.02)
    ranks, broken = Ranks(limit_s=0.3), threading.Event()
    here = here or ranks.at(0)
    here.inside_since = 0.0
    if lost:
        ranks.at(1).lose(LostRank(1, "raised ValueError"))
    with Watchdog(here, broken.set):
        inside()
        return broken.wait(0.5)


def test_who_waits_for_a_lost_rank_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked_after(monkeypatch, lambda: None, lost=True)


def test_who_only_works_is_not_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not looked_after(monkeypatch, lambda: None, lost=False)


def test_who_waits_for_the_device_for_too_long_is_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def synchronize_in_use() -> None:
        time.sleep(0.8)

    here = Ranks(limit_s=0.3).at(0)
    assert looked_after(monkeypatch, synchronize_in_use, lost=False, here=here)
    assert here.lost is not None
    assert here.lost.rank == 1


def test_what_one_step_showed_on_all_ranks_is_the_worst_of_it() -> None:
    step = Judge()
    shown: Sequence[Shown] = [Shown(step), Shown(step, complete=False, problems="a", bound="gpu")]
    assert policy.shown_on_ranks(shown) == Shown(step, complete=False, problems="a", bound="gpu")
    assert policy.shown_on_ranks([Shown(step, cold=True), Shown(step, throttled=True)]) == Shown(
        step, cold=True, throttled=True
    )
