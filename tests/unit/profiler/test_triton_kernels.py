"""What Triton's kernels spill: real ones, compiled for a GPU that need not be there.

Triton gives a kernel its registers and local memory when a GPU loads it. Here the tests do.
"""

from __future__ import annotations

import gc
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from records import kernel

from pytest_kernelprof.profiler.compiled_code import watch_compilers
from pytest_kernelprof.profiler.triton_kernels import gone, spills_of
from pytest_kernelprof.records.profile import Kernel

triton = pytest.importorskip("triton")
backends = pytest.importorskip("triton.backends.compiler")

SOURCE = Path(__file__).parents[2] / "gpu" / "spilling.py"
OTHER_CODE = "ptxas does not make the code that ran from the PTX that Triton kept"
NOT_FOUND = "not compiled by Triton, or no longer in memory"
SEVERAL = "several compiled kernels are launched like it, and spill differently"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The kernels, which no other test has compiled."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "kernels_of_this_test.py"
    path.write_text(SOURCE.read_text())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del module
    gc.collect()


@pytest.fixture
def ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a script in the place of ptxas, which Triton asks for its version."""

    def replace(script: str) -> None:
        path = tmp_path / "ptxas"
        version = "Cuda compilation tools, release 12.8, V12.8.93"
        path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" && exit\n{script}\n')
        path.chmod(0o755)
        monkeypatch.setenv("TRITON_PTXAS_PATH", str(path))

    return replace


def compiled(fn: Any, size: int = 1024, *, local: int = 0, **options: Any) -> Any:
    """A kernel for sm_90, loaded: with its registers, and its local memory in words."""
    signature = {"x": "*fp32", "y": "*fp32", "N": "constexpr"}
    made = triton.compile(
        triton.compiler.ASTSource(fn, signature, {"N": size}),
        target=backends.GPUTarget("cuda", 90, 32),
        options=options,
    )
    made.n_regs, made.n_spills = int(said(made, r"Used (\d+) registers")), local
    return made


def said(made: Any, pattern: str) -> str:
    """What ptxas says of a kernel."""
    ptxas = triton.knobs.nvidia.ptxas.path
    command = [ptxas, "-v", "--gpu-name=sm_90a", "-lineinfo", "-", "-o", "/dev/null"]
    told = subprocess.run(
        command, input=made.asm["ptx"], capture_output=True, text=True, check=True
    )
    found = re.search(pattern, told.stderr)
    assert found is not None
    return found[1]


def launch(made: Any, call: str = "cuLaunchKernelEx", **other: int | None) -> Kernel:
    """How a trace has it: sm_90 adds 1 KB to shared memory that is asked for."""
    shared = made.metadata.shared and made.metadata.shared + 1024
    facts = {"registers": made.n_regs, "threads": made.metadata.num_warps * 32, "shared": shared}
    facts |= other
    needs: Any = ((facts["threads"], 1, 1), facts["registers"], facts["shared"])
    return Kernel(made.metadata.name, 1.0, (1, 1, 1), *needs, 0, 7, call, ())


def spills(*launched: Kernel, since: int | None = None) -> list[int | str]:
    """Of what is launched now, or when so many were gone."""
    return [one.spills for one in spills_of(launched, len(gone) if since is None else since)]


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, int, int], Any]:
    """Has a kernel loaded, as its first launch does, on a GPU that says what it is told to."""
    watch_compilers()

    def load(made: Any, registers: int, local: int) -> Any:
        target = made.metadata.target
        utils = SimpleNamespace(load_binary=lambda *_: (1, 2, registers, local, 1024))
        double = SimpleNamespace(
            utils=utils,
            get_current_device=lambda: 0,
            get_current_target=lambda: target,
            launcher_cls=lambda *_: None,
        )
        monkeypatch.setattr(triton.compiler.compiler, "driver", SimpleNamespace(active=double))
        monkeypatch.setattr(triton.compiler.compiler, "max_shared_mem", lambda _: 1 << 20)
        made._init_handles()
        return made

    return load


def test_a_kernel_that_spills_is_told_as_ptxas_tells_it(source: Any) -> None:
    made = compiled(source.spilling, 2048, local=664, **source.FEW_REGISTERS)
    both = [int(said(made, rf"(\d+) bytes spill {what}")) for what in ("stores", "loads")]
    assert min(both) > 1000
    assert spills(launch(made)) == [sum(both)]


def test_of_kernels_that_have_local_memory_and_spill_nothing_ptxas_says_so(source: Any) -> None:
    made = [compiled(fn, local=4) for fn in (source.adding, source.summing, source.calling)]
    assert spills(*map(launch, made)) == [0, 0, 0]


def test_without_local_memory_nothing_is_spilled_and_ptxas_does_not_run(
    source: Any, ptxas: Callable[[str], None]
) -> None:
    adding, calling = compiled(source.adding), compiled(source.calling)
    ptxas("exit 1")
    assert spills(launch(adding)) == [0]
    # The local memory of what it calls is not its own.
    assert spills(launch(calling)) == [OTHER_CODE]


def test_a_source_file_that_was_touched_since_is_no_other_kernel(source: Any) -> None:
    made = compiled(source.adding, local=4)
    path = Path(source.__file__)
    path.write_text(path.read_text() + "\n# more\n")
    assert spills(launch(made)) == [0]


def test_options_of_the_kernel_are_those_of_ptxas(source: Any) -> None:
    options = {"enable_fp_fusion": False, "ptx_options": "--opt-level 1", "num_warps": 1}
    made = compiled(source.spilling, 2048, local=4, **options)
    assert isinstance(spills(launch(made))[0], int)


@pytest.mark.parametrize("other", [{"registers": 99}, {"threads": 64}, {"shared": 2048}])
def test_another_launch_under_its_name_is_not_this_kernel(
    source: Any, other: dict[str, int]
) -> None:
    made = compiled(source.adding)
    assert spills(launch(made, **other), launch(made)) == [NOT_FOUND, 0]


def test_what_is_not_of_triton_or_was_never_loaded_is_not_known(source: Any) -> None:
    made = compiled(source.adding)
    own = launch(made)
    assert spills(kernel("nvjet_sm90_tst_64x8")) == [NOT_FOUND]
    del made.n_regs
    assert spills(own) == [NOT_FOUND]


def test_a_kernel_that_is_gone_is_not_known(source: Any) -> None:
    made = compiled(source.adding)
    own = launch(made)
    del made
    gc.collect()
    assert spills(own) == [NOT_FOUND]


def test_two_of_one_name_that_spill_differently_are_not_told_apart(source: Any) -> None:
    few = compiled(source.spilling, 2048, local=664, **source.FEW_REGISTERS)
    more = compiled(source.spilling, 1024, local=300, **source.FEW_REGISTERS)
    assert launch(few) == launch(more)
    each = sorted(
        sum(int(said(made, rf"(\d+) bytes spill {what}")) for what in ("stores", "loads"))
        for made in (few, more)
    )
    assert spills(launch(few)) == [f"{SEVERAL}: {each[0]}, {each[1]}"]


def test_two_of_one_name_with_other_shared_memory_are_told_apart(source: Any) -> None:
    little, much = compiled(source.summing), compiled(source.summing, 512, local=4, num_warps=4)
    much.n_regs, much.asm["ptx"] = little.n_regs, ""
    much.metadata = much.metadata._replace(shared=4096)
    assert spills(launch(little)) == [0]
    assert "its PTX was not kept" in str(spills(launch(much))[0])
    # ROCm does not tell it, so it may be either.
    assert SEVERAL in str(spills(launch(little, shared=None))[0])


def test_one_that_is_gone_is_not_taken_for_another_that_is_launched_like_it(
    source: Any, loading: Callable[[Any, int, int], Any]
) -> None:
    before = len(gone)
    ran, other = compiled(source.adding, 512), loading(compiled(source.adding), 32, 0)
    own = launch(loading(ran, 32, 4))
    del ran
    gc.collect()
    assert own == launch(other)
    assert spills(own, since=before) == [f"{SEVERAL}: 0, no longer in memory"]
    # It was gone before a later session, in which only a CUDA graph that it is in can run it.
    assert spills(own, since=len(gone)) == [0]
    replayed = launch(other, "cudaGraphLaunch")
    assert spills(own, replayed, since=len(gone)) == [f"{SEVERAL}: 0, no longer in memory"]


def test_one_that_is_gone_and_had_no_local_memory_spilled_nothing(
    source: Any, loading: Callable[[Any, int, int], Any]
) -> None:
    before, ran = len(gone), loading(compiled(source.adding), 32, 0)
    own = launch(ran)
    del ran
    gc.collect()
    assert spills(own, since=before) == [0]
    assert spills(own, since=len(gone)) == [NOT_FOUND]


def test_a_kernel_that_no_collection_looks_at_any_more_is_found(
    source: Any, loading: Callable[[Any, int, int], Any]
) -> None:
    made = loading(compiled(source.adding), 32, 0)
    gc.freeze()
    try:
        assert spills(launch(made)) == [0]
    finally:
        gc.unfreeze()


def test_one_of_two_that_spills_unknown_is_not_taken_for_the_other(source: Any) -> None:
    none, unknown = compiled(source.adding), compiled(source.adding, 512, local=4)
    unknown.n_regs = none.n_regs
    del unknown.asm["ptx"]
    assert launch(none) == launch(unknown)
    (why,) = spills(launch(none))
    assert str(why).startswith("several compiled kernels are launched like it, and spill diff")
    assert ": 0, its PTX was not kept" in str(why)


def test_a_launch_of_unknown_registers_is_none_of_a_kernel_that_never_ran(source: Any) -> None:
    made = compiled(source.adding)
    unknown = launch(made, registers=0)
    for registers in (None, 0):
        made.n_regs = registers
        assert spills(unknown) == [NOT_FOUND]
    del made.n_regs
    assert spills(unknown) == [NOT_FOUND]


def test_ptx_that_makes_other_code_proves_nothing(source: Any) -> None:
    made, other = compiled(source.adding, local=4), compiled(source.summing)
    made.asm["ptx"] = other.asm["ptx"]
    assert spills(launch(made)) == [OTHER_CODE]


def test_a_ptxas_that_lies_is_not_believed(source: Any, ptxas: Callable[[str], None]) -> None:
    made = compiled(source.spilling, local=300, **source.FEW_REGISTERS)
    ptxas("echo '0 bytes spill stores, 0 bytes spill loads' >&2")
    assert spills(launch(made))[0] != 0


def test_it_does_not_wait_for_a_ptxas_that_hangs(
    source: Any, ptxas: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_kernelprof.profiler.triton_kernels._LONGEST_S", 0.3)
    made = compiled(source.spilling, local=300, **source.FEW_REGISTERS)
    ptxas("exec sleep 60")
    (why,), (again,) = spills(launch(made)), spills(launch(made))
    assert "timed out after 0." in str(why)
    assert again == "ptxas could not be run on it before in this process"


def test_without_its_ptx_only_no_local_memory_proves_anything(source: Any) -> None:
    made = compiled(source.adding)
    del made.asm["ptx"]
    assert spills(launch(made)) == [0]
    made.n_spills = 4
    assert "set torch._inductor.config.use_static_cuda_launcher = False" in str(
        spills(launch(made))[0]
    )


def test_on_amd_the_assembly_has_the_number(source: Any) -> None:
    made = compiled(source.adding)
    own = launch(made)
    made.asm.pop("cubin"), made.asm.pop("ptx")
    made.asm["amdgcn"] = (
        "    .sgpr_spill_count: 3\n    .vgpr_count: 24\n    .vgpr_spill_count: 12\n"
    )
    assert spills(own) == [12]


def test_of_triton_that_was_replaced_nothing_is_known(
    source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = compiled(source.adding)
    monkeypatch.setattr(triton.compiler.compiler, "CompiledKernel", SimpleNamespace)
    assert spills(launch(made)) == [NOT_FOUND]


@pytest.mark.parametrize("other", [None, MagicMock(), SimpleNamespace(CompiledKernel=1)])
def test_what_stands_for_its_module_is_not_looked_into(
    source: Any, monkeypatch: pytest.MonkeyPatch, other: object
) -> None:
    made = compiled(source.adding)
    monkeypatch.setitem(sys.modules, "triton.compiler.compiler", other)
    assert spills(launch(made)) == [NOT_FOUND]
