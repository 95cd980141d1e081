"""Autotuners that bench inside a block are known, and collection pauses for them."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.runtime.benchmarking import Benchmarker, InductorBenchmarker

from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure_once
from pytest_kernelprof.profiler import autotuning, compiled_code
from pytest_kernelprof.profiler.autotuning import INDUCTOR, TRITON, Autotuning

X = torch.ones(4)


class Session:
    """Notes what is asked of it."""

    def __init__(self, *, can_pause: bool = True, goes_on: bool = True) -> None:
        self.asked: list[str] = []
        self._can_pause, self._goes_on = can_pause, goes_on

    def pause(self) -> bool:
        self.asked.append("pause")
        return self._can_pause

    def resume(self) -> bool:
        self.asked.append("resume")
        return self._goes_on


@pytest.fixture(autouse=True)
def compilers_are_watched() -> None:
    compiled_code.watch_compilers()


def bench(call: Any) -> None:
    # By a tensor every version knows the device; 2.9 by nothing else.
    Benchmarker().benchmark(lambda _: call(), (X,), {}, warmup=0, rep=0)


def test_inductors_benchmarker_is_known_and_nested_calls_pause_once() -> None:
    session = Session()
    found = Autotuning(session)
    with found.watched():
        bench(lambda: session.asked.append("call") if session.asked[-1] != "call" else None)
        session.asked.append("between")
        bench(lambda: None)
    assert session.asked == ["pause", "call", "resume", "between", "pause", "resume"]
    assert found.benched == (INDUCTOR,)


def test_all_benchmarkers_of_the_installed_torch_are_known() -> None:
    found = autotuning.benching_methods(sys.modules[Benchmarker.__module__])
    names = {(owner.__name__, name) for owner, name in found}
    assert {("Benchmarker", "benchmark"), ("Benchmarker", "benchmark_cpu")} <= names
    assert ("InductorBenchmarker", "benchmark_gpu") in names


def test_tritons_autotuner_is_known() -> None:
    triton = pytest.importorskip("triton")
    session, seen = Session(), []

    def timed(kernel_call: Any, quantiles: Any) -> list[float]:
        seen.append(list(session.asked))
        return [1.0, 1.0, 1.0]

    tune = triton.autotune(configs=[triton.Config({})], key=[], do_bench=timed)
    tuned = tune(_jit(triton))
    tuned.nargs = {}
    found = Autotuning(session)
    with found.watched():
        tuned._bench(config=triton.Config({}))
    assert seen == [["pause"]]
    assert session.asked == ["pause", "resume"]
    assert found.benched == (TRITON,)


def _jit(triton: Any) -> Any:
    @triton.jit
    def kernel() -> None:
        pass

    return kernel


def test_an_exception_of_what_is_benched_resumes_and_passes() -> None:
    session = Session()

    def breaks() -> None:
        raise KeyError("mine")

    with Autotuning(session).watched(), pytest.raises(KeyError, match="mine"):
        bench(breaks)
    assert session.asked == ["pause", "resume"]


def test_the_autotuners_are_theirs_again_afterwards() -> None:
    session = Session()
    methods = [Benchmarker.benchmark, InductorBenchmarker.benchmark_gpu]
    finders = list(sys.meta_path)
    with Autotuning(session).watched():
        pass
    bench(lambda: None)
    assert not session.asked
    assert [Benchmarker.benchmark, InductorBenchmarker.benchmark_gpu] == methods
    assert sys.meta_path == finders


def test_what_cannot_be_paused_is_named_all_the_same() -> None:
    session = Session(can_pause=False)
    found = Autotuning(session)
    with found.watched():
        bench(lambda: None)
    assert session.asked.count("resume") == 0
    assert found.benched == (INDUCTOR,)


def test_a_session_that_does_not_go_on_is_incomplete() -> None:
    with (
        pytest.raises(IncompleteProfile, match="could not continue"),
        Autotuning(Session(goes_on=False)).watched(),
    ):
        bench(lambda: None)


def test_another_thread_does_not_resume_what_this_one_paused() -> None:
    session = Session()

    def in_another_thread() -> None:
        other = threading.Thread(target=lambda: bench(lambda: None))
        other.start()
        other.join()

    with Autotuning(session).watched():
        Benchmarker().benchmark_cpu(in_another_thread, warmup=0, rep=0)
    assert session.asked == ["pause", "resume"]


def test_an_autotuner_that_is_imported_meanwhile_is_known_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_autotuner.py").write_text(
        "class Benchmarker:\n    def benchmark(self):\n        return 'benched'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(autotuning.MODULES, "late_autotuner", "a late autotuner")
    monkeypatch.setitem(compiled_code._WATCHED, "late_autotuner", autotuning.count_runs)
    session = Session()
    found = Autotuning(session)
    with found.watched():
        late = importlib.import_module("late_autotuner")
        assert late.Benchmarker().benchmark() == "benched"
    assert session.asked == ["pause", "resume"]
    assert found.benched == ("a late autotuner",)


def test_a_block_in_which_an_autotuner_benched_is_cold() -> None:
    with measure_once(Plan("cpu")) as found:
        bench(lambda: X + 1)
    # torch 2.9 annotates it as well, which is a sign of its own.
    assert f"{INDUCTOR} benched" in found[0].profile.integrity.cold
    assert not found[0].profile.integrity.settled


def test_runs_are_counted_once_for_all_their_configurations() -> None:
    triton = pytest.importorskip("triton")
    configs = [triton.Config({}, num_warps=warps) for warps in (1, 2)]
    tuned = triton.autotune(configs=configs, key=[], do_bench=lambda *_, **__: [1.0] * 3)(
        _jit(triton)
    )
    tuned.nargs = {}

    def run(*configs: Any) -> None:
        for config in configs:
            tuned._bench(config=config)

    def during(*calls: tuple[Any, ...]) -> int:
        before = autotuning.runs() or ()
        for one in calls:
            run(*one)
        return len((autotuning.runs() or ())[len(before) :])

    assert during(configs) == 1
    assert during(configs, configs) == 2  # nothing was kept in between
    tuned.cache["a key"] = configs[0]
    assert during(configs[:1]) == 1
    assert during(configs[1:]) == 0  # of the same run
    assert (autotuning.runs() or ())[-1] == "kernel by Triton's autotuner"


def test_each_candidate_of_inductors_benchmarker_counts_once() -> None:
    before = autotuning.runs() or ()
    bench(lambda: None)  # one method of it calls another
    bench(lambda: None)
    assert (autotuning.runs() or ())[len(before) :] == (INDUCTOR, INDUCTOR)
