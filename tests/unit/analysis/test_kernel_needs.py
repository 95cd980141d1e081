"""What single kernels need, as metrics of a call: the most that one kernel of a round has."""

from __future__ import annotations

from pathlib import Path

import pytest
from built import Event, call, copy, launched, profile_of, round_of
from corpus import record, recorded
from msgspec.structs import replace

from pytest_kernelprof.analysis.session_profile import profile_of as profile_with
from pytest_kernelprof.analysis.session_profile import session_facts
from pytest_kernelprof.api import Profile
from pytest_kernelprof.records.profile import Profile as Record
from pytest_kernelprof.records.recording import KernelSpills
from pytest_kernelprof.trace.correlation import reading_of
from pytest_kernelprof.trace.reader import read_trace
from pytest_kernelprof.trace.trace_text import write_trace

TRITON = Path(__file__).parents[2] / "traces" / "triton.json.gz"


def needing(name: str, ts: float, correlation: int, registers: int, shared: int) -> list[Event]:
    """A launched kernel with its launch configuration."""
    events = launched(name, ts, correlation)
    events[1]["args"] |= {"registers per thread": registers, "shared memory": shared}
    return events


def test_the_worst_kernel_of_each_round_counts(tmp_path: Path) -> None:
    rounds = [round_of(0, 0, 90), round_of(1, 100, 90)]
    first = (needing("a", 10, 1, 40, 0), needing("b", 40, 2, 24, 512))
    second = (needing("a", 110, 3, 40, 0), needing("b", 140, 4, 64, 256))
    profile = profile_of(tmp_path, *rounds, *first, *second)
    assert profile.metrics["registers"].rounds == (40, 64)
    assert profile.metrics["shared_memory"].rounds == (512, 256)
    assert (profile.registers, profile.shared_memory) == (64, 512)


def test_a_recorded_gemm_has_the_most() -> None:
    profile = recorded("mlp")
    assert profile.registers == max(one.registers for one in profile.kernels) == 168
    assert profile.shared_memory == max(one.shared_memory for one in profile.kernels) > 200_000


def test_a_trace_that_does_not_tell_of_one_kernel_has_neither(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 90), needing("a", 10, 1, 40, 64), launched("b", 40, 2)
    )
    assert (profile.registers, profile.shared_memory) == (None, None)
    assert profile.metrics["registers"].why == (
        "not available: the trace does not have the registers of each kernel"
    )
    assert [one.need("registers") for one in profile.kernels] == [40, None]


@pytest.mark.parametrize("dialect", ["today", "ROCm", "2021"])
@pytest.mark.parametrize("lost", ["registers per thread", "shared memory", "grid", "block"])
def test_each_fact_of_a_launch_may_be_missing_by_itself(
    tmp_path: Path, lost: str, dialect: str
) -> None:
    events = [*needing("a", 10, 1, 40, 64), *needing("b", 40, 2, 24, 0)]
    for one in events[1::2]:
        one["args"] |= {"grid": [2, 1, 1], "block": [128, 1, 1]}
        one["args"] |= {} if dialect == "today" else {"stream": None, "hsa_queue": 3}
        one["cat"] = "Kernel" if dialect == "2021" else "kernel"
    del events[3]["args"][lost]
    profile = profile_of(tmp_path, round_of(0, 0, 90), *events)
    a, b = profile.kernels
    known = {
        "registers per thread": 24,
        "shared memory": 0,
        "grid": (2, 1, 1),
        "block": (128, 1, 1),
    }
    known |= {lost: {"registers per thread": 0, "shared memory": None}.get(lost, (0, 0, 0))}
    assert (b.registers, b.shared_memory, b.grid, b.block) == tuple(known.values())
    assert (a.registers, a.shared_memory, a.grid, a.block) == (40, 64, (2, 1, 1), (128, 1, 1))
    assert b.need("registers") == (None if lost == "registers per thread" else 24)
    assert b.need("shared_memory") == (None if lost == "shared memory" else 0)
    assert profile.registers == (None if lost == "registers per thread" else 40)
    assert profile.shared_memory == (None if lost == "shared memory" else 64)


