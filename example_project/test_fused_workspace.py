"""The workspace: who shares a slot of zeroed counters, who does not, and what if none is left."""

from __future__ import annotations

import threading

import pytest
import torch

pytest.importorskip("triton")

from fused_mlp import workspace
from fused_mlp.workspace import WorkspaceExhausted

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def small_and_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """No arenas yet, and chunks of 1024 numbers: 16 of the smallest slots."""
    monkeypatch.setattr(workspace, "_arenas", {})
    monkeypatch.setattr(workspace, "CHUNK_INTS", 1024)


@pytest.fixture
def device(kernelprof_device: str) -> torch.device:
    return torch.zeros(1, device=kernelprof_device).device


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which capture the workspace believes to be in: ``capturing[0]``, 0 for none."""
    state = [0]
    monkeypatch.setattr(workspace, "_capture", lambda device: state[0])
    return state


def place(slot: torch.Tensor) -> tuple[int, int]:
    return slot.data_ptr(), slot.data_ptr() + slot.nbytes


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    return place(a)[0] < place(b)[1] and place(b)[0] < place(a)[1]


@pytest.mark.parametrize("ints", [1, 2, 63, 64, 65, 100, 1000, 5000])
def test_a_slot_is_zeroed_aligned_and_large_enough(device: torch.device, ints: int) -> None:
    slot = workspace.slot(device, ints)
    assert slot.dtype is torch.int32
    assert slot.device == device
    assert slot.dim() == 1
    assert slot.is_contiguous()
    assert slot.numel() >= ints
    assert slot.data_ptr() % 64 == 0
    assert not slot.any()


def test_calls_of_one_stream_share_a_slot_of_their_size(device: torch.device) -> None:
    first, again = workspace.slot(device, 40), workspace.slot(device, 64)
    assert place(first) == place(again)
    assert not overlap(first, workspace.slot(device, 65))


def test_streams_do_not_share(device: torch.device) -> None:
    """Without a GPU a thread counts as a stream."""
    slots = []
    if device.type == "cuda":
        for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                slots.append(workspace.slot(device, 10))
    else:
        meet = threading.Barrier(3)  # an ended thread's number may go to another

        def take() -> None:
            slots.append(workspace.slot(device, 10))
            meet.wait()

        threads = [threading.Thread(target=take) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not any(overlap(slots[i], slots[j]) for i in range(3) for j in range(i))


def test_a_use_has_a_slot_of_its_own_and_keeps_what_it_left(device: torch.device) -> None:
    zeros, mine = workspace.slot(device, 10), workspace.slot(device, 10, "mine")
    assert not overlap(zeros, mine)
    mine.fill_(7)
    assert workspace.slot(device, 10, "mine").eq(7).all()
    assert not workspace.slot(device, 10, "another").any()


def test_each_capture_has_slots_of_its_own(device: torch.device, capturing: list[int]) -> None:
    """Two graphs may be replayed at once; the calls within one come one after the other."""
    slots = []
    for capturing[0] in (0, 1, 2):
        slots.append(workspace.slot(device, 10))
        assert place(workspace.slot(device, 10)) == place(slots[-1])
    assert not any(overlap(slots[i], slots[j]) for i in range(3) for j in range(i))
    capturing[0] = 0
    assert place(workspace.slot(device, 10)) == place(slots[0])


def test_without_a_call_before_there_is_no_slot_for_a_capture(
    device: torch.device, capturing: list[int]
) -> None:
    capturing[0] = 1
    with pytest.raises(WorkspaceExhausted, match="make the call once before the capture"):
        workspace.slot(device, 10)


def test_what_is_exhausted_is_laid_by_again_by_the_next_ordinary_call(
    device: torch.device, capturing: list[int]
) -> None:
    ordinary = workspace.slot(device, 64)
    given: list[torch.Tensor] = []

    def take_all() -> None:
        for capturing[0] in range(1, 100):
            given.append(workspace.slot(device, 64))

    with pytest.raises(WorkspaceExhausted, match="no free workspace of 64 numbers"):
        take_all()
    assert len(given) >= 8, "half a chunk is laid by for captures"
    capturing[0] = 0
    assert place(workspace.slot(device, 64)) == place(ordinary)
    capturing[0] = 100
    new = workspace.slot(device, 64)
    assert not any(overlap(new, old) for old in [ordinary, *given])


def test_more_can_be_laid_by(device: torch.device, capturing: list[int]) -> None:
    workspace.reserve(device, 5000)
    for capturing[0] in range(1, 5):
        assert workspace.slot(device, 1000).numel() == 1024


def test_a_slot_larger_than_a_chunk_is_laid_by_too(
    device: torch.device, capturing: list[int]
) -> None:
    ordinary = workspace.slot(device, 3000)
    assert ordinary.numel() == 4096
    for capturing[0] in (1, 2):
        assert not overlap(ordinary, workspace.slot(device, 3000))


def test_threads_that_take_at_once_get_different_slots(device: torch.device) -> None:
    workspace.reserve(device, 64 * 400)
    slots: list[torch.Tensor] = []
    threads = [
        threading.Thread(
            target=lambda i=i: slots.extend(workspace.slot(device, 9, (i, j)) for j in range(50))
        )
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({slot.data_ptr() for slot in slots}) == 400


def test_slots_are_ordinary_tensors_whatever_mode_the_first_call_is_in(
    device: torch.device,
) -> None:
    """An inference tensor could not be written to by an ordinary call later."""
    with torch.inference_mode():
        slot = workspace.slot(device, 10)
    assert not slot._base.is_inference() if slot._base is not None else not slot.is_inference()


@needs_gpu
def test_a_capture_takes_slots_and_allocates_nothing(device: torch.device) -> None:
    ordinary = workspace.slot(device, 10)
    given = []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            before = torch.cuda.memory_stats(device)["allocation.all.allocated"]
            given += [workspace.slot(device, 10) for _ in range(3)]
            after = torch.cuda.memory_stats(device)["allocation.all.allocated"]
            given[0].add_(0)  # a graph must not be empty
        assert before == after
    assert [place(slot) for slot in given] == [place(given[0])] * 3 + [place(given[3])] * 3
    assert len({place(slot) for slot in [ordinary, *given]}) == 3


@needs_gpu
def test_two_streams_of_one_capture_do_not_share(device: torch.device) -> None:
    workspace.slot(device, 10)
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        mine = workspace.slot(device, 10)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            other = workspace.slot(device, 10)
            other.add_(0)
        torch.cuda.current_stream().wait_stream(side)
    assert not overlap(mine, other)


@needs_gpu
def test_chunks_lie_outside_the_pool_of_the_calling_thread(device: torch.device) -> None:
    """CUDA graph trees send the allocations of their thread to a pool, warm-up runs included."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        mine = torch.zeros(1 << 16, device=device)
        slot = workspace.slot(device, 10)

    def inside(tensor: torch.Tensor) -> bool:
        return any(
            segment["address"] <= tensor.data_ptr() < segment["address"] + segment["total_size"]
            for segment in pool.snapshot()
        )

    assert inside(mine)
    assert not inside(slot)
