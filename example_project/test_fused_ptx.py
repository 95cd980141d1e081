"""What the compiler made of the synchronisation: barriers and proxy fences, in the PTX for sm_90.

A race that a missing barrier leaves may show once in a thousand launches, on one shape. The PTX
shows it every time, and Triton compiles for a Hopper without one. Compiling takes a process of
its own, since the interpreter, where tests run on a CPU, replaces ``triton.jit``.
"""

from __future__ import annotations

import re

import pytest
from ptx_for_hopper import ptx

pytest.importorskip("triton.experimental.gluon")

INTERESTING = {
    "load": r"ld\.global\.(?!gpu\.acquire)",
    "store": r"st\.global\.",
    "release": r"(?:atom|red)\.global\.gpu\.release\.",
    "acquire": r"(?:atom|ld)\.global\.gpu\.acquire\.",
    "both": r"(?:atom|red)\.global\.gpu\.acq_rel\.",
    "barrier": r"bar(?:rier)?\.sync\b",
    "proxy fence": r"fence\.proxy\.async\.global",
    "tma": r"cp\.async\.bulk\.tensor\.2d\.",
    "draw": r"(?:atom|red)\.global\.gpu\.relaxed\.",
}

KERNELS = ("specialised", "specialised, keeping", "slopes", "resident", "resident, ragged")


def events(text: str) -> list[str]:
    """What happens, in the order of the text; straight-line code keeps that order."""
    finder = re.compile("|".join(f"(?P<e{i}>{p})" for i, p in enumerate(INTERESTING.values())))
    names = list(INTERESTING)
    return [names[int(str(found.lastgroup)[1:])] for found in finder.finditer(text)]


def since(seen: list[str], what: str) -> list[str]:
    """The events after the last ``what``."""
    assert what in seen, f"no {what} before"
    return seen[len(seen) - seen[::-1].index(what) :]


@pytest.mark.parametrize("name", ["specialised", "specialised, keeping"])
def test_stores_of_h_are_fenced_then_a_barrier_then_the_release(name: str) -> None:
    """Without the barrier, one thread's release would cover that thread's stores alone; without
    the fence, TMA could read around them."""
    seen = events(ptx(name))
    releases = [i for i, event in enumerate(seen) if event == "release"]
    assert len(releases) == 2
    for place in releases:
        assert since(seen[:place], "store") == ["proxy fence", "barrier"]


def test_what_is_kept_for_a_backward_is_stored_when_h_is_published() -> None:
    """The release would wait for those stores, too, and nobody waits for them."""
    stores = {}
    for name in ("specialised", "specialised, keeping"):
        seen = events(ptx(name))
        releases = [i for i, event in enumerate(seen) if event == "release"]
        before = seen[: releases[0]].count("store")
        stores[name] = before, seen[releases[0] : releases[1]].count("store")
    assert stores["specialised, keeping"][0] == stores["specialised"][0]
    assert stores["specialised, keeping"][1] > stores["specialised"][1]


def test_after_the_acquire_a_proxy_fence_comes_before_tma() -> None:
    seen = events(ptx("specialised"))
    (place,) = (i for i, event in enumerate(seen) if event == "acquire")
    reader = seen.index("tma", place)
    assert "proxy fence" in seen[place:reader]


@pytest.mark.parametrize("name", ["slopes", "resident", "resident, ragged"])
def test_a_buffer_is_fenced_before_tma_stores_from_it_and_given_back_after(name: str) -> None:
    """Results leave from the buffer that inputs came in: all threads' numbers must be in it before
    TMA reads them, and TMA must have read them before the next ones may land there."""
    text = ptx(name)
    store = text.index("cp.async.bulk.tensor.2d.global.shared")
    written = text.rindex("stmatrix", 0, store)
    assert "fence.proxy.async.shared::cta" in text[written:store]
    assert "bar.sync" in text[text.index("fence.proxy", written) : store]
    waited = text.index("cp.async.bulk.wait_group.read")
    given_back = text.index("mbarrier.arrive.shared", waited)
    assert "bar.sync" in text[waited:given_back]


@pytest.mark.parametrize("name", KERNELS)
def test_each_group_of_warps_multiplies_by_wgmma_and_spills_nothing(name: str) -> None:
    text = ptx(name)
    assert "wgmma.mma_async" in text
    assert ".local" not in text


def test_the_epilogue_of_slopes_is_there_once() -> None:
    """Unrolled, it is most of the kernel, and each launch fetches it anew. A thread has 128 numbers
    of a tile, with one ``tanh`` each; two groups of consumers would be two copies."""
    assert ptx("slopes").count("tanh.approx.f32") == 128


@pytest.mark.parametrize("name", KERNELS)
def test_no_float_is_added_atomically(name: str) -> None:
    """Their order would be another each time, and so would the last bits of the sum."""
    assert not re.search(r"(?:atom|red)\.[\w.]*\.(?:f|bf)\d+", ptx(name))


def test_where_a_row_lies_is_counted_in_64_bits() -> None:
    """2^24 rows of 128 are 2^31 numbers. The one product in the kernel's addresses is a row's
    number times its length; with sizes that are no powers of two it stays a product."""
    text = ptx("narrow")
    products = re.findall(r"arith\.muli .* : tensor<(\d+)x1x(i\d+)>", text)
    assert products
    of_rows_of_x_and_y = [kind for height, kind in products if height == "128"]
    assert set(of_rows_of_x_and_y) == {"i64"}
