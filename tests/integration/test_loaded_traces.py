"""Recorded traces in tests: ``kernel_profile.load`` hands them to markers, snapshots, baselines and
reports, on a machine without a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_kernelprof.baselines.run_documents import read_run

Run = Callable[..., pytest.RunResult]

DEVICE = {"deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X"}]}


def span(category: str, name: str, ts: float, dur: float, tid: int, **args: Any) -> dict[str, Any]:
    place = {"pid": 1, "tid": tid, "ts": ts, "dur": dur}
    return {"ph": "X", "cat": category, "name": name, **place, "args": args}


def recorded(
    folder: Path, steps: dict[int, list[str]], lost: bool = False, name: str = "worker.json"
) -> None:
    """A worker's trace: of each step the kernels that it launches; ``lost``: but for the last."""
    events, at = [], 0
    for number, kernels in steps.items():
        events.append(span("user_annotation", f"ProfilerStep#{number}", 1000 * number, 990, 1))
        for n, kernel in enumerate(kernels, 1):
            at, ts = at + 1, 1000.0 * number + 10 * n
            events.append(span("cuda_runtime", "hipLaunchKernel", ts, 2, 1, correlation=at))
            events.append(span("kernel", kernel, ts + 5, 4, 7, correlation=at, device=0, stream=0))
    events = events[:-1] if lost else events
    (folder / name).write_text(json.dumps({**DEVICE, "traceEvents": events}))


@pytest.fixture
def one_step(pytester: pytest.Pytester) -> None:
    recorded(pytester.path, {3: ["gemm", "gelu", "gemm"]})


@pytest.fixture
def two_steps(pytester: pytest.Pytester) -> None:
    recorded(pytester.path, {3: ["gemm", "gelu", "gemm"], 4: ["gemm", "copy", "gelu", "gemm"]})


LIMITED = """
@pytest.mark.max_kernels(2)
def test_it(kernel_profile):
    kernel_profile.load("worker.json")
"""


@pytest.mark.usefixtures("one_step")
@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_markers_judge_a_loaded_trace_without_a_gpu(run: Run, workers: str) -> None:
    code = LIMITED + LIMITED.replace("max_kernels(2)", "max_kernels(3)").replace("_it", "_kept")
    options = ["-n2"] if workers == "-n2" else []
    result = run(code, *options, "--kernelprof-report", device=None)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels: 3 > limit 2",
            "  at test_it.py:9",
            '    9 | kernel_profile.load("worker.json")',
            "      | gemm x2",
            "  1  * gemm *",
            "1 of 2 tests breaks a limit.",
            "AMD Instinct MI300X",
            "2 profiles",
        ]
    )


def test_what_a_trace_does_not_say_of_launches_and_copies_is_not_judged(
    pytester: pytest.Pytester, run: Run
) -> None:
    launch = {"registers per thread": 32, "grid": [1, 1, 1], "block": [128, 1, 1]}
    ids = [{"correlation": n, "device": 0, "stream": 7} for n in (1, 2)]
    events = [
        span("cuda_runtime", "cudaLaunchKernel", 1, 2, 1, **ids[0]),
        span("kernel", "gemm", 5, 4, 7, **ids[0], **launch),
        span("cuda_runtime", "cudaMemcpyAsync", 11, 2, 1, **ids[1]),
        span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 15, 4, 7, **ids[1]),
    ]
    (pytester.path / "worker.json").write_text(json.dumps({**DEVICE, "traceEvents": events}))
    code = [
        LIMITED.replace("max_kernels(2)", limit).replace("_it", f"_{n}")
        for n, limit in enumerate(('max_shared_memory("1 KB")', 'max_memcpy_bytes("1 KB")',
                                   "max_registers(32)", "max_memcpys(1)"))
    ]  # fmt: skip
    result = run("".join(code), "-rs", "-v", device=None)
    result.assert_outcomes(passed=2, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "*max_shared_memory*: shared memory not known of 1 of 1 kernels: gemm (not available: "
            "the trace does not have the shared memory of each kernel)*",
            "*max_memcpy_bytes*: not available: the trace does not have the memcpy bytes of each "
            "copy*",
        ]
    )


@pytest.mark.usefixtures("one_step")
@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("max_spills(0)", "not recorded with the trace: only kernel_profile(fn) measures it"),
        (
            'min_throughput("1 TFLOP/s")',
            "shapes were not recorded, or not all: say the work in a test, kernel_profile.work(",
        ),
    ],
)
def test_what_only_a_live_test_has_is_not_advised(run: Run, limit: str, why: str) -> None:
    result = run(LIMITED.replace("max_kernels(2)", limit), "-rs", device=None)
    result.assert_outcomes(skipped=1)
    told = " ".join(" ".join(result.outlines).split())
    assert why in told
    assert "stands before the call" not in told


