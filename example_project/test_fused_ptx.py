"""What the compiler made of the synchronisation: barriers and proxy fences, in the PTX for sm_90.

A race that a missing barrier leaves may show once in a thousand launches, on one shape. The PTX
shows it every time, and Triton compiles for a Hopper without one. Compiling takes a process of
its own, since the interpreter, where tests run on a CPU, replaces ``triton.jit``.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from ptx_for_hopper import compiled

CONFIGS: dict[str, dict[str, Any]] = {
    "split tail": {"tail": "split"},
    "narrow tail": {"tail": "narrow"},
    "whole tiles": {"tail": "whole"},
    "192 columns": {"tail": "whole", "block_out": 192},
    "plain, split tail": {"tail": "split", "block_hidden": 256},
}

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


def compile_many_rows(name: str) -> str:
    """PTX of the many-rows kernel in bfloat16, all sizes multiples of 16. In its own process."""
    import triton
    from fused_mlp.many_rows import Config, many_rows_kernel
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    config = Config(**CONFIGS[name])
    gated = not name.startswith("plain")

    def tiles(height: int) -> str | None:
        return f"tensordesc<bf16[{height}, {config.block_width}]>" if height else None

    arguments = {
        "x": tiles(config.block_rows),
        "gate": tiles(config.block_hidden),
        "up": tiles(config.block_hidden) if gated else None,
        "gate_bias": None if gated else "*bf16",
        "h": tiles(config.block_rows),
        "h_out": "*bf16",
        "keep_gate": None,
        "keep_up": None,
        "down": tiles(config.main_block),
        "down_tail": tiles(config.tail_block),
        "down_bias": None if gated else "*bf16",
        "y": "*bf16",
        "sums": "*fp32" if config.tail == "split" else None,
        "slot": "*i32",
        **dict.fromkeys(("rows", "width", "hidden", "out", "whole_tiles"), "i32"),
    }
    constants = {name: None for name, kind in arguments.items() if kind is None} | {
        "ACTIVATION": "gelu_tanh",
        "BLOCK_ROWS": config.block_rows,
        "BLOCK_HIDDEN": config.block_hidden,
        "BLOCK_WIDTH": config.block_width,
        "BLOCK_OUT": config.block_out,
        "SIDE": config.side_block,
        "TAIL": config.tail,
        "GROUP": config.group,
        "WARPS": config.warps,
        "INTERPRET": False,
    }
    names = many_rows_kernel.arg_names
    signature = {name: "constexpr" if name in constants else arguments[name] for name in names}
    divisible = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(names)
        if signature[name].startswith("*") or name in ("rows", "width", "hidden", "out")
    }
    source = ASTSource(
        fn=many_rows_kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs=divisible,
    )
    options = {"num_warps": config.warps, "num_stages": config.stages}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]


def ptx(name: str) -> str:
    return compiled(Path(__file__), tuple(CONFIGS))[name]


def events(text: str) -> list[str]:
    """What happens, in the order of the text; straight-line code keeps that order."""
    finder = re.compile("|".join(f"(?P<e{i}>{p})" for i, p in enumerate(INTERESTING.values())))
    names = list(INTERESTING)
    return [names[int(str(found.lastgroup)[1:])] for found in finder.finditer(text)]


def since(seen: list[str], what: str) -> list[str]:
    """The events after the last ``what``."""
    assert what in seen, f"no {what} before"
    return seen[len(seen) - seen[::-1].index(what) :]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_barrier_stands_between_the_stores_and_each_release(name: str) -> None:
    """Without it the release covers the stores of one thread, and others' come too late."""
    seen = events(ptx(name))
    releases = [i for i, event in enumerate(seen) if event in ("release", "both")]
    assert len(releases) == (3 if "split" in name else 2)
    for place in releases:
        assert "barrier" in since(seen[:place], "store")


@pytest.mark.parametrize("name", CONFIGS)
def test_a_proxy_fence_stands_between_the_stores_of_h_and_their_barrier(name: str) -> None:
    """All threads fence their own stores; then the barrier; then one of them releases. Sums of
    the split tail are read by ordinary loads, and need none."""
    seen = events(ptx(name))
    places = [i for i, event in enumerate(seen) if event == "release"]
    fenced = [since(seen[:place], "store") for place in places]
    assert fenced.count(["proxy fence", "barrier"]) == 1
    assert fenced.count(["barrier"]) == len(places) - 1 == ("split" in name)


@pytest.mark.parametrize("name", CONFIGS)
def test_after_each_acquire_come_a_barrier_and_before_tma_a_proxy_fence(name: str) -> None:
    """One thread polls: the barrier tells the others, the fence tells TMA."""
    seen = events(ptx(name))
    places = [i for i, event in enumerate(seen) if event == "acquire"]
    assert len(places) == (2 if "split" in name else 1)
    readers = []
    for place in places:
        reader = next(i for i in range(place, len(seen)) if seen[i] in ("tma", "load"))
        between = seen[place + 1 : reader]
        readers.append(seen[reader])
        assert between[0] == "barrier"
        if seen[reader] == "tma":
            assert "proxy fence" in between[1:]
    assert readers.count("tma") == 1


@pytest.mark.parametrize("name", CONFIGS)
def test_the_next_ticket_is_not_waited_for_at_once(name: str) -> None:
    """Only the first one is: its result goes to shared memory and through a barrier there. The
    others come back while a tile is stored."""
    lines = [line.strip() for line in ptx(name).splitlines()]
    draws = [i for i, line in enumerate(lines) if re.search(INTERESTING["draw"], line)]
    at_once = 0
    for place in draws:
        register = re.search(r"%r\d+", lines[place].split("add.u32")[1])
        assert register is not None
        following = lines[place + 1 : place + 8]
        at_once += any(re.search(rf"{register[0]}\b", line) for line in following)
    assert len(draws) >= 3
    assert at_once == 1


def test_no_float_is_added_atomically() -> None:
    """Their order would be another each time, and so would the last bits of the sum."""
    for name in CONFIGS:
        assert not re.search(r"(?:atom|red)\.[\w.]*\.(?:f|bf)\d+", ptx(name))


if __name__ == "__main__":
    json.dump({name: compile_many_rows(name) for name in sys.argv[1:]}, sys.stdout)
