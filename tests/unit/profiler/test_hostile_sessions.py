"""Code that patches torch, breaks CUDA or never returns: our session ends, the next is as if alone.

The GPU is a double here; tests/gpu has the same with a real one.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from cuda_double import GPU, CudaDouble, other_functions
from torch._subclasses import FakeTensorMode

from pytest_kernelprof.errors import IncompleteProfile, ProfilerUnavailable
from pytest_kernelprof.gpu import conditions, inventory, nvml
from pytest_kernelprof.gpu.inventory import current_device, synchronize, try_to_synchronize
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure, measure_once
from pytest_kernelprof.profiler import session, torch_profiler
from pytest_kernelprof.profiler.line_annotations import annotate_lines
from pytest_kernelprof.profiler.session import Session, refuse_to_nest
from pytest_kernelprof.records.recording import OwnNames
from pytest_kernelprof.system import Real, now_s

CPU = current_device("cpu")
X = torch.ones(4)
# What tests of GPU code patch, and what torch's profiler goes through.
PATCHED = [
    "torch.cuda.is_available",
    "torch.cuda.is_initialized",
    "torch.cuda.synchronize",
    "torch.cuda.current_device",
    "torch.cuda.device_count",
    "torch.cuda.get_device_properties",
    "torch.cuda.is_current_stream_capturing",
    "torch.cuda._sleep",
    "torch.cuda.device",
    "torch.cuda._lazy_init",
    "torch.profiler.profile",
    "torch.profiler.record_function",
    "torch.profiler._KinetoProfile",
    "torch.profiler.profiler.prof",
    "torch.autograd._profiler_enabled",
    "torch.autograd.profiler.profile",
    "torch.autograd.profiler.record_function",
    "torch.autograd.profiler._prepare_profiler",
    "torch.autograd.profiler._enable_profiler",
    "torch.autograd.profiler._disable_profiler",
    "torch.autograd.profiler._run_on_profiler_start",
    "torch.autograd.profiler._run_on_profiler_stop",
    "uuid.uuid4",
]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> CudaDouble:
    """A machine with a GPU."""
    double = CudaDouble()
    monkeypatch.setattr(inventory, "_bound", [double.functions()])
    monkeypatch.setattr(conditions, "no_times", lambda device: {})
    monkeypatch.setattr(nvml, "power_limit_w", lambda device: 650)
    return double


@pytest.fixture(autouse=True)
def next_is_sound() -> Iterator[None]:
    """After each of these tests a profile is right, and nothing runs."""
    yield
    assert not torch.autograd.profiler._is_profiler_enabled
    assert not torch.autograd._profiler_enabled()
    assert measure(lambda: X + 1, Plan("cpu"))[1].profile.kernel_count == 1


@pytest.mark.parametrize("name", PATCHED)
@pytest.mark.parametrize("when", ["before", "inside"])
def test_a_count_is_right_whatever_of_torch_is_patched(name: str, when: str) -> None:
    broken = mock.Mock(side_effect=ValueError("patched by the test"))
    with ExitStack() as patches:
        if when == "before":
            patches.enter_context(mock.patch(name, broken))
        with measure_once(Plan("cpu")) as found:
            if when == "inside":
                patches.enter_context(mock.patch(name, broken))
            X + 1
    assert found[0].profile.kernel_count == 1
    assert found[0].profile.integrity.complete


def all_of_cuda() -> ExitStack:
    patches = ExitStack()
    for name in PATCHED:
        patches.enter_context(mock.patch(name, mock.Mock(side_effect=ValueError("patched"))))
    return patches


def test_a_session_of_a_gpu_ends_under_patches_of_all_that_it_could_go_through(
    cuda: CudaDouble,
) -> None:
    with Session(GPU, stacks=False) as one, one.round():
        patches = all_of_cuda()
        X + 1
    noted = one.export().recording
    patches.close()
    assert (noted.rounds, noted.power_limit_w) == (1, 650)
    assert cuda.calls[-2:] == ["sleep", "synchronize"]


@pytest.mark.usefixtures("cuda")
def test_and_when_the_code_raises_meanwhile() -> None:
    with pytest.raises(KeyError, match="mine"), all_of_cuda(), Session(GPU, stacks=False):
        raise KeyError("mine")


def test_code_that_breaks_cuda_raises_what_it_would_alone(cuda: CudaDouble) -> None:
    one = Session(GPU, stacks=False)
    with pytest.raises(RuntimeError, match="device-side assert"), one, one.round():
        cuda.error = "CUDA error: device-side assert triggered"


def test_what_breaks_after_the_round_is_an_error_of_ours(cuda: CudaDouble) -> None:
    expected = r"could not be stopped cleanly: CUDA error: an illegal memory access$"
    with pytest.raises(IncompleteProfile, match=expected), Session(GPU, stacks=False):
        cuda.error = "CUDA error: an illegal memory access"


def test_what_was_broken_before_is_an_error_of_ours(cuda: CudaDouble) -> None:
    cuda.error = "CUDA error: an illegal memory access"
    with pytest.raises(
        ProfilerUnavailable, match=r"CUDA was already broken before .*illegal memory"
    ):
        Session(GPU, stacks=False).__enter__()


def test_a_sentinel_that_cannot_be_launched_leaves_nothing_running(
    cuda: CudaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(cycles: int) -> None:
        raise KeyboardInterrupt

    functions: Any = inventory._bound[0]
    monkeypatch.setattr(inventory, "_bound", [other_functions(functions, sleep=broken)])
    with pytest.raises(KeyboardInterrupt):
        Session(GPU, stacks=False).__enter__()


def test_a_device_that_never_ends_is_waited_for_a_while_only(
    cuda: CudaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_PATIENCE_S", 0.05)
    before = now_s()

    def hangs() -> None:
        cuda.hangs_s = 60
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"), Session(GPU, stacks=False):
        hangs()
    assert now_s() - before < 30
    threads = sys._current_frames().keys()
    cuda.released.set()  # else its thread would wake up in the call of another test
    deadline = now_s() + 10
    while sys._current_frames().keys() >= threads:
        assert now_s() < deadline


def test_waiting_is_over_when_the_device_is_done_and_nothing_is_raised(cuda: CudaDouble) -> None:
    assert try_to_synchronize(GPU, 60)
    cuda.error = "CUDA error"
    assert not try_to_synchronize(GPU, 60)
    with pytest.raises(RuntimeError, match="CUDA error"):
        synchronize(GPU)
    assert try_to_synchronize(CPU, 0)


def test_a_profiler_that_sees_no_gpu_is_refused() -> None:
    """Here there is none, so torch's own profiler starts without."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ProfilerUnavailable, match="started without CUDA"):
        torch_profiler.start("cuda")


