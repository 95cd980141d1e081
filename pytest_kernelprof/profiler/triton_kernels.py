"""What compiled kernels of Triton need: what they spill, the registers that ptxas had to keep in
local memory; of those that never ran their registers and shared memory, too.

A trace does not tell what is spilled. Triton's own ``n_spills`` is the size of local memory over 4,
which local arrays have a part in: 0 proves that nothing is spilled, and more proves nothing. So
``ptxas -v`` assembles the PTX that Triton keeps once more ("ptxas --verbose" in NVIDIA's
documentation of nvcc).
Its answer counts only if the code that it makes is the very one that ran, byte for byte: then the
target and all options were those of the kernel. On AMD the assembly has the number
(``.vgpr_spill_count`` of its metadata, in LLVM's "User Guide for AMDGPU Backend").
"""

from __future__ import annotations

import gc
import hashlib
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytest_kernelprof.errors import first_line
from pytest_kernelprof.profiler.autotuning import loaded
from pytest_kernelprof.records.profile import Kernel
from pytest_kernelprof.records.recording import KernelSpills
from pytest_kernelprof.system import TEMPORARY_FOLDER, now_s

_objects, _run = gc.get_objects, subprocess.run
_LONGEST_S = 60.0
"""How long the attempts for one kernel may take together: a large one takes 5 s."""

_NOT_FOUND = "not compiled by Triton, or no longer in memory"
_SEVERAL = "several compiled kernels are launched like it, and spill differently"
_OTHER_CODE = "ptxas does not make the code that ran from the PTX that Triton kept"
_FAILED_BEFORE = "ptxas could not be run on it before in this process"
_NO_PTX = "its PTX was not kept: set torch._inductor.config.use_static_cuda_launcher = False"

_SPILLED = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLED_BY_AMD = re.compile(r"\.vgpr_spill_count:\s*(\d+)")
_REGISTERS_OF_AMD = re.compile(r"\.vgpr_count:\s*(\d+)")
_TARGET = re.compile(r"^\.target\s+(sm_(\d+)\w*)", re.MULTILINE)
# What Triton calls ptxas with, by version and settings; the first is the usual one.
_DEBUG = ("-lineinfo", "-lineinfo -suppress-debug-info", "-g", "-g --opt-level 0")
_WAYS = [f"{debug} {more}".split() for debug in _DEBUG for more in ("--regAllocOptLevel=2", "")]

Told = tuple[int, int] | str
"""Registers a thread, and what is spilled; or why they are not known."""
_known: dict[bytes, Told] = {}


def spills_of(kernels: Iterable[Kernel]) -> tuple[KernelSpills, ...]:
    """Find out what each of these kernels spills. Runs ptxas for those that have local memory.

    A kernel of a trace is that of Triton with its name, registers and threads, which must be alive.
    """
    keys = {(one.name, one.registers, math.prod(one.block)): None for one in kernels}
    found: dict[tuple[str, int, int], set[int | str]] = {key: set() for key in keys}
    for one in _compiled():
        made = getattr(one, "metadata", one)
        width = getattr(getattr(made, "target", None), "warp_size", 32)
        key = (one.name, getattr(one, "n_regs", 0), getattr(made, "num_warps", 0) * width)
        # One that never ran has no registers yet, and some traces do not have them.
        if key in found and key[1]:
            found[key].add(_spills(one))
    return tuple(KernelSpills(*key, _the_one(some)) for key, some in found.items())


def _the_one(spills: set[int | str]) -> int | str:
    if len(spills) == 1:
        return spills.pop()
    return f"{_SEVERAL}: {', '.join(sorted(map(str, spills)))}" if spills else _NOT_FOUND


def needs_of(compiled: Any) -> tuple[int, int, int | str]:
    """What a compiled kernel needs that never ran.

    Returns:
        Registers a thread (on AMD vector registers), bytes of shared memory a block, and spills as
        of ``Kernel``. Where ptxas cannot tell, registers are 0, and spills say why.
    """
    told: Told = _by_ptxas(compiled) if "ptx" in compiled.asm else _by_amd(compiled.asm["amdgcn"])
    registers, spills = (0, told) if isinstance(told, str) else told
    return registers, compiled.metadata.shared, spills


