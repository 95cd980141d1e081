"""Several GPUs for one test: all of them or none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from pytest_kernelprof.errors import GpuBusy
from pytest_kernelprof.gpu import allocation, nvml, usage_lock
from pytest_kernelprof.gpu.allocation import lock_all, several_gpus
from pytest_kernelprof.gpu.usage_lock import NotFree

HERE = ("GPU-a", "GPU-b", "GPU-c")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Who else holds a GPU, by UUID: for so many looks."""
    busy: dict[str, int] = {}

    @contextlib.contextmanager
    def lock(uuid: str, timeout_s: float, who: str, name: str = "GPU") -> Iterator[None]:
        if busy.get(uuid, 0):
            busy[uuid] -= 1
            raise NotFree(uuid)
        busy[uuid] = 1_000
        try:
            yield
        finally:
            busy[uuid] = 0

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(allocation, "_given", [])
    monkeypatch.setattr(allocation, "_POLL_S", 0.001)
    monkeypatch.setattr(nvml, "gpu_uuids", lambda: HERE)
    monkeypatch.setattr(usage_lock, "lock_by_uuid", lock)
    return busy


def test_the_first_that_are_free_are_taken_and_given_back(held: dict[str, int]) -> None:
    held["a"] = 1_000
    with several_gpus(2, 1.0, "who") as gpus:
        assert gpus == ("GPU-b", "GPU-c")
        with pytest.raises(GpuBusy, match="1 of 3 GPUs were not free"), several_gpus(1, 0, "who"):
            pass
    assert (held["b"], held["c"]) == (0, 0)


def test_who_waits_for_several_holds_none(held: dict[str, int]) -> None:
    held |= {"a": 3, "b": 3}
    with several_gpus(3, 60.0, "who") as gpus:
        assert gpus == HERE


def test_more_than_there_are_is_an_error_at_once(held: dict[str, int]) -> None:
    with pytest.raises(GpuBusy, match="4 ranks need 4 GPUs, and this process may use 3"):
        several_gpus(4, 60.0, "who").__enter__()


def test_none_are_asked_for_without_need(held: dict[str, int]) -> None:
    with several_gpus(0, 0.0, "who") as gpus:
        assert gpus == ()
    assert held == {}


@pytest.mark.parametrize(
    ("given", "expected"),
    [("2,0", ("GPU-c", "GPU-a")), ("GPU-b,MIG-x", ("GPU-b", "MIG-x")), ("", ())],
)
def test_what_the_user_made_visible_is_what_there_is(
    held: dict[str, int], monkeypatch: pytest.MonkeyPatch, given: str, expected: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert allocation._gpus() == expected


def test_a_worker_that_has_one_gpu_of_its_own_takes_from_all(
    held: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation, "_given", [None])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
    assert allocation._gpus() == HERE


def test_without_nvml_what_is_named_is_what_there_is(
    held: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "gpu_uuids", lambda: ())
    assert allocation._gpus() == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-x,GPU-y")
    assert allocation._gpus() == ("GPU-x", "GPU-y")


def test_who_has_one_waits_for_another_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is left by a rank that waits for one which waits for the first."""
    done: list[str] = []

    @contextlib.contextmanager
    def lock(uuid: str, timeout_s: float, who: str, name: str) -> Iterator[str]:
        if uuid == "b" and "leave a" not in done:
            done.append(f"wait {timeout_s:g} s for b")
            raise NotFree("b")
        try:
            yield uuid
        finally:
            done.append(f"leave {uuid}")

    monkeypatch.setattr(allocation, "_POLL_S", 0.001)
    monkeypatch.setattr(usage_lock, "lock_by_uuid", lock)
    with lock_all(("a", "b"), 600.0, "who", "GPU") as locks:
        assert set(locks) == {"a", "b"}
        assert done == ["wait 1 s for b", "leave a"]


def test_each_moment_is_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that many share is free for who waits at its lock, and must be waited for at a time."""
    waited: list[float] = []

    @contextlib.contextmanager
    def lock(uuid: str, timeout_s: float, who: str, name: str) -> Iterator[str]:
        if uuid == "b":
            waited.append(timeout_s)
            if timeout_s < 7.9:
                raise NotFree("b")
        yield uuid

    monkeypatch.setattr(allocation, "_POLL_S", 0.001)
    monkeypatch.setattr(usage_lock, "lock_by_uuid", lock)
    with lock_all(("a", "b"), 600.0, "who", "GPU"):
        assert waited == [1.0, 2.0, 4.0, 8.0]


def test_the_time_for_several_is_up(held: dict[str, int]) -> None:
    held["b"] = 10**9
    words = "2 GPUs were not free together in 0.05 s: b"
    with pytest.raises(NotFree, match=words), lock_all(("a", "b"), 0.05, "who", "GPU"):
        pass
    assert held["a"] == 0