@pytest.mark.usefixtures("one_step")
def test_the_profile_is_handed_back_and_is_one_of_the_test(run: Run) -> None:
    result = run(
        """
def test_it(kernel_profile):
    loaded = kernel_profile.load("worker.json")
    assert kernel_profile.last is loaded
    assert [one.name for one in loaded.kernels] == ["gemm", "gelu", "gemm"]
    assert (loaded.origin.dialect, loaded.environment.device) == ("ROCm", "AMD Instinct MI300X")
""",
        device=None,
    )
    result.assert_outcomes(passed=1)


@pytest.mark.usefixtures("one_step")
@pytest.mark.parametrize(("flops", "broken"), [(12 * 10**6, 0), (11 * 10**6, 1)])
def test_the_work_that_is_said_is_that_of_the_trace(run: Run, flops: int, broken: int) -> None:
    result = run(
        f"""
@pytest.mark.min_throughput("1 TFLOP/s")
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    kernel_profile.work(flops={flops})
    kernel_profile.load("worker.json")  # 12 us
    assert kernel_profile.last.metrics["throughput"].rounds == ({flops} / 12e-6,)
@pytest.mark.min_throughput("80%")
def test_share(kernel_profile):
    kernel_profile.work(flops={flops})
    kernel_profile.load("worker.json")
""",
        device=None,
    )
    result.assert_outcomes(passed=1 - broken, failed=broken, skipped=1)


@pytest.mark.usefixtures("one_step")
def test_the_precedence_of_limits_is_that_of_measured_profiles(run: Run) -> None:
    result = run(
        """
pytestmark = [pytest.mark.max_kernels(1), pytest.mark.max_kernels(1, match="gemm")]
@pytest.mark.max_kernels(3)
def test_inner(kernel_profile):
    kernel_profile.load("worker.json")
@pytest.mark.max_kernels(3)
def test_at_run_time(kernel_profile):
    kernel_profile.load("worker.json")
    kernel_profile.limit(max_kernels={"n": 2, "match": "gemm"})
""",
        device=None,
    )
    result.assert_outcomes(passed=1, failed=1)  # at run time 2 are allowed
    result.stdout.fnmatch_lines(["E   max_kernels(match='gemm'): 2 > limit 1*"])


@pytest.mark.usefixtures("two_steps")
def test_each_step_is_judged_by_itself(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    for step in (3, 4):
        kernel_profile.load("worker.json", step=step)
    assert [one.label for one in kernel_profile.profiles] == ["step 3", "step 4"]
""",
        device=None,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 4 > limit 3", "  in step 4"])
    assert "in step 3" not in result.stdout.str()


@pytest.mark.usefixtures("one_step")
def test_host_times_are_not_judged_and_other_limits_are(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_latency("1s")
def test_latency_alone(kernel_profile):
    kernel_profile.load("worker.json")
@pytest.mark.max_latency("1s")
@pytest.mark.max_launch_overhead("1us")
@pytest.mark.max_recompiles(0)
@pytest.mark.max_kernels(3)
def test_beside(kernel_profile):
    kernel_profile.load("worker.json")
""",
        "--kernelprof-report",
        device=None,
    )
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "1 of 2 tests is within its limits; 1 not judged (nothing to judge), *",
            "    not judged: max_latency, max_launch_overhead, max_recompiles: not recorded with *",
            "SKIPPED*: nothing to judge: max_latency: not recorded with the trace: *",
        ]
    )


@pytest.mark.usefixtures("one_step")
@pytest.mark.parametrize(
    "rest",
    [
        "with kernel_profile.region(max_kernels=0): torch.ones(3)",
        "kernel_profile(torch.ones, 3)",
    ],
)
def test_limits_of_code_that_no_gpu_measures_are_told_beside_a_trace(run: Run, rest: str) -> None:
    code = LIMITED.replace("max_kernels(2)", "max_kernels(3)")
    result = run(f"{code}    {rest}\n{code.replace('_it', '_alone')}", device=None)
    result.assert_outcomes(passed=2)
    told = "not judged: what 1 test (*::test_it) measures beside loaded traces (no CUDA device)"
    result.stdout.fnmatch_lines([f"kernelprof: {told}"])