def _compiled() -> Iterator[Any]:
    """All living kernels that Triton has compiled, whoever holds them. Inductor may keep their
    binaries alone, in classes of its own."""
    inductor, begins = "torch._inductor.runtime.static_", "StaticallyLaunched"
    places = {f"{inductor}{one}_launcher": begins for one in ("cuda", "triton")}
    places["triton.compiler.compiler"] = "CompiledKernel"
    kinds = {
        id(kind)
        for module in loaded(places)
        for kind in [*vars(module).values()]
        if isinstance(kind, type) and kind.__name__.startswith(places[module.__name__])
    }
    yield from (one for one in _objects() if id(type(one)) in kinds) if kinds else ()


def _spills(compiled: Any) -> int | str:
    """The spills of a compiled kernel, or why they are not known."""
    asm: Mapping[str, Any] = getattr(compiled, "asm", None) or {}
    if _SPILLED_BY_AMD.search(asm.get("amdgcn", "")):
        return _by_amd(asm["amdgcn"])[1]
    # The local memory of a function that is called is its own.
    if getattr(compiled, "n_spills", None) == 0 and ".func" not in str(asm.get("ptx", "")):
        return 0
    told = _by_ptxas(compiled)
    return told if isinstance(told, str) else told[1]


def _by_amd(assembly: str) -> tuple[int, int]:
    of_kernels = (one.findall(assembly) for one in (_REGISTERS_OF_AMD, _SPILLED_BY_AMD))
    registers, spilled = (list(map(int, found)) for found in of_kernels)
    return max(registers, default=0), sum(spilled)


def _by_ptxas(compiled: Any) -> Told:
    asm: Mapping[str, Any] = getattr(compiled, "asm", None) or {}
    ptx, binary = str(asm.get("ptx", "")), asm.get("cubin", b"")
    if not ptx:
        return _NO_PTX
    try:
        key = hashlib.sha256(ptx.encode() + binary).digest()
        if key not in _known:
            _known[key] = _FAILED_BEFORE  # unless it returns, which may take its whole time
            _known[key] = _assembled(ptx, binary, compiled.metadata)
        return _known[key]
    except Exception as error:  # a test may have replaced anything of Triton or the system
        return f"ptxas could not be run: {type(error).__name__}: {first_line(error)}"


def _assembled(ptx: str, binary: bytes, metadata: Any) -> Told:
    """What ptxas says as it makes the same code.

    Raises:
        Exception: it cannot be run, or takes too long.
    """
    (target, capability), tools = _TARGET.findall(ptx)[0], sys.modules["triton"].knobs.nvidia
    tool = getattr(tools, "ptxas_blackwell", tools.ptxas) if int(capability) >= 100 else tools.ptxas
    own = [] if metadata.enable_fp_fusion else ["--fmad=false"]
    own += (getattr(metadata, "ptx_options", None) or "").split()
    end = now_s() + _LONGEST_S
    with tempfile.TemporaryDirectory(dir=TEMPORARY_FOLDER or None) as folder:
        source, made = os.path.join(folder, "k.ptx"), os.path.join(folder, "k.cubin")
        with open(source, "w", encoding="utf-8") as file:
            file.write(ptx)
        for way in _WAYS:
            command = [tool.path, *way, *own, "-v", f"--gpu-name={target}", source, "-o", made]
            told = _run(command, capture_output=True, text=True, timeout=max(0.0, end - now_s()))
            if told.returncode == 0 and (spilled := _SPILLED.findall(told.stderr)):
                with open(made, "rb") as file:
                    if _loaded(file.read()) == _loaded(binary):
                        used = map(int, _REGISTERS.findall(told.stderr))
                        return max(used, default=0), sum(int(n) for both in spilled for n in both)
    return _OTHER_CODE


def _loaded(elf: bytes) -> list[bytes]:
    """The sections that a GPU loads, code and constants ("ELF-64 Object File Format"). What stands
    beside them for debuggers has the time at which the source file was changed."""
    (table,), (size, number) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<HH", elf, 58)
    heads = [struct.unpack_from("<4xIQ8xQQ", elf, table + at * size) for at in range(number)]
    loaded, bare = 2, 8  # a flag, and the kind that has no bytes in the file
    return [elf[at:][:size] for kind, flags, at, size in heads if flags & loaded and kind != bare]
