"""Traces from elsewhere, built of records as each dialect writes them: every one read right, or
refused, or said to be incomplete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from built import Event, annotation, call, kernel, launched, operator, profile_of, span, written

from pytest_kernelprof.api import Profile
from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.records.recording import Origin
from pytest_kernelprof.trace.reader import read_trace

SYNC = call("cudaDeviceSynchronize", 900, 900)


def of_2021(category: str, name: str, ts: int, dur: int, tid: object, **args: Any) -> Event:
    return {**span(category, name, ts, dur, **args), "tid": tid, "pid": 24572}


@pytest.mark.parametrize("whole_document", [True, False], ids=["document", "bare list"])
def test_kineto_of_2021_is_read(tmp_path: Path, whole_document: bool) -> None:
    ids = {"correlation": 31255, "external id": 31}
    events = [
        of_2021("Operator", "aten::mm", 100, 50, "24572", **{"External id": 31}),
        of_2021("Runtime", "cudaLaunchKernel", 110, 5, 24572, **ids),
        {**of_2021("Kernel", "gemm", 120, 0, "stream 7", device=0, stream=7, **ids), "pid": 0},
        of_2021("Runtime", "cudaMemcpyAsync", 160, 5, "24572", correlation=9, **{"external id": 0}),
        {**of_2021("Memcpy", "Memcpy HtoD (Pageable -> Device)", 170, 1, "stream 7",
                   device=0, stream=7, correlation=9, bytes=640), "pid": 0},
        {"ph": "s", "cat": "async", "id": 9, "tid": 24572, "ts": 160},
    ]  # fmt: skip
    beside = {"computeProperties": [{"id": 0, "name": "Tesla V100"}]}
    path = written(tmp_path, events, **beside)
    if not whole_document:
        path.write_text(path.read_text().partition('"traceEvents": ')[2].partition(', "comp')[0])
    profile = Profile.from_trace(path)
    assert profile.integrity.problems == ()  # also though the kernel took 0 us
    assert [one.operators for one in profile.kernels] == [("aten::mm",)]
    assert (profile.launches, profile.memcpys_h2d, profile.kernels[0].stream) == (1, 1, 7)
    assert profile.environment.device == ("Tesla V100" if whole_document else "unknown device")
    assert profile.origin == Origin("CUDA", "in the form of 2021", 1, 1)


def test_a_kernel_of_no_time_is_a_problem_where_times_have_decimals(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, call("cudaLaunchKernel", 1.5, 1), kernel("k", 5, 1, dur=0))
    assert "no positive duration" in profile.integrity.problems[0]


def hip(name: str, ts: float, correlation: int, **args: Any) -> Event:
    return span("cuda_runtime", name, ts, 1, cid=1, correlation=correlation, **args)


def on_amd(name: str, ts: float, correlation: int, **args: Any) -> Event:
    on = {"device": 2, "stream": 0, "correlation": correlation, "kind": "Dispatch Kernel"}
    return {**span("kernel", name, ts, 1, 0, **on, **args), "pid": 2}


def test_rocm_is_read_though_its_calls_hold_numbers_as_text(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        hip("hipMemcpyWithStream", 1, 116, stream="0x0", size="2560", kind="1"),
        {**span("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 2, 1, device="2", stream="0x0",
                correlation="116", bytes="0xa00"), "pid": 2},
        hip("hipMemcpyAsync", 3, 117, src="0x7f0e", bytes="128", kind="3"),
        span("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 4, 1, device=2, stream=0,
             correlation=117, bytes=128, **{"memory bandwidth (GB/s)": "N/A"}),
        hip("hipLaunchKernel", 5, 118, grid=[141, 1, 1], block="odd"),
        on_amd("vectorized", 6, 118),
        deviceProperties=[{"id": 0, "name": "AMD Instinct MI300X"}],
    )  # fmt: skip
    assert profile.integrity.complete
    assert [copy.bytes for copy in profile.copies] == [2560, 128]
    assert (profile.kernels[0].grid, profile.kernels[0].device) == ((0, 0, 0), 2)
    assert profile.environment.device == "AMD Instinct MI300X"
    assert profile.origin is not None
    assert profile.origin.dialect == "ROCm"


def test_the_nodes_of_a_hip_graph_share_the_id_of_its_launch(tmp_path: Path) -> None:
    nodes = [on_amd(f"triton_{i}", 10 + i, 505113) for i in range(4)]
    profile = profile_of(
        tmp_path, annotation("step", 0, 9), hip("hipGraphLaunch", 1, 505113), nodes
    )
    assert profile.integrity.complete
    assert (profile.kernel_count, profile.launches) == (4, 1)
    assert {one.operators for one in profile.kernels} == {("step",)}


def test_launches_in_a_hip_capture_run_nothing(tmp_path: Path) -> None:
    names = ("hipStreamBeginCapture", "hipLaunchKernel", "hipStreamEndCapture", "hipLaunchKernel")
    calls = [hip(name, 10 * i, i + 1) for i, name in enumerate(names)]
    assert profile_of(tmp_path, calls, on_amd("k", 40, 4)).integrity.complete


def test_the_queue_of_todays_rocm_is_its_stream(tmp_path: Path) -> None:
    k = span("kernel", "k", 5, 1, device=2, hsa_queue=3, correlation=1, kind="Dispatch Kernel")
    assert profile_of(tmp_path, hip("hipLaunchKernel", 1, 1), k).kernels[0].stream == 3


def test_all_numbers_of_a_kernel_are_read_under_other_names(tmp_path: Path) -> None:
    k = on_amd("k", 5, 1, grid=[2, 3, 4], block=[64, 1, 1])
    k["args"] |= {"stream": None, "hsa_queue": 3, "shared memory": 1024.0}
    k["args"] |= {"registers per thread": "0x20"}
    copy = span("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 2, 1, device=2, correlation=2)
    calls = [hip("hipLaunchKernel", 1, 1), hip("hipMemcpyAsync", 1.5, 2)]
    profile = profile_of(tmp_path, calls, k, copy)  # which has no grid
    assert profile.memcpys_h2d == 1
    read = profile.kernels[0]
    assert (read.grid, read.block, read.stream) == ((2, 3, 4), (64, 1, 1), 3)
    assert (read.registers, read.shared_memory) == (32, 1024)


def test_what_triton_writes_on_operators_is_not_read_there(tmp_path: Path) -> None:
    args = {"grid": "grid(100,)", "stream": "none", "kernel_backend": "triton", "bytes": [1]}
    node = span("cpu_op", "triton_poi", 0, 20, **args)
    profile = profile_of(tmp_path, node, launched("triton_poi", 5, 35))
    assert [one.operators for one in profile.kernels] == [("triton_poi",)]


def test_a_text_for_a_grid_is_refused_where_it_is_read(tmp_path: Path) -> None:
    k = kernel("k", 5, 1)
    k["args"]["grid"] = "grid(100,)"
    with pytest.raises(TraceError, match=r"traceEvents\[0\].args.grid"):
        profile_of(tmp_path, k)


@pytest.mark.parametrize("odd", [{"args": 3}, {"name": 5}, {"tid": [1]}, {"dur": "long"}])
def test_what_is_odd_in_an_event_that_is_not_read_is_no_matter(
    tmp_path: Path, odd: dict[str, Any]
) -> None:
    event = {"ph": "M", "name": "m", **odd}
    assert profile_of(tmp_path, event, launched("k", 5, 1)).kernel_count == 1


@pytest.mark.parametrize(
    ("correlation", "kernels", "launches", "leaked"),
    [(7, 1, 1, 1), (15, 2, None, 0), (99, 2, None, 0), (0, 2, None, 0)],
    ids=["before all", "in the middle", "after all", "no id"],
)
def test_what_was_launched_before_the_window_is_known_by_its_id_and_not_by_its_time(
    tmp_path: Path, correlation: int, kernels: int, launches: int | None, leaked: int
) -> None:
    late = kernel("other", 100, correlation)
    profile = profile_of(tmp_path, launched("k", 5, 10), call("cudaFree", 50, 20), late)
    assert profile.integrity.complete
    assert (profile.kernel_count, profile.launches) == (kernels, launches)
    assert profile.integrity.leaked == leaked


def rank(pid: int, device: int, name: str, count: int = 3) -> list[Event]:
    """Each rank counts its ids from the same number."""
    host = [operator(f"op{pid}", 0, 99, external_id=5)]
    host += [call("cudaLaunchKernel", 10 + i, i + 1, external_id=5) for i in range(count)]
    on_device = [kernel(name, 20 + i, i + 1) for i in range(count)]
    for one in on_device:
        one["args"]["device"] = device
    return [{**one, "pid": pid} for one in host] + [{**one, "pid": device} for one in on_device]


def test_ranks_in_one_file_are_joined_each_with_itself(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, rank(101, 0, "a", 3), rank(102, 1, "b", 4))
    assert profile.integrity.complete
    found = {(one.name, one.operators) for one in profile.kernels}
    assert found == {("a", ("op101",)), ("b", ("op102",))}
    assert (profile.launches, profile.origin) == (7, Origin("CUDA", "", 2, 2))


def test_a_wait_of_one_rank_is_none_of_the_call_with_its_id_on_another(tmp_path: Path) -> None:
    """Each sees one GPU, its device 0, and counts its ids from the same number."""
    ranks = [(101, "gpu of a", "a", 3, 2), (102, "gpu of b", "b", 6, 1)]
    events = [
        [{**one, "pid": gpu if one["pid"] == 0 else pid} for one in rank(pid, 0, name, count)]
        for pid, gpu, name, count, _ in ranks
    ]
    for pid, gpu, _, count, waits in ranks:
        for at in range(count + 1, count + 1 + waits):  # ids that are launches of the other rank
            free = call("cudaFree", 50 + 10 * at, at)
            record = span("cuda_sync", "Context Sync", 50 + 10 * at, 1, correlation=at)
            events.append([{**free, "pid": pid}, {**record, "pid": gpu}])
    profile = profile_of(tmp_path, *events)
    assert profile.integrity.complete
    assert (profile.kernel_count, profile.syncs) == (9, 3)
    assert {one.call for one in profile.waits} == {"cudaFree"}
    for process, waits in enumerate((2, 1)):
        part = Profile.load(tmp_path / "built.json", process=process)
        assert (part.syncs, part.integrity.complete) == (waits, True)


def test_a_device_listed_of_which_nothing_is_recorded_is_not_complete(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, operator("a", 0, 5), deviceProperties=[{"id": 0, "name": "A"}])
    assert "has no records of it" in profile.integrity.problems[0]


def test_kernels_without_any_call_are_not_complete(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, operator("a", 0, 5), kernel("k", 10, 1))
    assert "has no runtime calls" in profile.integrity.problems[0]
    assert (profile.kernel_count, profile.launches) == (1, None)


def test_a_range_of_the_cuda_profiler_is_no_kernel(tmp_path: Path) -> None:
    ranged = span("cuda_profiler_range", "r", 10, 1, device=0)
    assert profile_of(tmp_path, SYNC, ranged).kernel_count == 0


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "hipMemcpyAsync"])
def test_a_call_with_two_activities_is_not_complete(tmp_path: Path, name: str) -> None:
    profile = profile_of(tmp_path, call(name, 1, 1), kernel("k", 5, 1), kernel("k", 9, 1))
    assert "more than one activity" in profile.integrity.problems[0]
    assert profile.kernel_count == 2


@pytest.mark.parametrize("name", ["cudaGraphLaunch", "cudaMemcpyBatchAsync"])
def test_graphs_and_batches_have_many_activities(tmp_path: Path, name: str) -> None:
    profile = profile_of(tmp_path, call(name, 1, 1), kernel("k", 5, 1), kernel("k", 9, 1))
    assert profile.integrity.complete


def test_the_records_of_mtia_name_no_kernels(tmp_path: Path) -> None:
    dma = span("mtia_ccp_events", "dma_request", 10, 1, correlation=1)
    profile = profile_of(tmp_path, span("mtia_runtime", "runtimeLaunch", 1, 1, correlation=1), dma)
    assert not profile.integrity.complete
    assert profile.metrics["kernels"].value is None
    assert "MTIA" in profile.metrics["kernels"].why


def test_xpu_has_queues_for_streams(tmp_path: Path) -> None:
    def call_of(name: str, at: float, number: int) -> Event:
        return span("xpu_runtime", name, at, 1, correlation=number)

    def on_xpu(name: str, at: float, number: int, **args: Any) -> Event:
        ids = {"correlation": number, "device": 0, "sycl queue": 64, "l0 queue": "0x5f"}
        return span("kernel", name, at, 1, **ids, **args)

    profile = profile_of(
        tmp_path,
        [call_of("urEnqueueKernelLaunch", 1, 1), on_xpu("a", 5, 1)],
        [call_of("urEnqueueKernelLaunchWithArgsExp", 2, 2), on_xpu("b", 7, 2)],
        [call_of("urEnqueueUSMFill", 3, 3), call_of("urEnqueueEventsWaitWithBarrier", 4, 4)],
    )
    assert profile.integrity.complete
    assert (profile.launches, profile.kernels[0].stream) == (2, 64)
    assert profile.origin == Origin("XPU", "", 1, 1)


@pytest.mark.parametrize("name", ["urEnqueueKernelLaunchWithArgsExp", "urEnqueueUSMMemcpy"])
def test_what_xpu_enqueues_and_is_not_there_is_missed(tmp_path: Path, name: str) -> None:
    lost = span("xpu_runtime", name, 1, 1, correlation=1)
    assert not profile_of(tmp_path, lost).integrity.complete


@pytest.mark.parametrize(
    "text",
    ['\ufeff{"traceEvents":[EVENT]}', '{"record_shapes":true,"traceEvents":[EVENT]}', "[EVENT]"],
    ids=["byte order mark", "record_shapes is true", "bare list"],
)
def test_json_of_other_writers_is_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text.replace("EVENT", '{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1}'))
    assert read_trace(path).operators.name.tolist() == ["a"]


DEEP = "[" * 50_000 + "]" * 50_000  # Python 3.13 reads 5,000


def document(args: str, ts: str = "1.5") -> str:
    event = f'"ph":"X","cat":"kernel","name":"k","ts":{ts},"dur":1,"args":{{{args}}}'
    return f'{{"traceEvents":[{{{event}}}]}}'


@pytest.mark.parametrize(
    "text",
    [
        f'{{"deep":{DEEP},"traceEvents":[{{}}]}}',
        document(f'"x":{DEEP}'),
        f'{{\n  "traceEvents": [\n  {{"x":{DEEP}}}\n  ],\n  "a": 1}}',
        document("", "1e900000"),
        document("", "1" * 5000),
        document('"correlation":1e900000'),
        document(f'"stream":"{"9" * 5000}"'),
        '{"traceEvents":[{}],"a":1,"traceEvents":[{}]}',
        '{"traceEvents":[]}',
    ],
    ids=[
        *("deep beside", "deep inside", "deep in torch's layout", "huge power", "many digits"),
        *("huge id", "many digits in a text", "two traceEvents", "no events"),
    ],
)
def test_json_that_no_profiler_writes_is_refused_in_one_line_at_once(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(TraceError) as refused:
        read_trace(path)
    assert "\n" not in str(refused.value)


def test_traceevents_in_a_text_or_deeper_down_are_no_second_ones(tmp_path: Path) -> None:
    path = written(tmp_path, launched('a "traceEvents"', 5, 1), more={"traceEvents": 1})
    assert Profile.from_trace(path).kernel_count == 1


def test_calls_of_another_thread_are_placed_in_one_sweep(tmp_path: Path) -> None:
    """Polls of a thread without operators, and captures: both went through all before them,
    which took minutes for so many."""
    many = 20_000
    polls = [call("cudaEventQuery", i, i + 1, tid=9) for i in range(many)]
    begin, end = "cudaStreamBeginCapture", "cudaStreamEndCapture"
    captures = [call(begin if i % 2 else end, i, many + i + 1) for i in range(many)]
    operators = [operator("op", i, 1) for i in range(many)]
    assert profile_of(tmp_path, polls, captures, operators).integrity.complete
