"""What shares the GPU with the measured code, or hides from the profiler: right, or said."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_kernelprof.api import Profile
from pytest_kernelprof.gpu.conditions import is_shared
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure, measure_once
from pytest_kernelprof.profiler.autotuning import TRITON

_CONDITIONAL, _WHILE = 13, 1


def once(work: Any) -> Profile:
    with measure_once(Plan("cuda")) as found:
        work()
    return Profile.of(found[0])


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(1024, device="cuda")


def capture(work: Any, **options: Any) -> torch.cuda.CUDAGraph:
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(**options)
    with torch.cuda.graph(graph):
        work()
    return graph


def test_a_graph_that_was_watched_is_proved_and_a_changeable_one_is_not(x: torch.Tensor) -> None:
    measure(lambda: x + 1, Plan("cuda"))  # captures are watched from here on
    plain = capture(lambda: (x + 1) * 2)
    assert measure(plain.replay, Plan("cuda"))[1].profile.integrity.graph_replays == "proved"
    kept = capture(lambda: (x + 1) * 2, keep_graph=True)
    kept.raw_cuda_graph()
    kept.instantiate()
    profile = measure(kept.replay, Plan("cuda"))[1].profile
    assert (profile.kernel_count, profile.integrity.graph_replays) == (2, "unproven")


class _Conditional(ctypes.Structure):
    """CUDA_CONDITIONAL_NODE_PARAMS, inside CUgraphNodeParams (256 bytes in all)."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("reserved0", ctypes.c_int * 3),
        ("handle", ctypes.c_uint64),
        ("type", ctypes.c_int),
        ("size", ctypes.c_uint),
        ("bodies", ctypes.POINTER(ctypes.c_void_p)),
        ("context", ctypes.c_void_p),
        ("rest", ctypes.c_byte * 256),
    )


def add_while_node(driver: Any, graph: ctypes.c_void_p) -> None:
    """An empty loop whose handle is false from the start: it never runs."""
    context, handle, node = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
    assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
    made = driver.cuGraphConditionalHandleCreate(
        ctypes.byref(handle), graph, context, ctypes.c_uint(0), ctypes.c_uint(1)
    )
    assert made == 0
    parameters = _Conditional(
        kind=_CONDITIONAL, handle=handle.value, type=_WHILE, size=1, context=context
    )
    add = getattr(driver, "cuGraphAddNode_v2", None)
    if add is not None:
        code = add(
            ctypes.byref(node), graph, None, None, ctypes.c_size_t(0), ctypes.byref(parameters)
        )
    else:
        code = driver.cuGraphAddNode(
            ctypes.byref(node), graph, None, ctypes.c_size_t(0), ctypes.byref(parameters)
        )
    assert code == 0


def test_a_while_node_that_is_captured_makes_the_count_incomplete(x: torch.Tensor) -> None:
    measure(lambda: x + 1, Plan("cuda"))
    driver = ctypes.CDLL("libcuda.so.1")
    x + 1
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x + 1
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        status, capturing = ctypes.c_int(), ctypes.c_void_p()
        code = driver.cuStreamGetCaptureInfo_v2(
            stream, ctypes.byref(status), None, ctypes.byref(capturing), None, None
        )
        assert (code, status.value) == (0, 1)
        add_while_node(driver, capturing)
    profile = once(graph.replay)
    assert any("conditional nodes" in problem for problem in profile.integrity.problems)


def test_threads_that_are_older_than_the_block_count_in_it(x: torch.Tensor) -> None:
    begin, done = threading.Event(), threading.Event()

    def computes() -> None:
        torch.cuda.set_device(0)
        begin.wait(60)
        x * 2
        done.set()

    older = threading.Thread(target=computes)
    older.start()

    def work() -> None:
        x + 1
        begin.set()
        done.wait(60)

    profile = once(work)
    older.join()
    assert profile.kernel_count == 2
    assert profile.integrity.complete


def test_work_of_a_green_context_is_waited_for_and_counts(x: torch.Tensor) -> None:
    green = pytest.importorskip("torch.cuda.green_contexts")
    if not green.SUPPORTED:
        pytest.skip("this torch is built without green contexts")
    part = green.GreenContext.create(num_sms=16, device_id=0)
    part.set_context()
    try:
        profile = once(lambda: (x + 1, torch.cuda._sleep(50_000_000)))
    finally:
        part.pop_context()
    assert profile.integrity.complete, profile.integrity.problems
    assert profile.kernel_count == 2


