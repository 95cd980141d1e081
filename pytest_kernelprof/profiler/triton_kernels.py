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

import contextlib
import gc
import hashlib
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from pytest_kernelprof.errors import first_line
from pytest_kernelprof.profiler.autotuning import Method, listen, loaded
from pytest_kernelprof.records.profile import Kernel
from pytest_kernelprof.records.recording import KernelSpills
from pytest_kernelprof.system import TEMPORARY_FOLDER, now_s

_objects, _run = gc.get_objects, subprocess.run
_LONGEST_S = 60.0
"""How long the attempts for one kernel may take together: a large one takes 5 s."""

_NOT_FOUND = "not compiled by Triton, or no longer in memory"
_GONE = "no longer in memory"
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

_inductor = "torch._inductor.runtime.static_"
PLACES = {
    "triton.compiler.compiler": ("CompiledKernel", "_init_handles"),
    f"{_inductor}cuda_launcher": ("StaticallyLaunched", "load_kernel"),
    f"{_inductor}triton_launcher": ("StaticallyLaunched", "load_kernel"),
}
"""By module what the classes of compiled kernels are called, and their method that has a GPU load
the kernel: it has its registers then. Inductor may keep binaries alone, in classes of its own."""

_Launch = tuple[str, int, int, int]
"""Name, registers a thread, threads a block, and bytes of shared memory that are asked for."""
_RESERVED = 1024
"""GPUs since sm_90 add so many bytes to shared memory that is asked for."""
_seen: weakref.WeakSet[Any] = weakref.WeakSet()
gone: list[tuple[_Launch, int | str]] = []
"""Of kernels that were loaded, and are in memory no more, what they spilled; in that order."""

Told = tuple[int, int] | str
"""Registers a thread, and what is spilled; or why they are not known."""
_known: dict[bytes, Told] = {}


def spills_of(kernels: Iterable[Kernel], since: int = 0) -> tuple[KernelSpills, ...]:
    """Find out what each of these kernels spills. Runs ptxas for those that have local memory.

    A kernel of a trace is that of Triton with its name, registers, threads and shared memory. If
    several are, all have to spill the same.

    Args:
        since: how many were ``gone`` before these were launched. CUDA graphs may run any of them.
    """
    first: dict[tuple[str, int, int, int | None], int] = {}
    for one in kernels:
        key = one.name, one.registers, math.prod(one.block), one.shared_memory
        first[key] = 0 if "GraphLaunch" in one.launch else first.get(key, since)
    living = [(_launch_of(one), one) for one in _compiled()]
    found = (
        {_spills(one) for launch, one in living if _fits(launch, *key)}
        | {spills for launch, spills in gone[at:] if _fits(launch, *key)}
        for key, at in first.items()
    )
    return tuple(KernelSpills(*key, _the_one(of)) for key, of in zip(first, found, strict=True))


def _launch_of(compiled: Any) -> _Launch:
    made = getattr(compiled, "metadata", compiled)
    width = getattr(getattr(made, "target", None), "warp_size", 32)
    # One that was never loaded has no registers yet.
    registers, threads = getattr(compiled, "n_regs", 0) or 0, getattr(made, "num_warps", 0) * width
    return compiled.name, registers, threads, getattr(made, "shared", 0)


def _fits(launch: _Launch, name: str, registers: int, threads: int, shared: int | None) -> bool:
    """Whether a compiled kernel may be the one that a trace has so: some do not tell registers,
    others not shared memory."""
    more = 0 if shared is None else shared - launch[3]
    return launch[:3] == (name, registers or -1, threads) and 0 <= more <= _RESERVED


def watch_loading(module: ModuleType) -> bool:
    """Note the kernels of a module of ``PLACES`` that are loaded from now on, or are by now."""
    loads = PLACES[module.__name__][1]
    if sum(bool(listen(kind, loads, _load_and_note)) for kind in _kinds(module)):
        for one in _compiled():
            _note(one)
    return False


def _load_and_note(load: Method, compiled: Any, /, *args: Any, **kwargs: Any) -> Any:
    found = load(compiled, *args, **kwargs)
    with contextlib.suppress(Exception):  # of a Triton with other names
        _note(compiled)
    return found


def _note(compiled: Any) -> None:
    launch, known = _launch_of(compiled), _spills_by_itself(compiled)
    if launch[1] and compiled not in _seen:
        _seen.add(compiled)
        weakref.finalize(compiled, gone.append, (launch, _GONE if known is None else known))


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
    """All living kernels that Triton has compiled, whoever holds them."""
    kinds = {id(kind) for module in loaded(PLACES) for kind in _kinds(module)}
    found = (one for one in _objects() if id(type(one)) in kinds) if kinds else ()
    yield from {id(one): one for one in (*found, *_seen)}.values()


def _kinds(module: ModuleType) -> list[type]:
    """The classes of compiled kernels, if it can be watched what they load."""
    begins, loads = PLACES[module.__name__]
    kinds = (one for one in [*vars(module).values()] if isinstance(one, type))
    return [one for one in kinds if one.__name__.startswith(begins) and hasattr(one, loads)]


def _spills(compiled: Any) -> int | str:
    """The spills of a compiled kernel, or why they are not known."""
    known = _spills_by_itself(compiled)
    told = _by_ptxas(compiled) if known is None else (0, known)
    return told if isinstance(told, str) else told[1]


def _spills_by_itself(compiled: Any) -> int | None:
    """The same, as far as no ptxas is needed to tell."""
    asm: Mapping[str, Any] = getattr(compiled, "asm", None) or {}
    if _SPILLED_BY_AMD.search(asm.get("amdgcn", "")):
        return _by_amd(asm["amdgcn"])[1]
    # The local memory of a function that is called is its own.
    is_whole = ".func" not in str(asm.get("ptx", ""))
    return 0 if getattr(compiled, "n_spills", None) == 0 and is_whole else None


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
