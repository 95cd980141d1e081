"""The benchmark's arithmetic and bookkeeping; that it is right about speed takes a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from benchmarks.candidates import BUILDERS, CANDIDATES, TITLES, eager
from benchmarks.floors import Floors
from benchmarks.shapes import ALL, REGIMES, Case, Shape, shapes

from benchmarks import timing
from benchmarks.results import Measured, Result, Spread, read, report, spread

TINY = Shape("few rows", "silu", 4, 16, 32)


@pytest.mark.parametrize(("values", "low", "high"), [(8, 1, 8), (10, 1, 10), (30, 8, 23)])
def test_intervals_are_those_of_the_tables(values: int, low: int, high: int) -> None:
    """Ranks from published tables of 99 % confidence intervals of medians."""
    found = spread([float(v) for v in range(1, values + 1)])
    assert found == Spread((values + 1) / 2, low, high)


def test_few_values_have_no_interval() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0)
    assert spread([]) is None


def test_each_regime_has_shapes_and_each_candidate_a_title() -> None:
    assert {shape.regime for shape in ALL} == set(REGIMES) == set(CANDIDATES)
    assert {name for names in CANDIDATES.values() for name in names} == set(BUILDERS) == set(TITLES)
    assert len(shapes(REGIMES, tiny=False)) == len(set(ALL))


def test_kernels_go_to_the_candidate_whose_turn_it_was() -> None:
    """Two candidates of different lengths; both orders of a round, and a backward too."""
    case = Case(TINY, "cpu")
    one, two = (lambda x, w: F.linear(x, w.first)), eager(TINY)
    times, kernels = timing.gpu_times(case, {"one": one, "two": two}, 8)
    assert {name: len(each) for name, each in times.items()} == {"one": 8, "two": 8}
    assert [len(kernels[name]) for name in ("one", "two")] == [1, 5]


def test_a_timed_call_follows_one_of_the_same_candidate() -> None:
    """Else it would pay for the code of another, and a candidate for how many others there are."""
    called: list[str] = []
    functions = {name: (lambda x, w, name=name: called.append(name) or x) for name in ("a", "b")}
    times = timing.wall_times(Case(TINY, "cpu"), functions, 4)
    assert "".join(called) == "aabbbbaaaabbbbaa"
    assert {name: len(each) for name, each in times.items()} == {"a": 4, "b": 4}


def test_what_is_written_is_read_and_told(tmp_path: Path) -> None:
    floors = Floors(1e12, 1e9, 0.5)
    results = {
        "eager": Result([("a", 4.0)], Spread(4.0), Spread(60.0), Spread(5.0), 4e-3),
        "ours": Result([("b", 2.0)], Spread(2.0), Spread(50.0), Spread(4.0), 2e-3),
        "max_autotune": Result(notes=["not compiled: the time was over"]),
    }
    measured = Measured(TINY, "a GPU", floors, results)
    measured.write(tmp_path / "a.jsonl")
    found = read([tmp_path / "a.jsonl", tmp_path / "none.jsonl"])
    assert list(found) == [TINY]
    assert found[TINY].is_whole
    text = report(list(found.values()))
    assert re.search(r"2\.00 \(eager\) \| +1\.20 \| +1\.25 \(eager\)", text)
    assert "torch.compile, max-autotune: not compiled" in text


def test_gate_and_up_are_one_matrix_for_those_who_want_it() -> None:
    weights = Case(TINY, "cpu").sets[0]
    assert torch.equal(weights.first._base, torch.cat([weights.first, weights.up]))
