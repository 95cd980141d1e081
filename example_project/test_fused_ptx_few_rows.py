"""The same for few rows, whose numbers of h are their own flags: there is no counter to order.

See `test_fused_ptx`.
"""

from __future__ import annotations

import re

import pytest
from ptx_for_hopper import ptx

pytest.importorskip("triton.experimental.gluon")

KERNELS = ("few_rows", "few_rows, split")
WAITS = {"few_rows": 1, "few_rows, split": 2}


@pytest.mark.parametrize("name", KERNELS)
def test_flags_are_stored_and_asked_for_by_relaxed_accesses_at_gpu_scope(name: str) -> None:
    """Weak ones may come from an L1 that holds an older line, or be done once for all."""
    text = ptx(name)
    loads = re.findall(r"\bld(?:\.\w+)*\.global[.\w]*", text)
    weak = [load for load in loads if not load.startswith("ld.relaxed.gpu.")]
    assert len(weak) == 1, "whose turn it is, written by the launch before"
    assert len(re.findall(r"st\.relaxed\.gpu\.global\.b16", text)) >= 1
    if WAITS[name] == 2:
        assert len(re.findall(r"st\.relaxed\.gpu\.global\.b32", text)) >= 1


@pytest.mark.parametrize("name", KERNELS)
def test_each_wait_looks_again_and_gives_up_some_day(name: str) -> None:
    text = ptx(name)
    waits = re.findall(r"AGAIN:(.*?)bra AGAIN;", text, re.DOTALL)
    assert len(waits) == WAITS[name]
    for wait in waits:
        assert "ld.relaxed.gpu" in wait
        assert re.search(r"setp\.gt\.u32 q, looks, \d+; @q trap;", wait)


@pytest.mark.parametrize("name", KERNELS)
def test_there_is_no_atomic_and_no_fence(name: str) -> None:
    assert not re.search(r"\b(?:atom|red|fence|membar)\.", ptx(name))


@pytest.mark.parametrize("name", KERNELS)
def test_a_barrier_stands_before_the_turn_is_turned(name: str) -> None:
    """One thread turns for all: each must have seen its part of h."""
    text = ptx(name)
    last_wait = text.rindex("bra AGAIN;")
    turned = [m.start() for m in re.finditer(r"\bst\.global\.b32", text)][-1]
    assert last_wait < text.rindex("bar.sync", 0, turned)


@pytest.mark.parametrize("name", KERNELS)
def test_weights_come_sixteen_bytes_at_a_time_and_nothing_is_spilled(name: str) -> None:
    text = ptx(name)
    copies = re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^]]*\], \[[^]]*\], (0x\w+|\d+)", text)
    assert copies
    assert {int(number, 0) for number in copies} == {16}
    assert ".local" not in text


@pytest.mark.parametrize("name", KERNELS)
def test_few_rows_are_multiplied_by_tensor_cores_from_vector_loads(name: str) -> None:
    text = ptx(name)
    assert "mma.sync.aligned.m16n8k16" in text
    assert "ld.shared.v4.b32" in text
    assert "ldmatrix" not in text
