"""Mutations of trace files: bytes, JSON structure, numbers, names, and the notes of ours.

What a mutated file may be is a profile, or a ``TraceError`` of one line; nothing else, and soon.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gzip
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from corpus import NAMES, Document, document

from pytest_kernelprof.cli import trace_commands
from pytest_kernelprof.errors import TraceError

Mutation = Callable[[Document, random.Random], bytes]

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 10**30),
    *(0.5, -0.0, 1e300, -1e300, 1e-300, 4.9e-324),
)
# What no JSON library of ours would write, put in as text.
LITERALS = (
    *(b"NaN", b"Infinity", b"-Infinity", b"1e900000", b"-1e400", b"1" * 5_000, b"0x10", b"01"),
    *(b"1.", b".5", b"--1", b'"\\ud800"', b'"\\u0000"', b"'a'", b"tru", b"[", b"{}", b'"', b"null"),
    b"1e-900000",
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "N/A", "128", "0x7f0e", "\u0000", "a\nb", "\u202e", "\x1b[31m"),
    *([], {}, [[]], [1, 2], {"a": {}}, [None] * 3, "x" * 10_000),
)
_MARK = "a mark that is replaced by a literal"


def written(value: Any) -> bytes:
    return msgspec.json.encode(value)


# -- kinds ---------------------------------------------------------------------------------------


def bytes_changed(whole: Document, chance: random.Random) -> bytes:
    data = bytearray(written(whole))
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(data))
        match chance.randrange(5):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.choice((1, 3, 100))]
            case 2:
                data[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice((1, 4))))
            case 3:
                data[at:at] = data[at : at + chance.choice((10, 300))]
            case _:
                data[at] = chance.choice(b'{}[]",:\\ \x00\n')
    return bytes(data)


def cut_off(whole: Document, chance: random.Random) -> bytes:
    data = written(whole)
    return data[: chance.randrange(len(data))]


def damaged_gzip(whole: Document, chance: random.Random) -> bytes:
    data = bytearray(gzip.compress(written(whole), 1))
    for _ in range(chance.choice((1, 4))):
        data[chance.randrange(2, len(data))] = chance.randrange(256)
    return bytes(data[: chance.choice((len(data), chance.randrange(len(data))))])


def structure_changed(whole: Document, chance: random.Random) -> bytes:
    """Values anywhere in the document become others, or go, or come twice."""
    changed = copy.deepcopy(whole)
    for _ in range(chance.choice((1, 2, 5))):
        holder, key = _anywhere(changed, chance)
        match chance.randrange(5):
            case 0:
                del holder[key]
            case 1:
                holder[key] = copy.deepcopy(chance.choice(VALUES))
            case 2:
                holder[key] = [holder[key]]
            case 3:
                holder[key] = {"": holder[key]}
            case _ if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case _:
                holder[chance.choice(("", "args", "traceEvents", f"{key}"))] = copy.deepcopy(
                    holder[key]
                )
    return written(changed)


def numbers_changed(whole: Document, chance: random.Random) -> bytes:
    changed = copy.deepcopy(whole)
    for _ in range(chance.choice((1, 2, 5))):
        holder, key = _of_event(changed, chance)
        value = chance.choice(NUMBERS)
        large = isinstance(value, int) and not -(2**63) <= value < 2**64
        holder[key] = float(value) if large else value
    return written(changed)


def literals_put_in(whole: Document, chance: random.Random) -> bytes:
    changed = copy.deepcopy(whole)
    holder, key = chance.choice((_of_event, _anywhere))(changed, chance)
    holder[key] = _MARK
    return written(changed).replace(written(_MARK), chance.choice(LITERALS), 1)


def notes_changed(whole: Document, chance: random.Random) -> bytes:
    """Of what we write beside the events: what it should never be."""
    changed = copy.deepcopy(whole)
    notes = changed.setdefault("kernelprof", {})
    for _ in range(chance.choice((1, 2, 3))):
        field = chance.choice(list(NOTES))
        if chance.random() < 0.6:
            notes[field] = copy.deepcopy(chance.choice(NOTES[field]))
        elif notes.get(field) and isinstance(notes[field], dict | list):
            holder, key = _anywhere(notes[field], chance)
            holder[key] = copy.deepcopy(chance.choice(STRANGE))
        else:
            notes[field] = copy.deepcopy(chance.choice(STRANGE))
    return written(changed)


def nested(whole: Document, chance: random.Random) -> bytes:
    changed = copy.deepcopy(whole)
    holder, key = chance.choice((_of_event, _anywhere))(changed, chance)
    holder[key] = _MARK
    depth = chance.choice((10, 900, 1_100, 100_000))
    opened, closed = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
    deep = opened * depth + b"1" + closed * chance.choice((depth, depth, depth - 1))
    return written(changed).replace(written(_MARK), deep, 1)


def wrapped(whole: Document, chance: random.Random) -> bytes:
    """The same document, or its events, in other clothes."""
    data = written(whole)
    events = written(whole["traceEvents"])
    return chance.choice(
        (
            b"\xef\xbb\xbf" + data,
            events,
            b"[" + data + b"]",
            data + data,
            data.decode().encode("utf-16"),
            b'{"traceEvents": [], ' + data[1:],
            b'{"traceEvents": null}',
            b'{"traceEvents": {}}',
            b"{}",
            b"null",
            data.replace(b",", b" ,\r\n\t"),
            gzip.compress(gzip.compress(data, 1), 1),
            gzip.compress(data, 1) + b"\x00" * 9,
            data + b"\x00",
            events[:-1],
        )
    )


KINDS: dict[str, Mutation] = {
    "bytes": bytes_changed,
    "cut off": cut_off,
    "gzip": damaged_gzip,
    "structure": structure_changed,
    "numbers": numbers_changed,
    "literals": literals_put_in,
    "our notes": notes_changed,
    "nesting": nested,
    "layout": wrapped,
}
TIMES = {"latency_us": [], "dispatch_us": [1.0], "floor_us": []}
STRANGE: tuple[Any, ...] = (*VALUES, *NUMBERS[:9])
# Of each note what has its type, and yet no session would write.
NOTES: dict[str, tuple[Any, ...]] = {
    "schema": (0, 1, 2, 99, -1),
    "device_kind": ("cpu", "cuda", "tpu"),
    "device": ("", "\x1b[31m", "a\nb"),
    "capability": ("", "sm_", "nothing"),
    "versions": ({}, {"torch": ""}, {"torch": "\x00", "another": "one\ntwo"}),
    "power_limit_w": (0, -1, 2**62),
    "nonce": ("x", "::", "a" * 9_999),
    "rounds": (0, -1, 1, 2**62),
    "one_shot": (True, False),
    "round_us": ([], [0.0], [-1.0, 1.0], [1e300, 1e300], [5e-324, 1.0]),
    "left_at_work": ([""], ["a thread"] * 1_000),
    "forks": (-1, 2**62),
    "collection_stopped": (True,),
    "autotuned": (["", "x" * 10_000],),
    "replays": ([], [None], [[-1]], [[0, 2**62]] * 3, [[2, 0, True]], [[1]] * 1_000),
    "no_times": ({"kernels": "a reason"}, {"nothing": "known"}, {"": ""}),
    "retakes": (-1, 2**62),
    "settled": (False,),
    "recompiles": (-1, 0, 2**62),
    "refused": (-1, 2**62),
    "may_refuse": (True,),
    "jit_compiled": (None, [], [""], ["x" * 10_000] * 100),
    "autotunes": (None, [""], ["an autotuner"] * 1_000),
    "reused": (-1, 2**62),
    "graph_breaks": (None, [], [" at :0"], ["a break at x.py:1"] * 1_000),
    "graph_breaks_why": ("", "a reason"),
    "compute_operators": ([], [""], ["aten::mm", "aten::mm"]),
    "decomposing_operators": ([], [""], ["aten::mm", "aten::mm"]),
    "bare_operators": ([], [""], ["aten::mm", "aten::mm"]),
    "idle_operators": ([], [""], ["aten::mm", "aten::mm"]),
    "unseen": ([""], ["x" * 10_000]),
    "host_timings": (
        TIMES,
        {"latency_us": [1.0], "dispatch_us": [1.0], "floor_us": []},
        {"latency_us": [1.0, -5.0], "dispatch_us": [1.0], "floor_us": [0.0]},
        {"latency_us": [1e300] * 12, "dispatch_us": [1e300] * 12, "floor_us": [-1e300]},
        {**TIMES, "latency_us": [1.0], "floor_us": [1.0], "back_to_back_us": 0.0},
        {**TIMES, "latency_us": [1.0], "floor_us": [1.0], "cupti_us_per_launch": 1e308},
        {**TIMES, "latency_us": [1.0], "floor_us": [1.0], "cupti_ratio": -1.0},
    ),
    "memory": (
        {"peak_bytes": [], "device_allocations": []},
        {"peak_bytes": [-1], "device_allocations": [2**62, 0]},
    ),
    "memory_why": ("", "a\nb"),
    "second_look": (TIMES, {"latency_us": [1.0], "dispatch_us": [1.0], "floor_us": []}),
    "more_rounds": (
        {"kernels": [], "cuda_time": [1.0]},
        {"nothing": [2.0]},
        {"kernels": [1e300]},
        {"kernels": [0.5]},
        {"cuda_time": [-1e308, 1e308]},
        {"launch_overhead": [1.0], "latency": [1.0]},
    ),
    "roofline": ({"roof": None, "reason": ""}, {"roof": "other", "reason": "1"}),
    "work": (
        {"throughput": {"amount": 10**12, "peak": 1e15}, "bandwidth": {"unknown": ["a"]}},
        {"throughput": {"amount": -1}, "bandwidth": {"peak": 0.0}},
        {"latency": {}},
    ),
    "in_place": ([""], ["x" * 10_000]),
    "conditions": (
        {"blocks": -1},
        {"blocks": 2**62, "throttled_blocks": -(2**62)},
        {"contenders": [{"pid": -1, "utilisation": 2**62}]},
        {"not_alone": "x" * 10_000},
    ),
    "another": (1, {}),
}


def _anywhere(value: Any, chance: random.Random) -> tuple[Any, Any]:
    """A place in the document: who holds it, and its key there."""
    while True:
        key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
        inner = value[key]
        if not isinstance(inner, dict | list) or not inner or chance.random() < 0.15:
            return value, key
        value = inner


def _of_event(whole: Document, chance: random.Random) -> tuple[Any, Any]:
    """A field of an event, or of its arguments."""
    event = chance.choice(whole["traceEvents"])
    within = isinstance(event.get("args"), dict) and event["args"] and chance.random() < 0.6
    holder = event["args"] if within else event
    return holder, chance.choice(list(holder))


# -- what became of one --------------------------------------------------------------------------


_SHOWN = {"sort": None, "top": None, "all": False, "operators": False, "json": False}


def result(path: Path, data: bytes) -> str:
    """What became of a file: "read", "refused", or in words what is wrong with what happened."""
    path.write_bytes(data)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            chosen = argparse.Namespace(traces=[str(path)], max_size=8 * 10**9, **_SHOWN)
            trace_commands.show(chosen)
    except TraceError as error:
        text = str(error)
        if len(text.splitlines()) != 1 or len(text) > 2_000:
            return f"a message of {len(text.splitlines())} lines and {len(text)} characters"
        return "refused"
    except Exception as error:  # that is what is looked for
        return f"{type(error).__name__}: {str(error)[:120]}"
    return "read"


def small_documents() -> list[Document]:
    """The recorded traces that are soon mutated and read."""
    return [one for one in map(document, NAMES) if len(one["traceEvents"]) < 150]
