"""One session: what is called in which order, read once; and whether the profiler is blind."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from corpus import FOLDER, reading

from pytest_kernelprof.analysis.session_profile import session_facts
from pytest_kernelprof.errors import ProfilerUnavailable
from pytest_kernelprof.gpu.inventory import Device, current_device
from pytest_kernelprof.measure import sessions
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure
from pytest_kernelprof.profiler import torch_profiler, unprofiled_rounds
from pytest_kernelprof.profiler.session import Recorded
from pytest_kernelprof.profiler.torch_profiler import Primed
from pytest_kernelprof.profiler.trace_folder import Folder, TraceFile
from pytest_kernelprof.profiler.unprofiled_rounds import RepeatedCall
from pytest_kernelprof.records.codec import VERSION
from pytest_kernelprof.records.recording import GraphNodes, Recording

CPU = current_device("cpu")
GPU = Device("cuda", 0, "a GPU", "sm_90", 0, {})
X = torch.ones(4)


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened, in order; a flush among it."""
    happened: list[str] = []

    monkeypatch.setattr(unprofiled_rounds, "flush_l2", lambda device: happened.append("flush"))
    return happened


@pytest.mark.parametrize("flush_l2", [True, False])
def test_each_round_is_prepared_and_flushed_before_it_is_annotated(
    flush_l2: bool, order: list[str]
) -> None:
    def prepare() -> Callable[[], None]:
        order.append("prepare")
        return lambda: order.append("call")

    taken = sessions.profile_rounds(RepeatedCall(CPU, prepare, flush_l2), 2)
    assert order == ["prepare", *["flush"] * flush_l2, "call"] * 2
    assert taken.facts.profile.rounds == taken.recording.rounds == 2


def test_work_of_preparing_does_not_count() -> None:
    def prepare() -> Callable[[], object]:
        x = X * 2
        return lambda: x + 1

    taken = sessions.profile_rounds(RepeatedCall(CPU, prepare), 2)
    assert [kernel.name for kernel in taken.facts.profile.kernels] == ["aten::add"]


def test_a_session_is_noted_with_its_device_and_rounds() -> None:
    taken = sessions.profile_rounds(RepeatedCall(CPU, lambda: lambda: X + 1), 3)
    noted = taken.recording
    assert (noted.schema, noted.rounds, noted.recompiles) == (VERSION, 3, 0)
    assert (noted.device_kind, noted.device, noted.versions) == ("cpu", CPU.name, CPU.versions)
    assert "aten::add" in (noted.compute_operators or ())


def test_compilations_of_the_rounds_are_noted() -> None:
    torch.compiler.reset()
    sizes = iter([3, 4])
    compiled = torch.compile(lambda x: x * 2, dynamic=False, backend="eager")
    repeated = RepeatedCall(CPU, lambda: lambda: compiled(torch.ones(next(sizes))))
    taken = sessions.profile_rounds(repeated, 2)
    assert taken.recording.recompiles == 2


def test_the_cpu_needs_no_priming() -> None:
    assert torch_profiler.prime(CPU) == Primed(0.0, 1.0)


def test_of_priming_a_gpu_the_cost_of_a_launch_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_profiler, "prime", lambda device: Primed(1.5, 1.2))
    _, measurement = measure(lambda: X + 1, Plan("cpu", host_rounds=2))
    noted = measurement.recording.host_timings
    assert noted is not None
    assert (noted.cupti_us_per_launch, noted.cupti_ratio) == (1.5, 1.2)


@pytest.mark.parametrize(
    ("device", "activities", "sees", "asked", "refused"),
    [
        (GPU, 0, False, 1, True),
        (GPU, 0, True, 1, False),  # code that launches nothing
        (GPU, 1, False, 0, False),
        (CPU, 0, False, 0, False),
    ],
)
def test_zero_activities_are_zero_kernels_only_if_the_canary_is_seen(
    device: Device,
    activities: int,
    sees: bool,
    asked: int,
    refused: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    questions: list[int] = []

    def canary_seen() -> bool:
        questions.append(1)
        return sees

    monkeypatch.setattr(torch_profiler, "canary_seen", canary_seen)
    monkeypatch.setattr(torch_profiler, "why_blind", lambda: "the profiler is blind: it is a test")
    facts = replace(session_facts(reading("memory")), activities=activities)
    caught: Any = None
    try:
        sessions.refuse_blind(device, facts)
    except ProfilerUnavailable as error:
        caught = error
    assert len(questions) == asked
    assert ("the profiler is blind" in str(caught)) == refused


@pytest.mark.parametrize(
    ("seen", "proof"), [([GraphNodes(5)] * 3, "proved"), ([GraphNodes(5)] * 2, "unproven")]
)
def test_what_was_seen_of_the_graphs_of_replays_proves_them(
    seen: list[GraphNodes], proof: str, tmp_path: Path
) -> None:
    trace = tmp_path / "graph.json"
    trace.write_bytes(gzip.decompress((FOLDER / "graph.json.gz").read_bytes()))
    nonce, rounds = reading("graph").trace.recording.nonce, reading("graph").rounds
    noted = Recording(device_kind="cuda", nonce=nonce, rounds=rounds, replays=tuple(seen))
    file = TraceFile(Folder(str(tmp_path), maker=0), trace.name)
    taken = sessions.read(Recorded(file, noted))
    assert taken.facts.profile.integrity.graph_replays == proof
