"""Whatever happens to a trace, each number is as it was, or is not given; what cannot be seen in
principle stands here by name. All cases, with their shares: ``python benchmarks/faults.py``."""

from __future__ import annotations

import functools
import random
from pathlib import Path

import pytest
from corpus import NAMES, Document, document, recorded
from faults import KINDS, Facts, as_noted_today, facts_of, outcome

SOME = ("memory", "cold_add", "syncs_nosync", "graph_twice_a_round", "linear", "triton", "copies")

# One-round files of elsewhere have no second witness for these; see docs/trust.md.
NOT_SEEN = {
    "a memset lost": {"gpu_busy"},
    "a waiting call lost": {"syncs"},
    "a kernel and its call lost": {
        *("kernels", "launches", "cuda_time", "gpu_busy", "kernels by name", "their operators"),
        *("registers", "shared_memory"),
    },
    "the end lost": {
        *("kernels", "launches", "memsets", "syncs", "cuda_time", "gpu_busy", "memcpys"),
        *("memcpys_d2h", "memcpys_pageable", "memcpy_bytes", "memcpy_bytes_d2h"),
        *("kernels by name", "their operators", "registers", "shared_memory"),
    },
    "a kernel 1 ms late": {"gpu_busy"},
    "a kernel 1 ms early": {"gpu_busy", "kernels by name"},
    "a launch call 10 s late": {"syncs", "kernels by name", "their operators"},
    "a launch call 10 s early": {"kernels by name", "their operators"},
    "ids of two kernels swapped": {"kernels by name"},
    "ids of two activities swapped": {"kernels by name"},
}


@functools.cache
def healthy(name: str) -> tuple[Document, Facts]:
    return as_noted_today(document(name)), facts_of(recorded(name))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_is_told_or_changes_nothing(tmp_path: Path, kind: str) -> None:
    chance = random.Random(kind)
    for name in SOME:
        whole, facts = healthy(name)
        cases = list(KINDS[kind](whole["traceEvents"], chance))
        for case in chance.sample(cases, min(1, len(cases))):
            done, wrong = outcome(tmp_path / "f.json", {**whole, "traceEvents": case()}, facts)
            assert done != "silent" or set(wrong) <= NOT_SEEN.get(kind, set()), name


@pytest.mark.parametrize("name", NAMES)
def test_a_healthy_trace_raises_no_alarm_however_its_events_are_ordered(
    tmp_path: Path, name: str
) -> None:
    whole, facts = healthy(name)
    for kind in ("events shuffled", "all arrows lost"):
        for case in KINDS[kind](whole["traceEvents"], random.Random(name)):
            done, _ = outcome(tmp_path / "f.json", {**whole, "traceEvents": case()}, facts)
            assert done == "harmless"


def test_each_kind_of_fault_befalls_some_recorded_trace() -> None:
    idle = set(KINDS)
    for name in NAMES:
        events = healthy(name)[0]["traceEvents"]
        idle -= {kind for kind in idle if next(KINDS[kind](events, random.Random(0)), None)}
    assert idle == set()
