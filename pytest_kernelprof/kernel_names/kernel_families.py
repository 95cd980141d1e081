"""What kernels of known makers compute: the parts of a full name, and rules for each family."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pytest_kernelprof.units import first_of, printable

LONGEST = 20_000
"""So many characters of a name are read: the longest that libraries have are a quarter of that."""

Path = tuple[str, ...]
"""A qualified name: ``("at", "native", "reduce_kernel")``. Anonymous namespaces are left out."""


class Parts(NamedTuple):
    """A name taken apart.

    Attributes:
        text: the name without control characters, casts of numbers and anonymous namespaces.
        path: its qualified name, without return type and arguments; empty for what is no C++.
        inner: the qualified names in its template arguments, in order.
        template: its template arguments as text; of a mangled name all that follows the path.
        mangled: whether the name was.
    """

    text: str
    path: Path = ()
    inner: tuple[Path, ...] = ()
    template: str = ""
    mangled: bool = False


_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|\{anonymous\}::|<unnamed>::")
# Nsight writes (int)4 and (bool)0, and of enumerations all demanglers write (ns::Enum)0.
_CAST = re.compile(r"\([A-Za-z_][\w:]*(?: [a-z]+){0,3}\)(?=-?\d)")
_CALL = re.compile(r"operator ?\(\)")
_LAMBDA = re.compile(r"\[lambda(\([^\[\]]*\)) \(instance (\d+)\)\]")
_DESCRIPTOR = re.compile(r"\.kd$| \(?\[?(?:clone )?\.kd[\])]$")
_CALLED = "operator_call"

_TOKEN = re.compile(r"->|::|[<>(){}\[\]]|\s+|[^\s<>(){}\[\]:-]+|.", re.DOTALL)
_OPENS, _CLOSES = frozenset("<({["), frozenset(">)}]")
_NAME = re.compile(r"(?<![\w:])[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*")
_RETURNED = {
    *("void", "bool", "char", "int", "long", "short", "float", "double", "unsigned", "signed"),
    *("auto", "const", "static", "inline"),
}


def cleaned(name: str) -> str:
    """A full name in one line of plain characters, in the way that most demanglers write it."""
    text = _DESCRIPTOR.sub("", printable(name[:LONGEST]).strip())
    text = _CAST.sub("", _ANONYMOUS.sub("", text))
    return _LAMBDA.sub(r"{lambda\1#\2}", text).replace("operator ()", "operator()")


def take_apart(name: str) -> Parts:
    """The parts of a full name."""
    text = cleaned(name)
    if text.startswith("_Z"):
        return _mangled(text)
    if not any(sign in text for sign in ("<", "(", "::")):
        return Parts(text)
    return _demangled(text)


def _demangled(text: str) -> Parts:
    """The last word before the arguments, brackets counted; what is before it is a return type."""
    plain, text = text, _CALL.sub(_CALLED, text)
    path: list[str] = []
    spans: list[tuple[int, int]] = []
    depth = begin = 0
    joined, spaced = True, False
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in _OPENS:
            if depth == 0:
                if sign != "<" or not path:
                    break
                begin = token.end()
            depth += 1
        elif sign in _CLOSES:
            if depth == 1:
                spans.append((begin, token.start()))
            depth = max(depth - 1, 0)
        elif depth:
            continue
        elif sign == "::":
            joined = True
        elif sign.isspace():
            spaced = True
        else:
            if spaced and path:
                if not (spans or len(path) > 1 or path[0] in _RETURNED):
                    return Parts(plain)  # words of somebody's own
                joined = True
                path, spans = [], []
            if joined:
                path.append(sign)
            joined = spaced = False
    if depth:  # cut off
        spans.append((begin, len(text)))
    template = ", ".join(text[begin:end] for begin, end in spans)
    inner = tuple(tuple(name.split("::")) for name in _NAME.findall(template))
    return Parts(plain, tuple(one for one in path if one != _CALLED), inner, template)


# A length, but for the digits of constants, substitutions, parameters and extended types.
_LENGTH = re.compile(r"[1-9]\d{0,2}")
_NO_LENGTH = re.compile(r"L[a-z]n?\d+E|E\d+E|S[0-9A-Z]*_|T\d*_|DF\d+[b_x]?")


def _mangled(text: str) -> Parts:
    """The names of an Itanium-mangled one: those before its template arguments, then each run of
    names behind them."""
    start = re.match(r"_ZN?[rVK]*(?:St)?", text)
    path, at = _run(text, start.end() if start else 0)
    rest, inner = at, []
    while at < len(text):
        if skipped := _NO_LENGTH.match(text, at):
            at = skipped.end()
            continue
        found, after = _run(text, at)
        if found:
            inner.append(found)
        at = max(after, at + 1)
    return Parts(text, path, tuple(inner), text[rest:], mangled=True)


def _run(text: str, at: int) -> tuple[Path, int]:
    """The names that follow each other from here on, and where they end."""
    found: list[str] = []
    while length := _LENGTH.match(text, at):
        end = length.end() + int(length[0])
        name = text[length.end() : end]
        if end > len(text) or not name.isidentifier():
            break
        if not name.startswith("_GLOBAL__N_"):
            found.append(name)
        at = end
    return tuple(found), at


_TILE = re.compile(r"(\d+)x(\d+)(?:x(\d+))?")
_STAGES = re.compile(r"(\d+)x\d+")
_LAYOUT = re.compile(r"[tnc]{2}", re.IGNORECASE)
_TYPE = re.compile(r"(?:bf16|fp16|f16|tf32|f32|f64|fp8|e4m3|e5m2|s8|u8|i8)+")
# splitK and what is fused to the product change the work.
_KEPT = re.compile(r"splitK\w*|d?(?:relu|gelu|silu)(?:bias)?|bias|bgrad\w*", re.IGNORECASE)
_OPERATION = re.compile(r"([a-z]?)(\d*)(gemm|fprop|dgrad|wgrad)")


def _nvjet(parts: Parts) -> str | None:
    """``nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT`` is ``nvjet 256x128x64 TNT``."""
    tokens = _own(parts).split("_")
    if tokens[0] != "nvjet":
        return None
    layout = tokens[-1] if re.fullmatch(r"[TNC]{2,4}", tokens[-1]) else ""
    return _joined("nvjet", _tile(tokens[1:]), layout, *_kept(tokens))


def nvjet_type(name: str) -> str:
    """The letters that nvjet has for its types, such as ``tst``; empty for another name."""
    tokens = name.split("_")
    if tokens[0] != "nvjet":
        return ""
    return next((one for one in tokens[1:] if re.fullmatch(r"[a-z]{3,8}", one)), "")


def _cublas(parts: Parts) -> str | None:
    """``volta_sgemm_128x32_nt`` is ``sgemm 128x32 NT``; so are those of an ``xmma``."""
    tokens = _own(parts).split("_")
    if "xmma" in tokens[:2] and "gemm" in tokens:
        sizes = [one.removeprefix("tilesize") for one in tokens if one.startswith("tilesize")]
        return _product("xmma gemm", tokens, sizes)
    for token in tokens[1:4]:
        if (operation := _OPERATION.fullmatch(token)) and _tile(tokens):
            stem = "gemm" if operation[1] == "s" and operation[2] else token
            return _product(stem, tokens, tokens)
    return None


def _cutlass_gemm(name: str) -> str | None:
    """``cutlass_80_tensorop_s16816gemm_bf16_64x64_64x6_tn_align8`` is
    ``cutlass gemm bf16 64x64x64 TN``."""
    tokens = name.split("_")
    if tokens[0] != "cutlass":
        return None
    for token in tokens[1:6]:
        if operation := _OPERATION.fullmatch(token):
            plain = operation[1] == "s" and operation[2]
            stem = operation[3] if plain else operation[1] + operation[3]
            return _product(f"cutlass {stem}", tokens, tokens)
    return None


def _small_cublas(parts: Parts) -> str | None:
    """``gemmSN_TN_kernel_64addr`` is ``gemmSN TN``."""
    found = re.match(r"(gemm[A-Za-z0-9]{1,8})_([TNC]{2})_kernel", _own(parts))
    return f"{found[1]} {found[2]}" if found else None


# How the operands of a product lie: A by rows is transposed, B by rows is not.
_TENSILE_A, _TENSILE_B = {"Alik": "T", "Ailk": "N"}, {"Bljk": "N", "Bjlk": "T"}
_TENSILE_TYPE = {"B": "bf16", "H": "fp16", "S": "fp32", "D": "fp64", "C": "complex64"}


def _tensile(parts: Parts) -> str | None:
    """``Cijk_Alik_Bljk_BBS_..._MT32x32x256_...`` is ``Tensile 32x32x256 TN bf16``."""
    tokens = _own(parts).split("_")
    if tokens[0] != "Cijk" or len(tokens) < 4:
        return None
    a, b = _TENSILE_A.get(tokens[1], ""), _TENSILE_B.get(tokens[2], "")
    layout = a + b if a and b else ""
    tile = next((one[2:] for one in tokens if re.fullmatch(r"MT\d+x\d+x\d+", one)), "")
    code = tokens[3]
    known = _TENSILE_TYPE.get(code[:1], "") if code.isalpha() else ""
    return _joined("Tensile", tile, layout, known or code)


def _product(stem: str, tokens: Sequence[str], sizes: Sequence[str]) -> str:
    kind = next((one for one in tokens if _TYPE.fullmatch(one)), "")
    return _joined(stem, kind, _tile(sizes), _layout(tokens), *_kept(tokens))


def _kept(tokens: Sequence[str]) -> Iterable[str]:
    return dict.fromkeys(token for token in tokens if _KEPT.fullmatch(token))


def _joined(*words: str | None) -> str:
    return " ".join(filter(None, words))


def _layout(tokens: Sequence[str]) -> str:
    found = [one for one in tokens if _LAYOUT.fullmatch(one)]
    return found[-1].upper() if found else next((one for one in tokens if one == "nhwc"), "")


def _tile(tokens: Sequence[str]) -> str:
    """The first size, M by N, and the step of k: a third number, that of the stages, or none."""
    at = next((i for i, one in enumerate(tokens) if _TILE.fullmatch(one)), None)
    if at is None:
        return ""
    if tokens[at].count("x") == 2:
        return tokens[at]
    steps = [_STAGES.fullmatch(one) for one in tokens[at + 1 :]]
    step = next((one[1] for one in steps if one), "")
    return f"{tokens[at]}x{step}" if step else tokens[at]


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


def _inductor(parts: Parts) -> str | None:
    """``triton_poi_fused [gelu, mul]``; None for what Inductor did not name. Its number, which
    counts the kernels of a graph, and that of the graph go."""
    found = _FUSED.fullmatch(_own(parts))
    if found is None:
        return None
    unnumbered = (found[2] or "").rstrip("0123456789")
    operators = _split(unnumbered.removesuffix("_") if unnumbered != found[2] else unnumbered)
    if not operators:
        return found[1]
    return f"{found[1]} [{', '.join(first_of(operators, _MOST, '+{}'))}]"


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
        if one := "_".join(words[at : at + span]):
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
            scalar |= name in ("AUnaryFunctor", "BUnaryFunctor")
            wrapper = wrapper or ("" if name.startswith("gpu_") else name)
        elif _is_functor(path):
            words = _words(name)
            scalar |= name.startswith("CUDAFunctorOnSelf_")
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
    if fmha := _FMHA.match(_own(parts)):
        return _joined(*fmha.groups())
    name = next((one for one in all_names(parts) if _FLASH.fullmatch(one)), None)
    if name is None or not parts.path:
        return None
    traits = _TRAITS.search(parts.template)
    head = f" d{traits[1]}" if traits and name.startswith("flash_") else ""
    return name.removesuffix("_kernel") + head


def _cutlass(parts: Parts) -> str | None:
    said = next(filter(None, map(_cutlass_gemm, all_names(parts))), None)
    if said or not parts.path or not parts.path[0].startswith("cutlass"):
        return said
    classes = [path[-1] for path in parts.inner if path[-1][:1].isupper()]
    if not classes:
        return None
    sizes = (found.groups() for found in _TRIPLE.finditer(parts.template))
    tile = next(("x".join(one) for one in sizes if min(map(int, one)) >= _LEAST_STEP), "")
    return _joined("cutlass", classes[0], tile)


def _cudnn(parts: Parts) -> str | None:
    name = _own(parts)
    if not (name.startswith("cudnn_generated") and "_sdpa_" in name):
        return None
    matches = (_SDPA.search(name), re.search(r"_(\d+x\d+x\d+)", name))
    return _joined("cudnn sdpa", *(one for match in matches if match for one in match.groups()))


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
    what = functor_words(parts._replace(inner=of_aten))
    return f"cub {algorithm} [{what}]" if what else f"cub {algorithm}"


def _ck_tile(parts: Parts) -> str | None:
    if parts.path != ("ck_tile", "kentry") or not parts.inner:
        return None
    return f"ck_tile {parts.inner[0][-1]}"


def _own(parts: Parts) -> str:
    """The kernel's own name, without namespaces."""
    return parts.path[-1] if parts.path else parts.text


def all_names(parts: Parts) -> list[str]:
    """The kernel's own name, then those in its template arguments."""
    return [_own(parts), *(path[-1] for path in parts.inner)]


# FlashAttention's third lies in a template of CUTLASS.
FAMILIES: tuple[Callable[[Parts], str | None], ...] = (
    *(_nccl, _flash, _cutlass, _nvjet, _cublas, _small_cublas, _tensile),
    *(_inductor, _cudnn, _cub, _ck_tile),
)


def family_words(parts: Parts) -> str | None:
    """The short name of a kernel of a known family; None for others."""
    return next(filter(None, (family(parts) for family in FAMILIES)), None)
