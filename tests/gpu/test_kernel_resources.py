"""What single kernels need, live on the GPU: registers, shared memory, and what Triton spills."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure, measure_once
from pytest_kernelprof.records.profile import Profile

triton = pytest.importorskip("triton")
import spilling  # noqa: E402

SIZES = {"spilling": 2048, "adding": 1024, "summing": 1024, "calling": 1024}
OPTIONS: dict[str, dict[str, Any]] = {"spilling": spilling.FEW_REGISTERS}


@pytest.fixture
def x() -> torch.Tensor:
    return torch.rand(2048 * 5, device="cuda")


def take(fn: Callable[[], object], **plan: Any) -> Profile:
    with_spills = Plan("cuda", spills=True, **plan)
    profile = measure(fn, with_spills)[1].profile
    assert profile.integrity.complete, profile.integrity
    return profile


def run(name: str, x: torch.Tensor) -> Any:
    """Launch a kernel of Triton; returns it as it was compiled."""
    size = SIZES[name]
    y = torch.empty(size, device="cuda")
    return getattr(spilling, name)[1,](x, y, size, **OPTIONS.get(name, {}))


def said_by_ptxas(made: Any) -> int:
    """Bytes of spill stores and loads, by ptxas itself."""
    major, minor = torch.cuda.get_device_capability()
    arch = f"sm_{major}{minor}{'a' * (major >= 9)}"
    tools = triton.knobs.nvidia
    ptxas = (tools.ptxas_blackwell if major >= 10 else tools.ptxas).path
    command = [ptxas, "-v", "-lineinfo", f"--gpu-name={arch}", "-", "-o", "/dev/null"]
    told = subprocess.run(
        command, input=made.asm["ptx"], capture_output=True, text=True, check=True
    )
    found = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", told.stderr)
    assert found, told.stderr
    return sum(int(size) for both in found for size in both)


@pytest.mark.usefixtures("_shares_the_gpu")
@pytest.mark.parametrize("name", SIZES)
def test_what_a_kernel_needs_is_what_triton_and_ptxas_say(x: torch.Tensor, name: str) -> None:
    made, expected = run(name, x), 0
    (kernel,) = take(lambda: run(name, x)).kernels
    expected = said_by_ptxas(made)
    print(
        f"{name}: spills {kernel.spills} (ptxas {expected}, n_spills {made.n_spills}), registers "
        f"{kernel.registers} (n_regs {made.n_regs}), shared memory {kernel.shared_memory} "
        f"(Triton {made.metadata.shared}), block {kernel.block}"
    )
    assert kernel.name == name
    assert kernel.registers == made.n_regs
    assert kernel.shared_memory >= made.metadata.shared
    assert kernel.block == (made.metadata.num_warps * 32, 1, 1)
    assert kernel.spills == expected
    assert (expected > 0) == (name == "spilling")


@pytest.mark.usefixtures("_shares_the_gpu")
def test_all_in_one_call_and_in_a_block(x: torch.Tensor) -> None:
    def work() -> torch.Tensor:
        for name in SIZES:
            run(name, x)
        return x + 1

    profile = take(work)
    *own, aten = [one.spills for one in profile.kernels]
    print("spills:", own, aten, "registers:", profile.metrics["registers"].value)
    assert [one == 0 for one in own] == [False, True, True, True]
    assert aten == "not compiled by Triton, or no longer in memory"
    with measure_once(Plan("cuda", spills=True)) as found:
        work()
    assert [one.spills for one in found[0].profile.kernels] == [*own, aten]


@pytest.mark.usefixtures("_shares_the_gpu")
def test_kernels_that_inductor_launches_are_found(x: torch.Tensor) -> None:
    compiled = torch.compile(lambda t: torch.softmax(t.view(5, 2048) * 2, dim=1))
    profile = take(lambda: compiled(x))
    print("inductor:", [(one.name, one.registers, one.spills) for one in profile.kernels])
    assert profile.kernel_count
    assert {one.spills for one in profile.kernels} == {0}


@pytest.mark.usefixtures("_shares_the_gpu")
def test_without_a_limit_nobody_looks(x: torch.Tensor) -> None:
    profile = measure(lambda: run("spilling", x), Plan("cuda"))[1].profile
    assert [one.spills for one in profile.kernels] == [None]


TESTS = """
import pytest, torch
import spilling as kernels
x = torch.rand(2048 * 5, device="cuda")
def spill():
    y = torch.empty(2048, device="cuda")
    kernels.spilling[1,](x, y, 2048, **kernels.FEW_REGISTERS)
def clean():
    y = torch.empty(1024, device="cuda")
    kernels.adding[1,](x, y, 1024)
@pytest.mark.max_spills(0)
def test_spills(kernel_profile):
    kernel_profile(spill)
@pytest.mark.max_registers(8)
def test_registers(kernel_profile):
    kernel_profile(clean)
@pytest.mark.max_shared_memory("0 B")
@pytest.mark.max_registers(255)
@pytest.mark.max_spills(0)
def test_clean(kernel_profile):
    kernel_profile(clean)
@pytest.mark.max_spills(0, match="adding")
def test_the_clean_one_of_two():
    clean()
    x.add(1)
@pytest.mark.max_spills(0)
def test_not_known(kernel_profile):
    kernel_profile(lambda: (clean(), x.add(1)))
@pytest.mark.max_spills(0)
@pytest.mark.max_kernels(2)
def test_beside_another_limit(kernel_profile):
    kernel_profile(lambda: (clean(), x.add(1)))
def test_region(kernel_profile):
    clean()
    with kernel_profile.region("spills", max_spills=0):
        spill()
def test_later(kernel_profile):
    kernel_profile(spill)
    kernel_profile.limit(max_spills=0)
"""


@pytest.mark.usefixtures("_minds_who_disturbs_the_gpu")
def test_markers_name_the_worst_kernel_and_pass_nothing_unknown(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(spilling=Path(spilling.__file__).read_text(), test_it=TESTS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rs", "-v")
    result.assert_outcomes(passed=3, failed=3, skipped=2)
    result.stdout.fnmatch_lines_random(
        [
            "E   max_spills: * > limit 0 B*",
            "> * spilling *",
            "E   max_registers: * > limit 8*",
            "> * adding *",
            "*::test_clean PASSED*",
            "*::test_the_clean_one_of_two PASSED*",
            "*::test_beside_another_limit PASSED*",
            "SKIPPED*nothing to judge: max_spills: spills not known of 1 of 2 kernels: *add*",
            "SKIPPED*nothing to judge: max_spills: *only a max_spills limit that stands before*",
            "*in region 'spills'*",
        ]
    )
