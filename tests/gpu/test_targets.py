"""What is compiled for a GPU that is not there is what a kernel needs that runs on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure
from pytest_kernelprof.profiler.triton_targets import Recorded, Targets
from pytest_kernelprof.records.profile import Kernel

triton = pytest.importorskip("triton")
import spilling  # noqa: E402


def own_target() -> str:
    """This GPU as a target."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def specialised(x: torch.Tensor, y: torch.Tensor) -> None:
    """By what the addresses are divisible by, and by a constant."""
    spilling.adding[(1,)](x, y, 2048)
    spilling.adding[(1,)](x[1:], y[1:], 1024)


def spills(x: torch.Tensor, y: torch.Tensor) -> None:
    spilling.spilling[(1,)](x, y, 2048, **spilling.FEW_REGISTERS)


def with_options(x: torch.Tensor, y: torch.Tensor) -> None:
    spilling.summing[lambda meta: (2,)](x, y, 1024, num_warps=8, num_stages=2)


def facts(one: Kernel) -> tuple[Any, ...]:
    return one.name, one.grid, one.block, one.registers, one.shared_memory, one.spills


@pytest.mark.usefixtures("_shares_the_gpu")
@pytest.mark.parametrize("work", [specialised, spills, with_options])
def test_compiled_kernels_need_what_the_same_kernels_need_that_run(
    work: Callable[[torch.Tensor, torch.Tensor], None],
) -> None:
    x, y = (torch.rand(2048 * 5, device="cuda") for _ in range(2))
    ran = measure(lambda: work(x, y), Plan("cuda", spills=True))[1].profile
    assert ran.integrity.complete, ran.integrity
    target, recorded = own_target(), Recorded()
    targets = Targets((target,))
    with targets.standing_in(), targets.recording((target,), recorded):
        work(x, y)
    assert recorded.ended == ""
    compiled = [one[target] for one in recorded.launches]
    print(f"{work.__name__}: ran", [*map(facts, ran.kernels)])
    print(f"{work.__name__}: compiled", [facts(one) for (one,) in compiled])
    assert [facts(one) for (one,) in compiled] == [*map(facts, ran.kernels)]
    assert any(one.spills for one in ran.kernels) == (work is spills)
    # What runs after that runs on the GPU, as before.
    again = measure(lambda: work(x, y), Plan("cuda", spills=True))[1].profile
    assert [*map(facts, again.kernels)] == [*map(facts, ran.kernels)]


TESTS = """
import pytest, torch
import spilling as kernels

pytestmark = pytest.mark.kernelprof(targets=("sm_90", "gfx942"))

def spill():
    x, y = torch.rand(2048 * 5, device="cuda"), torch.empty(2048, device="cuda")
    kernels.spilling[(1,)](x, y, 2048, **kernels.FEW_REGISTERS)
    return y

@pytest.mark.max_kernels(3)
@pytest.mark.max_registers(255)
def test_kept(kernel_profile):
    y = kernel_profile(spill)
    assert y.abs().sum() > 0
@pytest.mark.max_spills(0, match="spilling")
def test_broken(kernel_profile):
    kernel_profile(spill)
"""


@pytest.mark.usefixtures("_minds_who_disturbs_the_gpu")
def test_a_test_with_targets_runs_on_the_gpu_that_is_there(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(spilling=Path(spilling.__file__).read_text(), test_it=TESTS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rs", "-v")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["E   max_spills(match='spilling'): * > limit 0 B*"])
    result.stdout.no_fnmatch_line("*compiled for*")
