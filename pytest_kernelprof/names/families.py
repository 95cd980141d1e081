"""Families of kernels that libraries name in ways of their own: a table, tried in its order."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_kernelprof.names import gemms
from pytest_kernelprof.names.functors import functor_words
from pytest_kernelprof.names.operators import inductor_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_kernelprof.names.parts import Parts

    Family = Callable[[Parts], str | None]

_NCCL = re.compile(
    r"nccl(Sym[a-z]*)?(Dev)?Kernel_([A-Za-z0-9]+)(?:_([A-Za-z0-9]+)_([a-z][a-z0-9]+))?"
)
_OPERATIONS_OF_NCCL = {"Sum", "Prod", "Max", "Min", "MinMax", "PreMulSum", "SumPostDiv", "Avg"}
_FLASH = re.compile(r"flash_(?:fwd|bwd)\w*|FlashAttn(?:Fwd|Bwd)\w*")
_TRAITS = re.compile(r"[Kk]ernel_traits<(\d+)")
_FMHA = re.compile(r"(fmha_cutlass[FB])_([a-z0-9]+)_(?:not)?aligned_(\d+x\d+)(?:_(k\d+))?")
_TRIPLE = re.compile(r"C<(\d+)>, ?(?:cute::)?C<(\d+)>, ?(?:cute::)?C<(\d+)>")
_SDPA = re.compile(r"(flash_[a-z]+)_(?:wg?mma_)?([a-z0-9]+)")
_LEAST_STEP = 8


def _nccl(parts: Parts) -> str | None:
    """Ring and protocol go: the suffix need not be what ran (NVIDIA/nccl#2196). A kernel of before
    ``ncclDevKernel`` may run any operation (NVIDIA/nccl#739): hence the parentheses."""
    found = _NCCL.match(_own(parts))
    if found is None:
        return None
    if not (found[1] or found[2]) or found[3] == "Generic":
        return f"nccl ({found[3]})"
    reduces = found[4] in _OPERATIONS_OF_NCCL
    return f"nccl {found[3]} [{found[4].lower()} {found[5]}]" if reduces else f"nccl {found[3]}"


def _flash(parts: Parts) -> str | None:
    """The names are anchored: others hold the word too (``reshape_and_cache_flash_kernel``)."""
    fmha = _FMHA.match(_own(parts))
    if fmha:
        return " ".join(filter(None, fmha.groups()))
    names = [_own(parts), *(path[-1] for path in parts.inner)]
    name = next((one for one in names if _FLASH.fullmatch(one)), None)
    if name is None or not parts.path:
        return None
    traits = _TRAITS.search(parts.template)
    head = f" d{traits[1]}" if traits and name.startswith("flash_") else ""
    return name.removesuffix("_kernel") + head


def _cutlass(parts: Parts) -> str | None:
    names = [_own(parts), *(path[-1] for path in parts.inner)]
    said = next(filter(None, map(gemms.cutlass, names)), None)
    if said or not parts.path or not parts.path[0].startswith("cutlass"):
        return said
    classes = [path[-1] for path in parts.inner if path[-1][:1].isupper()]
    if not classes:
        return None
    sizes = (found.groups() for found in _TRIPLE.finditer(parts.template))
    tile = next(("x".join(one) for one in sizes if min(map(int, one)) >= _LEAST_STEP), "")
    return " ".join(filter(None, ["cutlass", classes[0], tile]))


def _gemm(parts: Parts) -> str | None:
    name = _own(parts)
    rules = (gemms.nvjet, gemms.cublas, gemms.small_cublas, gemms.tensile)
    return next(filter(None, (rule(name) for rule in rules)), None)


def _inductor(parts: Parts) -> str | None:
    return inductor_words(_own(parts))


def _cudnn(parts: Parts) -> str | None:
    name = _own(parts)
    if name.startswith("cudnn_generated") and "_sdpa_" in name:
        found = _SDPA.search(name)
        tile = re.search(r"_(\d+x\d+x\d+)", name)
        said = (one for match in (found, tile) if match for one in match.groups())
        return " ".join(["cudnn sdpa", *said])
    return None


def _cub(parts: Parts) -> str | None:
    """The namespace behind ``detail`` names the algorithm, in older ones the kernel does."""
    if "cub" not in parts.path[:-1]:
        return None
    behind = parts.path[parts.path.index("cub") + 1 :]
    if behind[0] == "detail" and len(behind) > 2:
        algorithm = behind[1]
    else:
        algorithm = re.sub(r"_?[Kk]ernel$", "", behind[-1])
    of_aten = tuple(path for path in parts.inner if path[:2] == ("at", "native"))
    what = functor_words(replace(parts, inner=of_aten))
    return f"cub {algorithm} [{what}]" if what else f"cub {algorithm}"


def _ck_tile(parts: Parts) -> str | None:
    if parts.path != ("ck_tile", "kentry") or not parts.inner:
        return None
    return f"ck_tile {parts.inner[0][-1]}"


def _own(parts: Parts) -> str:
    """The kernel's own name, without namespaces."""
    return parts.path[-1] if parts.path else parts.text


# FlashAttention's third lies in a template of CUTLASS.
FAMILIES: tuple[Family, ...] = (
    *(_nccl, _flash, _cutlass, _gemm, _inductor, _cudnn, _cub, _ck_tile),
)


def family_words(parts: Parts) -> str | None:
    """The short name of a kernel of a known family; None for others."""
    return next(filter(None, (family(parts) for family in FAMILIES)), None)