@pytest.fixture
def another_context() -> Iterator[Any]:
    """A context of our own beside torch's primary one, current while the test runs."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, context, popped = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    torch.zeros(1, device="cuda")
    assert driver.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert driver.cuCtxCreate_v2(ctypes.byref(context), ctypes.c_uint(0), device) == 0
    assert driver.cuCtxPopCurrent_v2(ctypes.byref(popped)) == 0
    yield driver, context
    driver.cuCtxDestroy_v2(context)


SPIN = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry spin()
{
    .reg .pred p;
    .reg .u64 begin, now, gone;
    mov.u64 begin, %globaltimer;
again:
    mov.u64 now, %globaltimer;
    sub.u64 gone, now, begin;
    setp.lt.u64 p, gone, 300000000;
    @p bra again;
    ret;
}
"""


def test_a_late_kernel_of_another_context_is_counted_or_said_to_be_missing(
    another_context: Any, x: torch.Tensor
) -> None:
    driver, context = another_context
    popped, module, spin = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    driver.cuCtxPushCurrent_v2(context)
    assert driver.cuModuleLoadData(ctypes.byref(module), SPIN) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(spin), module, b"spin") == 0
    driver.cuCtxPopCurrent_v2(ctypes.byref(popped))
    one, none = ctypes.c_uint(1), ctypes.c_uint(0)

    def work() -> None:
        x + 1
        driver.cuCtxPushCurrent_v2(context)
        code = driver.cuLaunchKernel(spin, one, one, one, one, one, one, none, None, None, None)
        driver.cuCtxPopCurrent_v2(ctypes.byref(popped))
        assert code == 0

    profile = once(work)
    driver.cuCtxPushCurrent_v2(context)
    driver.cuCtxSynchronize()
    driver.cuCtxPopCurrent_v2(ctypes.byref(popped))
    assert profile.kernel_count == 2 or not profile.integrity.complete
    assert once(lambda: x + 1).kernel_count == 1


def test_a_kernel_that_outlives_its_block_is_waited_for_and_counts(x: torch.Tensor) -> None:
    profile = once(lambda: torch.cuda._sleep(1_000_000_000))  # half a second and more
    assert profile.kernel_count == 1
    assert profile.integrity.complete
    assert (profile.cuda_time or 0) > 100_000


