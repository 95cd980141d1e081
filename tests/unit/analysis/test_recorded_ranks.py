"""Traces of two H200s, as torch 2.11 and NCCL 2.28 write them: counts, times, who came last."""

from __future__ import annotations

import functools
import gzip
import itertools
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_kernelprof.cli.trace_commands import ranks_in
from pytest_kernelprof.records.profile import Profile
from pytest_kernelprof.summary.ranks import ranks_of, waiting_words

FOLDER = Path(__file__).parents[2] / "traces" / "ranks"
CASES = ("slow", "gather_scatter", "pairs", "batch", "graph", "ddp")


@functools.cache
def recorded(case: str) -> list[Profile]:
    files = [str(FOLDER / f"{case}_rank{rank}.json.gz") for rank in (0, 1)]
    ranks, unread = ranks_in(files, 1 << 30)
    assert not unread
    return [one.profile for one in ranks]


@functools.cache
def kernels(case: str, rank: int) -> list[tuple[float, float, bool]]:
    """Start, end and whether NCCL's, of each kernel as it stands in the file."""
    text = gzip.decompress((FOLDER / f"{case}_rank{rank}.json.gz").read_bytes())
    return sorted(
        (event["ts"], event["ts"] + event["dur"], event["name"].startswith("nccl"))
        for event in json.loads(text)["traceEvents"]
        if event.get("cat") == "kernel"
    )


def value(profile: Profile, name: str) -> float:
    found = profile.metrics[name].value
    assert found is not None, profile.metrics[name].why
    return found


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_counts_and_times_are_those_of_the_file(case: str, rank: int) -> None:
    profile, there = recorded(case)[rank], kernels(case, rank)
    assert profile.integrity.complete
    assert profile.rank == rank
    assert profile.kernel_count == len(there)
    assert len(profile.collectives) == sum(nccl for _, _, nccl in there)
    for name, ours in (("comm_time", True), ("cuda_time", False)):
        took = sum(end - start for start, end, nccl in there if nccl is ours)
        assert value(profile, name) == pytest.approx(took, abs=0.01)


@pytest.mark.parametrize("rank", [0, 1])
def test_exposed_is_what_a_walk_along_the_clock_finds(rank: int) -> None:
    """In nanoseconds from edge to edge, without unions of intervals."""
    there = kernels("ddp", rank)
    edges = sorted({at for start, end, _ in there for at in (start, end)})
    exposed = 0.0
    for begin, end in itertools.pairwise(edges):
        running = {nccl for start, stop, nccl in there if start <= begin and stop >= end}
        exposed += (end - begin) * (running == {True})
    profile = recorded("ddp")[rank]
    assert 0 < value(profile, "exposed_comm_time") < value(profile, "comm_time")
    assert value(profile, "exposed_comm_time") == pytest.approx(exposed, abs=0.1)


def test_the_slow_rank_comes_last_to_all_and_the_other_waits_for_it() -> None:
    first, slow = recorded("slow")
    assert [one.last for one in first.collectives] == [1, 1, 1]
    assert value(slow, "comm_wait") == 0
    assert value(first, "comm_wait") == pytest.approx(6202.9, abs=0.1)
    assert value(first, "comm_transfer") == value(slow, "comm_transfer")
    told, *_ = waiting_words(ranks_of(replace(first, other_ranks=(slow,))))
    assert told.startswith("Rank 1 comes last to 3 of 3 collectives: rank 0 waits 6.20ms for")


@pytest.mark.parametrize("case", ["slow", "gather_scatter", "batch", "graph", "ddp"])
def test_collectives_end_on_both_ranks_together(case: str) -> None:
    """By the clock of the host, which both have: what tells waiting from transfer rests on it."""
    ends = [[end for _, end, nccl in kernels(case, rank) if nccl] for rank in (0, 1)]
    assert max(abs(one - other) for one, other in zip(*ends, strict=True)) < 11


def test_what_a_rank_gives_and_gets_are_its_bytes() -> None:
    gather, scatter = recorded("gather_scatter")[0].collectives
    assert (gather.operation, gather.bytes) == ("_allgather_base", 2 * (2 << 20))
    assert (scatter.operation, scatter.bytes) == ("_reduce_scatter_base", 4 * (1 << 21))
    assert value(recorded("ddp")[0], "comm_bytes") == 6 * (2048 * 2048 + 2048) * 4
    assert (gather.ranks, gather.size, gather.group) == ((0, 1), 2, "0")


def test_a_send_and_its_receive_name_each_other() -> None:
    (send,), (receive,) = (one.collectives for one in recorded("pairs"))
    assert (send.operation, send.ranks, receive.operation, receive.ranks) == (
        "send",
        (1,),
        "recv",
        (0,),
    )
    assert send.transfer_us == receive.transfer_us == receive.us


@pytest.mark.parametrize("case", ["batch", "graph"])
def test_of_what_nothing_is_said_bytes_are_not_to_be_had_but_waiting_is(case: str) -> None:
    for profile in recorded(case):
        (met,) = profile.collectives
        assert (met.group, met.ranks, met.bytes) == ("", (), None)
        assert "does not say how much" in profile.metrics["comm_bytes"].why
        assert value(profile, "comm_wait") >= 0
