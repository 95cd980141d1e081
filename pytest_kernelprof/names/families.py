"""What kernels of known makers compute: the functor of a template of ATen, the operators that a
kernel of Inductor fuses, and a table of families that libraries name in ways of their own."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_kernelprof.names import gemms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_kernelprof.names.parts import Parts, Path

    Family = Callable[[Parts], str | None]

_FUSED = re.compile(r"(?:graph_\d+_)?(triton_[a-z]+_fused|cpp_fused)(?:_(\w*))?")
_MOST = 4

# Inductor joins the operators' names with the sign that is in many of them. Those that it fuses and
# that hold it, without the ones that begin with it.
_LONG = """
    add_rms_norm adaptive_avg_pool2d adaptive_max_pool2d all_gather_into_tensor all_reduce
    avg_pool2d avg_pool2d_backward avg_pool3d batch_norm bitwise_and bitwise_not bitwise_or
    bitwise_xor clamp_max clamp_min constant_pad_nd cross_entropy embedding_dense_backward
    floor_divide gelu_backward grid_sampler_2d group_norm hardsigmoid_backward hardswish_backward
    hardtanh_backward index_add index_put index_put_ index_select instance_norm layer_norm
    leaky_relu leaky_relu_backward linalg_vector_norm log_sigmoid_forward logical_and logical_not
    logical_or logical_xor masked_fill masked_scatter max_pool2d max_pool2d_with_indices
    max_pool2d_with_indices_backward mse_loss mse_loss_backward native_batch_norm
    native_batch_norm_backward native_dropout native_dropout_backward native_group_norm
    native_group_norm_backward native_layer_norm native_layer_norm_backward new_empty new_full
    new_ones new_zeros nll_loss nll_loss_backward nll_loss_forward ones_like pow_backward
    reduce_scatter_tensor reflection_pad1d reflection_pad2d repeat_interleave replication_pad2d
    rms_norm scalar_tensor scaled_dot_product_attention scatter_add scatter_reduce select_backward
    select_scatter sigmoid_backward silu_backward slice_backward slice_scatter smooth_l1_loss
    soft_margin_loss softmax_backward_data split_with_sizes tanh_backward threshold_backward
    unsafe_index upsample_bilinear2d upsample_nearest2d var_mean wait_tensor zeros_like
    adaptive_avg_pool2d_backward log_softmax log_softmax_backward_data fft_c2c fft_c2r fft_r2c
    moe_forward rotary_embedding native_batch_norm_legit native_batch_norm_legit_functional
    native_batch_norm_legit_no_training scaled_dot_product_efficient_attention
    scaled_dot_product_flash_attention scaled_dot_product_cudnn_attention
"""
# Those that begin with the sign: where two signs meet, one of these begins.
_HIDDEN = """
    _to_copy _unsafe_view _unsafe_index _unsafe_index_put _softmax _log_softmax
    _softmax_backward_data _log_softmax_backward_data _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _scaled_dot_product_flash_attention
    _scaled_dot_product_efficient_attention _fft_c2c _fft_c2r _fft_r2c _fused_rms_norm
    _fused_rms_norm_backward _foreach_add _foreach_mul _foreach_copy _low_memory_max_pool_offsets
    _low_memory_max_pool_with_offsets _reshape_alias _assert_async _embedding_bag _int_mm
    _scaled_mm _weight_norm_interface _weight_norm _cdist_forward
