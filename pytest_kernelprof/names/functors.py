"""What a template of ATen computes: the first functor that wraps no other, in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_kernelprof.names.parts import Parts, Path

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
