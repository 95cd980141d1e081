"""The same for the kernels in Gluon: barrier and proxy fences around what their warps publish.

See `test_fused_ptx`.
"""

from __future__ import annotations

import pytest
from ptx_for_hopper import ptx
from test_fused_ptx import events, since

pytest.importorskip("triton.experimental.gluon")

PUBLISHING = ("specialised", "streaming")
KERNELS = (*PUBLISHING, "resident")


@pytest.mark.parametrize("name", PUBLISHING)
def test_stores_of_h_are_fenced_then_a_barrier_then_the_release(name: str) -> None:
    """Without the barrier, one thread's release would cover that thread's stores alone; without
    the fence, TMA could read around them."""
    seen = events(ptx(name, KERNELS))
    releases = [i for i, event in enumerate(seen) if event == "release"]
    assert len(releases) == {"specialised": 2, "streaming": 1}[name]
    for place in releases:
        assert since(seen[:place], "store") == ["proxy fence", "barrier"]


@pytest.mark.parametrize("name", PUBLISHING)
def test_after_the_acquire_a_proxy_fence_comes_before_tma(name: str) -> None:
    seen = events(ptx(name, KERNELS))
    (place,) = (i for i, event in enumerate(seen) if event == "acquire")
    reader = seen.index("tma", place)
    assert "proxy fence" in seen[place:reader]


def test_a_piece_of_a_sum_is_stored_before_the_barrier_before_its_count() -> None:
    seen = events(ptx("streaming", KERNELS))
    counts = [i for i, event in enumerate(seen) if event == "both"]
    assert "barrier" in since(seen[: counts[0]], "store")


def test_a_buffer_is_fenced_before_tma_stores_from_it_and_given_back_after() -> None:
    """y leaves from the buffer that x came in: all threads' numbers must be in it before TMA reads
    them, and TMA must have read them before the next block may land there."""
    text = ptx("resident", KERNELS)
    store = text.index("cp.async.bulk.tensor.2d.global.shared")
    written = text.rindex("stmatrix", 0, store)
    assert "fence.proxy.async.shared::cta" in text[written:store]
    assert "bar.sync" in text[text.index("fence.proxy", written) : store]
    waited = text.index("cp.async.bulk.wait_group.read")
    given_back = text.index("mbarrier.arrive.shared", waited)
    assert "bar.sync" in text[waited:given_back]


@pytest.mark.parametrize("name", KERNELS)
def test_each_group_of_warps_multiplies_by_wgmma_and_spills_nothing(name: str) -> None:
    text = ptx(name, KERNELS)
    assert "wgmma.mma_async" in text
    assert ".local" not in text