@pytest.mark.parametrize("dialect", ["today", "2021"])
def test_a_copy_of_unknown_size_is_counted_and_not_sized(tmp_path: Path, dialect: str) -> None:
    ways = ("HtoD (Pageable -> Device)", "DtoH (Device -> Pinned)")
    events = [
        event
        for at, way in enumerate(ways, 1)
        for event in (call("cudaMemcpyAsync", 10 * at, at), copy(f"Memcpy {way}", 10 * at + 5, at))
    ]
    del events[3]["args"]["bytes"]
    for one in events[1::2]:
        one["cat"] = "Memcpy" if dialect == "2021" else one["cat"]
    profile = profile_of(tmp_path, round_of(0, 0, 90), *events)
    assert [one.bytes for one in profile.copies] == [4, None]
    assert (profile.memcpys, profile.memcpys_d2h) == (2, 1)
    assert (profile.memcpy_bytes, profile.memcpy_bytes_d2h) == (None, None)
    assert (profile.memcpy_bytes_h2d, profile.memcpy_bytes_d2d) == (4, 0)
    assert profile.metrics["memcpy_bytes_d2h"].why == (
        "not available: the trace does not have the memcpy bytes d2h of each copy"
    )


def test_what_is_no_kernel_of_the_rounds_needs_nothing(tmp_path: Path) -> None:
    before = needing("setup", 1, 9, 255, 4096)
    own = needing("a", 30, 1, 40, 64)
    profile = profile_of(tmp_path, *before, round_of(0, 20, 90), *own)
    assert (profile.registers, profile.shared_memory) == (40, 64)


def noted(*spills: KernelSpills, hip: bool = False) -> Record:
    """The recorded kernel of Triton with what a session noted about its spills."""
    trace = read_trace(TRITON)
    versions = {"hip": "7.0"} if hip else trace.recording.versions
    recording = replace(trace.recording, spills=spills, versions=versions)
    return profile_with(session_facts(reading_of(_with(trace, recording))), recording)


def _with(trace, recording):  # type: ignore[no-untyped-def]
    from dataclasses import replace as other

    return other(trace, recording=recording)


(NAME,) = {one.name for one in record("triton").kernels}
OWN = KernelSpills(NAME, 16, 128, 0, 96)


def test_spills_that_a_session_noted_are_those_of_its_kernels() -> None:
    profile = noted(OWN)
    assert {one.spills for one in profile.kernels} == {96}
    assert profile.metrics["spills"].value == 96
    assert profile.metrics["spills"].unit == "bytes"


@pytest.mark.parametrize(
    "other",
    [
        KernelSpills(NAME, 17, 128, 0, 0),
        KernelSpills(NAME, 16, 64, 0, 0),
        KernelSpills(NAME, 16, 128, 16, 0),
        KernelSpills("other", 16, 128, 0, 0),
    ],
)
def test_what_is_noted_of_another_kernel_is_not_its_own(other: KernelSpills) -> None:
    profile = noted(other)
    (why,) = {one.spills for one in profile.kernels}
    assert isinstance(why, str)
    assert why.startswith("not recorded with the trace")
    assert profile.metrics["spills"].value is None


def test_each_kernel_is_found_by_its_own_launch() -> None:
    gemm, gelu, *_ = record("mlp").kernels
    own = [
        KernelSpills(k.name, k.registers, k.block[0], k.shared_memory, n)
        for n, k in enumerate((gemm, gelu))
    ]
    trace = read_trace(TRITON.with_name("mlp.json.gz"))
    recording = replace(trace.recording, spills=(*own,))
    found = profile_with(session_facts(reading_of(_with(trace, recording))), recording)
    assert [one.spills for one in found.kernels][:2] == [0, 1]


def test_why_spills_are_not_known_stands_in_the_metric() -> None:
    profile = noted(KernelSpills(NAME, 16, 128, 0, "no PTX"))
    assert (profile.metrics["spills"].value, profile.metrics["spills"].why) == (None, "no PTX")


def test_spills_nobody_asked_for_are_not_measured() -> None:
    profile = record("triton")
    assert {one.spills for one in profile.kernels} == {None}
    assert profile.metrics["spills"].why.startswith("not measured: only a max_spills limit")


def test_registers_that_amd_spills_are_no_bytes() -> None:
    profile = noted(OWN, hip=True)
    assert {one.need("spills") for one in profile.kernels} == {96}
    assert (profile.metrics["spills"].value, profile.metrics["registers"].value) == (None, 16)


def test_a_saved_trace_keeps_them(tmp_path: Path) -> None:
    trace = read_trace(TRITON)
    write_trace(TRITON, replace(trace.recording, spills=(OWN,)), tmp_path / "saved.json.gz")
    assert Profile.from_trace(tmp_path / "saved.json.gz").spills == 96
