"""The exporter for trackers: read as they read it, by pytest-benchmark itself where it can."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from records import CPU, absent, calls_of, counted, timed

from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import Profile
from pytest_kernelprof.records.recording import Integrity
from pytest_kernelprof.report.files import FORMS, benchmarks_of

HOSTILE = 'test_x.py::test_it[<b>"|\n\x1b[31m\u202e😀\\ud800\0]'


def on_gpu(*us: float, **more: Any) -> Profile:
    return calls_of(2, timed("cuda_time", us), **more)


def document(*tests: Test) -> dict[str, Any]:
    document, _ = benchmarks_of(Run(tests, began="2026-11-22T08:50:00Z"))
    return document


def test_rounds_are_seconds_and_counts_stand_beside_them() -> None:
    (one,) = document(Test("test_x.py::test_it", (on_gpu(10, 12, 14),)))["benchmarks"]
    assert one["stats"]["data"] == [10e-6, 12e-6, 14e-6]
    assert one["stats"]["median"] == 12e-6
    assert (one["fullname"], one["name"]) == ("test_x.py::test_it", "test_it")
    facts = one["extra_info"]["kernelprof"]
    assert (facts["kernels"], facts["cuda_time_us"], facts["time"]) == (2, 12.0, "cuda_time")
    assert one["group"] == "cuda_time (NVIDIA H200)"


def test_a_name_is_the_function_with_its_parameters() -> None:
    (one,) = document(Test("a/t.py::TestIt::test_it[a::b[0]]", (on_gpu(1),)))["benchmarks"]
    assert one["name"] == "test_it[a::b[0]]"


def test_on_the_cpu_it_is_the_latency() -> None:
    cpu = calls_of(2, timed("latency", [3, 4, 5]), environment=CPU)
    (one,) = document(Test("test_x.py::test_it", (cpu,)))["benchmarks"]
    assert one["stats"]["median"] == 4e-6
    assert one["group"] == "latency (CPU (x86_64))"


def test_what_has_no_number_that_is_right_is_left_out_and_counted() -> None:
    lost = on_gpu(10, 12, integrity=Integrity(problems=("a launch without its kernel",)))
    run = Run(
        (
            Test("t.py::incomplete", (lost,)),
            Test("t.py::counted", (calls_of(2, absent("cuda_time")),)),
            Test("t.py::no_kernel", (calls_of(0, timed("cuda_time", [0, 0])),)),
            Test("t.py::flaky", (on_gpu(99),), outcome="rerun"),
            Test("t.py::flaky", (on_gpu(10),)),
            Test("t.py::none"),
        )
    )
    document, left_out = benchmarks_of(run)
    assert [one["fullname"] for one in document["benchmarks"]] == ["t.py::flaky"]
    assert left_out == {"incomplete": 1, "without a time": 2, "of a try that was repeated": 1}
    words = FORMS["benchmark_json"](run)[1]
    assert words == (
        "benchmarks 1, left out incomplete 1, left out without a time 2, "
        "left out of a try that was repeated 1"
    )


def test_no_two_have_one_name() -> None:
    profiles = (on_gpu(1), on_gpu(2, label="backward"), on_gpu(3, label="backward"))
    found = document(Test("t.py::test_it", profiles))["benchmarks"]
    names = [one["fullname"] for one in found]
    assert names == ["t.py::test_it", "t.py::test_it [backward]", "t.py::test_it [backward] #2"]


def test_names_are_as_long_as_bencher_takes_them() -> None:
    long = [f"t.py::test_it[{'é' * 50_000}{i}]" for i in range(2)]
    found = document(*(Test(name, (on_gpu(1),)) for name in long))["benchmarks"]
    names = {one["fullname"] for one in found}
    assert len(names) == 2
    assert all(0 < len(name.encode()) <= 1024 for name in names)


def test_it_has_all_that_the_adapters_of_trackers_ask_for() -> None:
    """Bencher: two objects, and of each benchmark a name and four numbers, by their types.
    github-action-benchmark: a name and four numbers."""
    run = Run((Test(HOSTILE, (on_gpu(10, 12, 14),)), Test("t.py::one", (on_gpu(5),))))
    read = json.loads(FORMS["benchmark_json"](run)[0])
    assert isinstance(read["machine_info"], dict)
    assert isinstance(read["commit_info"], dict)
    for one in read["benchmarks"]:
        assert 0 < len(one["fullname"].encode()) <= 1024
        for name in ("mean", "stddev", "median", "iqr", "ops", "rounds"):
            assert isinstance(one["stats"][name], (int, float))
        assert one["stats"]["ops"] > 0


def test_pytest_benchmark_compares_two_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = pytest.importorskip("pytest_benchmark.cli")
    for name, us in (("old", 10.0), ("new", 20.0)):
        tests = tuple(Test(id, (on_gpu(us, us + 1),)) for id in ("t.py::test_it", HOSTILE))
        (tmp_path / f"{name}.json").write_bytes(FORMS["benchmark_json"](Run(tests))[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pytest-benchmark", "compare", "old.json", "new.json"])
    cli.main()
    shown = capsys.readouterr().out
    assert "benchmark 'cuda_time (NVIDIA H200)': 4 tests" in shown
    assert "Failed to load" not in shown


def test_a_count_without_rounds_is_told_as_it_is() -> None:
    profile = calls_of(2, timed("cuda_time", [10]), counted("syncs", 3), one_shot=True)
    (one,) = document(Test("t.py::test_it", (profile,)))["benchmarks"]
    facts = one["extra_info"]["kernelprof"]
    assert (facts["syncs"], facts["one_shot"], one["stats"]["stddev"]) == (3, True, 0.0)
    assert "peak_memory_bytes" not in facts