"""
_KNOWN = frozenset(_LONG.split()) | frozenset(_HIDDEN.split())
_MOST_WORDS = max(name.count("_") for name in _KNOWN) + 1


def inductor_words(name: str) -> str | None:
    """``triton_poi_fused [gelu, mul]``; None for what Inductor did not name. Its number, which
    counts the kernels of a graph, and that of the graph go."""
    found = _FUSED.fullmatch(name)
    if found is None:
        return None
    unnumbered = (found[2] or "").rstrip("0123456789")
    operators = _split(unnumbered.removesuffix("_") if unnumbered != found[2] else unnumbered)
    if not operators:
        return found[1]
    more = [f"+{len(operators) - _MOST}"] if len(operators) > _MOST else []
    return f"{found[1]} [{', '.join(operators[:_MOST] + more)}]"


def _split(joined: str) -> list[str]:
    """The longest known operator wherever one begins, else what stands to the next sign."""
    words = joined.split("_")
    found: list[str] = []
    at = 0
    while at < len(words):
        span = next(
            (
                size
                for size in range(min(_MOST_WORDS, len(words) - at), 1, -1)
                if "_".join(words[at : at + size]) in _KNOWN
            ),
            2 if not words[at] and at + 1 < len(words) else 1,
        )
        one = "_".join(words[at : at + span])
        if one:
            found.append(one)
        elif found:
            found[-1] += "_"  # an operator that works in place, at the end
        at += span
    return found


# They hold the functor that says what is computed; some say that one operand is a number.
_WRAPPER = re.compile(
    r"(?:[AB]?Unary|Binary|Opmath\w+)Functor|(?:Unary|Binary|Pointwise|Ternary)Op\w*Functor"
    r"|func_wrapper_t|ReduceOp|gpu_\w+|\w*TensorListMetadata|\w*index_kernel_impl"
)
_SCALAR_WRAPPERS = ("AUnaryFunctor", "BUnaryFunctor")
_ON_SELF = "CUDAFunctorOnSelf_"
# What stands before functors and is none: data, and how it lies in memory.
_NO_FUNCTOR = {
    *("TensorIterator", "TensorIteratorBase", "TensorInfo", "OpaqueType", "PhiloxCudaState"),
    *("ScalarType", "Scalar", "Half", "BFloat16", "complex", "Array", "IntDivider"),
    *("OffsetCalculator", "TrivialOffsetCalculator"),
}
_LIKE_ONE = re.compile(
    r"\w+(?:Functor|Ops?|_functor|KernelImpl|_and_transform)|\w*_kernel\w*|(?:CUDA)?Functor\w*_\w+"
)
_OF_STD = {"plus", "minus", "multiplies", "divides", "modulus", "negate"}

_BEGINS = re.compile(r"^(?:CUDAFunctor(?:OnSelf)?_|launch_)")
_ENDS = re.compile(
    r"(?:CUDAKernelImpl|KernelImpl|Kernel|_kernel_cuda|_cuda_kernel|_kernel_impl|_kernel|_cuda_out"
    r"|_cuda|Functor|_functor|_and_transform|Ops|Op)$"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORDS = {"direct_copy": "copy", "non_zero": "nonzero"}


def functor_words(parts: Parts) -> str:
    """What the template computes, for example "mul scalar"; empty where no functor says so."""
    scalar = False
    wrapper = ""
    for path in parts.inner:
        name = path[-1]
        if _WRAPPER.fullmatch(name):
            scalar |= name in _SCALAR_WRAPPERS
            wrapper = wrapper or ("" if name.startswith("gpu_") else name)
        elif _is_functor(path):
            words = _words(name)
            scalar |= name.startswith(_ON_SELF)
            if words.endswith("_scalar"):
                words, scalar = words.removesuffix("_scalar"), True
            return f"{words} scalar" if scalar else words
    return _words(wrapper) if wrapper.endswith("Functor") else ""


def _is_functor(path: Path) -> bool:
    name = path[-1]
    if name in _NO_FUNCTOR:
        return False
    if path[:2] == ("at", "native"):
        return "memory" not in path
    if path[0] in ("std", "cuda"):
        return name in _OF_STD
    return path[0] not in ("c10", "thrust") and _LIKE_ONE.fullmatch(name) is not None


def _words(name: str) -> str:
    bare = _BEGINS.sub("", name)
    bare = _ENDS.sub("", bare) or bare
    words = _HUMP.sub("_", bare).lower()
    return _WORDS.get(words, words)


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
