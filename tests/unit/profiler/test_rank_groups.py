"""What is done to torch's process groups and GPUs of ranks, on doubles; gloo's own are in
``tests/integration/test_ranks_with_gloo.py``."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from pytest_kernelprof.distributed import agreement as ranks
from pytest_kernelprof.distributed.agreement import ALONE, World, abort, shorter_waits, taking_part
from pytest_kernelprof.errors import IncompleteProfile, MarkerError
from pytest_kernelprof.gpu import usage_lock
from pytest_kernelprof.gpu.inventory import Device
from pytest_kernelprof.gpu.usage_lock import NotFree

GPU = Device("cuda", 0, "NVIDIA H200", "sm_90", 0, {})


class Backend:
    """A backend of a group."""

    def __init__(self, name: str, done: list[str], timeout_s: float = 1800.0) -> None:
        self.options = SimpleNamespace(_timeout=timedelta(seconds=timeout_s))
        self._name, self._done = name, done

    def name(self) -> str:
        return self._name

    def _set_default_timeout(self, limit: timedelta) -> None:
        self._done.append(f"{limit.total_seconds():g} s")
        self.options._timeout = limit

    def abort(self) -> None:
        self._done.append("abort")

    def _group_start(self) -> None:
        self._done.append("start")

    def _group_end(self) -> None:
        self._done.append("end")


def torch_with(monkeypatch: pytest.MonkeyPatch, *backends: Backend, **more: Any) -> World:
    """torch's module of process groups, of two ranks, this one number 0; the first group is the
    default one, and there is one for each backend."""
    groups = [_Group(one, more.get("size", 2)) for one in backends or (Backend("nccl", []),)]
    backend = more.get("backend", "nccl")
    store = more.get("store", object())
    held = {
        "default_pg": groups[0],
        "pg_map": dict.fromkeys(groups, (backend, store)),
        "pg_backend_config": dict.fromkeys(groups, f"cpu:{backend},cuda:{backend}"),
        "pg_group_ranks": {one: {1: 0, 0: 1} for one in groups},
    }
    c10d: Any = ModuleType("torch.distributed.distributed_c10d")
    c10d._world = type(more.pop("world", "_World"), (), held)()
    c10d.ProcessGroup = _Group
    monkeypatch.setitem(sys.modules, c10d.__name__, c10d)
    return World(c10d, groups[0])


class _Group:
    def __init__(self, backend: Backend, size: int) -> None:
        self._backend, self._size = backend, size

    def _get_backend(self, device: object) -> Backend:
        return self._backend

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return self._size


@pytest.mark.parametrize("more", [{"size": 1}, {"backend": "fake"}])
def test_one_rank_and_made_up_ranks_agree_with_themselves(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    torch_with(monkeypatch, **more)
    with ranks.agreeing("profile(f)") as agreement:
        assert agreement is ALONE
    assert ALONE.gather("x", 7) == (7,)


def test_without_torch_nothing_is_imported() -> None:
    code = (
        "import sys; from pytest_kernelprof.distributed.agreement import agreeing, left_test;"
        "left_test('t', 'ended')\n"
        "with agreeing('f'): pass\n"
        "print([one for one in sys.modules if one.startswith('torch')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("more", [{"world": "ThreadLocalWorld"}, {"backend": "threaded"}])
def test_ranks_that_are_threads_are_refused(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    torch_with(monkeypatch, **more)
    with pytest.raises(IncompleteProfile, match="ranks that are threads"), ranks.agreeing("f"):
        pass


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ([1], "this is rank 0, not in it"),
        ([0, 2], "expected ranks below 2"),
        ([], "expected ranks below 2"),
        ("all", "got str"),
        (3, "got int"),
    ],
)
def test_a_group_is_a_group_or_ranks(
    monkeypatch: pytest.MonkeyPatch, group: object, words: str
) -> None:
    torch_with(monkeypatch)
    with pytest.raises(MarkerError, match=words), ranks.agreeing("f", group=group):
        pass


def test_a_group_needs_torch_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed.distributed_c10d", raising=False)
    with pytest.raises(MarkerError, match="has one rank here"), ranks.agreeing("f", group=[0, 1]):
        pass
    with ranks.agreeing("f", group=[0]) as agreement:
        assert agreement is ALONE


def test_who_takes_part_is_said_by_a_group_or_by_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    group = torch_with(monkeypatch).group
    assert taking_part(None) == taking_part(group) == (0, 1)
    assert taking_part([0]) == (0,)


def test_made_up_ranks_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    group = torch_with(monkeypatch, backend="fake", size=8).group
    assert taking_part(group) == taking_part([0]) == (0,)
    with pytest.raises(MarkerError, match="this is rank 0"):
        taking_part([1])


def test_a_backend_without_a_store_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_with(monkeypatch, backend="mpi", store=None)
    with pytest.raises(IncompleteProfile, match="backend mpi has none"), ranks.agreeing("f"):
        pass
    ranks.left_test("t", "has ended the test")


def two_ranks_by_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: 2)


def a_mock(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.distributed", "torch.distributed.distributed_c10d"):
        monkeypatch.setitem(sys.modules, name, MagicMock())


def a_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.distributed", "torch.distributed.distributed_c10d"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))


def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.distributed", "torch.distributed.distributed_c10d"):
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("patch", [two_ranks_by_functions, a_mock, a_stub, nothing])
def test_what_a_test_puts_in_place_of_torch_distributed_is_no_rank(
    monkeypatch: pytest.MonkeyPatch, patch: Callable[[pytest.MonkeyPatch], None]
) -> None:
    patch(monkeypatch)
    with ranks.agreeing("f") as agreement:
        assert agreement is ALONE
    assert ranks.number_of_rank() is None
    ranks.left_test("t", "has ended the test")


def test_gloo_waits_no_longer_than_we_do(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    world = torch_with(monkeypatch, Backend("gloo", done), Backend("gloo", done, 5.0))
    with shorter_waits(world.backends("gloo"), 30.0):
        assert set(done) == {"30 s"}
    assert done[-1] == "1800 s"
    assert "5 s" not in done


def test_all_communicators_are_aborted_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    world = torch_with(monkeypatch, Backend("nccl", done), Backend("gloo", done))
    abort(world.backends("nccl"))
    assert done[0] == "start"
    assert done[-1] == "end"
    assert set(done[1:-1]) == {"abort"}
    done.clear()
    abort(torch_with(monkeypatch, Backend("gloo", done)).backends("nccl"))
    assert done == []


@pytest.mark.parametrize(
    ("words", "means"),
    [
        ("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:2345", True),
        ("[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 2000ms for recv", True),
        ("Application timeout caused pair closure", True),
        ("NCCL communicator was aborted on rank 1.", True),
        ("NCCL error: remote process exited or there was a network error", True),
        ("NCCL error: invalid usage. Duplicate GPU detected: rank 0 and rank 1", False),
        ("ProcessGroupNCCL does not support alltoall of CPU tensors", False),
        ("the request timed out", False),
    ],
)
def test_which_errors_say_that_another_rank_did_not_come(words: str, means: bool) -> None:
    together = ranks._Together.__new__(ranks._Together)
    told = IncompleteProfile("rank 1 did not come")
    together.meeting = SimpleNamespace(stuck=lambda: None, error=lambda lost: told)  # type: ignore[assignment]
    assert together.explained(RuntimeError(words)) == (told if means else None)
    assert together.explained(ValueError(words)) is None


class Locks:
    """What two ranks of one machine do about the locks of their GPUs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rank: int, hosts: tuple[str, ...]) -> None:
        self.done: list[str] = []
        self.busy = ""
        monkeypatch.setattr(ranks, "gpu_uuid", lambda index: f"gpu {1 - rank}")
        monkeypatch.setattr(usage_lock, "lock_by_uuid", self._lock)
        monkeypatch.setattr(ranks, "at_rest", self._rests)
        self.together = ranks._Together.__new__(ranks._Together)
        self.together.rank = self.together._number = rank
        self.together._ranks = (0, 1)
        self.together.meeting = SimpleNamespace(  # type: ignore[assignment]
            hosts=lambda: hosts, lost=None, lose=lambda lost: self.done.append(lost.why)
        )
        self.together.gather = self._gather  # type: ignore[method-assign, assignment]

    def _gather(self, what: str, own: Any, *, patience_s: float = 0.0) -> tuple[Any, ...]:
        return ("gpu 1", "gpu 0") if what == "the GPUs" else (own, self.busy)

    @contextlib.contextmanager
    def _lock(self, uuid: str, timeout_s: float, who: str, name: str) -> Iterator[Any]:
        if uuid == self.busy:
            raise NotFree(f"{uuid} was not free")
        self.done.append(f"lock {uuid}")
        try:
            yield uuid
        finally:
            self.done.append(f"leave {uuid}")

    @contextlib.contextmanager
    def _rests(self) -> Iterator[None]:
        self.done.append("rest")
        try:
            yield
        finally:
            self.done.append("go on")


