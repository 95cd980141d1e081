"""Triton kernels that are recorded and compiled for GPUs that are not there."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_kernelprof.analysis.session_profile import compiled_profile
from pytest_kernelprof.errors import NotJudged
from pytest_kernelprof.profiler.triton_targets import Recorded, Targets
from pytest_kernelprof.records.profile import Kernel, Profile

triton = pytest.importorskip("triton")
driver: Any = pytest.importorskip("triton.runtime.driver").driver

SOURCE = Path(__file__).parents[2] / "gpu" / "spilling.py"
BOTH = ("sm_90", "gfx942")
FAILS = """

@triton.jit
def failing(x, y, N: tl.constexpr):
    tl.static_assert(False, "never")


@triton.heuristics({"N": lambda args: triton.next_power_of_2(args["n"])})
@triton.jit
def heuristic(x, y, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at, at < n) + 1, at < n)


def tuned(*registers, pre_hook=None):
    few = {"num_warps": 1, "pre_hook": pre_hook}
    configs = [triton.Config({"N": 2048}, maxnreg=one, **few) for one in registers]
    return triton.autotune(configs, key=[])(spilling)
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Kernels of Triton, in a file as Triton wants it."""
    path = tmp_path_factory.mktemp("kernels") / "kernels_for_targets.py"
    path.write_text(SOURCE.read_text() + FAILS)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recorded(fn: Callable[[], object], *targets: str) -> Recorded:
    """What a function would launch."""
    names, found = targets or BOTH, Recorded()
    doubles = Targets(names)
    ends = contextlib.suppress(Exception, NotJudged)
    with doubles.standing_in(), ends, doubles.recording(names, found):
        fn()
    return found


def profile(fn: Callable[[], object], target: str = "sm_90") -> Profile:
    return profile_of(recorded(fn, target), target)


def profile_of(found: Recorded, target: str) -> Profile:
    return compiled_profile(target, [one[target] for one in found.launches], {}, found.ended)


def on_gpu(size: int = 2048 * 5, **options: Any) -> torch.Tensor:
    return torch.rand(size, device="cuda", **options)


def launch(kernel: Any, *args: Any, **kwargs: Any) -> None:
    kernel[(1,)](on_gpu(), on_gpu(2048), *args, **kwargs)


def needs(one: Kernel) -> tuple[int, int, Any]:
    return one.registers, one.shared_memory, one.spills


def test_a_kernel_has_what_ptxas_says_of_it_for_the_target(kernels: Any) -> None:
    few = kernels.FEW_REGISTERS
    found = profile(lambda: launch(kernels.spilling, 2048, **few))
    (one,) = found.kernels
    assert (one.name, one.registers, one.shared_memory) == ("spilling", 32, 0)
    assert isinstance(one.spills, int)
    assert one.spills > 1_000
    assert (one.grid, one.block, one.duration_us) == ((1, 1, 1), (32, 1, 1), 0.0)
    assert one.source.rpartition(":")[0] == __file__
    assert found.compiled
    assert found.environment.capability == "sm_90"
    assert found.metrics["kernels"].why == "compiled, not run"


def test_each_target_has_its_own_needs(kernels: Any) -> None:
    found = recorded(lambda: launch(kernels.summing, 1024, num_warps=2))
    sm_90, gfx942 = (profile_of(found, one).kernels[0] for one in BOTH)
    assert (sm_90.block, gfx942.block) == ((64, 1, 1), (128, 1, 1))
    for one in (sm_90, gfx942):
        assert one.registers > 0
        assert one.shared_memory > 0  # a sum over two warps
        assert one.spills == 0
    assert [profile_of(found, one).environment.is_amd for one in BOTH] == [False, True]


def test_it_is_specialised_as_on_a_gpu(kernels: Any) -> None:
    """By the divisibility of a pointer, and by constants."""

    def offsets() -> None:
        x, y = on_gpu(), on_gpu()
        kernels.adding[(1,)](x, y, 1024)
        kernels.adding[(1,)](x[1:], y[1:], 1024)
        kernels.adding[(1,)](x, y, 4096)

    aligned, unaligned, large = map(needs, profile(offsets).kernels)
    assert len({aligned, unaligned, large}) == 3


def test_grids_are_functions_of_arguments_and_empty_ones_launch_nothing(kernels: Any) -> None:
    def several() -> None:
        x, y = on_gpu(), on_gpu()
        kernels.adding[lambda meta: (triton.cdiv(2048, meta["N"]), 3)](x, y, N=1024)
        kernels.adding[(0,)](x, y, 1024)
        kernels.heuristic[lambda meta: (meta["N"],)](x, y, 1000)

    assert [one.grid for one in profile(several).kernels] == [(2, 3, 1), (1024, 1, 1)]


def test_each_configuration_of_an_autotuner_is_compiled(kernels: Any) -> None:
    hooked: list[int] = []
    tuned = kernels.tuned(32, 255, pre_hook=lambda args: hooked.append(args["N"]))
    found = profile(lambda: (launch(kernels.adding, 1024), launch(tuned)))
    first, second = found.kernels, found.variants[0]
    assert [len(first), len(second), len(found.variants)] == [2, 2, 1]
    assert first[0] == second[0]
    assert [first[1].registers, second[1].registers > 32] == [32, True]
    assert hooked == [2048, 2048]
    assert tuned.cache == {}


def test_what_does_not_compile_is_not_known(kernels: Any) -> None:
    found = recorded(lambda: launch(kernels.spilling, 2048, **kernels.FEW_REGISTERS))
    (one,) = profile_of(found, "gfx942").kernels  # which has no such option
    assert (one.name, one.need("registers"), one.need("spills")) == ("spilling", None, None)
    assert "maxnreg" in str(one.spills)
    (one,) = profile(lambda: launch(kernels.failing, 1024)).kernels
    assert str(one.spills).startswith("CompileTimeAssertionFailure: ")


def test_backward_passes_launch_too(kernels: Any) -> None:
    class Add(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            with torch.cuda.device(x.device):
                kernels.adding[(1,)](x, y, 1024)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> torch.Tensor:
            (saved,) = ctx.saved_tensors
            assert saved.is_cuda
            y = torch.empty(1024, device=grads[0].device)
            kernels.summing[(1,)](grads[0], y, 1024)
            return y

    def both() -> None:
        x = on_gpu(1024, requires_grad=True)
        Add.apply(x).sum().backward()
        torch.autograd.grad(Add.apply(x).sum(), x)

    names = [one.name for one in profile(both).kernels]
    assert names == ["adding", "summing"] * 2


def test_tensors_are_on_cuda_and_hold_zeros_where_they_are_new() -> None:
    def look() -> None:
        x = torch.empty(4, device="cuda:0")
        assert x.tolist() == [0, 0, 0, 0]
        assert (x.device, x.is_cuda, x.is_cpu, x.get_device()) == (
            *(torch.device("cuda", 0), True),
            *(False, 0),
        )
        assert torch.ones(2).cuda().pin_memory().to("cuda", torch.float16).is_cuda
        assert torch.nn.Linear(2, 2).to("cuda").weight.device.type == "cuda"
        with torch.device("cuda"):
            assert torch.ones(2).is_cuda
        with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
            torch.cuda.synchronize()
        assert torch.cuda.current_stream().cuda_stream == 0
        assert torch.cuda.is_available()

    assert recorded(look).ended == ""


@pytest.mark.parametrize(
    ("target", "capability", "vendor"),
    [("sm_90", (9, 0), "cuda"), ("sm_121", (12, 1), "cuda"), ("gfx942", (9, 4), "hip")],
)
def test_what_a_target_tells_is_answered(
    target: str, capability: tuple[int, int], vendor: str
) -> None:
    def ask() -> None:
        properties = torch.cuda.get_device_properties(0)
        assert torch.cuda.get_device_capability() == capability
        assert (properties.major, properties.minor) == capability
        assert properties.warp_size == (64 if target == "gfx942" else 32)
        assert driver.active.get_current_target().backend == vendor
        assert (torch.version.hip is not None) == (vendor == "hip")
        assert (torch.version.cuda is not None) == (vendor == "cuda")
        assert torch.version.debug is False

    assert recorded(ask, target).ended == ""


def autocast() -> None:
    with torch.autocast("cuda"):
        pass


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda: torch.cuda.get_device_properties(0).multi_processor_count, "multi_processor_cou"),
        (lambda: torch.cuda.get_device_name(), "the name of the device"),
        (lambda: driver.active.utils, "utils of Triton's driver"),
        (autocast, "what torch.autocast casts"),
    ],
)
def test_what_only_a_gpu_knows_ends_the_record_with_the_line(
    kernels: Any, ask: Callable[[], object], what: str
) -> None:
    def work() -> None:
        launch(kernels.adding, 1024)
        with contextlib.suppress(NotJudged):  # what it does then is not what it does on a GPU
            ask()
        launch(kernels.adding, 1024)

    found = recorded(work, "sm_90")
    assert len(found.launches) == 1
    assert found.ended.startswith(what)
    assert " is known only on a GPU, and is asked for at test_triton_targets.py:" in found.ended


def test_what_differs_between_targets_is_asked_for_each_alone() -> None:
    found = recorded(lambda: torch.cuda.get_device_capability())
    assert found.ended.startswith("the capability is not the same for all targets")


def test_what_ends_the_code_is_noted_with_its_line(kernels: Any) -> None:
    def refuses() -> None:
        launch(kernels.adding, 1024)
        raise ValueError("expected a bigger GPU")

    found = recorded(refuses)
    assert found.ended.startswith("ValueError: expected a bigger GPU at test_triton_targets.py:")
    assert len(profile_of(found, "sm_90").kernels) == 1


@pytest.fixture
def before() -> Iterator[None]:
    """Checks that all is afterwards as it was."""
    jit, tuner = triton.JITFunction.run, triton.runtime.autotuner.Autotuner.run
    stood = dict(vars(torch.cuda)), torch.version, torch.compile, dict(vars(driver))
    autocasts, apply = (
        torch.autocast.__enter__,
        torch.autograd.function.BackwardCFunction.apply,
    )
    yield
    assert (jit, tuner) == (triton.JITFunction.run, triton.runtime.autotuner.Autotuner.run)
    assert stood == (dict(vars(torch.cuda)), torch.version, torch.compile, dict(vars(driver)))
    assert torch.autocast.__enter__ is autocasts
    assert torch.autograd.function.BackwardCFunction.apply is apply
    assert torch.ones(1).device.type == "cpu"


@pytest.mark.usefixtures("before")
@pytest.mark.parametrize("error", [None, ValueError("own"), KeyboardInterrupt()])
def test_at_the_end_all_is_as_it_was(kernels: Any, error: BaseException | None) -> None:
    doubles, found = Targets(BOTH), Recorded()
    with contextlib.suppress(ValueError, KeyboardInterrupt), doubles.standing_in():
        with doubles.standing_in():
            assert torch.ones(1).is_cuda
        assert torch.ones(1).is_cuda
        with doubles.recording(("sm_90",), found):
            launch(kernels.adding, 1024)
            if error is not None:
                raise error
    assert len(found.launches) == 1


def test_a_torch_or_triton_with_other_names_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cuda, "_exchange_device")
    before = triton.JITFunction.run
    refused = pytest.raises(NotJudged, match="kernels cannot be compiled: KeyError")
    with refused, Targets(BOTH).standing_in():
        pass
    assert triton.JITFunction.run is before