def test_what_keeps_a_profiler_from_starting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: object) -> None:
        raise ValueError("no more")

    monkeypatch.setattr(inventory.bind(torch).profiler, "start_trace", refuses)
    with pytest.raises(ProfilerUnavailable, match="cannot be started: ValueError: no more"):
        measure(lambda: X + 1, Plan("cpu"))
    monkeypatch.undo()


def test_an_interrupt_while_it_starts_leaves_nothing_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = inventory.bind(torch).profiler.start_trace

    def interrupted(self: object) -> None:
        starts(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(inventory.bind(torch).profiler, "start_trace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(lambda: X + 1, Plan("cpu"))
    monkeypatch.undo()


def test_a_block_that_is_never_left_is_ended_for_the_next_test() -> None:
    left = measure_once(Plan("cpu"))
    left.__enter__()
    with pytest.raises(ProfilerUnavailable, match="already running"):
        refuse_to_nest()
    assert torch_profiler.end_left_open()
    assert not torch_profiler.end_left_open()
    refuse_to_nest()
    measure(lambda: X + 1, Plan("cpu"))
    with pytest.raises(IncompleteProfile):
        left.__exit__(None, None, None)


def test_a_block_that_is_collected_as_garbage_leaves_a_later_profiler_alone() -> None:
    left = torch_profiler.start("cpu")
    torch_profiler.end_left_open()  # as the test of the block ends
    with torch.profiler.profile() as later:
        left.let_go()
        torch.ones(2) + 1
    assert "aten::add" in {event.key for event in later.key_averages()}


@pytest.mark.usefixtures("cuda")
def test_a_session_that_ends_in_another_thread_is_an_error() -> None:
    caught: list[BaseException] = []
    one = Session(GPU, stacks=False)

    def begin() -> None:
        one.__enter__()

    def end() -> None:
        try:
            one.__exit__(None, None, None)
        except IncompleteProfile as error:
            caught.append(error)

    for does in (begin, end):
        thread = threading.Thread(target=does)
        thread.start()
        thread.join()
    assert "entered in one thread and left in another" in str(caught[0])


def test_a_profiler_that_is_left_in_place_of_ours_is_ended_after_the_test() -> None:
    def leaves_one() -> None:
        torch.profiler.profile().start()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), measure_once(Plan("cpu")):
        leaves_one()
    assert torch.autograd.profiler._is_profiler_enabled
    torch_profiler.end_taken_over()
    assert not torch.autograd.profiler._is_profiler_enabled
    with torch.profiler.profile():  # which is none of ours
        torch_profiler.end_taken_over()
        assert torch.autograd.profiler._is_profiler_enabled


def traced(frame: object, event: str, argument: object) -> Any:
    return traced


@pytest.fixture
def tracers() -> Iterator[None]:
    before, before_threads = Real.gettrace(), threading.gettrace()
    yield
    Real.settrace(before)
    threading.settrace(before_threads)


def set_tracers() -> None:
    sys.settrace(traced)
    threading.settrace(traced)


@pytest.mark.usefixtures("tracers")
def test_a_tracer_that_the_code_sets_stays_set() -> None:
    with annotate_lines(OwnNames()):
        set_tracers()
    assert sys.gettrace() is traced
    assert threading.gettrace() is traced


@pytest.mark.usefixtures("tracers")
@pytest.mark.parametrize(
    "code",
    [
        lambda: sys.settrace(None),
        lambda: setattr(sys, "settrace", mock.Mock()),
        lambda: mock.patch("torch.profiler.record_function", None).start(),
        lambda: None,
    ],
    ids=["none", "patched", "torch", "nothing"],
)
def test_ours_does_not_stay(code: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "settrace", sys.settrace)  # undone after the test
    Real.settrace(traced)
    with annotate_lines(OwnNames()):
        code()
        X + 1
    mock.patch.stopall()
    assert Real.gettrace() is traced


def test_a_thread_that_goes_on_is_followed_no_more() -> None:
    go_on = threading.Event()
    seen: list[object] = []

    def goes_on() -> None:
        go_on.wait(10)
        seen.append(attribution_of_a_frame())

    def attribution_of_a_frame() -> object:
        return sys._getframe().f_trace

    with annotate_lines(OwnNames()):
        thread = threading.Thread(target=goes_on)
        thread.start()
    go_on.set()
    thread.join()
    assert seen == [None]


def test_code_that_has_no_working_directory_keeps_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import os\ndef f():\n  os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
    found: dict[str, Any] = {"X": X}
    exec(compile(f"{code}  g()\ndef g():\n  return X + 1\n", "relative.py", "exec"), found)
    with annotate_lines(OwnNames()):
        found["f"]()
    monkeypatch.chdir(tmp_path)


def test_buffers_that_are_kept_are_plain_whatever_mode_the_first_test_is_in() -> None:
    inventory.bind(torch)
    with FakeTensorMode(), torch.inference_mode(), torch.device("meta"), inventory.without_modes():
        kept = torch.zeros(4, device="cpu")
    assert type(kept) is torch.Tensor
    assert not kept.is_inference()
    with torch.inference_mode(), inventory.without_modes():
        torch.amax(torch.zeros(2, 4), 1, out=torch.zeros(2))
    kept.add_(1)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_broken", [])


@pytest.mark.usefixtures("broken")
def test_who_broke_cuda_is_named_to_all_that_come_later(cuda: CudaDouble) -> None:
    inventory.look_after("test_a.py::test_well")
    inventory.refuse_broken()
    cuda.error = "CUDA error: device-side assert triggered"
    inventory.look_after("test_a.py::test_culprit")
    inventory.look_after("test_a.py::test_other")
    expected = (
        r"^test_a.py::test_culprit broke CUDA in this process \(CUDA error: device-side assert "
        r"triggered\), and nothing works on the GPU until the process ends: fix that test, or run"
    )
    with pytest.raises(ProfilerUnavailable, match=expected):
        current_device("cuda")
    assert current_device("cpu").kind == "cpu"


@pytest.mark.usefixtures("broken")
def test_an_error_that_does_not_last_breaks_nothing(
    cuda: CudaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["CUDA error: invalid configuration", ""])

    def query() -> None:
        answer = next(answers)
        if answer:
            raise RuntimeError(answer)

    functions: Any = cuda.functions()
    stream = mock.Mock(query=query)
    once = other_functions(functions, default_stream=lambda: stream)
    monkeypatch.setattr(inventory, "_bound", [once])
    inventory.look_after("test_a.py::test_it")
    inventory.refuse_broken()


@pytest.mark.usefixtures("broken")
def test_where_cuda_is_not_up_nothing_is_asked() -> None:
    inventory.look_after("test_a.py::test_it")
    inventory.refuse_broken()
    assert not torch.cuda.is_initialized()


def test_torch_211_gets_something_to_end_where_a_thread_left_its_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That torch refuses to start as long as the thread that starts has nothing to end."""
    functions, ended = inventory.bind(torch), list[str]()

    class Stuck(torch.profiler._KinetoProfile):
        def start(self) -> None:
            self.profiler = torch.autograd.profiler.profile(use_kineto=True)
            if ended != ["pushed", "ended"]:
                raise RuntimeError("Can't disable Kineto profiler when it's not running")
            super().start()

    def disable() -> Any:
        if ended == ["pushed"]:
            ended.append("ended")
            return None
        return functions.disable_profiler()

    stuck = other_functions(
        functions,
        profiler=Stuck,
        enable_profiler=lambda config, activities: ended.append("pushed"),
        disable_profiler=disable,
    )
    monkeypatch.setattr(inventory, "_bound", [stuck])
    with Session(CPU, stacks=False) as one, one.round():
        X + 1
    assert ended == ["pushed", "ended"]


def test_a_profiler_that_went_with_its_thread_keeps_no_next_one_from_starting(python: str) -> None:
    code = """
        import threading, torch
        from torch.profiler import ProfilerActivity, profile as by_hand
        from pytest_kernelprof import profile

        thread = threading.Thread(target=by_hand(activities=[ProfilerActivity.CPU]).start)
        thread.start()
        thread.join()
        torch.autograd.profiler._run_on_profiler_stop()
        print("kernels", profile(lambda: torch.ones(3) + 1).kernel_count)
    """
    command = [python, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "kernels 2" in done.stdout, done.stderr


def test_who_ends_our_profiler_by_functions_bound_before_loses_the_profile_and_not_the_process(
    python: str,
) -> None:
    """What torch hands back for a profiler that is gone crashes when it is saved."""
    code = """
        import torch
        from torch._C._autograd import _disable_profiler as disable
        from pytest_kernelprof import IncompleteProfile, profile

        try:
            profile(lambda: disable())
        except IncompleteProfile as error:
            print("incomplete:", error)
        print("kernels", profile(lambda: torch.ones(3) + 1).kernel_count)
    """
    command = [python, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "incomplete: another profiler was started inside the measured code" in done.stdout
    assert "kernels 2" in done.stdout, done.stderr
