"""The ``Profile`` that users hold: its words, its attributes, and files that give it back."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import FOLDER, NAMES, reading, record, recorded

from pytest_kernelprof.analysis.session_profile import session_facts, with_lines
from pytest_kernelprof.api import Profile
from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.summary import wording


def test_a_profile_says_what_it_is() -> None:
    assert repr(recorded("mlp")).startswith("<Profile : 5 kernels, complete, NVIDIA H200, torch")


def test_private_names_are_no_metrics() -> None:
    with pytest.raises(AttributeError, match="_nothing"):
        _ = recorded("empty")._nothing


def test_what_was_not_measured_is_none_and_says_why() -> None:
    profile = recorded("mlp")
    assert profile.latency is None
    assert "kernel_profile(fn)" in profile.metrics["latency"].why
    with pytest.raises(AttributeError, match="no attribute or metric 'kernal_count'"):
        _ = profile.kernal_count


def test_the_table_names_kernels_operators_and_times() -> None:
    lines = recorded("mlp").table(100).splitlines()
    assert len(lines) == 6
    assert max(map(len, lines)) <= 100
    assert "aten::mm in aten::linear" in lines[1]


def test_where_no_line_is_known_the_table_has_no_column_of_lines() -> None:
    facts = session_facts(reading("linear"))
    lines = {facts.operators["kernels"][0]: "some/where/mlp.py:31"}
    placed = with_lines(record("linear"), facts, lines)
    table = Profile(placed).table(120)
    assert "mlp.py:31" in table
    assert "line" not in recorded("linear").table(120).splitlines()[0].split()


def test_a_foreign_trace_knows_its_device_by_the_file() -> None:
    foreign = recorded("memory")
    assert (foreign.device_kind, wording.machine(foreign.environment)) == ("cuda", "NVIDIA H200")
    assert foreign.recompiles is None


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_a_saved_profile_reads_back_the_same(tmp_path: Path, suffix: str) -> None:
    before = recorded("backward")
    path = tmp_path / f"saved.{suffix}"
    before.save_trace(path)
    after = Profile.from_trace(path)
    assert after.kernels == before.kernels
    assert after.metrics == before.metrics
    assert after.environment == before.environment
    assert wording.machine(after.environment) == "NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0"


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_profile_saves_and_reads_back_the_same(tmp_path: Path, name: str) -> None:
    before = recorded(name)
    before.save_trace(tmp_path / "saved.json")
    after = Profile.from_trace(tmp_path / "saved.json")
    assert after.kernels == before.kernels
    assert after.metrics == before.metrics
    assert after.integrity == before.integrity
    assert after.record == before.record


def test_the_same_profile_saves_to_the_same_bytes(tmp_path: Path) -> None:
    for path in (tmp_path / "a.json.gz", tmp_path / "b.json.gz"):
        recorded("linear").save_trace(path)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_every_metric_but_kernels_is_an_attribute() -> None:
    profile = recorded("mlp")
    others = set(profile.metrics) - {"kernels"}
    assert {name: getattr(profile, name) for name in others} == {
        name: profile.metrics[name].value for name in others
    }
    assert profile.kernels == profile.record.kernels


def test_variants_begin_with_the_kernels() -> None:
    profile = recorded("mlp")
    assert profile.variants == (profile.kernels,)


@pytest.mark.parametrize("what", ["kernels", "variants", "copies", "waits"])
def test_what_was_dropped_says_why(what: str) -> None:
    profile = Profile(record("mlp"), no_kernels="dropped, since there were very many")
    with pytest.raises(IncompleteProfile, match="very many"):
        getattr(profile, what)
    with pytest.raises(IncompleteProfile, match="very many"):
        profile.table()
    assert profile.kernel_count == 5


def test_a_trace_that_was_dropped_says_why_and_writes_nothing(tmp_path: Path) -> None:
    profile = Profile(record("mlp"), trace=str(FOLDER / "mlp.json.gz"), no_trace="dropped")
    with pytest.raises(IncompleteProfile, match="dropped"):
        profile.save_trace(tmp_path / "saved.json")
    assert list(tmp_path.iterdir()) == []
