"""Traces of several processes, one by one."""

from __future__ import annotations

from pathlib import Path

from corpus import FOLDER, two_ranks

from pytest_kernelprof.analysis.session_profile import profile_of, session_facts
from pytest_kernelprof.trace.correlation import of_each_process, reading_of
from pytest_kernelprof.trace.reader import read_trace


def test_each_process_has_the_kernels_that_it_launched(tmp_path: Path) -> None:
    traces = of_each_process(read_trace(two_ranks(tmp_path, "memory", "stack")))
    assert len(traces) == 2
    alone = [read_trace(FOLDER / f"{name}.json.gz") for name in ("memory", "stack")]
    assert sorted(len(one.activities) for one in traces) == sorted(
        len(one.activities) for one in alone
    )
    assert sum(len(one.calls) for one in traces) == sum(len(one.calls) for one in alone)
    for trace in traces:
        record = profile_of(session_facts(reading_of(trace)), trace.recording)
        assert record.kernels
        assert all(kernel.launch != "unknown" for kernel in record.kernels)


def test_a_trace_of_one_process_is_itself() -> None:
    trace = read_trace(FOLDER / "mlp.json.gz")
    assert of_each_process(trace) == [trace]


def test_a_trace_without_a_device_is_itself(tmp_path: Path) -> None:
    event = '{"ph":"X","cat":"cpu_op","name":"aten::mm","tid":1,"ts":1.000,"dur":1}'
    (tmp_path / "cpu.json").write_text('{"traceEvents":[' + event + "]}")
    trace = read_trace(tmp_path / "cpu.json")
    assert of_each_process(trace) == [trace]
