"""The short name of a kernel: a function of its full name alone.

What it begins with is in the full name, case aside, so that a search for it finds the kernel.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from pytest_kernelprof.names.families import family_words, functor_words
from pytest_kernelprof.names.parts import LONGEST, take_apart
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from pytest_kernelprof.names.parts import Parts

_LONGEST_UNKNOWN, _LONGEST = 64, 128
_ENDS = ("_kernel", "_grid_stride")
_LIBRARIES = ("cublasLt", "cudnn", "rocprim", "thrust")
_OPERATOR = re.compile(r"\w+::\w[\w.]*")
_SHORT = re.compile(r"\w+ (?:\[[^\[\]]*\]|\([^()]*\))(?: [\w.]+)*")
"""A name that is short already, as kernel snapshots have them."""


def short_name(name: str) -> str:
    """What people call a kernel: ``vectorized_elementwise [gelu]``, ``nvjet 256x128x64 TNT``.

    Names of operators, those that no rule knows and those that are short already stay as they are,
    the middle of long ones cut out. Takes time in proportion to the name; of a very long one the
    beginning is read.
    """
    return _short_name(name[:LONGEST])


@functools.lru_cache(2048)
def _short_name(name: str) -> str:
    if _OPERATOR.fullmatch(name) or _SHORT.fullmatch(name):
        return _cut(name, _LONGEST)
    parts = take_apart(name)
    told = family_words(parts)
    if told:
        return _cut(told, _LONGEST)
    return _cut(_words(parts) or printable(name).strip(), _LONGEST_UNKNOWN) or "(no name)"


def _words(parts: Parts) -> str:
    if not parts.path:
        return parts.text
    stem = parts.path[-1]
    for end in _ENDS:
        stem = stem.removesuffix(end) or stem
    of_aten = parts.path[0] == "at" or len(parts.path) == 1
    what = functor_words(parts) if of_aten else ""
    library = parts.path[0] if parts.path[0] in _LIBRARIES and len(parts.path) > 1 else ""
    return " ".join(filter(None, [library, stem, f"[{what}]" if what else ""]))


def _cut(text: str, longest: int) -> str:
    """Both ends of what is longer; more of the beginning, which a search is for."""
    if len(text) <= longest:
        return text
    head = longest * 5 // 8
    return f"{text[:head]}...{text[head + 3 - longest :]}"
