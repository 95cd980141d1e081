"""Takes a kernel's full name apart: its qualified name, and the names in its template arguments.

Demangled C++ is read by counting brackets, mangled C++ by its length prefixes: no demangler is
needed for the names alone. Everything here is linear in the name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_kernelprof.units import printable

LONGEST = 20_000
"""So many characters of a name are read: the longest that libraries have are a quarter of that."""

Path = tuple[str, ...]
"""A qualified name: ``("at", "native", "reduce_kernel")``. Anonymous namespaces are left out."""


@dataclass(frozen=True, slots=True)
class Parts:
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
_HIDDEN = "_GLOBAL__N_"


def _mangled(text: str) -> Parts:
    """The names of an Itanium-mangled one: those before its template arguments, then each run of
    names behind them."""
    start = re.match(r"_ZN?[rVK]*(?:St)?", text)
    path, at = _run(text, start.end() if start else 0)
    rest, inner = at, []
    while at < len(text):
        skipped = _NO_LENGTH.match(text, at)
        if skipped:
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
        if not name.startswith(_HIDDEN):
            found.append(name)
        at = end
    return tuple(found), at
