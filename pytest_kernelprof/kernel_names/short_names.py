"""The short name of a kernel: a function of its full name alone.

What it begins with is in the full name, case aside, so that a search for it finds the kernel.
``tell_apart`` adds what differs where two kernels of a report have one short name.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_kernelprof.kernel_names import kernel_families
from pytest_kernelprof.units import grouped, printable

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
    return _short_name(name[: kernel_families.LONGEST])


@functools.lru_cache(2048)
def _short_name(name: str) -> str:
    if _OPERATOR.fullmatch(name) or _SHORT.fullmatch(name):
        return _cut(name, _LONGEST)
    parts = kernel_families.take_apart(name)
    if told := kernel_families.family_words(parts):
        return _cut(told, _LONGEST)
    return _cut(_words(parts) or printable(name).strip(), _LONGEST_UNKNOWN) or "(no name)"


def _words(parts: kernel_families.Parts) -> str:
    if not parts.path:
        return parts.text
    stem = parts.path[-1]
    for end in _ENDS:
        stem = stem.removesuffix(end) or stem
    of_aten = parts.path[0] == "at" or len(parts.path) == 1
    what = kernel_families.functor_words(parts) if of_aten else ""
    library = parts.path[0] if parts.path[0] in _LIBRARIES and len(parts.path) > 1 else ""
    return " ".join(filter(None, [library, stem, f"[{what}]" if what else ""]))


def _cut(text: str, longest: int) -> str:
    """Both ends of what is longer; more of the beginning, which a search is for."""
    if len(text) <= longest:
        return text
    head = longest * 5 // 8
    return f"{text[:head]}...{text[head + 3 - longest :]}"


_PLAIN_TYPES = ("float", "double", "long", "int", "short", "char", "bool", "complex")
_NAMES_OF_TYPES = {
    "bf16": "BFloat16 __nv_bfloat16 __hip_bfloat16 bfloat16_t",
    "fp16": "Half __half half_t _Float16",
    "fp8_e4m3": "Float8_e4m3fn Float8_e4m3fnuz __nv_fp8_e4m3 float_e4m3_t",
    "fp8_e5m2": "Float8_e5m2 Float8_e5m2fnuz __nv_fp8_e5m2 float_e5m2_t",
    **{name: name for name in _PLAIN_TYPES},
}
_TYPES = {one: short for short, names in _NAMES_OF_TYPES.items() for one in names.split()}
_ANY = {("array", "char"), ("Array", "char")}
"""``std::array<char*, 2>``: how PyTorch passes pointers to data of any type."""
_MANGLED_TYPE = re.compile(r"DF16b|DF16_|8BFloat16|4Half")
_MANGLED_TYPES = {"DF16b": "bf16", "DF16_": "fp16", "8BFloat16": "bf16", "4Half": "fp16"}
_NUMBER = re.compile(r"(?<![\w#.])-?\d{1,18}(?=[ul]*\b)")
_MANGLED_NUMBER = re.compile(r"(?<=L[a-z])\d{1,18}(?=E)|E\d{1,18}E")
_DIGITS = 4
_KEPT = re.compile(rf"((?: (?:{'|'.join(_NAMES_OF_TYPES)}))?) (?!bf16$)[0-9a-f]{{{_DIGITS}}}$")


def _forms(name: str) -> tuple[str, ...]:
    """A name from a file without the type and digits that tell it from others of its short name,
    without the digits, and as it is."""
    found = _KEPT.search(name)
    return (name[: found.start()], name[: found.end(1)], name) if found else (name,)


def tell_apart(names: Iterable[str]) -> dict[str, str]:
    """Of each full name a short one that no other of them has: a function of the set.

    Where two have one short name, all of that name get the first difference that is a data type,
    else a number of the template, else a part of the name that the short one leaves out, else a
    number.
    """
    told = {name: short_name(name) for name in sorted(set(names))}
    often = Counter(form for short in told.values() for form in {*_forms(short)})
    told = {
        name: next(form for form in _forms(short) if often[form] == 1 or form == short)
        for name, short in told.items()
    }
    for evidence in (_types_of, _numbers_of, _tokens_of):
        for alike in _alike(told):
            found = {name: evidence(kernel_families.take_apart(name)) for name in alike}
            _add_difference(told, found)
    return _numbered(told)


def _numbered(told: Mapping[str, str]) -> dict[str, str]:
    """Of those that are alike still, all but the first get a number."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(2))
    for name, short in told.items():
        one = short
        while one in taken:
            one = f"{short} #{next(numbers[short])}"
        taken.add(one)
        found[name] = one
    return found