def test_the_first_rank_of_a_host_locks_for_all_in_one_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locks = Locks(monkeypatch, 0, ("a", "a"))
    with locks.together.gpu_lock(GPU, 1.0, "who") as lock:
        assert lock == "gpu 1"  # type: ignore[comparison-overlap]
    assert locks.done == ["lock gpu 0", "lock gpu 1", "leave gpu 1", "leave gpu 0"]


def test_the_other_ranks_rest_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    locks = Locks(monkeypatch, 1, ("a", "a"))
    with locks.together.gpu_lock(GPU, 1.0, "who") as lock:
        assert lock is None
    assert locks.done == ["rest", "go on"]


def test_who_fails_tells_the_others_before_it_waits_for_its_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first rank has the GPU, and waits for this one until it hears of that."""
    locks = Locks(monkeypatch, 1, ("a", "a"))
    with pytest.raises(ValueError, match="boom"), locks.together.gpu_lock(GPU, 1.0, "who"):
        raise ValueError("boom")
    assert locks.done == ["rest", "raised ValueError: boom", "go on"]


def test_each_host_has_its_own_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    locks = Locks(monkeypatch, 1, ("a", "b"))
    with locks.together.gpu_lock(GPU, 1.0, "who"):
        assert locks.done == ["lock gpu 0"]


@pytest.mark.parametrize("rank", [0, 1])
def test_where_one_gpu_is_not_free_all_are_told(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    locks = Locks(monkeypatch, rank, ("a", "a"))
    locks.busy = "gpu 1"
    with pytest.raises(NotFree, match="gpu 1"), locks.together.gpu_lock(GPU, 0.0, "who"):
        pass
    assert locks.done in (["lock gpu 0", "leave gpu 0"], ["rest", "go on"])
