"""Names of kernels on the page: full ones stand there once, and each has the colour of its kind of
work."""

from __future__ import annotations

import functools
import re
from typing import Literal

from pytest_kernelprof.names.short import short_name

_LONGEST = 2_000


class FullNames:
    """Gathers the names of a page."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place_of(self, name: str) -> int:
        """Its number, from 1."""
        return self._places.setdefault(name, len(self._places) + 1)

    def all(self) -> list[tuple[int, str]]:
        """Each with its number, the middle of very long ones cut out."""
        return [(number, cut(name, _LONGEST)) for name, number in self._places.items()]


def cut(words: str, longest: int) -> str:
    """Both ends of what is longer, and how much is missing between."""
    if len(words) <= longest:
        return words
    half = longest // 2
    return f"{words[:half]} … {len(words) - 2 * half:,} characters … {words[-half:]}"


Family = Literal["gemm", "attention", "fused", "reduce", "copy", "elementwise", "other"]

WORDS: dict[str, str] = {
    "gemm": "GEMM, convolution",
    "attention": "attention",
    "fused": "fused",
    "reduce": "reduction",
    "copy": "copy, fill",
    "elementwise": "elementwise",
    "other": "other work",
}
"""What a legend says, in its order."""

_POINTWISE = (
    *("abs", "add", "addcdiv", "addcmul", "bernoulli", "clamp", "clamp_min", "cos", "div", "eq"),
    *("erf", "exp", "ge", "gelu", "gt", "le", "leaky_relu", "lerp", "log", "lt", "masked_fill"),
    *("mul", "native_dropout", "ne", "neg", "pow", "reciprocal", "relu", "rsqrt", "rsub"),
    *("sigmoid", "silu", "sin", "sqrt", "sub", "tanh", "threshold", "where"),
)
# In this order: a fused kernel that ends in a sum is told as fused.
_RULES: tuple[tuple[Family, re.Pattern[str]], ...] = (
    ("attention", re.compile(r"flash|fmha|sdpa|attention|attn")),
    ("fused", re.compile(r"^triton_|_fused_")),
    ("reduce", re.compile(r"splitk ?reduce")),
    ("gemm", re.compile(r"^(nvjet|cutlass|tensile|cijk)|gemm|gemv|conv\d?d|convolution|xmma")),
    ("gemm", re.compile(r"^aten::(mm|addmm|bmm|baddbmm|linear|addmv|mv|dot|_scaled_mm)(\.|$)")),
    ("copy", re.compile(r"\[(copy|fill|cat)|memcpy|memset|catarray|gather|index")),
    ("copy", re.compile(r"^aten::(copy_|clone|cat|stack|fill_|zero_|_to_copy|embedding)(\.|$)")),
    ("reduce", re.compile(r"reduce|norm(?!al)|softmax|\bcub\b|scan|sort|topk|welford")),
    ("reduce", re.compile(r"^aten::(sum|mean|amax|amin|max|min|argmax|var|std|cumsum)(\.|$)")),
    ("elementwise", re.compile(r"elementwise")),
    ("elementwise", re.compile(rf"^aten::({'|'.join(_POINTWISE)})(_|_backward)?(\.|$)")),
)


@functools.lru_cache(4096)
def family_of(name: str) -> Family:
    """By a kernel's full name."""
    said = short_name(name).lower()
    return next((family for family, rule in _RULES if rule.search(said)), "other")