def kept_name(name: str) -> str:
    """The short name for files that are kept: a function of the full name alone.

    It has the first data type of the full name and, of templates, four hexadecimal digits of what
    all demanglers say alike.
    """
    parts, short = kernel_families.take_apart(name), short_name(name)
    kind = next(iter(_types_of(parts)), "")
    said = kind if kind and kind not in re.split(r"[\s\[\]]", short) else ""
    if not parts.template:
        return f"{short} {said}".rstrip()
    return " ".join(filter(None, [short, said, _digest(demangled_alike(name))[:_DIGITS]]))


_INLINE = re.compile(r"(?:THRUST|CUB)_\d\w*_NS::|(?<=::)__\d+::|\bvoid\s+(?=[A-Za-z_])")
_SUFFIX = re.compile(r"(?<![\w.])(-?\d+)[ul]+\b", re.IGNORECASE)
_TRUTH = {"true": "1", "false": "0"}
_TRUTHS = re.compile(r"\b(?:true|false)\b")


def demangled_alike(name: str) -> str:
    """A full name without its parameters, as one text however it was demangled: spaces, suffixes of
    numbers, return types, inline namespaces and the two names of ``std::array`` go."""
    parts = kernel_families.take_apart(name)
    if parts.mangled or not parts.path:
        whole = kernel_families.cleaned(name)
    else:
        whole = f"{'::'.join(parts.path)}<{parts.template}>"
    beyond = _digest(name) if len(name) > kernel_families.LONGEST else ""
    text = _SUFFIX.sub(r"\1", _INLINE.sub("", whole).replace("at::detail::Array", "std::array"))
    return re.sub(r"\s+", "", _TRUTHS.sub(lambda one: _TRUTH[one[0]], text)) + beyond


_NUMBERED = re.compile(r"(?:graph_\d+_)?((?:triton_[a-z]+|cpp)_fused\w*)_\d+")


def comparable_name(name: str) -> str:
    """What is equal of two full names of one kernel: as ``demangled_alike``, and of what Inductor
    fused without its numbers, which change with every kernel and every graph before it."""
    text = demangled_alike(name)
    numbered = _NUMBERED.fullmatch(text)
    return numbered[1] if numbered else text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _alike(told: Mapping[str, str]) -> list[list[str]]:
    return [names for names in grouped(told, told.__getitem__).values() if len(names) > 1]


def _add_difference(told: dict[str, str], evidence: Mapping[str, Sequence[str]]) -> None:
    """Add to each what stands at the first place at which not all are the same, unless it is said
    already."""
    for column in itertools.zip_longest(*evidence.values(), fillvalue=""):
        if len(set(column)) > 1:
            for name, said in zip(evidence, column, strict=True):
                if said not in told[name].split():
                    told[name] = f"{told[name]} {said}".rstrip()
            return


def _types_of(parts: kernel_families.Parts) -> list[str]:
    if parts.mangled:
        return [_MANGLED_TYPES[found] for found in _MANGLED_TYPE.findall(parts.template)]
    if nvjet := kernel_families.nvjet_type(parts.text):
        return [nvjet]
    names = [path[-1] for path in parts.inner]
    pairs = itertools.pairwise(("", *names))
    return [_TYPES[name] for before, name in pairs if name in _TYPES and (before, name) not in _ANY]


def _numbers_of(parts: kernel_families.Parts) -> list[str]:
    number = _MANGLED_NUMBER if parts.mangled else _NUMBER
    return [f"<{found.strip('E')}>" for found in number.findall(parts.template)]


def _tokens_of(parts: kernel_families.Parts) -> list[str]:
    """The parts of the kernel's own name, then the names in its template arguments."""
    own, *inner = kernel_families.all_names(parts)
    return [*own.split("_"), *inner]