@pytest.mark.usefixtures("one_step")
def test_work_that_is_said_is_that_of_the_trace(run: Run) -> None:
    result = run(
        """
@pytest.mark.min_throughput("100 TFLOP/s")
def test_reached(kernel_profile):  # 1.2 GFLOP in 12us
    kernel_profile.work(flops=12 * 10**8)
    kernel_profile.load("worker.json")
@pytest.mark.min_throughput("101 TFLOP/s")
def test_not_reached(kernel_profile):
    kernel_profile.work(flops=12 * 10**8)
    kernel_profile.load("worker.json")
""",
        device=None,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E   min_throughput: 100* TFLOP/s < limit 101* TFLOP/s*"])


def test_an_incomplete_trace_is_an_error_and_no_pass(run: Run, pytester: pytest.Pytester) -> None:
    recorded(pytester.path, {3: ["gemm", "gelu", "gemm"]}, lost=True)
    result = run(LIMITED, device=None)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*1 launch calls have no kernel in the trace (hipLaunchKernel*"])


BAD = [
    ("two steps", '"worker.json"', "*the trace has step 3 with 3 kernels, step 4*"),
    ("no such step", '"worker.json", step=9', "*step=9 is not there: the trace has step*"),
    ("no such process", '"worker.json", process=1', "*process=1 is not there: the trace has pro*"),
    ("an empty step", '"empty.json", step=4', "*no kernels in step 4, so limits would pass on*"),
    ("no file", '"other.json"', "*other.json: cannot be read*"),
    ("no trace", '"test_it.py"', "*test_it.py: not JSON*"),
    ("no path", "None", "*TypeError*"),
]


@pytest.mark.usefixtures("two_steps")
@pytest.mark.parametrize(("call", "told"), [one[1:] for one in BAD], ids=[one[0] for one in BAD])
def test_bad_input_is_no_pass(call: str, told: str, run: Run, pytester: pytest.Pytester) -> None:
    recorded(pytester.path, {3: ["gemm"], 4: []}, name="empty.json")
    result = run(
        f"""
@pytest.mark.max_kernels(9)
def test_raised(kernel_profile):
    kernel_profile.load({call})
@pytest.mark.max_kernels(9)
def test_caught(kernel_profile):
    with pytest.raises(Exception):
        kernel_profile.load({call})
@pytest.mark.max_kernels(9)
def test_caught_beside_code_that_no_gpu_measures(kernel_profile):
    kernel_profile(lambda: None)
    with pytest.raises(Exception):
        kernel_profile.load({call})
""",
        device=None,
    )
    outcomes = result.parseoutcomes()
    assert outcomes.get("errors", 0) + outcomes.get("failed", 0) == 3
    result.stdout.fnmatch_lines([told])


@pytest.mark.usefixtures("one_step")
def test_without_a_gpu_a_promise_about_nothing_is_still_an_error(run: Run) -> None:
    result = run(
        """
@pytest.mark.min_speedup(1.5, over=three)
def test_compares_nothing(kernel_profile):
    kernel_profile.load("worker.json")
def test_caught_without_a_limit(kernel_profile):
    with pytest.raises(Exception):
        kernel_profile.load("other.json")
""",
        device=None,
    )
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        [
            "*min_speedup was not judged: *the test gave none*",
            "*the test profiled nothing: kernel_profile.load at *",
        ]
    )


@pytest.mark.usefixtures("two_steps")
def test_a_trace_that_cannot_be_judged_is_an_error_also_under_xfail(run: Run) -> None:
    result = run("@pytest.mark.xfail\n" + LIMITED.lstrip(), device=None)
    result.assert_outcomes(errors=1)


@pytest.mark.usefixtures("one_step")
def test_where_profiling_is_disabled_it_is_read_and_not_judged(run: Run) -> None:
    result = run(LIMITED, "--kernelprof-disable", device=None)
    result.assert_outcomes(passed=1)


def test_a_snapshot_is_of_the_devices_of_the_trace(run: Run, pytester: pytest.Pytester) -> None:
    code = """
def test_it(kernel_profile):
    kernel_profile.load("worker.json")
"""
    recorded(pytester.path, {3: ["gemm", "gelu", "gemm"]})
    run(code, "--kernelprof-update", device=None).assert_outcomes(passed=1)
    (kept,) = pytester.path.glob("__kernelprof__/*/test_it.json")
    assert kept.parent.name == "AMD-Instinct-MI300X"
    run(code, "--kernelprof-require-snapshots", device=None).assert_outcomes(passed=1)
    recorded(pytester.path, {3: ["gemm", "copy", "gelu", "gemm"]})
    result = run(code, device=None)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   snapshot: *3 -> 4*", "*copy*"])


def test_a_device_without_a_snapshot_is_the_reason_and_not_the_missing_gpu(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
def test_it(kernel_profile):
    kernel_profile.load("worker.json")
"""
    recorded(pytester.path, {3: ["gemm"]})
    run(code, "--kernelprof-update", device=None).assert_outcomes(passed=1)
    monkeypatch.setitem(DEVICE["deviceProperties"][0], "name", "AMD Instinct MI250X")
    recorded(pytester.path, {3: ["gemm"]})
    result = run(code, "--kernelprof-report", device=None)
    result.assert_outcomes(passed=1)
    told = " ".join(" ".join(result.outlines).split())
    assert "1 snapshot missing (not failing), 1 not judged (no snapshot of this device)" in told


def test_an_earlier_run_is_a_baseline(run: Run, pytester: pytest.Pytester) -> None:
    code = LIMITED.replace("(2)", "(4)")
    recorded(pytester.path, {3: ["gemm", "gelu", "gemm"]})
    run(code, "--kernelprof-json=run.json", device=None).assert_outcomes(passed=1)
    (profile,) = read_run(str(pytester.path / "run.json"), timelines=True).tests[0].profiles
    assert (profile.loaded, profile.trace) == (True, "worker.json")
    assert profile.timeline is not None
    assert profile.timeline.kind.count("kernel") == 3
    recorded(pytester.path, {3: ["gemm", "copy", "gelu", "gemm"]})
    result = run(code, "--kernelprof-against=run.json", device=None)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*kernels 3 -> 4*"])
