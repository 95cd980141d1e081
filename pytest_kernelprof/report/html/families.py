"""What kind of work a kernel is, for its colour: by its short name, or its operator's."""

from __future__ import annotations

import functools
import re
from typing import Literal

from pytest_kernelprof.names.short import short_name

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
