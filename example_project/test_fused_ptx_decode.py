"""The same for decode: barriers before whatever it publishes. It reads h by ordinary loads, so that
it needs no proxy fence.

See `test_fused_ptx`.
"""

from __future__ import annotations

import re

import pytest
from ptx_for_hopper import ptx
from test_fused_ptx import INTERESTING, events, since

ONE, SIXTEEN = "decode, 1 row", "decode, 16 rows"


@pytest.mark.parametrize(("name", "counts"), [(ONE, 1), (SIXTEEN, 2)])
def test_a_barrier_stands_between_the_stores_and_each_release(name: str, counts: int) -> None:
    """Of h, of the pieces of a sum where hidden is cut into some, and of the program's end."""
    seen = events(ptx(name, (ONE, SIXTEEN)))
    assert seen.count("release") == 1
    assert seen.count("both") == counts
    for place, event in enumerate(seen):
        if event in ("release", "both"):
            assert "barrier" in since(seen[:place], "store")


@pytest.mark.parametrize("name", [ONE, SIXTEEN])
def test_after_the_acquire_a_barrier_comes_before_h_is_read(name: str) -> None:
    """One thread polls: the barrier tells the others. Loops read by copies to shared memory."""
    text = ptx(name, (ONE, SIXTEEN))
    (acquire,) = re.finditer(INTERESTING["acquire"], text)
    reader = re.compile(r"cp\.async\.c[ag]\.shared\.global|ld\.global").search(text, acquire.end())
    assert reader is not None
    assert re.search(INTERESTING["barrier"], text[acquire.end() : reader.start()])


@pytest.mark.parametrize("name", [ONE, SIXTEEN])
def test_no_float_is_added_atomically(name: str) -> None:
    assert not re.search(r"(?:atom|red)\.[\w.]*\.(?:f|bf)\d+", ptx(name, (ONE, SIXTEEN)))