def in_a_process(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    return done.stdout + done.stderr


def test_launches_that_block_leave_counts_and_device_times_and_no_time_of_the_host() -> None:
    printed = in_a_process(
        """
        import torch
        from pytest_kernelprof import profile
        x = torch.zeros(1024, device="cuda")
        found = profile(lambda: x + 1)
        print("kernels", found.kernel_count, found.integrity.complete, found.cuda_time > 0)
        print("latency", found.latency, found.metrics["latency"].why)
        """,
        CUDA_LAUNCH_BLOCKING="1",
    )
    assert "kernels 1 True True" in printed
    assert "latency None not available with CUDA_LAUNCH_BLOCKING=1" in printed


def test_this_gpu_is_asked_whether_mps_shares_it() -> None:
    assert is_shared(0) in (False, True)
    if os.environ.get("CUDA_MPS_PIPE_DIRECTORY") is None:
        assert not is_shared(0)


def test_torchs_cupti_monitor_beside_us_is_refused() -> None:
    pytest.importorskip("torch.profiler._cupti_monitor")
    printed = in_a_process(
        """
        import tempfile, torch
        from torch.profiler import _cupti_monitor as monitor
        from pytest_kernelprof import profile
        x = torch.zeros(1024, device="cuda")
        with tempfile.TemporaryDirectory() as folder:
            monitor.start_collection(folder)
            try:
                profile(lambda: x + 1)
            except Exception as error:
                print(type(error).__name__, error)
            monitor.stop_collection()
        """
    )
    assert "ProfilerUnavailable" in printed
    assert "cupti_monitor" in printed


def test_an_autotuner_that_benches_in_a_block_is_no_part_of_its_count(x: torch.Tensor) -> None:
    pytest.importorskip("triton")
    import tuned

    out = torch.empty_like(x)

    def work() -> None:
        x + 1
        tuned.launch(tuned.doubled, out, x)
        x * 3

    profile = once(work)
    assert profile.integrity.complete, profile.integrity.problems
    assert profile.kernel_count == 3
    assert profile.syncs == 0
    assert f"{TRITON} benched" in profile.integrity.cold
    torch.testing.assert_close(out, x * 2)
    warm = once(work)
    assert warm.kernel_count == 3
    assert f"{TRITON} benched" not in warm.integrity.cold


def test_an_autotuner_in_the_backward_pass_is_no_part_of_the_count_either() -> None:
    pytest.importorskip("triton")
    import tuned

    class Tripled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
            return t * 3

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            out = torch.empty_like(grads[0])
            tuned.launch(tuned.tripled, out, grads[0])
            return out

    weight = torch.randn(2048, device="cuda", requires_grad=True)
    loss = Tripled.apply(weight)  # type: ignore[no-untyped-call]
    grad = torch.ones(2048, device="cuda")
    profile = once(lambda: loss.backward(grad))
    assert profile.integrity.complete, profile.integrity.problems
    assert sum("tripled" in kernel.name for kernel in profile.kernels) == 1
    assert f"{TRITON} benched" in profile.integrity.cold
    torch.testing.assert_close(weight.grad, grad * 3)


def run_pytest(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A run of its own, which may end as badly as it likes."""
    test = folder / "test_it.py"
    test.write_text(textwrap.dedent(code))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(test)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)


def test_running_out_of_device_memory_is_the_tests_own_failure_and_harms_no_other(
    tmp_path: Path,
) -> None:
    done = run_pytest(
        tmp_path,
        """
        import pytest, torch
        def too_much():
            return torch.empty(1 << 50, device="cuda")
        @pytest.mark.max_kernels(9)
        def test_a_call(kernel_profile):
            kernel_profile(too_much)
        @pytest.mark.max_kernels(9)
        def test_b_whole():
            too_much()
        @pytest.mark.max_kernels(9)
        def test_c_caught():
            with pytest.raises(torch.OutOfMemoryError):
                too_much()
            torch.ones(4, device="cuda") + 1
        @pytest.mark.max_kernels(2)
        def test_d_next(kernel_profile):
            kernel_profile(lambda: torch.ones(4, device="cuda") + 1)
            assert kernel_profile.last.kernel_count == 2
        """,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 2 passed" in done.stdout, done.stdout
    assert "OutOfMemoryError" in done.stdout


@pytest.mark.parametrize(
    "measured", ["kernel_profile(poison)", "with kernel_profile.region(): poison()"]
)
def test_after_a_poisoned_context_no_test_passes_and_the_run_ends_in_order(
    tmp_path: Path, measured: str
) -> None:
    done = run_pytest(
        tmp_path,
        f"""
        import pytest, torch
        def poison():
            x = torch.zeros(4, device="cuda")
            x[torch.tensor([9], device="cuda")] = 1  # an assertion of the device
            torch.cuda.synchronize()
        def test_a_poisons(kernel_profile):
            {measured}
        @pytest.mark.max_kernels(9)
        def test_b_next(kernel_profile):
            kernel_profile(torch.ones, 4, device="cuda")
        @pytest.mark.max_kernels(9)
        def test_c_whole():
            pass
        @pytest.mark.kernelprof(device="cpu")
        @pytest.mark.max_kernels(1)
        def test_d_on_the_cpu(kernel_profile):
            kernel_profile(torch.ones(4).add, 1)
        """,
    )
    assert done.returncode == 1, done.stdout + done.stderr  # and not by a signal
    assert "device-side assert" in done.stdout
    assert "test_d_on_the_cpu" not in done.stdout.partition("short test summary")[2]
    assert "1 passed" in done.stdout, done.stdout


def test_cuda_stays_down_under_kernelprof_all_until_a_test_brings_it_up(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
import os, torch
def test_a_down():
    assert not torch.cuda.is_initialized()
    if os.fork() == 0:  # a child can use the GPU only if nobody has brought CUDA up
        os._exit(0 if torch.ones(1, device="cuda").item() == 1 else 1)
    assert os.wait()[1] == 0
def test_b_up():
    torch.ones(4, device="cuda") + 1
def test_c_counted():
    torch.ones(4, device="cuda") + 1
""",
        *("--kernelprof-all", "--kernelprof-report", "-v"),
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    assert re.search(
        r"kernelprof: not profiled: CUDA was initialized inside 1 test \(\S*::test_b_up\)",
        done.stdout,
    )
    assert re.search(r"^ +2 .*test_c_counted", done.stdout, re.MULTILINE), done.stdout
